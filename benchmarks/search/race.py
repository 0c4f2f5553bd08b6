"""One round of the race, in a worker process."""

from __future__ import annotations

from benchmarks.search.contenders import Run, contenders
from benchmarks.search.tasks import EPOCHS, all_tasks

BUDGET = 30 * EPOCHS


def one_round(job: tuple[str, int, list[str]]) -> dict[str, Run]:
    """Let everyone play with one seed, one after the other: a busy minute hurts all alike."""
    task_name, seed, names = job
    (task,) = (task for task in all_tasks() if task.name == task_name)
    players = contenders()
    return {name: players[name](task, seed, BUDGET) for name in names}
