"""What Slurm's commands answer, and what counts as no answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from determined.platform.runs.launchers.slurm.commands import (
    SlurmRefusedError,
    SlurmUnansweredError,
    call,
)


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file: what it holds is run as `sbatch`."""
    script = tmp_path / "sbatch"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return script


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("Batch job submission failed: Unable to contact slurm controller", SlurmUnansweredError),
        ("Batch job submission failed: Socket timed out on send/recv", SlurmUnansweredError),
        ("QOSMaxSubmitJobPerUserLimit\nBatch job submission failed: ...", SlurmUnansweredError),
        ("invalid partition specified: nowhere", SlurmRefusedError),
        ("Batch job submission failed: Invalid qos specification", SlurmRefusedError),
    ],
)
def test_a_refusal_is_told_from_a_missing_answer(
    sbatch: Path, said: str, error: type[Exception]
) -> None:
    lines = "\n".join(f"echo 'sbatch: error: {line}' >&2" for line in said.splitlines())
    sbatch.write_text(f"#!/bin/sh\n{lines}\nexit 1\n")
    with pytest.raises(error) as raised:
        call(["sbatch"])
    assert "\n" not in str(raised.value)
    assert said.splitlines()[0] in str(raised.value)


def test_a_command_that_hangs_or_is_not_there_says_so(sbatch: Path) -> None:
    sbatch.write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(SlurmUnansweredError, match=r"sbatch did not answer within 0 s\."):
        call(["sbatch"], seconds=0.2)
    with pytest.raises(SlurmUnansweredError, match="such as on a login node"):
        call(["no-such-command"])


def test_secrets_of_this_process_are_not_passed_on(
    sbatch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "s3cr3t")
    sbatch.write_text("#!/bin/sh\nenv\n")
    assert "s3cr3t" not in call(["sbatch"])
