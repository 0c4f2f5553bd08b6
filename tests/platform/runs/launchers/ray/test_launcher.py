"""Runs on the nodes of a cluster: the launchers' contract."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.homes.snapshot import create_snapshot
from determined.platform.machines.cluster import ClusterSettings
from determined.platform.runs.folder import EXITED, RunFolder
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.runs.launchers.protocol import Launcher
from determined.platform.runs.placement import Placement, place
from tests.platform.runs.launchers.contract import LauncherContract, start, wait
from tests.support.clusters import SimulatedCluster
from tests.support.runs import assert_nothing_left, make_run

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


class TestRayLauncher(LauncherContract):
    home: ClassVar[Home]
    settings: ClassVar[ClusterSettings]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _home(
        cls, cluster: SimulatedCluster, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[None]:
        cls.home = Home(tmp_path_factory.mktemp("ray") / "home")
        cls.home.make()
        cls.settings = ClusterSettings(cluster.address, "cpu", is_insecure=True)
        yield
        asyncio.run(cls().new().close())

    def new(self) -> Launcher:
        from determined.platform.runs.launchers.ray.cluster import open_cluster
        from determined.platform.runs.launchers.ray.launcher import RayLauncher

        self.cluster = asyncio.run(open_cluster(self.home, self.settings))
        return RayLauncher(self.cluster)

    def make_run(self, folder: Path, *argv: str, **given: Any) -> RunFolder:
        run = make_run(folder, *argv, **given)
        Placement(place(self.slots[:1], self.cluster._machine, 0)).save(run)
        return run

    def test_a_supervisor_of_this_machine_leaves_it_alone(self, tmp_path: Path) -> None:
        launcher = self.new()
        run = self.make_run(tmp_path / "run", script="import time; time.sleep(600)")
        start(launcher, run)
        for verb in (LocalLauncher().wait(run), LocalLauncher().declare_dead(run, "Lost.")):
            with pytest.raises(DeterminedError, match="may still run there: set DET_CLUSTER"):
                asyncio.run(verb)
        asyncio.run(launcher.kill(run))

    def test_all_parts_end_with_the_one_that_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        launcher = self.new()
        module = "determined.platform.runs.launchers.ray.launcher"
        monkeypatch.setattr(f"{module}._OTHERS_GRACE_SECONDS", 1.0)
        script = (
            "import os, time; rank = os.environ['DET_SLOT_IDS']\n"
            "for n in range(100): print(rank, n)\n"
            f"if rank == '[{self.slots[0]}]': raise ValueError('of the first')\n"
            "time.sleep(600)"
        )
        run = make_run(tmp_path / "run", script=script, stop_grace_seconds=1)
        parts = place((self.slots[0], self.slots[2]), self.cluster._machine, 0)
        Placement(parts).save(run)
        start(launcher, run)
        end = wait(launcher, run)
        assert end is not None
        assert (end.exit_code, end.reason) == (1, EXITED)
        assert end.traceback is not None
        assert "of the first" in end.traceback.text
        lines = run.log.read_text().splitlines()
        for slot in (self.slots[0], self.slots[2]):
            own = [line for line in lines if line.startswith(f"[{slot}] ")]
            assert own == [f"[{slot}] {n}" for n in range(100)]
        assert_nothing_left(run)

    def test_code_comes_to_a_node_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        launcher = self.new()
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "word.py").write_text(f"WORD = {str(tmp_path)!r}\n")
        snapshot = create_snapshot(tmp_path / "snapshots", tmp_path / "model")
        called = []
        call = self.cluster.call

        async def counted(node: str, verb: str, *arguments: Any) -> Any:
            called.append(verb)
            return await call(node, verb, *arguments)

        monkeypatch.setattr(self.cluster, "call", counted)
        for number, slot in enumerate((self.slots[0], self.slots[1], self.slots[2])):
            run = make_run(tmp_path / f"run-{number}", script="import word; print(word.WORD)")
            parts = place((slot,), self.cluster._machine, 0)
            Placement(parts, code=snapshot.digest, snapshots=str(tmp_path / "snapshots")).save(run)
            start(launcher, run)
            end = wait(launcher, run)
            assert end is not None
            assert end.exit_code == 0, run.log.read_text()
            assert str(tmp_path) in run.log.read_text()
        assert called.count("has_code") == 3
        assert called.count("add_code") == 2  # the first two slots are of one node

    def test_what_a_run_has_on_a_node_is_for_its_owner_only(self, tmp_path: Path) -> None:
        launcher = self.new()
        script = (
            "import os, pathlib\n"
            "folder = pathlib.Path(os.environ['DET_RUN_DIR'])\n"
            "print('folder', oct(folder.stat().st_mode & 0o077))\n"
            "files = [path for path in folder.rglob('*') if path.is_file()]\n"
            "print('open', [p.name for p in files if p.stat().st_mode & 0o077], len(files))\n"
        )
        run = self.make_run(tmp_path / "run", script=script, env={"DET_RUN_DIR": "of the node"})
        start(launcher, run)
        wait(launcher, run)
        assert "folder 0o0\nopen [] " in run.log.read_text()

    @property
    def slots(self) -> list[int]:
        return [slot.id for slot in self.cluster._machine.slots]
