"""One Slurm of two nodes for all tests here; it takes seconds to start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.slurm import PrivateSlurm, SlurmLab, private_slurm

LabMaker = Callable[..., SlurmLab]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these first, so that one worker does all of them, and one Slurm is started."""
    here = Path(__file__).parent
    items.sort(key=lambda item: here not in item.path.parents)


@pytest.fixture(scope="package")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSlurm]:
    folder = tmp_path_factory.mktemp("slurm")
    with private_slurm(folder) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def lab(slurm: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_CLUSTER", "slurm")
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        made = SlurmLab(tmp_path_factory.mktemp("lab"))
        yield made
        made.close()


@pytest.fixture
def other_lab(
    slurm: PrivateSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LabMaker]:
    """Makes another home on the same cluster, with keys of `cluster:` in its file."""
    made: list[SlurmLab] = []

    def make(**keys: object) -> SlurmLab:
        monkeypatch.delenv("DET_CLUSTER", raising=False)
        monkeypatch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        other = SlurmLab(tmp_path)
        made.append(other)
        other.home.path.mkdir()
        section = json.dumps({"cluster": {"type": "slurm", **keys}})
        (other.home.path / "platform.yaml").write_text(section)
        return other

    yield make
    for each in made:
        each.close()
