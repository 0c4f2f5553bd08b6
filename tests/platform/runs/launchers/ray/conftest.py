"""One cluster of three nodes for all tests here; it takes seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster_lab import ClusterLab
from tests.support.clusters import SimulatedCluster


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these first: workers steal from each other's end, so one of them does all of these.

    Then one cluster is started, not one for each worker.
    """
    here = Path(__file__).parent
    items.sort(key=lambda item: here not in item.path.parents)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedCluster]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
    folder: Path = tmp_path_factory.mktemp("nodes")
    before = {name: os.environ.get(name) for name in ("DET_NODE_DIR",)}
    os.environ["DET_NODE_DIR"] = str(folder / "disks")
    made = SimulatedCluster()
    yield made
    made.close()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name)
        else:
            os.environ[name] = value


@pytest.fixture(scope="module")
def lab(
    cluster: SimulatedCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterLab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        patch.setenv("DET_CLUSTER", cluster.address)
        patch.setenv("DET_CLUSTER_INSECURE", "1")
        made = ClusterLab(tmp_path_factory.mktemp("lab"))
        yield made
        made.close()
