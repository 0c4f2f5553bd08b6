"""What a trial trains with, and the order in which it may be wrapped."""

from __future__ import annotations

import pytest
import torch

from determined.errors import InvalidExperimentException
from determined.pytorch import CheckpointLoadContext, PyTorchTrialContext
from tests.support.trials import one_weight


def _sgd(model: torch.nn.Module, lr: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def test_wrapped_parts_are_registered_in_order(context: PyTorchTrialContext) -> None:
    first, second = one_weight(), one_weight()
    assert context.wrap_model(first) is first
    assert context.wrap_model(second) is second
    optimizers = [_sgd(first), _sgd(second)]
    assert [context.wrap_optimizer(optimizer) for optimizer in optimizers] == optimizers
    assert context.models == [first, second]
    assert context.optimizers == optimizers
    assert [name for name, _ in context._main_model.named_children()] == ["model_0", "model_1"]
    assert not hasattr(context, "model")


def test_backward_passes_per_step_must_be_positive(context: PyTorchTrialContext) -> None:
    model = context.wrap_model(one_weight())
    with pytest.raises(InvalidExperimentException, match="backward_passes_per_step"):
        context.wrap_optimizer(_sgd(model), backward_passes_per_step=0)


def test_scaler_must_come_first_and_alone(context: PyTorchTrialContext) -> None:
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    assert context.wrap_scaler(scaler) is scaler
    with pytest.raises(InvalidExperimentException, match="only one"):
        context.wrap_scaler(scaler)
    with pytest.raises(InvalidExperimentException, match="only one"):
        context.experimental.use_amp()


def test_scaler_after_a_model_is_an_error(context: PyTorchTrialContext) -> None:
    context.wrap_model(one_weight())
    with pytest.raises(InvalidExperimentException, match="before any model"):
        context.wrap_scaler(torch.amp.GradScaler("cpu", enabled=False))


def test_unmanaged_context_leaves_everything_alone() -> None:
    context = CheckpointLoadContext(hparams={"lr": 1.0})
    model = one_weight(1.0)
    optimizer = _sgd(model)
    assert context.wrap_model(model) is model
    assert context.wrap_optimizer(optimizer, backward_passes_per_step=0) is optimizer
    assert context.configure_apex_amp(model, optimizer) == (model, optimizer)
    context.backward(model(torch.ones(1, 1)).sum())
    context.step_optimizer(optimizer)  # every batch counts as an update
    assert model.weight.item() == 0.0
    assert context.get_hparam("lr") == 1.0
