"""A TensorBoard over stored trials, in a separate process that ends with ours."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from determined._os.parent_death import PR_SET_PDEATHSIG, libc
from determined.errors import DeterminedError, RefusedError
from determined.platform.queries.comparison import compare
from determined.platform.service import Service
from determined.platform.tensorboards import process
from determined.platform.tensorboards.event_files import gather
from determined.store import Trial, TrialFilter

MOST_TRIALS = 100
USUAL_PORT = 6006
_START_SECONDS = 120.0
_END_SECONDS = 10.0
# The kernel signals a child when the thread that forked it ends: so use one that stays.
_starter = ThreadPoolExecutor(1, thread_name_prefix="starter")


def check_installed() -> None:
    """Raise RefusedError where there is no TensorBoard."""
    if importlib.util.find_spec("tensorboard") is None:
        raise RefusedError("TensorBoard is not installed: `pip install tensorboard`.")


def trials_of(
    service: Service, experiment_ids: Iterable[int], trial_ids: Iterable[int]
) -> list[Trial]:
    """The trials that are named, then those of the experiments, the best first."""
    found = {number: service.trial(number) for number in trial_ids}
    for number in experiment_ids:
        record = service.experiment(number)
        own = service.reader.trials(TrialFilter(experiment_id=number)).rows
        for row in compare(service.reader, [record], own).rows:
            found.setdefault(row.trial.id, row.trial)
    if not found:
        raise RefusedError("These experiments have no trials yet.")
    return list(found.values())


class TensorBoardServer:
    """A TensorBoard that is ready once created; `close` ends it and removes what it showed."""

    def __init__(
        self,
        service: Service,
        trials: Sequence[Trial],
        host: str = "localhost",
        port: int | None = None,
    ) -> None:
        check_installed()
        port = _free_port(host, port)
        token, once, name = (
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            secrets.token_hex(4),
        )
        shown = f"tb-{name}.localhost" if host == "localhost" else host
        self.url = f"http://{shown}:{port}/?token={token}"
        """For its user: whoever has it sees everything."""
        self.url_once = f"http://{shown}:{port}/?token={once}"
        """The same for the command line of a browser, which others can see; valid once."""
        self._settings = {
            process.NAME_VARIABLE: f"tb-{name}",
            process.HOST_VARIABLE: host,
            process.TOKEN_VARIABLE: token,
            process.ONCE_VARIABLE: once,
        }
        self._folder = Path(tempfile.mkdtemp(prefix="det-tensorboard-"))
        self._process: subprocess.Popen[bytes] | None = None
        try:
            gather(service.home, service.reader, trials, self._folder)
            self._process = self._start(host, port)
            self._wait_until_it_answers(host, port)
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self) -> int:
        """Wait until it ends by itself; its exit status."""
        assert self._process is not None
        return self._process.wait()

    def close(self) -> None:
        """End it, and remove its files."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, host: str, port: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", process.__name__, "--logdir", str(self._folder)]
        words += ["--host", host, "--port", str(port), "--reload_interval", "5"]
        return _starter.submit(_spawn, words, self._settings, self._log).result()

    @property
    def _log(self) -> Path:
        return self._folder / "tensorboard.log"

    def _wait_until_it_answers(self, host: str, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
                return
            if not self.is_alive or time.monotonic() > deadline:
                said = self._log.read_text(errors="replace").strip().splitlines()
                raise DeterminedError(f"TensorBoard did not start: {said[-1] if said else ''}")
            time.sleep(0.1)


def _spawn(words: list[str], settings: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process that the kernel ends with ours."""
    library = libc()  # looked up before the fork: little is safe between fork and exec

    def end_with_us() -> None:
        if library is not None:
            library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    with log.open("wb") as output:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | settings,
            preexec_fn=end_with_us,
        )


def _free_port(host: str, wanted: int | None) -> int:
    """The port to use; one that is taken is an error only if it was asked for."""
    for port in [USUAL_PORT, 0] if wanted is None else [wanted]:
        with contextlib.closing(socket.socket()) as probe:
            try:
                probe.bind((host, port))
                return int(probe.getsockname()[1])
            except socket.gaierror as error:
                raise RefusedError(f"--host {host}: {error.strerror}.") from None
            except UnicodeError:
                raise RefusedError(f"--host {host!r} is not the name of a machine.") from None
            except OSError as error:
                if wanted is not None:
                    raise RefusedError(f"--port {port}: {error.strerror}.") from None
    raise RefusedError(f"There is no free port at {host}.")
