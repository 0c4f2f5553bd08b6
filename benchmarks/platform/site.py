"""A home of its own with a supervisor: experiments are created and watched as users' are."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import psutil

from determined.config import Completion, load
from determined.platform.homes.home import Home
from determined.platform.service import Service
from determined.platform.supervisor import presence
from determined.store import Experiment, Run, TrialFilter

SCRIPTS = Path(__file__).with_name("scripts")
_OVER = ("COMPLETED", "CANCELED", "ERROR")
_POLL_SECONDS = 0.005

T = TypeVar("T")


class Site:
    """Creates experiments from the files in `scripts/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        self.service = Service(self.home)

    def create(
        self,
        script: str,
        *,
        warm: bool = True,
        variables: Mapping[str, str] | None = None,
        **config: Any,
    ) -> int:
        """Create an experiment whose trials run a script; return its id."""
        code = self.folder / "code" / script
        if not code.exists():
            code.mkdir(parents=True)
            (code / "train.py").write_bytes((SCRIPTS / f"{script}.py").read_bytes())
        environment = {
            "warm_start": warm,
            "environment_variables": [f"{name}={v}" for name, v in (variables or {}).items()],
        }
        values = {
            "name": script,
            "entrypoint": "python3 train.py",
            "searcher": {"name": "single", "metric": "loss"},
            "max_restarts": 0,
            "environment": environment,
            **config,
        }
        storage = {"type": "shared_fs", "host_path": str(self.home.checkpoints)}
        loaded = load(values, completion=Completion(created=0, checkpoint_storage=storage))
        return self.service.create(loaded, self.service.take_snapshot(code), code)

    def finish(self, experiment_id: int) -> Experiment:
        """Wait until an experiment has ended well."""
        found = self.until(lambda: self._ended(experiment_id))
        if found.state != "COMPLETED":
            raise RuntimeError(f"the experiment ended as {found.state}: {found.reason}")
        return found

    def _ended(self, experiment_id: int) -> Experiment | None:
        found = self.service.reader.experiment(experiment_id)
        return found if found is not None and found.state in _OVER else None

    def until(self, look: Callable[[], T | None], seconds: float = 600.0) -> T:
        """Look again and again until there is something to see."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing came in {seconds:g} s; see {self.home.supervisor_log}")
            time.sleep(_POLL_SECONDS)
        return found

    def runs(self, experiment_id: int) -> list[Run]:
        trials = self.service.reader.trials(TrialFilter(experiment_id=experiment_id)).rows
        return [run for trial in trials for run in self.service.reader.runs(trial.id)]

    @property
    def supervisor(self) -> psutil.Process:
        facts = presence.find(self.home)
        assert facts is not None
        return psutil.Process(facts.pid)

    def close(self) -> None:
        """End what still runs, and the supervisor."""
        if self.service.has_store:
            for experiment_id in self.service.running_experiments():
                self.service.kill(experiment_id)
                self.until(lambda number=experiment_id: self._ended(number))  # type: ignore[misc]
        presence.stop(self.home)
        self.service.close()


@contextlib.contextmanager
def open_site(slots: int = 2) -> Iterator[Site]:
    """Make a home for experiments, and leave nothing of it behind."""
    variables = {
        "DET_SLOTS": str(slots),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "",
        "DET_TRACKING": "off",
        "DET_WARM_IDLE_SECONDS": "120",
        "DET_SUPERVISOR_IDLE_SECONDS": "120",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="det-bench-", ignore_cleanup_errors=True) as name:
        os.environ.update(variables, DET_HOME=f"{name}/home")
        site = Site(Path(name))
        try:
            yield site
        finally:
            site.close()
            os.environ.clear()
            os.environ.update(before)
