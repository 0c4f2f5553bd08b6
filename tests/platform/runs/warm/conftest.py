"""Runs on a real launcher, without a supervisor: warm and cold, in the same process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from determined.platform.runs.folder import RunExit, RunFolder, RunSpec
from determined.platform.runs.launchers.local import LocalLauncher


class Bench:
    """Starts programs as runs, warm or cold, and waits for their ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launcher = LocalLauncher()
        self.runs: list[RunFolder] = []

    def lay_out(
        self,
        *command: str,
        files: Mapping[str, str],
        warm: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> RunFolder:
        """Make the folder of a run that is `python COMMAND`, in a folder with these files."""
        run = RunFolder(self.folder / f"run-{len(self.runs):03}")
        self.runs.append(run)
        argv = command if command[0] in ("sh", "python3") else (sys.executable, *command)
        environment = {
            **{name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2"),
            "SECRET": "a=b\nc",
            **(variables or {}),
        }
        spec = RunSpec(argv, "1.1", warm_start=warm, stop_grace_seconds=20)
        run.create(spec, environment)
        for name, text in {"torch_is_mentioned.py": "torch", **files}.items():
            path = run.workdir / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text)
        return run

    def run(self, *runs: RunFolder) -> list[RunExit]:
        async def all_of_them() -> list[RunExit]:
            ends = []
            for run in runs:
                await self.launcher.start(run)
            for run in runs:
                end = await self.launcher.wait(run)
                assert end is not None, run.keeper_errors.read_text()
                ends.append(end)
            return ends

        return asyncio.run(all_of_them())

    @property
    def fork_servers(self) -> list[int]:
        """The pids of the fork servers that live."""
        found = self.launcher._fork_servers._servers.values()
        return [server.pid for server in found if not server.is_gone]

    @property
    def kinds(self) -> set[bool]:
        """Whether the fork servers that live have torch loaded."""
        found = self.launcher._fork_servers._servers.items()
        return {key.with_torch for key, server in found if not server.is_gone}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("warm"))
    yield bench
    for run in bench.runs:
        asyncio.run(bench.launcher.kill(run))
    bench.launcher._fork_servers.end()
