"""Suggestions for shell completion; if anything goes wrong, there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from click.shell_completion import CompletionItem

from determined.platform.homes.home import Home
from determined.platform.service import Service
from determined.store import CheckpointFilter, ExperimentFilter, Order, Reader, TrialFilter

_MOST = 500


def experiments(begin: str, states: Sequence[str] = ()) -> list[CompletionItem]:
    """Experiments by id, newest first, with name and state; only those in these states, if any."""

    def query(reader: Reader) -> Iterable[tuple[str, str]]:
        wanted = ExperimentFilter(states=list(states) or None)
        found = reader.experiments(wanted, Order(descending=True), _MOST).rows
        return ((str(e.id), f"{e.name} ({e.state})") for e in found)

    return _fitting(begin, query)


def trials(begin: str) -> list[CompletionItem]:
    """Trials by id, newest first, with their experiment and state."""

    def query(reader: Reader) -> Iterable[tuple[str, str]]:
        found = reader.trials(TrialFilter(), Order(descending=True), _MOST).rows
        return ((str(t.id), f"experiment {t.experiment_id} ({t.state})") for t in found)

    return _fitting(begin, query)


def checkpoints(begin: str) -> list[CompletionItem]:
    """Checkpoints that have files, newest first, with where they come from."""

    def query(reader: Reader) -> Iterable[tuple[str, str]]:
        whole = CheckpointFilter(states=["COMPLETED", "PARTIALLY_DELETED"])
        found = reader.checkpoints(whole, Order("report_time", descending=True), _MOST).rows
        return ((c.uuid, f"trial {c.trial_id}, batch {c.steps_completed}") for c in found)

    return _fitting(begin, query)


def models(begin: str) -> list[CompletionItem]:
    """Models by name."""
    return _fitting(
        begin, lambda reader: ((m.name, m.description) for m in reader.registry.models())
    )


def workspaces(begin: str) -> list[CompletionItem]:
    """Workspaces by name."""
    return _fitting(begin, lambda reader: ((w.name, "") for w in reader.registry.workspaces()))


def projects(begin: str, workspace: str) -> list[CompletionItem]:
    """The projects of a workspace by name."""

    def query(reader: Reader) -> Iterable[tuple[str, str]]:
        number = next(w.id for w in reader.registry.workspaces() if w.name == workspace)
        return ((project.name, "") for project in reader.registry.projects(number))

    return _fitting(begin, query)


def _fitting(
    begin: str, query: Callable[[Reader], Iterable[tuple[str, str]]]
) -> list[CompletionItem]:
    try:
        service = Service(Home.find())
        try:
            found = list(query(service.reader)) if service.has_store else []
        finally:
            service.close()
    except Exception:  # a shell that completes is no place for messages
        return []
    return [
        CompletionItem(value, help=" ".join(words.split()))
        for value, words in found
        if value.startswith(begin)
    ]
