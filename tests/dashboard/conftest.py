"""A home with a bit of everything, made once, and a dashboard that shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.dashboard.make_store import make_small
from determined.platform.homes.home import Home
from determined.store import Writer
from tests.dashboard.served import Served, served


@pytest.fixture(scope="session")
def made_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("dashboard") / "home")
    make_small(home.path)
    return home


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose store has nothing in it."""
    home = Home(tmp_path_factory.mktemp("dashboard") / "empty")
    Writer(home.path).close()
    return home


@pytest.fixture(scope="session")
def shown(made_home: Home) -> Iterator[Served]:
    with served(made_home) as found:
        yield found


@pytest.fixture(scope="session")
def shown_empty(empty_home: Home) -> Iterator[Served]:
    with served(empty_home) as found:
        yield found
