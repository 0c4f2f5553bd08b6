"""What the state of a job says about a run that left no record."""

from __future__ import annotations

import pytest

from determined.platform.machines.slurm import Job
from determined.platform.runs.folder import CANCELED, EXITED, SIGNALLED, RunExit
from determined.platform.runs.launchers.slurm import fates


@pytest.mark.parametrize(
    "state", ["NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "TIMEOUT", "DEADLINE", "REVOKED"]
)
def test_what_the_cluster_did_is_no_fault_of_the_trial(state: str) -> None:
    job = Job("7", "a", state, nodes="n1")
    end = fates.without_record(job, was_taken=True, problem="", folder="/f")
    assert end.is_infrastructure_fault
    assert "(7 on n1)" in (end.message or "")


def test_memory_is_the_trials_fault() -> None:
    job = Job("7", "a", "OUT_OF_MEMORY")
    end = fates.without_record(job, was_taken=True, problem="", folder="/f")
    assert not end.is_infrastructure_fault
    assert end.exit_code == 137
    assert "--mem" in end.last_lines[-1]


def test_a_job_that_never_began_names_the_folder() -> None:
    job = Job("7", "a", "FAILED", nodes="n1")
    end = fates.without_record(job, was_taken=False, problem="", folder="/f")
    assert not end.is_infrastructure_fault
    assert "is /f there" in (end.message or "")


def test_a_signal_that_slurm_sent_to_everybody_is_explained_by_the_job() -> None:
    end = RunExit(143, SIGNALLED, signal="SIGTERM")
    assert fates.is_unexplained(end)
    assert not fates.is_unexplained(RunExit(1, EXITED))
    assert fates.explained(end, Job("7", "a", "CANCELLED")).reason == CANCELED
    assert fates.explained(end, Job("7", "a", "TIMEOUT")).is_infrastructure_fault
    assert "--mem" in fates.explained(end, Job("7", "a", "OUT_OF_MEMORY")).last_lines[-1]
    assert fates.explained(end, Job("7", "a", "FAILED")) == end
    assert fates.explained(end, None) == end
    saved = end._replace(stopped_by="SIGTERM")  # the keeper knows: it has saved and left
    assert fates.explained(saved, Job("7", "a", "TIMEOUT")) == saved
