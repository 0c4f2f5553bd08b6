"""The folder that this machine and the nodes of a run share, while the run lives.

order.json     what the nodes need to know
parts/N/       the folder of the run on its node number N
taken          the id of the job that runs it; created exclusively, so there is one at most
request        TERM or QUIT, once the run is to end; overwritten in place, which other machines
               see as soon as they open it again, also on NFS
rendezvous.json  addresses and ports, by the job
problem        why the job could not start the run
job.out        output of the job's script
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from determined._os.json_file import write_json
from determined.platform.runs.folder import RunFolder

SUPERVISOR = "supervisor"
_ORDER = "order.json"


class SharedFolder:
    """Paths of the folder, and its files as values."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.output = path / "job.out"
        self._taken = path / "taken"
        self._request = path / "request"
        self._problem = path / "problem"
        self._rendezvous = path / "rendezvous.json"

    def create(self, order: Mapping[str, Any]) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(mode=0o700, parents=True)
        (self.path / "parts").mkdir(mode=0o700)
        self._request.touch(mode=0o600)
        write_json(self.path / _ORDER, dict(order))

    @property
    def order(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.path / _ORDER).read_bytes())
        return content

    def part(self, index: int) -> RunFolder:
        return RunFolder(self.path / "parts" / str(index))

    def parts(self) -> Sequence[RunFolder]:
        try:
            names = sorted(int(entry.name) for entry in os.scandir(self.path / "parts"))
        except FileNotFoundError:
            return []
        return [self.part(number) for number in names]

    def take(self) -> bool:
        """Keep every job from starting this run; False if one has, or may have."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(self._taken, flags, 0o600)
        except FileExistsError:
            return False
        except FileNotFoundError:
            return True  # there is no folder, and no job without one
        os.write(descriptor, SUPERVISOR.encode())
        os.close(descriptor)
        return True

    @property
    def taken_by(self) -> str | None:
        """The id of the job that has taken the run, or SUPERVISOR; "" for a moment."""
        try:
            return self._taken.read_text()
        except FileNotFoundError:
            return None

    def ask(self, word: str) -> None:
        """Have the run end: TERM, or QUIT at once."""
        try:
            descriptor = os.open(self._request, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        os.write(descriptor, word.encode())
        os.close(descriptor)

    @property
    def request(self) -> str:
        try:
            return self._request.read_text()
        except OSError:  # a shared file system may be away for a while
            return ""

    @property
    def problem(self) -> str:
        try:
            return self._problem.read_text().strip()
        except FileNotFoundError:
            return ""

    @property
    def rendezvous(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._rendezvous.read_bytes())
        return content

    def save_rendezvous(self, addresses: Sequence[str], ports: Mapping[str, str]) -> None:
        write_json(self._rendezvous, {"addresses": list(addresses), "ports": dict(ports)})

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
