"""Profiling: every second is in one part, and switched off it leaves no trace."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

from determined import pytorch
from determined.pytorch._profile import PARTS, ProfileOptions, TimeProfile
from tests.support.trials import LineTrial


def _profile(**options: object) -> TimeProfile:
    return TimeProfile(ProfileOptions(enabled=True, **options), torch.device("cpu"))  # type: ignore[arg-type]  # test data


def test_time_in_a_nested_part_counts_for_that_part_alone() -> None:
    profile = _profile()
    inner = profile.timed("backward", lambda: time.sleep(0.02))
    outer = profile.timed("train_batch", lambda: inner())
    profile.at_batch(0)
    outer()
    profile.stop()
    assert profile.seconds["backward"] >= 0.02
    assert profile.seconds["train_batch"] < profile.seconds["backward"]
    assert sum(profile.shares().values()) == pytest.approx(1.0)


def test_only_the_wanted_batches_are_measured() -> None:
    profile = _profile(begin_on_batch=2, end_after_batch=3)
    step = profile.timed("train_batch", lambda: None)
    for batch_idx in range(6):
        profile.at_batch(batch_idx)
        step()
    assert profile.batches == 2
    assert profile.calls["train_batch"] == 2


def test_waiting_for_data_brings_advice() -> None:
    profile = _profile()
    profile.at_batch(0)
    profile.timed("data", lambda: time.sleep(0.02))()
    profile.stop()
    assert any("num_workers" in line for line in profile.advice())


def test_a_profiled_run_writes_its_table_and_leaves_the_context_as_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytorch.init(checkpoint_storage=tmp_path, tensorboard_path=tmp_path / "tb") as context:
        trainer = pytorch.Trainer(LineTrial(context), context)
        trainer.configure_profiler(enabled=True, begin_on_batch=1, end_after_batch=4)
        trainer.fit(max_length=pytorch.Batch(6), reporting_period=pytorch.Batch(2))
        assert {"to_device", "backward", "step_optimizer"}.isdisjoint(vars(context))
    result = json.loads((tmp_path / "tb" / "profile.json").read_text())
    assert result["batches"] == 4
    assert list(result["parts"]) == list(PARTS)
    assert result["parts"]["backward"]["calls"] == 4
    shares = [part["share"] for part in result["parts"].values()]
    assert sum(shares) + result["other_share"] == pytest.approx(1.0)
    assert {group for group, _ in result["system"]} >= {"cpu", "memory"}
    assert "Where did the time go?" in capfd.readouterr().err


def test_a_run_without_profiling_wraps_nothing(tmp_path: Path) -> None:
    with pytorch.init(checkpoint_storage=tmp_path, tensorboard_path=tmp_path / "tb") as context:
        trial = LineTrial(context)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(2))
    assert not (tmp_path / "tb" / "profile.json").exists()
