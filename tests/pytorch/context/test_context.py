"""What the context tells, wraps, and does with gradients, data and TensorBoard."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from determined import pytorch
from determined.errors import InternalException, InvalidExperimentException
from determined.pytorch import (
    Batch,
    CheckpointLoadContext,
    Epoch,
    PyTorchCallback,
    PyTorchExperimentalContext,
    PyTorchTrialContext,
)
from tests.support.trials import LineTrial, line, one_weight, train


def _sgd(model: torch.nn.Module, lr: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


# Settings.


def test_a_bare_context_knows_no_settings(context: PyTorchTrialContext) -> None:
    for getter in (
        context.get_hparams,
        lambda: context.get_hparam("lr"),
        context.get_experiment_config,
        context.get_data_config,
        context.get_global_batch_size,
        context.get_per_slot_batch_size,
    ):
        with pytest.raises(ValueError, match=r"pytorch\.init"):
            getter()
    assert (context.get_experiment_id(), context.get_trial_id()) == (0, 0)
    assert context.get_initial_batch() == 0
    assert isinstance(context.get_trial_seed(), int)
    assert context.device == torch.device("cpu")
    assert (context.models, context.optimizers, context.lr_schedulers) == ([], [], [])
    assert context.profiler is None
    assert isinstance(context.experimental, PyTorchExperimentalContext)
    assert context.distributed.size == 1


def test_settings_are_those_given_to_init(caplog: pytest.LogCaptureFixture) -> None:
    hparams = {"lr": 0.1, "global_batch_size": 32}
    config = {"data": {"path": "/d"}, "reproducibility": {"experiment_seed": 17}}
    with pytorch.init(hparams=hparams, exp_conf=config) as context:
        assert context.get_hparams() is hparams
        assert context.get_hparam("lr") == 0.1
        assert context.get_experiment_config() is config
        assert context.get_data_config() == {"path": "/d"}
        assert context.get_global_batch_size() == context.get_per_slot_batch_size() == 32
        assert context.get_trial_seed() == 17
        with pytest.raises(ValueError, match="momentum"):
            context.get_hparam("momentum")
        assert not [r for r in caplog.records if r.levelname == "WARNING"]
        assert context.get_hparam("global_batch_size") == 32
    assert [r.name for r in caplog.records if r.levelname == "WARNING"] == ["determined.pytorch"]


def test_data_config_may_be_missing() -> None:
    with pytorch.init(exp_conf={}) as context:
        assert context.get_data_config() == {}


@pytest.mark.parametrize("size", ["32", 1.5, {"type": "const", "val": 2}])
def test_batch_size_must_be_a_whole_number(size: Any) -> None:
    with (
        pytest.raises(InvalidExperimentException, match="global_batch_size"),
        pytorch.init(hparams={"global_batch_size": size}),
    ):
        pass


def test_init_takes_keywords_only() -> None:
    with pytest.raises(TypeError):
        pytorch.init({})  # type: ignore[call-arg]


def test_flags_must_be_booleans(context: PyTorchTrialContext) -> None:
    assert not context.get_stop_requested()
    assert context.get_enable_tensorboard_logging()
    for wrong in (1, None, "yes"):
        with pytest.raises(AssertionError):
            context.set_stop_requested(wrong)  # type: ignore[arg-type]
        with pytest.raises(AssertionError):
            context.set_enable_tensorboard_logging(wrong)  # type: ignore[arg-type]
    context.set_enable_tensorboard_logging(False)
    assert not context.get_enable_tensorboard_logging()


def test_stop_request_is_logged(
    context: PyTorchTrialContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    context.set_stop_requested(True)
    assert context.get_stop_requested()
    assert [(r.name, r.levelname) for r in caplog.records] == [("determined.pytorch", "INFO")]


# Models, optimizers, schedulers.


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
    context.backward(model(torch.ones(1, 1, device=context.device)).sum())
    context.step_optimizer(optimizer)  # every batch counts as an update
    assert model.weight.item() == 0.0
    assert context.get_hparam("lr") == 1.0


# Gradients.


class _ByHand(LineTrial):
    """Batch `i` has the gradient `gradients[i]`, so updates can be added up in the head."""

    gradients: tuple[float, ...] = (1.0, 3.0, 5.0, 7.0)
    averages: bool | None = None

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.log = []
        self.callbacks = {}
        self.context = context
        self.model = context.wrap_model(one_weight())
        self.optimizer = context.wrap_optimizer(
            _sgd(self.model), average_aggregated_gradients=self.averages
        )
        self.weights: list[float] = []
        self.clipped: list[Any] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.context.backward(self.model(torch.full((1, 1), self.gradients[batch_idx])).sum())
        self.context.step_optimizer(self.optimizer, clip_grads=self.clip)
        self.weights.append(self.weight)
        return {"loss": 0.0}

    def clip(self, parameters: Any) -> None:
        self.clipped.append((type(parameters), [p.grad.item() for p in parameters]))


def test_every_batch_updates_without_aggregation() -> None:
    trial = train(_ByHand, max_length=Batch(4))
    assert trial.weights == [-1.0, -4.0, -9.0, -16.0]
    assert trial.clipped == [(list, [gradient]) for gradient in (1.0, 3.0, 5.0, 7.0)]


def test_aggregated_gradients_are_averaged_before_clipping() -> None:
    trial = train(_ByHand, {"aggregation_frequency": 2}, max_length=Batch(4))
    assert trial.weights == [0.0, -2.0, -2.0, -8.0]
    assert trial.clipped == [(list, [2.0]), (list, [6.0])]


def test_aggregated_gradients_are_summed_on_demand() -> None:
    trial_class = type("Trial", (_ByHand,), {"averages": False})
    trial = train(trial_class, {"aggregation_frequency": 2}, max_length=Batch(4))
    assert trial.weights == [0.0, -4.0, -4.0, -16.0]


def test_default_of_averaging_can_be_set() -> None:
    class Trial(_ByHand):
        def __init__(self, context: PyTorchTrialContext) -> None:
            context._set_default_average_aggregated_gradients(False)
            super().__init__(context)

    trial = train(Trial, {"aggregation_frequency": 2}, max_length=Batch(2))
    assert trial.weights == [0.0, -4.0]


def test_windows_ignore_epoch_limits_and_unfinished_ones_wait() -> None:
    class Trial(_ByHand):
        num_batches = 1
        gradients = (1.0, 1.0, 1.0, 1.0, 1.0)

    trial = train(Trial, {"aggregation_frequency": 3}, max_length=Epoch(5))
    assert trial.weights == [0.0, 0.0, -1.0, -1.0, -1.0]


def test_gradients_must_be_cleared_under_aggregation() -> None:
    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.context.step_optimizer(self.optimizer, auto_zero_grads=False)

    with pytest.raises(InvalidExperimentException, match="auto_zero_grads"):
        train(Trial, {"aggregation_frequency": 2})


def test_gradients_may_be_kept() -> None:
    class Trial(_ByHand):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.context.backward(self.model(torch.ones(1, 1, device=self.context.device)).sum())
            self.context.step_optimizer(self.optimizer, auto_zero_grads=False)
            self.weights.append(self.weight)
            return {"loss": 0.0}

    assert train(Trial, max_length=Batch(3)).weights == [-1.0, -3.0, -6.0]


def test_backward_passes_its_arguments_on(context: PyTorchTrialContext) -> None:
    weight = torch.nn.Parameter(torch.tensor([3.0]))
    context.backward(weight * weight, gradient=torch.tensor([2.0]), retain_graph=True)
    assert weight.grad is not None
    assert weight.grad.item() == 12.0
    loss = (weight * weight).sum()
    context.backward(loss, retain_graph=True)
    context.backward(loss)
    with pytest.raises(RuntimeError, match="second time"):
        context.backward(loss)


def test_stepping_an_unwrapped_optimizer_is_an_error(context: PyTorchTrialContext) -> None:
    context._begin_batch(0)
    with pytest.raises(InvalidExperimentException, match="wrap_optimizer"):
        context.step_optimizer(_sgd(one_weight()))


def test_scaler_argument_takes_the_step(context: PyTorchTrialContext) -> None:
    class Scaler:
        stepped: list[Any] = []

        def step(self, optimizer: Any) -> None:
            self.stepped.append(optimizer)

    model = one_weight()
    optimizer = context.wrap_optimizer(_sgd(context.wrap_model(model)))
    context._begin_batch(0)
    context.backward(model(torch.ones(1, 1, device=context.device)).sum())
    context.step_optimizer(optimizer, scaler=Scaler())
    assert Scaler.stepped == [optimizer]
    assert model.weight.item() == 0.0


def test_two_models_train_in_any_order_as_in_plain_torch() -> None:
    """A GAN in miniature: the discriminator's step happens between two backward passes."""

    def parts() -> tuple[torch.nn.Module, torch.nn.Module]:
        torch.manual_seed(0)
        return torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)

    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            self.log, self.callbacks, self.context = [], {}, context
            self.g, self.d = (context.wrap_model(model) for model in parts())
            self.opt_g, self.opt_d = (
                context.wrap_optimizer(torch.optim.Adam(m.parameters(), lr=0.05))
                for m in (self.g, self.d)
            )

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            x, _ = batch
            loss_d = self.d(self.g(x).detach()).mean() - self.d(x).mean()
            self.context.backward(loss_d)
            self.context.step_optimizer(self.opt_d)
            loss_g = -self.d(self.g(x)).mean()
            self.context.backward(loss_g)
            self.context.step_optimizer(self.opt_g)
            return {"loss_d": loss_d, "loss_g": loss_g}

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            return {"validation_loss": 0.0}

    trial = train(Trial, max_length=Batch(6))

    g, d = parts()
    opt_g, opt_d = (torch.optim.Adam(m.parameters(), lr=0.05) for m in (g, d))
    inputs = line(3).tensors[0].reshape(3, 2, 1)
    for x in [*inputs, *inputs]:
        loss = d(g(x).detach()).mean() - d(x).mean()
        loss.backward()
        opt_d.step()
        opt_d.zero_grad()
        loss = -d(g(x)).mean()
        loss.backward()
        opt_g.step()
        opt_g.zero_grad()
    for ours, plain in ((trial.g, g), (trial.d, d)):
        for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
            assert torch.equal(a, b)


# Data and TensorBoard.


class _Pair(NamedTuple):
    left: Any
    right: Any


def test_to_device_moves_the_nests_of_the_guide(context: PyTorchTrialContext) -> None:
    zeros = np.zeros((2, 2), dtype=np.float32)
    batch = {
        "data": [{"sub_data1": zeros}, {"sub_data2": torch.zeros(2)}],
        "label": (torch.zeros(2), np.arange(2)),
        "pair": _Pair(zeros, torch.zeros(1)),
    }
    moved: Any = context.to_device(batch)
    assert moved is not batch
    assert isinstance(moved["data"][0]["sub_data1"], torch.Tensor)
    assert moved["data"][0]["sub_data1"].dtype == torch.float32
    assert isinstance(moved["label"], tuple)
    assert torch.equal(moved["label"][1], torch.arange(2))
    assert isinstance(moved["pair"], _Pair)


def test_what_cannot_be_moved_is_named_once_per_type(
    context: PyTorchTrialContext, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert context.to_device(["text", 3, "more"]) == ["text", 3, "more"]
    messages = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(messages) == 2
    assert "str" in messages[0]
    assert "int" in messages[1]


def test_batches_may_be_left_where_they_are() -> None:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.experimental.disable_auto_to_device()

        def build_training_data_loader(self) -> Any:
            data = [np.float32(i) for i in range(6)]
            return pytorch.DataLoader(data, batch_size=2, collate_fn=np.asarray)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            assert isinstance(batch, np.ndarray)
            return {"loss": self.context.to_device(batch).sum()}  # type: ignore[union-attr]

    train(Trial)


def test_tensorboard_writer_is_one_and_lives_beside_the_events(tmp_path: Path) -> None:
    with pytorch.init(tensorboard_path=tmp_path / "tb") as context:
        writer = context.get_tensorboard_writer()
        assert context.get_tensorboard_writer() is writer
        assert context.get_tensorboard_path() == tmp_path / "tb"
        writer.add_scalar("mine", 1.0, 0)
        context._maybe_reset_tbd_writer()
        assert list((tmp_path / "tb").glob("*tfevents*"))


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_profiler_windows_span_batches(tmp_path: Path) -> None:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.set_profiler(
                activities=[torch.profiler.ProfilerActivity.CPU],
                schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
            )

    train(Trial, {"tensorboard_path": tmp_path / "tb"}, max_length=Batch(6))
    assert len(list((tmp_path / "tb").glob("*.pt.trace.json"))) == 1


def test_profiler_keeps_its_own_trace_handler(context: PyTorchTrialContext) -> None:
    with pytest.raises(TypeError, match="on_trace_ready"):
        context.set_profiler(on_trace_ready=print)


def test_old_names_of_reducer_methods_still_work(context: PyTorchTrialContext) -> None:
    reducer = context.experimental.wrap_reducer(sum, name="total")
    reducer.update(3)
    assert context.experimental.reduce_metrics(for_training=True) == {"total": 3}
    context.experimental.reset_reducers()
    assert context.reduce_metrics(for_training=True) == {"total": 0}


def test_callbacks_may_be_named_like_their_base() -> None:
    calls: list[str] = []
    base = PyTorchCallback

    class Callback(base):  # type: ignore[valid-type, misc]  # renamed below
        def on_training_start(self) -> None:
            calls.append("start")

    Callback.__name__ = Callback.__qualname__ = "PyTorchCallback"
    Callback.on_training_start.__qualname__ = "PyTorchCallback.on_training_start"

    class Trial(LineTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"mine": Callback()}

    train(Trial)
    assert calls == ["start"]


# Where training is.


def test_position_is_unknown_before_training(context: PyTorchTrialContext) -> None:
    for getter in (
        context.is_epoch_start,
        context.is_epoch_end,
        context.current_train_epoch,
        context.current_train_batch,
        context._should_communicate_and_update,
    ):
        with pytest.raises(InternalException):
            getter()


def test_position_is_known_while_training() -> None:
    seen: list[tuple[Any, ...]] = []

    class Trial(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            context = self.context
            seen.append(
                (
                    context.current_train_batch(),
                    context.current_train_epoch(),
                    context.is_epoch_start(),
                    context.is_epoch_end(),
                )
            )
            return super().train_batch(batch, epoch_idx, batch_idx)

    train(Trial, max_length=Batch(4))
    assert seen == [
        (0, 0, True, False),
        (1, 0, False, False),
        (2, 0, False, True),
        (3, 1, True, False),
    ]
