"""The fork servers of one supervisor: started on demand, fork keepers, replaced when stale."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from determined.platform.runs.folder import RunFolder
from determined.platform.runs.keeper._hook import HOOK
from determined.platform.runs.warm import messages
from determined.platform.runs.warm.interpreter import locate
from determined.platform.runs.warm.program import (
    WITH_TORCH,
    WITHOUT_TORCH,
    Cold,
    Program,
    find_program,
    import_environment,
    obstacle,
    to_message,
)

logger = logging.getLogger("determined.supervisor")

MAIN = Path(__file__).with_name("__main__.py")
_IDLE_VARIABLE = "DET_WARM_IDLE_SECONDS"
_IDLE_SECONDS = 600.0
_LOAD_SECONDS = 120.0
_ANSWER_SECONDS = 20.0
_MOST_SERVERS = 3
_MOST_STARTS = 5
COMMAND_ROOM = "-" * 4096
_ENVIRONMENT_ROOM = "-" * 120_000
_MOST_FILES_READ = 200


class Key(NamedTuple):
    """What all programs of one fork server have in common."""

    interpreter: str
    variables: frozenset[tuple[str, str]]
    with_torch: bool


class ForkServerLostError(Exception):
    """A fork server is gone, before it answered."""


class Offer(NamedTuple):
    """A program, and the fork server that can start it."""

    server: ForkServer
    program: Program


class ForkServers:
    """One fork server for each interpreter, import-time environment, and with torch or without it.

    There are at most a few. One without torch loads as fast as the program itself would, and forks
    much faster.
    """

    def __init__(self) -> None:
        self._servers: dict[Key, ForkServer] = {}
        self._unfit: dict[Key, str] = {}
        self._starts: Counter[Key] = Counter()  # since one was loaded

    async def prepare(self, run: RunFolder) -> Offer | Cold:
        """Find or start a fork server for a run, and wait until it is loaded."""
        environment = run.environment
        program = plan(run, environment)
        if isinstance(program, Cold):
            return program
        variables = frozenset(import_environment(environment).items())
        with_torch = await asyncio.to_thread(_mentions_torch, program, run.workdir)
        key = Key(program.interpreter, variables, with_torch)
        if key in self._unfit:
            return Cold(self._unfit[key])
        server = self._servers.get(key)
        if server is None or server.is_gone:
            self._drop_lost()
            if sum(other.with_torch == with_torch for other in self._servers) >= _MOST_SERVERS:
                return Cold("other environments have all fork servers", lasts=False)
            server = self._servers[key] = ForkServer(key)
            self._starts[key] += 1
        try:
            unfit = await asyncio.to_thread(server.load)
        except ForkServerLostError:
            if self._starts[key] < _MOST_STARTS:
                return Cold("the fork server is gone", lasts=False)
            unfit = "the fork server could not be loaded"
        if unfit is not None:
            self._unfit[key] = unfit
            server.end()
            logger.warning("trials start cold: %s", unfit)
            return Cold(unfit)
        del self._starts[key]
        return Offer(server, program)

    def end(self) -> None:
        """End all of them; what they forked continues."""
        for server in self._servers.values():
            server.end()

    def _drop_lost(self) -> None:
        for key in [key for key, server in self._servers.items() if server.is_gone]:
            self._servers.pop(key).end()


class ForkServer:
    """One fork server process, from the client's side."""

    def __init__(self, key: Key) -> None:
        self._connection, theirs = socket.socketpair()
        self._asking = threading.Lock()
        self._is_loaded = False
        idle_seconds = os.environ.get(_IDLE_VARIABLE, str(_IDLE_SECONDS))
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(key.interpreter, str(MAIN), str(theirs.fileno()), idle_seconds),
                    *(WITH_TORCH if key.with_torch else WITHOUT_TORCH, COMMAND_ROOM),
                ],
                env=server_environment(dict(key.variables)),
                cwd="/",
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        return self._process.poll() is not None

    def load(self) -> str | None:
        """Wait until it is loaded; return why it cannot serve, None if it can."""
        with self._asking:
            if self._is_loaded:
                return None
            unfit: str | None = self._receive(_LOAD_SECONDS)["unfit"]
            self._is_loaded = unfit is None
            return unfit

    def keep(self, program: Program, run: RunFolder, alive: int) -> Cold | None:
        """Have a keeper forked, which gets the run's lock; return why it was not, None if it was.

        ForkServerLostError if that cannot be known: then the server has been ended. Closes `alive`.
        """
        with self._asking:
            request = {
                "program": to_message(program),
                "folder": str(run.path.absolute()),
                "cwd": str(run.workdir.absolute()),
            }
            try:
                messages.send(self._connection, request, [alive])
            except OSError as error:
                self.end()
                raise ForkServerLostError from error
            finally:
                os.close(alive)
            answer = self._receive(_ANSWER_SECONDS)
            if "stale" in answer:
                logger.info("a new fork server is needed: %s changed", answer["stale"])
                self.end()
                return Cold(f"{answer['stale']} changed", lasts=False)
            return Cold(answer["cold"]) if "cold" in answer else None

    def end(self) -> None:
        """Kill it; the keepers that it forked continue."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        self._connection.close()

    def _receive(self, seconds: float) -> dict[str, Any]:
        self._connection.settimeout(seconds)
        try:
            return messages.receive(self._connection)[0]
        except (OSError, EOFError, ValueError) as error:
            self.end()
            raise ForkServerLostError from error


def plan(run: RunFolder, environment: Mapping[str, str]) -> Program | Cold:
    """Return the program of a run, with the path of its interpreter, if it may start warm."""
    spec = run.spec
    if sys.platform != "linux":
        return Cold("only Linux has warm starts", lasts=False)
    program = find_program(spec.argv)
    if isinstance(program, Cold):
        return program if spec.warm_start else Cold(program.reason, lasts=False)
    located = locate(program, environment)
    cold = obstacle(
        program,
        environment,
        is_wanted=spec.warm_start,
        is_own_interpreter=located is not None,
        has_startup_hook=(run.workdir / HOOK).is_file(),
    )
    return cold or located or program


def server_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a server starts with; they reserve room for those of programs."""
    # With the NVML check, torch can find out whether there are GPUs without opening one.
    own = {"OPENBLAS_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    return {**variables, **own, "DET_ROOM": _ENVIRONMENT_ROOM}


def _mentions_torch(program: Program, folder: Path) -> bool:
    """Whether a program may import torch: loading it takes seconds, and makes every fork slower."""
    if program.is_module and program.target.startswith(("torch.", "determined.")):
        return True
    script = [] if program.is_module else [folder / program.target]  # most likely, so first
    scripts = itertools.islice(folder.rglob("*.py"), _MOST_FILES_READ)
    everything = itertools.chain(script, scripts)
    return any(b"torch" in script.read_bytes() for script in everything if script.is_file())
