"""On a node: starts keepers there and returns what their runs write.

One per node and home, as an actor that Ray restarts if it dies. Keepers do not depend on it: it
disowns them, so they survive the end of this process, and it finds them by their folders. They
end with the node's raylet: from then on the node counts as dead, and its runs may be elsewhere. So
they may be for a node that cannot reach the head: keepers end, too, once the lease of their node
was not renewed for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from determined._os import processes
from determined._version import __version__
from determined.errors import DeterminedError
from determined.platform.homes.code_archive import extract_archive
from determined.platform.homes.snapshot import Snapshot, working_copy
from determined.platform.machines.slots import count_cores, free_ports, port_variables
from determined.platform.runs.environment import list_packages
from determined.platform.runs.folder import LOST, RunExit, RunFolder
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.runs.launchers.protocol import RunState
from determined.platform.runs.launchers.ray.order import Order, interpreter_on, settled
from determined.platform.runs.launchers.remote import storage_probe
from determined.platform.runs.launchers.remote.mirror import News, read_news
from determined.platform.runs.launchers.remote.storage_probe import FOLDERS, problem_with_folder
from determined.platform.runs.placement import expected_versions

FOLDER_VARIABLE = "DET_NODE_DIR"
LEASE_VARIABLE = "DET_NODE_LEASE_SECONDS"
_LEASE_SECONDS = 120.0
_POLL_SECONDS = 0.05
_PROBE_SECONDS = 120.0
_KEPT_SECONDS = 7 * 86400.0
_LEAST_FREE_BYTES = 1 << 20
_RENEWAL_SECONDS = 10.0


class NodeFacts(NamedTuple):
    """What an agent reports about its node."""

    version: str
    host: str
    cores: int
    auth_mode: str
    full: str = ""
    """The folder of runs, if its disk has no room left."""


class Report(NamedTuple):
    """News of a run's part: what is new in its files, and how it ended once that is known."""

    news: News
    state: RunState
    end: RunExit | None = None


class Agent:
    """The local launcher of a node, called remotely."""

    def __init__(self, home: str, node: str) -> None:
        self._root = _make_root(home, node)
        self._launcher = LocalLauncher(disowns=True)
        self._raylet = processes.identify(int(os.environ.get("RAY_RAYLET_PID", os.getppid())))
        self._lease = self._root / "lease"
        self._lease_seconds = float(os.environ.get(LEASE_VARIABLE) or _LEASE_SECONDS)
        renewing = threading.Thread(target=self._renew_lease, name="lease", daemon=True)
        renewing.start()
        self._forget_old()

    async def describe(self) -> NodeFacts:
        mode = os.environ.get("RAY_AUTH_MODE", "disabled")
        is_full = shutil.disk_usage(self._root).free < _LEAST_FREE_BYTES
        full = str(self._root) if is_full else ""
        return NodeFacts(__version__, socket.gethostname(), count_cores(), mode, full)

    async def keys(self) -> list[str]:
        """The runs that have a folder here."""
        return sorted(path.name for path in (self._root / "runs").iterdir())

    # Before a start

    async def versions(self, interpreter: str) -> dict[str, str]:
        """The versions of relevant packages, as the experiment's interpreter finds them here."""
        own = interpreter_on(interpreter, sys.executable)
        return expected_versions(await asyncio.to_thread(list_packages, own))

    async def check_storage(
        self, section: dict[str, Any], marker: str, environment: dict[str, str], interpreter: str
    ) -> str:
        """What keeps checkpoints from being saved from this node; "" if nothing."""
        if section.get("type") in FOLDERS:
            return await asyncio.to_thread(problem_with_folder, section, marker)
        module = storage_probe.__name__
        probe = await asyncio.to_thread(
            subprocess.run,
            [interpreter_on(interpreter, sys.executable), "-m", module],
            input=json.dumps(section).encode(),
            env=environment,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
        output = (probe.stdout or probe.stderr).decode(errors="replace").strip()
        return output[-1000:] if probe.returncode else ""

    async def ports(self) -> dict[str, str]:
        return port_variables(free_ports())

    async def has_code(self, digest: str) -> bool:
        return (self._root / "code" / digest).exists()

    async def add_code(self, digest: str, archive: bytes) -> None:
        target = self._root / "code" / digest
        if not target.exists():
            await asyncio.to_thread(self._extract, archive, target)

    @staticmethod
    def _extract(archive: bytes, target: Path) -> None:
        stage = Path(tempfile.mkdtemp(dir=target.parent))
        try:
            extract_archive(io.BytesIO(archive), stage / "tree")
            with contextlib.suppress(OSError):  # another call was faster
                stage.rename(target)
        finally:
            shutil.rmtree(stage, ignore_errors=True)

    # The launcher's methods

    async def start(self, order: Order) -> None:
        run = self._run(order.key)
        await asyncio.to_thread(self._prepare, run, settled(order, run, sys.executable))
        await self._launcher.start(run)

    def _prepare(self, run: RunFolder, order: Order) -> None:
        if run.was_started:
            return  # the launcher refuses it
        shutil.rmtree(run.path, ignore_errors=True)
        run.path.mkdir(mode=0o700)
        if order.code is not None:
            path = self._root / "code" / order.code
            working_copy(Snapshot(path, order.code, 0, 0), run.workdir)
        spec = order.spec._replace(
            ends_with=self._raylet, lease=str(self._lease), lease_seconds=self._lease_seconds
        )
        run.create(spec, order.environment, order.info)
        if order.control is not None:
            run.control.write_bytes(order.control)

    async def state(self, key: str) -> RunState:
        run = self._run(key)
        if not run.was_started:
            return RunState.LOST  # the call that should start it was lost
        return (await self._launcher.states([run]))[0]

    async def read(self, key: str, have: Mapping[str, int], wait_seconds: float) -> Report:
        """Return what is new in a run, as soon as something is."""
        run = self._run(key)
        deadline = time.monotonic() + wait_seconds
        while True:
            state = await self.state(key)  # before its files: none of them grows after its end
            news = await asyncio.to_thread(read_news, run.path, have)
            is_over = news.is_all and not state.is_live
            if news.pieces or news.replaced or is_over or time.monotonic() >= deadline:
                end = run.exit if is_over else None
                return Report(news._replace(is_all=is_over), state, end)
            await asyncio.sleep(_POLL_SECONDS)

    async def send_control(self, key: str, control: bytes) -> None:
        run = self._run(key)
        if run.path.is_dir():
            draft = run.path / f".control.{os.getpid()}"
            draft.write_bytes(control)
            draft.replace(run.control)

    async def terminate(self, key: str) -> None:
        await self._launcher.terminate(self._run(key))

    async def kill(self, key: str) -> None:
        await self._launcher.kill(self._run(key))

    async def declare_dead(self, key: str, why: str) -> RunExit:
        """Close a run; a start call that arrives later finds it started."""
        run = self._run(key)
        try:
            run.path.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                run.mark_started()
            return await self._launcher.declare_dead(run, why)
        except OSError as error:  # no space for the record: the one in the home is enough
            message = f"{why} {self._root}: {error.strerror}."
            return RunExit(128 + signal.SIGKILL, LOST, message, ended_at=time.time())

    async def forget(self, key: str) -> None:
        """Remove what is left of a run that was collected."""
        run = self._run(key)
        if not run.is_locked:
            await asyncio.to_thread(shutil.rmtree, run.path, ignore_errors=True)

    def _renew_lease(self) -> None:
        """Renew the lease for as long as the head answers, until this process ends.

        A question that is not answered blocks, or fails: either way nothing is renewed.
        """
        draft = self._lease.with_name(f".lease.{os.getpid()}")
        while True:
            asked = time.monotonic()
            if head_answers():
                with contextlib.suppress(OSError):
                    draft.write_text(str(asked))
                    draft.replace(self._lease)
            time.sleep(min(_RENEWAL_SECONDS, self._lease_seconds / 4))

    def _run(self, key: str) -> RunFolder:
        if "/" in key or key.startswith("."):
            raise DeterminedError(f"{key!r} is not the name of a run.")
        return RunFolder(self._root / "runs" / key)

    def _forget_old(self) -> None:
        """Remove runs that were never collected."""
        before = time.time() - _KEPT_SECONDS
        for path in (self._root / "runs").iterdir():
            if path.stat().st_mtime < before and not RunFolder(path).is_locked:
                shutil.rmtree(path, ignore_errors=True)


def head_answers() -> bool:
    """Whether the head of the cluster can be reached, by asking it for an actor that is nowhere."""
    import ray

    try:
        ray.get_actor("nobody", namespace="determined-lease")
    except ValueError:  # it has answered
        return True
    except Exception:  # a time-out, mostly
        return False
    return True


def _make_root(home: str, node: str) -> Path:
    """A folder on this node's disk, for its owner only."""
    default = Path(tempfile.gettempdir()) / f"determined-{os.getuid()}"
    base = Path(os.environ.get(FOLDER_VARIABLE) or default)
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.stat().st_uid != os.getuid() or base.stat().st_mode & 0o077:
        raise DeterminedError(
            f"{base} must be a folder that only user {os.getuid()} can read: remove it, or set "
            f"{FOLDER_VARIABLE} to another one on this node."
        )
    root = base / home / node[:16]
    for name in ("runs", "code"):
        (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    return root
