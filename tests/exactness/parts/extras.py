"""What a trial may have besides: layers, second models, callbacks. Any of them go together."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from determined import pytorch
from determined.pytorch import callbacks

if TYPE_CHECKING:
    from tests.exactness.recipe import RecipeTrial

HIDDEN = 6
CHANGES_AT = 4  # the batch from which parts are frozen or not


class Extra:
    """Adds nothing; subclasses override what they add."""

    def layers(self) -> list[nn.Module]:
        """Return layers for the middle of the model."""
        return []

    def build(self, trial: RecipeTrial) -> None:
        """Add to a trial whose model and optimizer are wrapped."""

    def loss(self, trial: RecipeTrial, inputs: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss, with what this adds to it."""
        return loss

    def after_step(self, trial: RecipeTrial, inputs: torch.Tensor) -> None:
        """Train what is this part's own."""

    def evaluate(self, inputs: torch.Tensor) -> None:
        """See a batch of a validation."""

    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        """Return callbacks."""
        return {}


# Layers.


class Dropout(Extra):
    def layers(self) -> list[nn.Module]:
        return [nn.Dropout(0.3)]


class BatchNorm(Extra):
    def layers(self) -> list[nn.Module]:
        return [nn.BatchNorm1d(HIDDEN)]


class Drift(nn.Module):
    """Has a buffer that no state_dict holds, and that every training pass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.offset: torch.Tensor
        self.register_buffer("offset", torch.zeros(HIDDEN), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.offset += inputs.detach().mean(0).to(self.offset)
        return inputs + self.offset.to(inputs) / 10


class NonPersistentBuffer(Extra):
    def layers(self) -> list[nn.Module]:
        return [Drift()]


class Extended(nn.Module):
    """Has state that is no tensor, which it saves by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        return inputs * (1 + self.passes / 100)

    def get_extra_state(self) -> dict[str, int]:
        return {"passes": self.passes}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.passes = state["passes"]


class ExtraState(Extra):
    def layers(self) -> list[nn.Module]:
        return [Extended()]


# Modes and frozen parts.


class _AtEpochStart(pytorch.PyTorchCallback):
    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        for module in self.model.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.Dropout)):
                module.eval()


class FrozenBatchNorm(BatchNorm):
    """Batch norm and dropout that every epoch puts into evaluation mode."""

    def layers(self) -> list[nn.Module]:
        return [nn.BatchNorm1d(HIDDEN), nn.Dropout(0.3)]

    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"frozen batch norm": _AtEpochStart(trial.model)}


class _Switch(pytorch.PyTorchCallback):
    """Freezes or unfreezes the first layer at a batch."""

    def __init__(self, model: nn.Module, is_trained: bool) -> None:
        self.weights = next(model.parameters())
        self.is_trained = is_trained

    def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        if batch_idx == CHANGES_AT:
            self.weights.requires_grad_(self.is_trained)


class LaterUnfrozen(Extra):
    def build(self, trial: RecipeTrial) -> None:
        next(trial.model.parameters()).requires_grad_(False)

    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"unfreeze": _Switch(trial.model, True)}


class LaterFrozen(Extra):
    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"freeze": _Switch(trial.model, False)}


class ReferenceModel(Extra):
    """A frozen model in evaluation mode, wrapped like the others, gives a part of the target."""

    def build(self, trial: RecipeTrial) -> None:
        layers = nn.Linear(4, HIDDEN), nn.Dropout(0.5), nn.Linear(HIDDEN, 1)
        model = nn.Sequential(*layers).to(trial.recipe.torch_dtype).requires_grad_(False).eval()
        self.model = trial.context.wrap_model(model)

    def loss(self, trial: RecipeTrial, inputs: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        distance: torch.Tensor = ((trial.model(inputs) - self.model(inputs)) ** 2).mean()
        return loss + distance


class SecondModel(Extra):
    """Adversaries: gradients of one stay behind when the other is trained."""

    def build(self, trial: RecipeTrial) -> None:
        model = nn.Linear(1, 1).to(trial.recipe.torch_dtype)
        self.judge = trial.context.wrap_model(model)
        optimizer = torch.optim.RMSprop(self.judge.parameters(), lr=0.01)
        self.optimizer = trial.context.wrap_optimizer(optimizer)

    def loss(self, trial: RecipeTrial, inputs: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        judged: torch.Tensor = self.judge(trial.model(inputs))
        return loss + judged.mean() / 10

    def after_step(self, trial: RecipeTrial, inputs: torch.Tensor) -> None:
        judged: torch.Tensor = self.judge(inputs[:, :1])
        trial.context.backward((judged**2).mean())
        trial.context.step_optimizer(self.optimizer)


# Averages of weights.


class AverageByHand(pytorch.PyTorchCallback):
    """Validates with averaged weights, as tutorials show it."""

    def __init__(self, model: nn.Module, by_data: bool) -> None:
        self.model = model
        self.by_data = by_data
        self.average: dict[str, torch.Tensor] = {}
        self.own: dict[str, torch.Tensor] = {}

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: Any) -> None:
        for name, weight in self._weights():
            value = weight.detach()
            self.average[name] = 0.5 * self.average.get(name, value) + 0.5 * value

    def on_validation_start(self) -> None:
        self.own = {name: weight.detach().clone() for name, weight in self._weights()}
        if self.average:
            self._put(self.average)

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self._put(self.own)

    def state_dict(self) -> dict[str, Any]:
        return {"average": self.average}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.average = state_dict["average"]
        for name, weight in self._weights():  # it comes in main memory
            if name in self.average:
                self.average[name] = self.average[name].to(weight.device)

    def _weights(self) -> list[tuple[str, nn.Parameter]]:
        return list(self.model.named_parameters())

    @torch.no_grad()
    def _put(self, values: dict[str, torch.Tensor]) -> None:
        for name, weight in self._weights():
            if self.by_data:
                weight.data = values[name].clone()
            else:
                weight.copy_(values[name])


class Average(Extra):
    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"average": AverageByHand(trial.model, by_data=False)}


class AverageByData(Extra):
    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"average": AverageByHand(trial.model, by_data=True)}


class OurAverage(Extra):
    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"average": callbacks.ExponentialMovingAverage(trial.context, 0.8)}


# Callbacks with state.


class Pair(NamedTuple):
    """A named tuple of the trial's own code."""

    last: float
    total: float


@dataclasses.dataclass
class Tally:
    """A data class of the trial's own code."""

    batches: int = 0
    losses: list[float] = dataclasses.field(default_factory=list)


class Containers(pytorch.PyTorchCallback):
    """Has one of everything that Python offers to keep things in."""

    def __init__(self) -> None:
        self.counter: Counter[str] = Counter()
        self.by_default: defaultdict[str, list[int]] = defaultdict(list)
        self.newest: deque[int] = deque(maxlen=3)
        self.ordered: OrderedDict[str, int] = OrderedDict()
        self.numbers: set[int] = set()
        self.shared = torch.zeros(2)

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: Any) -> None:
        kind = ("even", "odd")[batch_idx % 2]
        self.counter[kind] += 1
        self.by_default[kind].append(batch_idx)
        self.newest.append(batch_idx)
        self.ordered[str(batch_idx)] = epoch_idx
        self.ordered.move_to_end(min(self.ordered))
        self.numbers.add(batch_idx % 5)
        self.shared += 1

    def state_dict(self) -> dict[str, Any]:
        return {**vars(self), "again": [self.shared, self.shared]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        assert state_dict["again"][0] is state_dict["again"][1], "sharing was lost"
        vars(self).update({k: v for k, v in state_dict.items() if k != "again"})


class ContainersOfAllKinds(Extra):
    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"containers": Containers()}


class OwnClasses(pytorch.PyTorchCallback):
    """Keeps objects of classes that are the trial's own."""

    def __init__(self) -> None:
        self.pair = Pair(0.0, 0.0)
        self.tally = Tally()

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: Any) -> None:
        self.pair = Pair(float(batch_idx), self.pair.total + batch_idx)
        self.tally.batches += 1
        self.tally.losses.append(float(batch_idx))

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)


class ObjectsOfOwnClasses(Extra):
    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"own classes": OwnClasses()}


class Hooks(pytorch.PyTorchCallback):
    """Counts the hooks that belong to the course of training, whoever interrupts it."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def _count(self, hook: str) -> None:
        self.calls[hook] = self.calls.get(hook, 0) + 1

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self._count("epoch start")

    def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        self._count("batch start")

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: Any) -> None:
        self._count("batch end")

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self._count("epoch end")

    def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
        self._count("workload end")

    def on_validation_start(self) -> None:
        self._count("validation start")

    def on_validation_epoch_start(self) -> None:
        self._count("validation epoch start")

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        self._count("validation epoch end")

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self._count("validation end")

    def state_dict(self) -> dict[str, Any]:
        return dict(self.calls)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.calls = dict(state_dict)


class CountsHooks(Extra):
    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"hooks": Hooks()}


class Draws(pytorch.PyTorchCallback):
    """Draws random numbers in hooks, and lets them into the learning rate."""

    def __init__(self, trial: RecipeTrial) -> None:
        self.trial = trial

    def _draw(self) -> None:
        drawn = random.random() + float(np.random.rand()) + float(torch.rand(()))
        for group in self.trial.optimizer.param_groups:
            group["weight_decay"] = drawn / 100

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self._draw()

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: Any) -> None:
        self._draw()

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self._draw()


class DrawsInHooks(Extra):
    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"draws": Draws(trial)}


class _StepsPlateau(pytorch.PyTorchCallback):
    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.scheduler.step(float(metrics["error"]))


class Plateau(Extra):
    """ReduceLROnPlateau, stepped by hand after each validation."""

    def build(self, trial: RecipeTrial) -> None:
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            trial.optimizer, factor=0.7, patience=0, threshold=1.0
        )
        mode = pytorch.LRScheduler.StepMode.MANUAL_STEP
        self.scheduler = trial.context.wrap_lr_scheduler(scheduler, mode)

    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"plateau": _StepsPlateau(self.scheduler)}


class OurCallbacks(Extra):
    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {
            "gradient norm": callbacks.GradientNorm(trial.context),
            "learning rate": callbacks.LearningRateMonitor(trial.context),
        }


class Guarded(Extra):
    def callbacks(self, trial: RecipeTrial) -> dict[str, pytorch.PyTorchCallback]:
        return {"guard": callbacks.LossGuard(trial.context)}


# Reducers.


class _Largest(pytorch.MetricReducer):
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.largest = -1e9

    def update(self, value: float) -> None:
        self.largest = max(self.largest, value)

    def per_slot_reduce(self) -> Any:
        return self.largest

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        return max(per_slot_metrics)


class Reducers(Extra):
    """A reducer class and a reducing function, for training and for validation."""

    def build(self, trial: RecipeTrial) -> None:
        self.largest: Any = trial.context.wrap_reducer(_Largest(), "largest")
        self.spread: Any = trial.context.wrap_reducer(lambda v: max(v) - min(v), "spread")

    def loss(self, trial: RecipeTrial, inputs: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        self.evaluate(inputs)
        return loss

    def evaluate(self, inputs: torch.Tensor) -> None:
        self.largest.update(float(inputs.max()))
        self.spread.update(float(inputs.min()))


EXTRAS: dict[str, type[Extra]] = {
    "dropout": Dropout,
    "batch norm": BatchNorm,
    "a buffer that is not persistent": NonPersistentBuffer,
    "extra state of a module": ExtraState,
    "layers in evaluation mode": FrozenBatchNorm,
    "a layer that is unfrozen later": LaterUnfrozen,
    "a layer that is frozen later": LaterFrozen,
    "a frozen reference model": ReferenceModel,
    "a second model": SecondModel,
    "averaged weights by hand": Average,
    "averaged weights by .data": AverageByData,
    "our averaged weights": OurAverage,
    "containers of all kinds": ContainersOfAllKinds,
    "objects of its own classes": ObjectsOfOwnClasses,
    "a count of hooks": CountsHooks,
    "random numbers in hooks": DrawsInHooks,
    "ReduceLROnPlateau": Plateau,
    "our callbacks": OurCallbacks,
    "our loss guard": Guarded,
    "reducers": Reducers,
}
