"""Runs on the nodes of a cluster: the launchers' contract."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from determined.platform.cluster import ClusterSettings
from determined.platform.home import Home
from determined.platform.launchers.protocol import Launcher
from determined.platform.placement import Placement, place
from determined.platform.run_folder import RunFolder
from tests.platform.launchers_contract import LauncherContract
from tests.support.clusters import SimulatedCluster
from tests.support.runs import make_run

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
        from determined.platform.launchers.ray.cluster import open_cluster
        from determined.platform.launchers.ray.launcher import RayLauncher

        self.cluster = asyncio.run(open_cluster(self.home, self.settings))
        return RayLauncher(self.cluster)

    def make_run(self, folder: Path, *argv: str, **given: Any) -> RunFolder:
        run = make_run(folder, *argv, **given)
        slots = (self.cluster._machine.slots[0].id,)
        Placement(place(slots, self.cluster._machine, 0)).save(run)
        return run
