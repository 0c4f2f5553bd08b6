"""A home of its own for a test: experiments on real processes, and proof that none is left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined.config import Completion, load
from determined.platform.homes.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence
from determined.store import Checkpoint, CheckpointFilter, Experiment, Run, Trial, TrialFilter

DEADLINE_SECONDS = 90.0


class Lab:
    """Creates experiments from scripts and waits for what becomes of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seed = zlib.crc32(str(folder).encode())
        self.home = Home(folder / "home")
        self.service = Service(self.home)

    def create(
        self,
        script: str,
        *,
        paused: bool = False,
        files: Mapping[str, str] | None = None,
        **config: Any,
    ) -> int:
        """Create an experiment that runs `script`, with other files beside it; return its id."""
        code = self.folder / f"code-{len(list(self.folder.glob('code-*')))}"
        code.mkdir()
        for name, text in {"script.py": script, **(files or {})}.items():
            (code / name).write_text(text)
        values: dict[str, Any] = {
            "name": "test",
            "entrypoint": "python3 script.py",
            "searcher": {"name": "single", "metric": "loss"},
            "max_restarts": 0,
            **config,
        }
        storage = {"type": "shared_fs", "host_path": str(self.home.checkpoints)}
        completion = Completion(created=self.seed, checkpoint_storage=storage)
        loaded = load(values, completion=completion)
        snapshot = self.service.take_snapshot(code)
        return self.service.create(loaded, snapshot, code, paused=paused)

    def experiment(self, experiment_id: int) -> Experiment:
        found = self.service.reader.experiment(experiment_id)
        assert found is not None
        return found

    def trials(self, experiment_id: int) -> list[Trial]:
        page = self.service.reader.trials(TrialFilter(experiment_id=experiment_id), limit=1000)
        return list(page.rows)

    def runs(self, experiment_id: int) -> list[Run]:
        return [
            run
            for trial in self.trials(experiment_id)
            for run in self.service.reader.runs(trial.id)
        ]

    def checkpoints(self, experiment_id: int) -> list[Checkpoint]:
        return list(self.service.reader.checkpoints(CheckpointFilter(experiment_id)).rows)

    def log(self, run: Run) -> str:
        file = Path(run.folder, "log")
        return file.read_text() if file.exists() else ""

    def wait(self, experiment_id: int) -> Experiment:
        """Wait until an experiment is over."""
        over = ("COMPLETED", "CANCELED", "ERROR")
        self.until(lambda: self.experiment(experiment_id).state in over)
        return self.experiment(experiment_id)

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait until something is so, as clients do: a supervisor that died is started again."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.account()
            self.service.wake_if_needed()
            time.sleep(0.02)

    def kill_supervisor(self) -> None:
        """Kill it at once, as the kernel may."""
        facts = presence.find(self.home)
        if facts is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(facts.pid, signal.SIGKILL)
            _wait_gone(facts.pid)

    def processes(self) -> list[psutil.Process]:
        """All processes that belong to this home."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline()) + str(process.environ().get("DET_RUN_DIR"))
                if str(self.home.path) in words and process.pid != os.getpid():
                    found.append(process)
        return found

    def account(self) -> str:
        """What the lab knows, for a failing test."""
        log = self.home.supervisor_log
        lines = [log.read_text()[-3000:] if log.exists() else "no supervisor ever started"]
        for experiment in self.service.reader.experiments().rows:
            lines.append(f"{experiment.id} {experiment.state} {experiment.reason}")
            lines += [f"  {t.id} {t.state} {t.reason}" for t in self.trials(experiment.id)]
            lines += [f"    {r} {self.log(r)[-500:]}" for r in self.runs(experiment.id)]
        return "\n".join(lines)

    def close(self) -> None:
        """End everything; fails if runs outlived their experiments."""
        deadline = time.monotonic() + 30
        while presence.stop(self.home) or (left := self._others()):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)  # one that was just started finds nothing to do, or is stopped next
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.service.close()
        assert left == [], f"processes were left running: {left}"

    def _others(self) -> list[psutil.Process]:
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def _wait_gone(pid: int) -> None:
    with contextlib.suppress(psutil.Error):
        psutil.Process(pid).wait(20)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
    monkeypatch.setenv("DET_SLOTS", "2")
    made = Lab(tmp_path)
    yield made
    made.close()
