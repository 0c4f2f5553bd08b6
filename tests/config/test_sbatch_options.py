"""Options of `sbatch` that users may give, and those that are refused with a reason."""

from __future__ import annotations

import pytest

from determined.config.sbatch_options import refusal


@pytest.mark.parametrize(
    "word",
    [
        *("--time=12:00:00", "-t10", "--mem-per-cpu=4G", "--exclusive", "--constraint=a100"),
        *("--nodelist=n1", "--gres=lustre:1", "--mail-type=END", "--cpus-per-gpu=4", "-H", "-s"),
        *("--partition=gpu", "--gpu-bind=closest", "--wait-all-nodes=1"),
    ],
)
def test_other_options_are_free(word: str) -> None:
    assert refusal(word) == ""


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("--nodes=2", "slots_per_trial"),
        ("-N2", "slots_per_trial"),
        ("-n", "one task per node"),
        ("--outp=x", "det trial logs"),  # sbatch accepts the beginning of a name
        ("--array=1-3", "a job of its own"),
        ("--export=ALL,TOKEN=1", "environment_variables"),
        ("--parsable", "job's id"),
        ("--gres=gpu:2", "slots_per_trial"),
        ("--no-requeue", "always given"),
        ("-sN2", "separate elements"),
        ("evil.sh", "one option per element"),
        ("--", "one option per element"),
        ("--time=1\n--nodes=2", "one option per element"),
    ],
)
def test_options_that_the_platform_decides_are_refused(word: str, why: str) -> None:
    assert why in refusal(word)
