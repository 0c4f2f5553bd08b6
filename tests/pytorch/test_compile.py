"""`wrap_model(compile=...)`: torch.compile without a trace in checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from determined.pytorch import Batch, PyTorchTrialContext
from tests.support.trials import LineTrial, checkpoints, the_checkpoint, train

_graphs: list[torch.fx.GraphModule]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    global _graphs
    _graphs = []
    torch.compiler.reset()


def _backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    """Run the graph as it is, as backend="eager" does, and remember it."""
    _graphs.append(graph)
    return graph.forward


class _Net(torch.nn.Module):
    """A model of a user's own; torch does not compile its own layers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class _Compiled(LineTrial):
    options: Any = {"backend": _backend}

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.log, self.callbacks, self.context = [], {}, context
        self.inner = _Net()
        self.model = context.wrap_model(self.inner, compile=self.options)
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))


def test_compiled_model_trains_as_the_plain_one() -> None:
    trial = train(_Compiled, max_length=Batch(6))
    plain: LineTrial = train(max_length=Batch(6))
    assert trial.weight == plain.weight
    assert trial.model is trial.inner
    assert _graphs


def test_checkpoints_are_the_same_with_and_without_compilation() -> None:
    train(_Compiled, max_length=Batch(3))
    (path,) = checkpoints()[3]
    saved = torch.load(path / "state_dict.pth", weights_only=False)
    assert list(saved["models_state_dict"][0]) == ["weight"]
    plain: LineTrial = train(max_length=Batch(6), latest_checkpoint=the_checkpoint(3))
    (path,) = checkpoints()[6]
    assert plain.batches == [3, 4, 5]
    compiled = train(_Compiled, max_length=Batch(7), latest_checkpoint=path.name)
    assert compiled.batches == [6]


def test_nothing_is_compiled_unless_asked() -> None:
    trial_class = type("Trial", (_Compiled,), {"options": False})
    train(trial_class)
    assert _graphs == []


def test_compilation_goes_with_automatic_precision() -> None:
    class Trial(_Compiled):
        def __init__(self, context: PyTorchTrialContext) -> None:
            context.experimental.use_amp(torch.bfloat16)
            super().__init__(context)

    plain: LineTrial = train(max_length=Batch(6))
    assert train(Trial, max_length=Batch(6)).weight == pytest.approx(plain.weight, rel=0.02)
    assert _graphs
