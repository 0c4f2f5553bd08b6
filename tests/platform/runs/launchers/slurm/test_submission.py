"""The arguments and the script of a job."""

from __future__ import annotations

import pytest

from determined.errors import DeterminedError
from determined.platform.machines.slurm import Partition, SlurmSettings, SlurmTable
from determined.platform.runs.job_order import JobOrder
from determined.platform.runs.launchers.slurm import submission

_TABLE = SlurmTable(
    "slurm", partitions=(Partition("main", True, 4, cpus=8), Partition("big", cpus=64))
)
_GPUS = SlurmTable("slurm", partitions=(Partition("main", True, 4, cpus=64, gpus=4),))


def arguments(order: JobOrder, table: SlurmTable = _TABLE, **settings: object) -> list[str]:
    given = SlurmSettings(**settings)  # type: ignore[arg-type]
    return submission.arguments("name", "/out", order, given, table)


def test_slots_become_cpus_or_gpus_on_as_few_nodes_as_possible() -> None:
    assert {"--nodes=1", "--cpus-per-task=8"} <= set(arguments(JobOrder(8)))
    assert {"--nodes=2", "--cpus-per-task=8"} <= set(arguments(JobOrder(16)))
    assert {"--nodes=3", "--cpus-per-task=3"} <= set(arguments(JobOrder(9, slots_per_node=4)))
    assert {"--nodes=1", "--cpus-per-task=16"} <= set(arguments(JobOrder(16, pool="big")))
    gpus = arguments(JobOrder(8, gpu_type="a100"), _GPUS)
    assert {"--nodes=2", "--gpus-per-node=a100:4"} <= set(gpus)
    assert {"--nodes=1", "--cpus-per-task=1"} <= set(arguments(JobOrder(0), _GPUS))


def test_a_pool_is_a_partition_if_there_is_one() -> None:
    assert "--partition=big" in arguments(JobOrder(1, pool="big"), partition="main")
    assert "--partition=main" in arguments(JobOrder(1, pool="nowhere"), partition="main")


def test_the_experiments_options_come_last() -> None:
    order = JobOrder(1, sbatch_args=("--time=5",), priority=43)
    given = arguments(order, sbatch_args=("--mem=1G",), time_limit="60", account="lab")
    assert given[-2:] == ["--mem=1G", "--time=5"]
    assert {"--time=60", "--account=lab", "--nice=100", "--no-requeue"} <= set(given)
    assert "--signal=B:TERM@75" in given


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600),
        ("1:30", 90),
        ("2:00:00", 7200),
        ("1-12", 129600),
        ("1-0:1:1", 86461),
        ("", None),
    ],
)
def test_time_limits_are_read_as_slurm_does(text: str, seconds: int | None) -> None:
    assert submission.limit_seconds(text) == seconds


def test_slots_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(DeterminedError, match="Use a multiple of 4"):
        submission.check_slots(JobOrder(9, slots_per_node=4), SlurmSettings(), _TABLE)
    submission.check_slots(JobOrder(8, slots_per_node=4), SlurmSettings(), _TABLE)


def test_paths_are_quoted() -> None:
    text = submission.script("/a b/'c", "/x y/python", SlurmSettings(modules=("cuda/12",)))
    assert text.startswith("#!/bin/bash -l\n")
    assert "folder='/a b/'\"'\"''\"'\"'c'" in text or "folder='/a b/'\"'\"'c'" in text
    assert "module load cuda/12 ||" in text
