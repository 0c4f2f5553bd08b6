"""An average of the weights over time, used for validation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._checkpoint.files.shards import place_like
from determined.pytorch._checkpoint.state.averages import KIND
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._ranks.fsdp import local_part
from determined.pytorch.callbacks._gradients import are_finite
from determined.pytorch.callbacks._module_tensors import ModuleTensor, tensors_of


class ExponentialMovingAverage(PyTorchCallback):
    """Keeps a moving average of the weights, and validates with it.

    After every optimizer update, `average = decay * average + (1 - decay) * weights`, for
    parameters and for buffers of finite real numbers (such as batch norm statistics). For a
    validation the models get the average; before training continues they get their own weights
    back, bit for bit. Training itself is not changed.

    Checkpoints hold the training weights as usual, and the average in the state of this callback.
    `load_trial_from_checkpoint_path(path, ema=True)` loads the average, and
    `fit(export="safetensors-ema")` exports it.

    Args:
        context: The trial's context.
        decay: The share of the average that is kept at each update.
        warmup: Start with a smaller decay, `(1 + updates) / (10 + updates)`, so that a short run
            soon forgets its initial weights.
        models: Wrapped models to average; by default all.
    """

    averages_weights = True

    def __init__(
        self,
        context: PyTorchTrialContext,
        decay: float = 0.999,
        *,
        warmup: bool = False,
        models: Sequence[nn.Module] | None = None,
    ) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"`decay` must be at least 0 and below 1, got {decay!r}.")
        self._context = context
        self._decay = decay
        self._warmup = warmup
        self._models = models
        self._updates = 0
        self._loaded: list[Mapping[str, torch.Tensor]] | None = None
        self._entries: list[ModuleTensor] = []
        self._average: list[torch.Tensor] = []
        self._training_weights: list[torch.Tensor] | None = None

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the models the average inside a `with` block, for example to export them."""
        self._swap_in()
        try:
            yield
        finally:
            self._swap_out()

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Forget an earlier `fit`."""
        self._entries = []

    def on_training_start(self) -> None:
        """Begin with the weights as they are, or continue the average of the checkpoint."""
        models = self._context.models if self._models is None else self._models
        self._entries = [entry for entry in tensors_of(models) if _is_averaged(entry)]
        self._average = [_copy(tensor) for tensor in self._weights()]
        if self._loaded is not None:
            self._restore(self._loaded)
            self._loaded = None

    @torch.no_grad()
    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        """Move the average a little towards the new weights."""
        if not self._context._should_communicate_and_update():
            return
        decay = self._decay
        if self._warmup:
            decay = min(decay, (1 + self._updates) / (10 + self._updates))
        self._updates += 1
        average = _local(self._average)
        weights = _local(self._weights())
        weights = [w.to(a.dtype) for a, w in zip(average, weights, strict=True)]
        torch._foreach_lerp_(average, weights, 1 - decay)

    def on_validation_start(self) -> None:
        """Validate with the average."""
        if self._context.distributed.size > 1:
            # Each rank sees other batches, so its buffers have another history; the chief's count.
            for entry, average in zip(self._entries, self._average, strict=True):
                if entry.is_buffer:
                    dist.broadcast(average, src=0)
        self._swap_in()

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """Restore the training weights."""
        self._swap_out()

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Save the weights also when a validation was broken off.

        `checkpoint` refers to the tensors of the models, so that it changes with them.
        """
        self._swap_out()

    def on_trial_shutdown(self) -> None:
        """Leave the models with their own weights, also after an error in a validation."""
        self._swap_out()

    def state_dict(self) -> dict[str, Any]:
        """Return the average of each model, by the names of its own state_dict."""
        models = self._context.models
        indices = [
            next(index for index, model in enumerate(models) if model is averaged)
            for averaged in (models if self._models is None else self._models)
        ]
        averages = self._by_model()
        return {
            "kind": KIND,
            "updates": self._updates,
            "models": averages,
            "model_indices": indices[: len(averages)],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the average back: when training starts, or at once if it runs."""
        self._updates = state_dict["updates"]
        if self._entries:
            self._restore(state_dict["models"])
        else:
            self._loaded = state_dict["models"]

    def _weights(self) -> list[torch.Tensor]:
        return [entry.tensor for entry in self._entries]

    def _by_model(self) -> list[dict[str, torch.Tensor]]:
        models: list[dict[str, torch.Tensor]] = []
        for entry, average in zip(self._entries, self._average, strict=True):
            while len(models) <= entry.model_index:
                models.append({})
            models[entry.model_index][entry.key] = average
        return models

    def _restore(self, saved: list[Mapping[str, torch.Tensor]]) -> None:
        models = self._by_model()
        expected, found = ([sorted(tensors) for tensors in each] for each in (models, saved))
        if expected != found:
            raise RuntimeError(
                "The checkpoint's moving average belongs to other models: it has the tensors "
                f"{found}, the trial has {expected}."
            )
        for average, tensors in zip(models, saved, strict=True):
            for key, tensor in tensors.items():
                average[key].copy_(place_like(tensor, average[key]))

    @torch.no_grad()
    def _swap_in(self) -> None:
        if self._training_weights is None:
            weights = self._weights()
            self._training_weights = [tensor.clone() for tensor in weights]
            torch._foreach_copy_(_local(weights), _local(self._average))

    @torch.no_grad()
    def _swap_out(self) -> None:
        if self._training_weights is not None:
            torch._foreach_copy_(_local(self._weights()), _local(self._training_weights))
            self._training_weights = None


def _local(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [local_part(tensor) for tensor in tensors]


def _is_averaged(entry: ModuleTensor) -> bool:
    if not entry.is_saved or not entry.tensor.is_floating_point():
        return False
    # A buffer that is infinite by design, such as an attention mask, has no average.
    return not entry.is_buffer or are_finite([entry.tensor])


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    # Small steps would vanish in half precision.
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return tensor.detach().to(wide, copy=True)
