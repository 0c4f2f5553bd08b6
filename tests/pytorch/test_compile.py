"""`wrap_model(compile=...)`: torch.compile without a trace in checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from determined.pytorch import Batch, DataLoader, PyTorchTrialContext
from determined.pytorch.callbacks import ExponentialMovingAverage
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


def test_checkpoints_are_the_same_with_and_without_compilation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train(_Compiled, max_length=Batch(2))
    train(_Compiled, max_length=Batch(3), latest_checkpoint=the_checkpoint(2))
    assert "compiled model" not in caplog.text
    (path,) = checkpoints()[3]
    saved = torch.load(path / "state_dict.pth", weights_only=False)
    assert list(saved["models_state_dict"][0]) == ["weight"]
    plain: LineTrial = train(max_length=Batch(6), latest_checkpoint=the_checkpoint(3))
    (path,) = checkpoints()[6]
    assert plain.batches == [3, 4, 5]
    assert "0 compiled models instead of 1" in caplog.text
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


def test_compilation_goes_with_accumulation() -> None:
    settings = {"aggregation_frequency": 2}
    plain: LineTrial = train(LineTrial, settings, max_length=Batch(6))
    assert train(_Compiled, settings, max_length=Batch(6)).weight == plain.weight
    assert _graphs


def test_compilation_goes_with_a_moving_average() -> None:
    def averaged(trial_class: type[LineTrial]) -> list[float]:
        class Trial(trial_class):  # type: ignore[misc, valid-type]  # each of them
            def __init__(self, context: PyTorchTrialContext) -> None:
                super().__init__(context)
                self.callbacks = {"ema": ExponentialMovingAverage(context, 0.5)}

        trial = train(Trial, max_length=Batch(6))
        with trial.callbacks["ema"].averaged():
            return [trial.weight]

    assert averaged(_Compiled) == averaged(LineTrial)
    assert _graphs


@pytest.mark.parametrize(("options", "graphs"), [({}, 2), ({"dynamic": True}, 1)])
def test_a_short_last_batch_compiles_again_unless_sizes_are_dynamic(
    options: dict[str, Any], graphs: int
) -> None:
    class Uneven(_Compiled):
        def build_training_data_loader(self) -> Any:
            x = torch.arange(10.0).reshape(10, 1)
            return DataLoader(torch.utils.data.TensorDataset(x, 2 * x), batch_size=4)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return {"loss": loss}

        def build_validation_data_loader(self) -> Any:
            return None

    trial_class = type("Trial", (Uneven,), {"options": {"backend": _backend, **options}})
    train(trial_class, max_length=Batch(9))
    assert len(_graphs) == graphs
