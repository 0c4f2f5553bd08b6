"""Whether a search can begin from a configuration, asked before an experiment is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from determined.errors import ConfigurationError

if TYPE_CHECKING:
    from determined.config import Loaded


def check_search(loaded: Loaded, source: str) -> None:
    """Raise ConfigurationError if no search can begin, or a package is missing for it."""
    _check_packages(loaded, source)
    _check_space(loaded, source)


def _check_space(loaded: Loaded, source: str) -> None:
    from determined.config import Problem
    from determined.platform.search.searcher import Searcher

    try:
        Searcher(loaded.effective["searcher"], loaded.effective["hyperparameters"], 0)
    except ValueError as error:
        where, _, words = str(error).partition(": ")
        path = tuple(where.split(".")) if words and " " not in where else ("searcher",)
        problem = Problem(words or str(error), path=path, source=source)
        raise ConfigurationError(source, [problem]) from None


def _check_packages(loaded: Loaded, source: str) -> None:
    from determined.config import Problem
    from determined.platform.search.processes.model_process import missing_packages

    sentence = missing_packages(loaded.effective["searcher"].get("sampler") or "random")
    if sentence is not None:
        words = sentence.removeprefix("searcher.sampler: ")
        problem = Problem(words, path=("searcher", "sampler"), source=source)
        raise ConfigurationError(source, [problem])
