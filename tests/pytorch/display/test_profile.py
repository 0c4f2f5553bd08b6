"""Profiling: every second is in one part, and switched off it leaves no trace."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.core import DummyProfilerContext
from determined.pytorch._display.profile import PARTS, ProfileOptions, TimeProfile, machine_line
from tests.support.trials import LineTrial, train
from tests.tensorboard.read_events import read_points


def _profile(device: str = "cpu", **options: object) -> TimeProfile:
    return TimeProfile(
        ProfileOptions(enabled=True, **options),  # type: ignore[arg-type]  # test data
        torch.device(device),
        DummyProfilerContext(),
    )


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


def test_a_run_that_is_all_model_is_told_so() -> None:
    profile = _profile()
    profile.at_batch(0)
    profile.timed("backward", lambda: time.sleep(0.05))()
    profile.stop()
    (line,) = profile.advice()
    assert "compile=True" in line
    assert "use_amp" not in line  # which is for accelerators


def test_advice_fits_the_device() -> None:
    for device, expected in (("cpu", False), ("mps", False), ("cuda", True)):
        profile = _profile(device, sync_timings=False)
        profile.at_batch(0)
        profile.timed("copy", lambda: time.sleep(0.02))()
        profile.stop()
        assert any("pin_memory" in line for line in profile.advice()) == expected


def test_sleeping_in_train_batch_is_not_taken_for_the_model() -> None:
    profile = _profile()

    def busy() -> None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    backward = profile.timed("backward", busy)

    def train_batch() -> None:
        backward()
        time.sleep(0.2)

    profile.at_batch(0)
    profile.timed("train_batch", train_batch)()
    profile.stop()
    assert 0.2 <= profile.idle_seconds <= profile.seconds["train_batch"]
    (line,) = profile.advice()
    assert line.startswith("train_batch is idle ")
    assert "sleeps" in line


def test_the_table_keeps_its_names_where_there_is_no_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    train(LineTrial, {"tensorboard_path": tmp_path}, profiling_enabled=True)
    said = capfd.readouterr().err
    for part, what in PARTS.items():
        assert any(part in line and what in line for line in said.splitlines()), part


def _sampling() -> bool:
    return any(thread.name == "determined-profiler" for thread in threading.enumerate())


def test_the_machine_is_sampled_in_the_window_alone() -> None:
    profile = _profile(begin_on_batch=1, end_after_batch=1)
    sampled = []
    for batch_idx in range(3):
        profile.at_batch(batch_idx)
        sampled.append(_sampling())
    assert sampled == [False, True, False]


def test_a_save_that_training_waits_for_is_not_in_the_background() -> None:
    profile = _profile()
    write = profile.timed_in_background(lambda: time.sleep(0.01))
    profile.at_batch(0)
    profile.timed("checkpoint", write)()
    assert profile.background_seconds == 0
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    profile.stop()
    assert profile.background_seconds >= 0.01
    assert profile.calls["checkpoint"] == 1


def test_the_machine_is_summed_up_in_a_line() -> None:
    samples: list[tuple[str, dict[str, Any]]] = [
        ("cpu", {"node": {"cpu_util_simple": 40.0}}),
        ("cpu", {"node": {"cpu_util_simple": 60.0}}),
        ("memory", {"node": {"memory_free": 3e9}}),
        ("gpu", {"node": {"GPU-1": {"gpu_util": 90.0, "gpu_free_memory": 1.0}}}),
        ("disk", {"node": {"disk_iops": 1.0}}),
    ]
    line = machine_line(samples)
    assert line.endswith("processor 50% busy, GPU 90% busy, 3.0 GB of memory free.")
    assert machine_line([]) == ""


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
    said = capfd.readouterr().err
    assert "Where did the time go?" in said
    assert "The machine meanwhile: processor" in said
    points = read_points(tmp_path / "tb")
    for part in (*PARTS, "other"):
        assert [step for step, _ in points[f"Profile/{part}"]] == [2, 4, 6]


def test_a_run_without_profiling_wraps_nothing(tmp_path: Path) -> None:
    with pytorch.init(checkpoint_storage=tmp_path, tensorboard_path=tmp_path / "tb") as context:
        trial = LineTrial(context)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(2))
    assert not (tmp_path / "tb" / "profile.json").exists()


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_a_torch_trace_opens_as_chrome_json_and_holds_the_batches_of_its_window(
    tmp_path: Path,
) -> None:
    class Trial(LineTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            context.set_profiler(
                activities=[torch.profiler.ProfilerActivity.CPU],
                schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
            )

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            with torch.profiler.record_function(f"batch {batch_idx}"):
                return super().train_batch(batch, epoch_idx, batch_idx)

    train(Trial, {"tensorboard_path": tmp_path / "tb"}, max_length=pytorch.Batch(6))
    (file,) = (tmp_path / "tb").glob("*.pt.trace.json")
    events = json.loads(file.read_text())["traceEvents"]
    spans = {event["name"]: event for event in events if event.get("ph") == "X"}
    assert {name for name in spans if name.startswith("batch ")} == {"batch 2", "batch 3"}
    for batch_idx in (2, 3):
        step, batch = spans[f"ProfilerStep#{batch_idx}"], spans[f"batch {batch_idx}"]
        assert step["ts"] <= batch["ts"]
        assert batch["ts"] + batch["dur"] <= step["ts"] + step["dur"]
