"""Slurm's settings, and its words in ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.machines.cluster import ClusterSettings, find_cluster
from determined.platform.machines.machine import find_machine
from determined.platform.machines.slurm import (
    Job,
    Partition,
    SlurmSettings,
    SlurmTable,
    load_table,
    plain_reason,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("DET_CLUSTER", raising=False)
    return Home(tmp_path)


def test_the_variable_names_a_partition(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_CLUSTER", "slurm")
    assert find_cluster(home) == SlurmSettings()
    (home.path / "platform.yaml").write_text("cluster: {type: slurm, qos: fast, partition: a}\n")
    monkeypatch.setenv("DET_CLUSTER", "slurm:gpu")
    settings = find_cluster(home)
    assert settings == SlurmSettings(partition="gpu", qos="fast")
    assert settings.address == "slurm:gpu"
    assert "platform.yaml" in settings.way_back
    monkeypatch.setenv("DET_CLUSTER", "auto")  # Ray, whatever the file says
    assert find_cluster(home) == ClusterSettings("auto")
    monkeypatch.setenv("DET_CLUSTER", "slurm:a b")
    with pytest.raises(DeterminedError, match="expected slurm or slurm:PARTITION"):
        find_cluster(home)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("partitoin: a", "cluster.partitoin: expected one of the keys"),
        ("partition: 'a b'", "cluster.partition: expected a name"),
        ("time_limit: soon", "cluster.time_limit: expected minutes, or text"),
        ("shared_dir: here", "cluster.shared_dir: expected an absolute path"),
        ("shared_dir_on_nodes: /a", "cluster.shared_dir_on_nodes: expected shared_dir beside it"),
        ("max_jobs: 0", "cluster.max_jobs: expected a whole number from 1"),
        ("slot_type: tpu", "cluster.slot_type: expected gpu or cpu"),
        ("sbatch_args: [--nodes=2]", "--nodes cannot be given: follows from resources.slots"),
        ("modules: ['cuda; rm']", "cluster.modules: expected names of modules"),
        ("prolog: [a]", "cluster.prolog: expected lines of shell"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_key(home: Home, line: str, words: str) -> None:
    (home.path / "platform.yaml").write_text(f"cluster:\n  type: slurm\n  {line}\n")
    with pytest.raises(DeterminedError) as caught:
        find_cluster(home)
    assert "platform.yaml:3: " in str(caught.value)
    assert words in str(caught.value)


def test_what_was_seen_last_is_read_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_CLUSTER", "slurm")
    assert "has not been contacted yet" in find_machine(home).skipped[0]
    table = SlurmTable(
        "slurm",
        partitions=(Partition("main", True, 2, cpus=8),),
        jobs=(Job("7", "1.a.1", "RUNNING"),),
        max_jobs=3,
    )
    table.save(home.slurm)
    assert load_table(home.slurm) == table
    machine = find_machine(home)
    assert (len(machine.slots), machine.is_queued, machine.has_gpus) == (3, True, False)


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("PENDING", "Priority", "jobs of higher priority go first (Priority)"),
        ("PENDING", "(Resources)", "waits for nodes to become free"),
        ("PENDING", "QOSMaxGRESPerUser", "a limit of its QOS is reached (QOSMaxGRESPerUser)"),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", "is down, drained or reserved"),
        ("PENDING", "SomethingNew", "Slurm says SomethingNew"),
        ("PENDING", "None", "waits for Slurm to look at it"),
        ("COMPLETING", "None", "completing"),
    ],
)
def test_pending_reasons_are_plain_words(state: str, reason: str, words: str) -> None:
    assert words in plain_reason(Job("1", "a", state, reason))


def test_an_expected_start_is_shown() -> None:
    job = Job("1", "a", "PENDING", "Resources", starts="2026-01-01T10:00:00")
    assert plain_reason(job).endswith("; Slurm expects it to start at 2026-01-01T10:00:00")
