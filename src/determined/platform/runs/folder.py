"""The folder of one run: every file name in it, who writes it, and how.

    spec.json         what to run                        written before the start, never changed
    environment.json  the variables of the entrypoint    likewise; may hold secrets
    info/             what `det.get_cluster_info()` reads
    workdir/          private copy of the code
    started           there was an attempt to start it: there will be no second one
    alive             locked by the keeper for as long as it lives
    keeper.json       the processes of the keeper and the entrypoint
    control           what the supervisor tells the trial; replaced as a whole
    journal-*         what training processes report
    log, log.times    output of the entrypoint, and when its lines came
    log.matches       log policies that matched
    exit.json         how it ended; appears at once and is never changed
    room              reserved bytes, freed for exit.json when the disk is full

The folder is 0700 and its files are 0600. Standard library only: the keeper reads this too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from determined._os.json_file import write_json
from determined._os.processes import Identity
from determined._os.regular_file import NotAFileError, open_regular
from determined._os.weak_file_systems import chmod
from determined.errors import DeterminedError

CONFIGURATION_MARK = "Experiment configuration: "
"""Lines with this text, of older runs and of scripts, show the configuration itself, patterns and
all: no log policy applies."""

RUN_VARIABLE = "DET_RUN_DIR"
"""Names the run folder to all processes of a run, by which they are found: no other has it, whereas
two homes may well use the same allocation id."""

_VERSION = 1
_MOST_BYTES = 64 << 20
_ROOM_BYTES = 1 << 16
_FEW_LINES = 20
_SHORT_LINE = 500


class LogPolicy(NamedTuple):
    """A pattern to look for in the log."""

    name: str
    pattern: str
    action: str | None = None


class LogMatch(NamedTuple):
    """The first line that matched a policy."""

    name: str
    action: str | None
    line: int
    text: str


class RunSpec(NamedTuple):
    """What the keeper runs.

    `stop_grace_seconds` is the time from SIGTERM to SIGKILL, `leftover_grace_seconds` the same for
    processes that outlive the entrypoint. `prologue` opens the log; policies do not apply to it.
    The run is stopped when the process `ends_with` ends, or when the file `lease` was not written
    for `lease_seconds`: it holds a time of the monotonic clock.
    """

    argv: tuple[str, ...]
    allocation_id: str
    policies: tuple[LogPolicy, ...] = ()
    prologue: str = ""
    stop_grace_seconds: float = 60.0
    leftover_grace_seconds: float = 10.0
    warm_start: bool = False
    ends_with: Identity | None = None
    lease: str | None = None
    lease_seconds: float = 0.0


class Traceback(NamedTuple):
    """The traceback that a failed run is blamed on; the rank is None where lines carry none."""

    rank: int | None
    text: str


class RunExit(NamedTuple):
    """How a run ended.

    `exit_code` is 128 + n after signal n. `reason` is one of the constants below. `stopped_by`
    names the strongest signal that the platform had sent by then.
    """

    exit_code: int
    reason: str
    message: str | None = None
    signal: str | None = None
    stopped_by: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    traceback: Traceback | None = None
    last_lines: tuple[str, ...] = ()
    matches: tuple[LogMatch, ...] = ()
    leftover_processes: int = 0

    @property
    def is_infrastructure_fault(self) -> bool:
        """Whether the run ended through no fault of the trial."""
        return self.reason == LOST


EXITED = "exited"
SIGNALLED = "signalled"
NOT_STARTED = "not started"
LOST = "lost"
CANCELED = "canceled"  # by the user, with a command of the cluster


LOG = "log"


class RunFolder:
    """Paths of a run folder, and its files as values."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.info = self.path / "info"
        self.workdir = self.path / "workdir"
        self.control = self.path / "control"
        self.log = self.path / LOG
        self.log_times = self.path / "log.times"
        self.alive = self.path / "alive"
        self.keeper_errors = self.path / "keeper.err"
        self._spec = self.path / "spec.json"
        self._environment = self.path / "environment.json"
        self._started = self.path / "started"
        self._keeper = self.path / "keeper.json"
        self._matches = self.path / "log.matches"
        self._exit = self.path / "exit.json"
        self._room = self.path / "room"

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def create(
        self,
        spec: RunSpec,
        environment: dict[str, str],
        info: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        """Write what a start needs; may be repeated after a crash, but not after a start.

        `info` holds the content of the files in `info/`, by name without `.json`.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        chmod(self.path, 0o700, self.path)
        if self.was_started:
            raise FileExistsError(f"{self.path} belongs to a run that was already started.")
        for folder in (self.info, self.workdir):
            folder.mkdir(mode=0o700, exist_ok=True)
        for name, content in (info or {}).items():
            write_json(self.info / f"{name}.json", content)
        write_json(self._environment, environment)
        policies = [policy._asdict() for policy in spec.policies]
        write_json(self._spec, {"version": _VERSION, **spec._asdict(), "policies": policies})

    @property
    def spec(self) -> RunSpec:
        content = self._read(self._spec)
        content["policies"] = tuple(LogPolicy(**policy) for policy in content["policies"])
        content["argv"] = tuple(content["argv"])
        if content.get("ends_with") is not None:
            content["ends_with"] = Identity(*content["ends_with"])
        return RunSpec(**content)

    @property
    def environment(self) -> dict[str, str]:
        content: dict[str, str] = json.loads(self._environment.read_bytes())
        return content

    def read_info(self) -> dict[str, Any]:
        """The content of the files in `info/`, by name without `.json`."""
        return {path.stem: json.loads(path.read_bytes()) for path in self.info.glob("*.json")}

    @property
    def was_started(self) -> bool:
        return self._started.exists()

    def mark_started(self) -> None:
        """Record that an attempt to start begins; FileExistsError if there was one before."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(self._started, flags, 0o600))

    def try_lock(self) -> int | None:
        """Return a descriptor that holds the run's lock, or None if another process holds it.

        The lock is released with the last copy of the descriptor, so a child can inherit it.
        """
        descriptor = os.open(self.alive, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @property
    def is_locked(self) -> bool:
        """Whether a keeper is alive, or a process is about to start one."""
        try:
            descriptor = os.open(self.alive, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two processes that only check do not mistake each other for a keeper.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @property
    def keeper(self) -> Identity | None:
        return self._identity("keeper")

    @property
    def entrypoint(self) -> Identity | None:
        """The process that the keeper started."""
        return self._identity("entrypoint")

    def save_processes(self, keeper: Identity, entrypoint: Identity | None) -> None:
        write_json(self._keeper, {"version": _VERSION, "keeper": keeper, "entrypoint": entrypoint})

    @property
    def matches(self) -> tuple[LogMatch, ...]:
        with _suppressing_foreign_words():
            return tuple(LogMatch(**match) for match in self._read(self._matches)["matches"])
        return ()

    def save_matches(self, matches: tuple[LogMatch, ...]) -> None:
        content = [match._asdict() for match in matches]
        write_json(self._matches, {"version": _VERSION, "matches": content})

    @property
    def exit(self) -> RunExit | None:
        """How the run ended, None while it has not."""
        with _suppressing_foreign_words():
            content = self._read(self._exit)
            if content["traceback"] is not None:
                content["traceback"] = Traceback(**content["traceback"])
            content["matches"] = tuple(LogMatch(**match) for match in content["matches"])
            content["last_lines"] = tuple(content["last_lines"])
            return RunExit(**content)
        return None

    def set_room_aside(self) -> None:
        """Reserve disk space for the end; on a full disk, there is none."""
        with contextlib.suppress(OSError):
            self._room.touch(mode=0o600)
            self._room.write_bytes(bytes(_ROOM_BYTES))

    def save_exit(self, end: RunExit) -> RunExit:
        """Record how it ended, on a full disk in short; returns what was recorded.

        The caller holds the lock, so nobody else does this.
        """
        try:
            self._write_exit(end)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            end = _in_short(end, f"There is no room left on the disk of {self.path}.")
            self._room.unlink(missing_ok=True)
            self._write_exit(end)
        self._room.unlink(missing_ok=True)
        return end

    def _write_exit(self, end: RunExit) -> None:
        content = {"version": _VERSION, **end._asdict()}
        content["traceback"] = end.traceback and end.traceback._asdict()
        content["matches"] = [match._asdict() for match in end.matches]
        self.path.mkdir(mode=0o700, exist_ok=True)  # the trial may have removed it
        if self._exit.is_dir():
            self._exit.rename(self._exit.with_name(f".exit.{uuid.uuid4()}"))
        write_json(self._exit, content, durable=True)

    def _identity(self, key: str) -> Identity | None:
        with _suppressing_foreign_words():
            values = self._read(self._keeper)[key]
            return None if values is None else Identity(*values)
        return None

    def _read(self, path: Path) -> dict[str, Any]:
        with open_regular(path) as file:
            content: dict[str, Any] = json.loads(file.read(_MOST_BYTES))
        version = content.pop("version")
        if version != _VERSION:
            raise DeterminedError(
                f"{path} has version {version}, this library reads {_VERSION}: it was written by "
                "another version of determined-pytorch. Use that version for this run."
            )
        return content


def _in_short(end: RunExit, why: str) -> RunExit:
    """An end that fits where there is little room."""
    lines = (line[:_SHORT_LINE] for line in end.last_lines[-_FEW_LINES:])
    return end._replace(last_lines=(*lines, why), traceback=None)


def _suppressing_foreign_words() -> contextlib.suppress:
    """Ignore a file that is missing or that no keeper wrote: trials can write here, too."""
    nothing = (FileNotFoundError, IsADirectoryError, NotAFileError)
    return contextlib.suppress(*nothing, ValueError, KeyError, TypeError, AttributeError)
