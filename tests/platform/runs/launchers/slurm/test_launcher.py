"""The launcher of Slurm's jobs keeps the contract, on a real Slurm."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.machines.slurm import SlurmSettings
from determined.platform.runs.folder import CANCELED, NOT_STARTED, RunFolder
from determined.platform.runs.job_order import JobOrder
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.runs.launchers.slurm.cluster import SlurmCluster
from determined.platform.runs.launchers.slurm.launcher import SlurmLauncher
from tests.platform.runs.launchers.contract import (
    LauncherContract,
    start,
    until_it_prints,
    wait,
)
from tests.support.runs import assert_nothing_left, make_run
from tests.support.slurm import PrivateSlurm

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


class TestSlurmLauncher(LauncherContract):
    @pytest.fixture(autouse=True)
    def home(self, slurm: PrivateSlurm, tmp_path: Path) -> None:
        self.slurm = slurm
        self.home_of_test = Home(tmp_path / "home")
        self.home_of_test.path.mkdir()

    def new(self, **settings: Any) -> SlurmLauncher:
        cluster = SlurmCluster(self.home_of_test, SlurmSettings(**settings))
        return SlurmLauncher(self.home_of_test, cluster)

    def make_run(self, folder: Path, *argv: str, **given: Any) -> RunFolder:
        order = given.pop("order", JobOrder(1, interpreter=sys.executable))
        run = make_run(folder, *argv, **given)
        order.save(run)
        return run

    def test_a_supervisor_of_this_machine_leaves_it_alone(self, tmp_path: Path) -> None:
        launcher = self.new()
        run = self.make_run(tmp_path / "run", script="import time; time.sleep(600)")
        start(launcher, run)
        with pytest.raises(DeterminedError, match="may still run there: set DET_CLUSTER"):
            asyncio.run(LocalLauncher().wait(run))
        asyncio.run(launcher.kill(run))

    def test_a_refusal_is_one_line_and_the_script_is_kept(self, tmp_path: Path) -> None:
        launcher = self.new(partition="nowhere")
        run = self.make_run(tmp_path / "run", script="pass")
        start(launcher, run)
        end = wait(launcher, run)
        assert end is not None
        assert (end.exit_code, end.reason) == (1, NOT_STARTED)
        assert end.message is not None
        assert "invalid partition specified" in end.message
        assert "exec " in (run.path / "job.sh").read_text()

    def test_a_run_that_was_submitted_twice_runs_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer to the first submission was lost."""
        launcher = self.new()
        marks = tmp_path / "marks"
        marks.mkdir()
        script = f"import os, pathlib; pathlib.Path({str(marks)!r}, str(os.getpid())).touch()"
        run = self.make_run(tmp_path / "run", script=script)
        submit = launcher._cluster.submit

        def twice(*given: Any) -> str:
            submit(*given)
            return submit(*given)

        monkeypatch.setattr(launcher._cluster, "submit", twice)
        start(launcher, run)
        end = wait(launcher, run)
        assert end is not None
        assert end.exit_code == 0
        self.until_no_jobs()
        assert len(list(marks.iterdir())) == 1

    def test_a_job_that_comes_after_its_run_was_given_up_starts_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        launcher = self.new()
        run = self.make_run(tmp_path / "run", script=f"open({str(tmp_path / 'ran')!r}, 'w')")
        given: list[Any] = []

        def lose(*words: Any) -> str:
            given.append(words)
            return "0"

        monkeypatch.setattr(launcher._cluster, "submit", lose)
        start(launcher, run)
        later = self.new()
        assert wait(later, run) is None
        assert asyncio.run(later.declare_dead(run, "Never seen.")).message == "Never seen."
        later._cluster.submit(*given[0])
        self.until_no_jobs()
        assert not (tmp_path / "ran").exists()

    def test_scancel_by_the_users_own_hand_cancels(self, tmp_path: Path) -> None:
        launcher = self.new()
        run = self.make_run(tmp_path / "run", script="import time; print('up'); time.sleep(600)")
        start(launcher, run)
        until_it_prints(run, launcher)
        self.slurm.run("scancel", "--me")
        end = wait(launcher, run)
        assert end is not None
        assert end.reason == CANCELED, end
        assert_nothing_left(run)

    def test_nodes_see_the_folder_under_another_path(self, tmp_path: Path) -> None:
        (tmp_path / "here").mkdir()
        (tmp_path / "there").symlink_to(tmp_path / "here")
        launcher = self.new(
            shared_dir=str(tmp_path / "here"), shared_dir_on_nodes=str(tmp_path / "there")
        )
        script = "import os; print(os.environ['DET_RUN_DIR'])"
        run = self.make_run(tmp_path / "run", script=script, env={"DET_RUN_DIR": "?"})
        start(launcher, run)
        assert wait(launcher, run)
        assert run.log.read_text().startswith(str(tmp_path / "there"))

    def test_a_node_that_does_not_see_the_folder_is_named(self, tmp_path: Path) -> None:
        launcher = self.new(shared_dir=str(tmp_path), shared_dir_on_nodes="/nowhere")
        run = self.make_run(tmp_path / "run", script="pass")
        start(launcher, run)
        end = wait(launcher, run)
        assert end is not None
        assert end.message is not None
        assert " on n" in end.message
        assert "Set cluster.shared_dir" in end.message

    def test_a_node_without_the_interpreter_is_named(self, tmp_path: Path) -> None:
        launcher = self.new()
        order = JobOrder(1, interpreter="/nowhere/python")
        run = self.make_run(tmp_path / "run", script="pass", order=order)
        start(launcher, run)
        end = wait(launcher, run)
        assert end is not None
        assert end.message is not None
        assert "has no Python at /nowhere/python" in end.message

    def test_the_prolog_changes_the_variables_of_trials(self, tmp_path: Path) -> None:
        launcher = self.new(prolog="export PATH=/site/bin:$PATH SITE=ours")
        script = "import os; print(os.environ['PATH']); print(os.environ['SITE'])"
        run = self.make_run(tmp_path / "run", script=script, env={"PATH": "/mine", "SECRET": "s3"})
        start(launcher, run)
        assert wait(launcher, run)
        assert run.log.read_text() == "/site/bin:/mine\nours\n"
        assert "s3" not in (run.path / "job.sh").read_text()

    def until_no_jobs(self) -> None:
        from tests.support.runs import eventually

        eventually(
            lambda: not self.slurm.run("squeue", "--noheader", "--me").strip(), "no more jobs"
        )
