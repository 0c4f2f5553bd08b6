"""Gradient norms in TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._context.learning_rates import optimizer_names
from determined.pytorch._ranks.fsdp import is_sharded
from determined.pytorch.callbacks._gradients import norm_of
from determined.pytorch.callbacks._scalars import ChiefScalars

_CHUNK = 1024


class GradientNorm(PyTorchCallback):
    """Writes the gradient norm of every update to TensorBoard, as `gradient_norm/<optimizer>`.

    Measured just before the optimizer uses the gradients: averaged over ranks and the aggregation
    window, unscaled and clipped. Norms stay on the device until the next training report, so no
    batch waits for them. The mean of a report is also added to its `avg_metrics`, so that it is
    reported, also to trackers that come later in `build_callbacks`.
    """

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self._scalars = ChiefScalars(context, ".gradients")
        self._series: dict[str, _Series] = {}
        self._saved: dict[str, Any] = {}  # norms that a checkpoint has and no report
        self._hooks: list[RemovableHandle] = []

    def on_training_start(self) -> None:
        """Begin to measure. All ranks have the same gradients, so the chief's will do.

        Those of a sharded model are measured by all ranks together.
        """
        if self._context.distributed.rank != 0 and not any(map(is_sharded, self._context.models)):
            return
        names = optimizer_names(self._context)
        for name, optimizer in zip(names, self._context.optimizers, strict=True):
            tag = f"gradient_norm/{name}"
            series = self._series[tag] = _Series(**self._saved.get(tag, {}))
            self._hooks.append(optimizer.register_step_pre_hook(self._measure(series)))
        self._saved = {}

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        """Write the norms since the last report."""
        for tag, series in self._series.items():
            steps, norms = series.take()
            if steps:
                self._scalars.add(tag, norms, steps)
                avg_metrics[tag] = float(norms.mean())

    def on_trial_shutdown(self) -> None:
        """Leave the optimizers as they were, and write what is left."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._series = [], {}
        self._scalars.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the norms since the last report, which the next one needs."""
        return {tag: series.state_dict() for tag, series in self._series.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep them until training starts."""
        self._saved = state_dict

    def _measure(self, series: _Series) -> Callable[..., None]:
        def before_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            norm = norm_of(optimizer)
            if norm is not None:
                series.append(self._context.current_train_batch(), norm)

        return before_step


class _Series:
    """Norms on the device, and the batch of each."""

    def __init__(self, steps: Sequence[int] = (), norms: torch.Tensor | None = None) -> None:
        self._steps = list(steps)
        self._norms: list[torch.Tensor] = []
        self._chunks = [] if norms is None else [norms]

    def state_dict(self) -> dict[str, Any]:
        """Return what `__init__` takes."""
        norms = self._all()
        return {"steps": list(self._steps), "norms": None if norms is None else norms.cpu()}

    def append(self, step: int, norm: torch.Tensor) -> None:
        self._steps.append(step)
        self._norms.append(norm.detach().float())
        if len(self._norms) == _CHUNK:
            self._chunks.append(torch.stack(self._norms))
            self._norms = []

    def take(self) -> tuple[list[int], Any]:
        """Return all batches and norms, and start over."""
        steps, norms = self._steps, self._all()
        self._steps, self._norms, self._chunks = [], [], []
        return steps, None if norms is None else norms.cpu().numpy()

    def _all(self) -> torch.Tensor | None:
        if self._norms:
            stacked = torch.stack(self._norms)
            self._norms = []
            self._chunks.append(stacked)
        chunks = [chunk.to(self._chunks[-1].device) for chunk in self._chunks]
        return torch.cat(chunks) if chunks else None
