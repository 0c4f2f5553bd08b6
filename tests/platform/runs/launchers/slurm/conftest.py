"""One Slurm of two nodes for all tests here; it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.slurm import PrivateSlurm, private_slurm


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
