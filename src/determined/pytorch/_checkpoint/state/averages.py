"""Averaged weights in a checkpoint: which callback kept them, and a model's state with them in.

`callbacks.ExponentialMovingAverage` writes them; this is where loading and exporting find them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from determined._contracts.checkpoint_layout import CALLBACKS, MODELS
from determined.errors import InvalidCheckpointException
from determined.pytorch._callback import PyTorchCallback

KIND = "moving average of weights"
EXPORT = "safetensors-ema"


def averages_weights(callbacks: Mapping[str, PyTorchCallback]) -> bool:
    """Say whether validations measure averaged weights instead of those that are trained."""
    return any(getattr(callback, "averages_weights", False) for callback in callbacks.values())


def check_export(export: str | None, callbacks: Mapping[str, PyTorchCallback]) -> None:
    """Refuse to export averages that no callback keeps."""
    if export == EXPORT and not averages_weights(callbacks):
        raise ValueError(
            f"`export={EXPORT!r}` writes averaged weights, but no callback maintains an average: "
            "return a callbacks.ExponentialMovingAverage from build_callbacks, or use "
            "export='safetensors'."
        )


def averaged_models(checkpoint: Mapping[str, Any], ema: bool | str = True) -> list[dict[str, Any]]:
    """Return the state of each model with averages in place of what was averaged.

    `ema` names the callback, or is True where only one keeps an average.
    """
    kept = {name: s for name, s in checkpoint.get(CALLBACKS, {}).items() if _is_average(s)}
    if isinstance(ema, str):
        kept = {name: state for name, state in kept.items() if name == ema}
    if len(kept) != 1:
        found = (
            f"several callbacks keep one: {sorted(kept)}; name it with ema='...'"
            if kept
            else "none does"
        )
        named = f" named {ema!r}" if isinstance(ema, str) else ""
        raise InvalidCheckpointException(
            f"`ema` asks for the weights that an ExponentialMovingAverage callback{named} kept in "
            f"this checkpoint, but {found}."
        )
    (state,) = kept.values()
    models = [dict(model) for model in checkpoint[MODELS]]
    indices = state.get("model_indices", range(len(state["models"])))
    for index, average in zip(indices, state["models"], strict=True):
        for key, tensor in average.items():
            models[index][key] = tensor.to(models[index][key].dtype)
    return models


def _is_average(state: Any) -> bool:
    if not isinstance(state, Mapping):
        return False
    return state.get("kind") == KIND or set(state) == {"updates", "models"}
