"""Mixed precision: automatic, by hand, and through the old interface of apex."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from determined import pytorch
from determined.errors import InvalidExperimentException
from determined.pytorch import Batch, PyTorchTrialContext
from tests.support.trials import LineTrial, checkpoints, one_weight, the_checkpoint, train


@pytest.fixture
def context() -> Iterator[PyTorchTrialContext]:
    with pytorch.init() as context:
        yield context


class _Tracing(torch.nn.Module):
    """Tells in which type its own product was computed."""

    def __init__(self, shape: Callable[[torch.Tensor], Any] = lambda output: output) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.shape = shape
        self.dtypes: list[torch.dtype] = []

    def forward(self, x: torch.Tensor) -> Any:
        output = self.layer(x)
        self.dtypes.append(output.dtype)
        return self.shape(output)


# Automatic.


class _AutoTrial(LineTrial):
    dtype: torch.dtype | None = torch.bfloat16

    def __init__(self, context: PyTorchTrialContext) -> None:
        context.experimental.use_amp(*([] if self.dtype is None else [self.dtype]))
        super().__init__(context)
        self.outputs: list[torch.dtype] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.outputs.append(self.model(batch[0]).dtype)
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_bfloat16_trains_on_the_cpu() -> None:
    trial = train(_AutoTrial, max_length=Batch(6))
    assert set(trial.outputs) == {torch.float32}  # outputs come back in full precision
    plain: LineTrial = train(max_length=Batch(6))
    assert trial.weight == pytest.approx(plain.weight, rel=0.02)
    assert trial.weight != plain.weight  # but what they were made of had fewer digits


def test_without_an_accelerator_the_default_stays_in_float32() -> None:
    trial_class = type("Trial", (_AutoTrial,), {"dtype": None})
    plain: LineTrial = train(max_length=Batch(6))
    assert train(trial_class, max_length=Batch(6)).weight == plain.weight


def test_scaler_of_automatic_precision_is_checkpointed() -> None:
    train(_AutoTrial, max_length=Batch(3))
    (path,) = checkpoints()[3]
    saved = torch.load(path / "state_dict.pth", weights_only=False)
    assert "scaler_state_dict" in saved
    assert list(saved["models_state_dict"][0]) == ["weight"]
    trial = train(_AutoTrial, max_length=Batch(4), latest_checkpoint=the_checkpoint(3))
    assert trial.batches == [3]


class _FloatingTrial(_AutoTrial):
    dtype = torch.float16


def test_float16_scales_the_loss_and_unscales_before_clipping() -> None:
    seen: list[float] = []

    class Trial(_FloatingTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            (weight,) = self.model.parameters()
            self.context.backward(
                self.model(torch.ones(1, 1, device=self.context.device)).sum() / 4
            )
            assert weight.grad is not None
            seen.append(weight.grad.item())
            self.context.step_optimizer(self.optimizer, clip_grads=self.clip)
            return {"loss": 0.0}

        def clip(self, parameters: Any) -> None:
            seen.extend(p.grad.item() for p in parameters)

    trial = train(Trial, max_length=Batch(1))
    assert seen == [0.25 * trial.context._scaler.get_scale(), 0.25]
    assert trial.context._scaler.get_scale() > 1
    assert trial.weight == pytest.approx(-0.0025)


def test_scale_is_updated_once_per_update_batch() -> None:
    updates: list[int] = []

    class Trial(_FloatingTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            update = context._scaler.update

            def counted() -> None:
                updates.append(context.current_train_batch())
                update()

            context._scaler.update = counted

    train(Trial, {"aggregation_frequency": 2}, max_length=Batch(6))
    assert updates == [1, 3, 5]


def test_autocast_reaches_the_forward_pass_only(context: PyTorchTrialContext) -> None:
    context.experimental.use_amp(torch.bfloat16)
    nest = _Tracing(lambda out: {"a": [out, (out, 3)], "n": None})
    model = context.wrap_model(nest)
    output = model(torch.ones(1, 4, device=context.device))
    assert nest.dtypes == [torch.bfloat16]
    assert output["a"][0].dtype == output["a"][1][0].dtype == torch.float32
    assert output["a"][1][1] == 3
    assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_outputs_keep_their_types(context: PyTorchTrialContext) -> None:
    class Output(dict[str, Any]):
        """As model libraries have them: a dictionary with attributes."""

        def __getattr__(self, name: str) -> Any:
            return self[name]

    class Pair(NamedTuple):
        left: torch.Tensor
        right: torch.Tensor

    context.experimental.use_amp(torch.bfloat16)
    model = context.wrap_model(_Tracing(lambda out: Output(logits=out, pair=Pair(out, out))))
    output = model(torch.ones(1, 4, device=context.device))
    assert output.logits.dtype == torch.float32
    assert isinstance(output.pair, Pair)
    assert output.pair.right.dtype == torch.float32


def test_outputs_of_unknown_types_are_named_once(
    context: PyTorchTrialContext, caplog: pytest.LogCaptureFixture
) -> None:
    class Output:
        pass

    context.experimental.use_amp(torch.bfloat16)
    model = context.wrap_model(_Tracing(lambda out: [Output(), Output()]))
    model(torch.ones(1, 4, device=context.device))
    messages = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(messages) == 1
    assert "Output" in messages[0]


def test_wrapped_model_is_still_the_users(context: PyTorchTrialContext) -> None:
    context.experimental.use_amp(torch.bfloat16)
    inner: Any = _Tracing()
    keys, name = list(inner.state_dict()), type(inner).__name__
    model: Any = context.wrap_model(inner)
    model.extra = 3
    assert inner.extra == 3
    del inner.extra
    assert not hasattr(model, "extra")
    assert list(model.state_dict()) == keys
    assert isinstance(model, _Tracing)
    assert type(model).__name__ == name
    assert not hasattr(context, "model")


def test_a_copy_runs_its_own_weights(context: PyTorchTrialContext) -> None:
    context.experimental.use_amp(torch.bfloat16)
    model = context.wrap_model(_Tracing())
    twin: Any = copy.deepcopy(model)  # as for an average of weights
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    x = torch.ones(1, 4, device=context.device)
    assert twin(x).abs().sum() == 0
    assert model(x).abs().sum() > 0
    assert twin.dtypes[-1] == torch.bfloat16


def test_forward_pass_may_be_wrapped_alone(context: PyTorchTrialContext) -> None:
    model = _Tracing()
    assert context.autocast_forward_pass(model)(torch.ones(1, 4)).dtype == torch.float32
    assert model.dtypes == [torch.bfloat16]


# By hand.


def test_manual_scaler_is_stepped_by_the_context_and_saved() -> None:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=4.0))
            super().__init__(context)
            self.clipped: list[float] = []

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            loss = self.scaler.scale(self.model(torch.ones(1, 1, device=self.context.device)).sum())
            self.context.backward(loss)
            self.context.step_optimizer(
                self.optimizer,
                clip_grads=lambda params: self.clipped.append(params[0].grad.item()),  # type: ignore[index]
                scaler=self.scaler,
            )
            self.scaler.update(2.0)
            return {"loss": loss}

    trial = train(Trial, max_length=Batch(1))
    assert trial.clipped == [4.0]  # unscaling before the clip is the user's business here
    assert trial.weight == pytest.approx(-0.01)
    (path,) = checkpoints()[1]
    saved = torch.load(path / "state_dict.pth", weights_only=False)
    assert saved["scaler_state_dict"]["scale"] == 2.0
    resumed = train(Trial, max_length=Batch(1), latest_checkpoint=the_checkpoint(1))
    assert resumed.scaler.get_scale() == 2.0


@pytest.mark.parametrize("has_now", [True, False])
def test_a_scaler_on_one_side_of_a_resume_is_a_warning(
    caplog: pytest.LogCaptureFixture, has_now: bool
) -> None:
    first, second = (LineTrial, _AutoTrial) if has_now else (_AutoTrial, LineTrial)
    train(first, max_length=Batch(1))
    caplog.clear()
    train(second, max_length=Batch(2), latest_checkpoint=the_checkpoint(1))
    assert any("scaler" in r.getMessage() for r in caplog.records if r.levelname == "WARNING")


# Apex.


def test_apex_that_is_not_enabled_changes_nothing(context: PyTorchTrialContext) -> None:
    model = context.wrap_model(one_weight())
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    assert context.configure_apex_amp(model, optimizer, enabled=False) == (model, optimizer)
    assert not context._use_apex


def test_apex_needs_cuda_and_is_deprecated(context: PyTorchTrialContext) -> None:
    model = context.wrap_model(one_weight())
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    with (
        pytest.warns(FutureWarning, match="use_amp"),
        pytest.raises(InvalidExperimentException, match="CUDA"),
    ):
        context.configure_apex_amp(model, optimizer)


def test_apex_and_an_active_scaler_exclude_each_other(context: PyTorchTrialContext) -> None:
    context.wrap_scaler(torch.amp.GradScaler("cpu"))
    model = context.wrap_model(one_weight())
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    with pytest.raises(InvalidExperimentException, match="scaler"):
        context.configure_apex_amp(model, optimizer)


def test_nothing_is_wrapped_after_apex(context: PyTorchTrialContext) -> None:
    model = context.wrap_model(one_weight())
    context._use_apex = True  # as configure_apex_amp leaves it on a machine with apex
    with pytest.raises(InvalidExperimentException, match="wrap_model"):
        context.wrap_model(one_weight())
    with pytest.raises(InvalidExperimentException, match="wrap_optimizer"):
        context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    with pytest.raises(InvalidExperimentException, match="apex"):
        context.wrap_scaler(torch.amp.GradScaler("cpu", enabled=False))
    with (
        pytest.warns(FutureWarning),
        pytest.raises(InvalidExperimentException, match="once"),
    ):
        context.configure_apex_amp(model, [])
