"""One round of the race, in a worker process."""

from __future__ import annotations

import zlib

from benchmarks.search.contenders import Run, contenders
from benchmarks.search.tasks import EPOCHS, all_tasks

BUDGET = 30 * EPOCHS


def one_round(job: tuple[str, int, list[str]]) -> dict[str, Run]:
    """Let everyone play with one seed, one after the other: a busy minute hurts all alike."""
    task_name, seed, names = job
    (task,) = (task for task in all_tasks() if task.name == task_name)
    players = contenders()
    # Samples of its own for each task: else the luck of one seed would count once per task.
    own = zlib.crc32(f"{task_name}:{seed}".encode())
    return {name: players[name](task, own, BUDGET) for name in names}
