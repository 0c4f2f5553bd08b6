from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.errors import InvalidHP
from determined.pytorch import Batch, PyTorchCallback, PyTorchTrialContext
from determined.pytorch.callbacks import ExponentialMovingAverage, LossGuard
from tests.pytorch.callbacks.trials import (
    MakeCallbacks,
    NormTrial,
    all_saved_are_finite,
    copied,
    equal,
    fit,
    saved,
)
from tests.support.trials import LineTrial, checkpoints, the_checkpoint
from tests.support.workers import run_workers


def _guard(action: Any = "stop", **options: Any) -> MakeCallbacks:
    return lambda context: {"guard": LossGuard(context, action, **options)}


def _of(trial: LineTrial) -> LossGuard:
    guard = trial.callbacks["guard"]
    assert isinstance(guard, LossGuard)
    return guard


class Bad(NormTrial):
    bad = (4,)


class LeavingOut(NormTrial):
    """Does by hand what the guard should do: leaves batches out."""

    left_out: tuple[int, ...] = (4,)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx in self.left_out:
            return {"loss": torch.tensor(0.0)}
        return super().train_batch(batch, epoch_idx, batch_idx)


# Stopping.


def test_stop_saves_the_weights_before_the_bad_update() -> None:
    trial = fit(_guard(), 10, Bad, reporting_period=Batch(100))
    good = fit(lambda _: {}, 4, NormTrial, {"run_id": "other"})
    assert trial.batches == [0, 1, 2, 3, 4]
    assert equal(copied(trial.model), copied(good.model))
    assert equal(saved(5)["models_state_dict"][0], copied(good.model))
    assert all_saved_are_finite()


def test_stopped_run_resumes_after_the_bad_batch() -> None:
    fit(_guard(), 10, Bad)
    resumed = fit(_guard(), 10, Bad, latest_checkpoint=the_checkpoint(5))
    assert resumed.batches == [5, 6, 7, 8, 9]
    assert equal(copied(resumed.model), copied(fit(lambda _: {}, 10, LeavingOut).model))
    assert _of(resumed).refused == 1


def test_searcher_is_told_of_a_stop(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "determined")
    fit(_guard(), 10, Bad)
    assert "report_early_exit(reason=INVALID_HP)" in caplog.messages
    assert any("Batch 4: the gradients of Adam are not finite" in m for m in caplog.messages)


# Skipping.


def test_skipped_batch_leaves_no_trace() -> None:
    trial = fit(_guard("skip"), 8, Bad)
    assert equal(copied(trial.model), copied(fit(lambda _: {}, 8, LeavingOut).model))
    assert trial.optimizer.state_dict()["state"][0]["step"] == 7
    assert _of(trial).refused == 1


@pytest.mark.parametrize("cut", [3, 5])
def test_skipping_run_resumes_exactly(cut: int) -> None:
    unbroken = fit(_guard("skip"), 8, Bad)
    fit(_guard("skip"), cut, Bad)
    resumed = fit(_guard("skip"), 8, Bad, latest_checkpoint=the_checkpoint(cut))
    assert equal(copied(resumed.model), copied(unbroken.model))
    assert _of(resumed).state_dict() == _of(unbroken).state_dict()


def test_whole_window_is_left_out_if_one_of_its_batches_is_bad() -> None:
    class Window(LeavingOut):
        left_out = (4, 5)

    init = {"aggregation_frequency": 2}
    trial = fit(_guard("skip"), 8, Bad, init)
    by_hand = fit(lambda _: {}, 8, Window, init)
    assert equal(copied(trial.model), copied(by_hand.model))


@pytest.mark.parametrize("cut", [4, 5, 7])  # before, after and beyond the bad batch
def test_run_resumes_exactly_inside_a_window(cut: int) -> None:
    init = {"aggregation_frequency": 3}
    unbroken: Any = fit(_guard("skip"), 9, Bad, init)
    fit(_guard("skip"), cut, Bad, init)
    buffers = saved(cut)["models_state_dict"][0]["norm.running_mean"]
    assert buffers.isfinite().all()  # the checkpoint is fit for use
    resumed: Any = fit(_guard("skip"), 9, Bad, init, latest_checkpoint=the_checkpoint(cut))
    assert equal(copied(resumed.model), copied(unbroken.model))
    assert _of(resumed).state_dict() == _of(unbroken).state_dict()
    assert all(
        torch.equal(one, other)
        for one, other in zip(
            resumed.after_batch[0].values(), unbroken.after_batch[cut].values(), strict=True
        )
        if one.isfinite().all()
    )


def test_bad_batches_without_end_stop_the_run() -> None:
    class AllBad(NormTrial):
        bad = tuple(range(3, 100))

    trial = fit(_guard("skip"), 60, AllBad, reporting_period=Batch(100))
    assert trial.batches == list(range(13))
    assert all_saved_are_finite()


def test_scheduler_goes_on_when_the_first_update_is_skipped() -> None:
    class FirstBad(NormTrial):
        bad = (0,)

        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.wrap_lr_scheduler(
                torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5),
                pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH,
            )

    trial = fit(_guard("skip"), 3, FirstBad)
    assert trial.optimizer.param_groups[0]["lr"] == 0.01 / 8


def test_update_that_a_scaler_leaves_out_does_not_spoil_buffers() -> None:
    class Scaled(Bad):
        def __init__(self, context: PyTorchTrialContext) -> None:
            self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=4.0))
            super().__init__(context)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            x, y = batch
            if batch_idx in self.bad:
                x = x * torch.nan
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.context.backward(self.scaler.scale(loss))
            self.context.step_optimizer(self.optimizer, scaler=self.scaler)
            self.scaler.update()
            return {"loss": loss}

    trial = fit(_guard("skip"), 8, Scaled)
    assert _of(trial).refused == 0
    assert all_saved_are_finite()


# Rolling back.


def test_rollback_goes_back_to_the_last_report_and_on_with_the_next_batch() -> None:
    class LeavingOutMore(LeavingOut):
        left_out = (6, 7)

    class Later(NormTrial):
        bad = (7,)

    trial = fit(_guard("rollback"), 10, Later, reporting_period=Batch(3))
    by_hand = fit(lambda _: {}, 10, LeavingOutMore)
    assert trial.batches == list(range(10))
    assert equal(copied(trial.model), copied(by_hand.model))
    assert (_of(trial).refused, _of(trial).rollbacks) == (1, 1)


def test_rollbacks_are_bounded() -> None:
    class Often(NormTrial):
        bad = (3, 5, 7)

    trial = fit(_guard("rollback", max_rollbacks=2), 12, Often)
    assert trial.batches == list(range(8))
    assert _of(trial).rollbacks == 2
    assert all_saved_are_finite()


@pytest.mark.parametrize("cut", [6, 8])
def test_rolling_back_run_resumes_exactly(cut: int) -> None:
    class Later(NormTrial):
        bad = (7,)

    unbroken = fit(_guard("rollback"), 12, Later, checkpoint_period=Batch(6))
    fit(_guard("rollback"), cut, Later, {"run_id": "cut"})
    path = max(checkpoints()[cut], key=lambda path: path.stat().st_mtime_ns)
    resumed = fit(_guard("rollback"), 12, Later, latest_checkpoint=path.name)
    assert equal(copied(resumed.model), copied(unbroken.model))
    assert _of(resumed).rollbacks == _of(unbroken).rollbacks == 1


def test_state_to_go_back_to_is_that_of_the_last_report_after_a_stop() -> None:
    class Later(NormTrial):
        bad = (6,)

    class Stop(PyTorchCallback):
        def __init__(self, context: PyTorchTrialContext) -> None:
            self._context = context

        def on_training_batch_end(
            self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
        ) -> None:
            if batch_idx == 4:
                backend: Any = self._context._core._backend
                backend.request_preemption()

    def with_stop(context: PyTorchTrialContext) -> dict[str, PyTorchCallback]:
        return {**_guard("rollback")(context), "stop": Stop(context)}

    unbroken = fit(_guard("rollback"), 9, Later, reporting_period=Batch(4))
    fit(with_stop, 9, Later, {"run_id": "cut"}, reporting_period=Batch(4))
    resumed = fit(
        _guard("rollback"),
        9,
        Later,
        {"run_id": "cut"},
        reporting_period=Batch(4),
        latest_checkpoint=the_checkpoint(5),
    )
    assert resumed.batches == [5, 6, 7, 8]
    assert equal(copied(resumed.model), copied(unbroken.model))


class Exploding(NormTrial):
    """A finite gradient and a huge step: only the weights become infinite."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        group = self.optimizer.param_groups[0]
        group["lr"], group["weight_decay"] = (1e38, 1e3) if batch_idx == 5 else (0.01, 0.0)
        return super().train_batch(batch, epoch_idx, batch_idx)


@pytest.mark.parametrize("action", ["stop", "skip"])
def test_infinite_weights_are_an_error_and_are_not_saved(action: str) -> None:
    with pytest.raises(FloatingPointError, match="After batch 5: weights, buffers or optimizer"):
        fit(_guard(action), 8, Exploding, checkpoint_period=Batch(2))
    assert sorted(checkpoints()) == [2, 4]
    assert all_saved_are_finite()


def test_infinite_weights_are_rolled_back_with_their_average() -> None:
    def make(context: PyTorchTrialContext) -> dict[str, PyTorchCallback]:
        ema = ExponentialMovingAverage(context, 0.5)
        return {"ema": ema, "guard": LossGuard(context, "rollback", callbacks=[ema])}

    trial = fit(make, 8, Exploding, checkpoint_period=Batch(2))
    assert _of(trial).rollbacks == 1
    assert sorted(checkpoints()) == [2, 4, 6, 8]
    assert all_saved_are_finite()


def test_nothing_infinite_is_saved_on_the_way_out(caplog: pytest.LogCaptureFixture) -> None:
    class Invalid(Exploding):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 6:
                raise InvalidHP("too large")
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(InvalidHP, match="too large"):
        fit(_guard(), 8, Invalid, reporting_period=Batch(100), checkpoint_period=Batch(100))
    assert checkpoints() == {}
    assert "Not saved after the error: weights are not finite." in caplog.messages


# Spikes.


class Spike(LineTrial):
    """All records are the same, but for one batch."""

    num_batches = 40
    learning_rate = 1e-4
    spike = 30

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x = torch.full((2, 1), 50.0 if batch_idx == self.spike else 1.0)
        return super().train_batch((x, 2 * x), epoch_idx, batch_idx)


def test_large_gradients_pass_before_there_is_a_mean_to_compare_with() -> None:
    class Early(Spike):
        spike = 5

    assert _of(fit(_guard("skip", spike_factor=100.0), 10, Early)).refused == 0


def test_spike_is_skipped_and_resume_remembers_the_mean(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = _guard("skip", spike_factor=100.0)
    unbroken = fit(guard, 35, Spike)
    assert _of(unbroken).refused == 1
    assert "times the mean of" in caplog.text
    fit(guard, 29, Spike, {"run_id": "cut"})
    resumed = fit(guard, 35, Spike, latest_checkpoint=the_checkpoint(29))
    assert _of(resumed).refused == 1
    assert resumed.weight == unbroken.weight


# Files, arguments, ranks.


def test_bad_batches_are_saved_for_inspection(tmp_path: Path) -> None:
    fit(_guard("skip", save_batch_to=tmp_path / "bad"), 8, Bad, {"aggregation_frequency": 2})
    files = sorted((tmp_path / "bad").iterdir())
    assert [file.name for file in files] == ["batch_4_rank_0.pt", "batch_5_rank_0.pt"]
    content = torch.load(files[0])
    assert (content["epoch_idx"], content["batch_idx"]) == (0, 4)
    assert content["batch"][0].tolist() == [[9.0], [10.0]]
    assert "loss" in torch.load(files[1])["metrics"]


def test_batch_that_cannot_be_saved_does_not_end_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    trial = fit(_guard("skip", save_batch_to=tmp_path / "file"), 8, Bad)
    assert trial.batches == list(range(8))
    assert "Batch 4 could not be saved" in caplog.text


def test_optimizer_is_left_as_it_was() -> None:
    assert not fit(_guard(), 2, NormTrial).optimizer._optimizer_step_pre_hooks


def test_guard_that_finds_nothing_changes_nothing() -> None:
    guarded = fit(_guard("rollback", spike_factor=1e6), 8, NormTrial)
    assert equal(copied(guarded.model), copied(fit(lambda _: {}, 8, NormTrial).model))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"action": "ignore"}, "action"),
        ({"spike_factor": 1}, "spike"),
        ({"max_rollbacks": -1}, "max"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        fit(_guard(**options), 1)


@pytest.mark.multiprocess
def test_batch_that_is_bad_on_one_rank_is_left_out_on_all(tmp_path: Path) -> None:
    first, second = run_workers(2, _train_on_a_rank, str(tmp_path))
    for action in ("skip", "rollback", "stop"):
        assert first[action]["batches"] == second[action]["batches"], action
        assert equal(first[action]["parameters"], second[action]["parameters"]), action
        assert first[action]["refused"] == second[action]["refused"] == 1, action
    assert first["stop"]["batches"] == [0, 1, 2, 3]
    assert all_saved_are_finite(tmp_path / "storage")


class BadOnTheSecondRank(NormTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.bad = (3,) if self.context.distributed.rank == 1 else ()
        return super().train_batch(batch, epoch_idx, batch_idx)


def _train_on_a_rank(directory: str) -> dict[str, Any]:
    os.chdir(directory)
    os.environ["DET_STORAGE"] = f"{directory}/storage"
    found = {}
    for action in ("skip", "rollback", "stop"):
        trial = fit(_guard(action), 5, BadOnTheSecondRank)
        found[action] = {
            "batches": trial.batches,
            "parameters": {n: p.detach() for n, p in trial.model.named_parameters()},
            "refused": _of(trial).refused,
        }
    return found
