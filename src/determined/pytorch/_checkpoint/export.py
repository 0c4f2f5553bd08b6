"""`export`: the models of a checkpoint as files for other programs."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from torch import nn

from determined.errors import InvalidExperimentException
from determined.pytorch._checkpoint.files.export import require_safetensors, write_safetensors
from determined.pytorch._checkpoint.load import load_trial_from_checkpoint_path
from determined.pytorch._checks.arguments import check_choice, check_count, check_flag, check_path
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._ranks.ddp import inner_module
from determined.pytorch._trial import PyTorchTrial


def export(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    format: str = "hf",
    trial_class: type[PyTorchTrial] | None = None,
    trial_kwargs: dict[str, Any] | None = None,
    model: int = 0,
    merge: bool = False,
    ema: bool | str = False,
) -> pathlib.Path:
    """Write a model of a checkpoint in a form that other programs read; return the folder.

    Args:
        path: The checkpoint's directory; of a sharded model as well.
        folder: Where to write; must not exist, or be empty.
        format: `"hf"`: what `from_pretrained` of Hugging Face reads, for models of transformers and
            peft: configuration and safetensors, tied weights once, an adapter as an adapter.
            `"safetensors"`: the weights of any model under their own names.
        trial_class, trial_kwargs, ema: As in `load_trial_from_checkpoint_path`.
        model: Which of the models that the trial wraps, counted from 0.
        merge: Add the adapter of a peft model to the weights below it and write the whole model.
    """
    check_path("path", path, optional=False)
    check_path("folder", folder, optional=False)
    check_choice("format", format, ("hf", "safetensors"))
    check_count("model", model)
    check_flag("merge", merge)
    require_safetensors()
    target = pathlib.Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"`folder` must not exist or be empty, but there is {target}.")
    trial = load_trial_from_checkpoint_path(str(path), trial_class, trial_kwargs, ema=ema)
    module = _chosen(_models_of(trial), model)
    if merge:
        module = _merged(module)
    if format == "safetensors":
        target.mkdir(parents=True, exist_ok=True)
        write_safetensors(target, [module.state_dict()], "averaged" if ema else "trained")
        return target
    save: Any = getattr(module, "save_pretrained", None)
    if not callable(save):
        raise InvalidExperimentException(
            f"format='hf' is for models of transformers and peft, but model {model} of "
            f"{type(trial).__name__} is a {type(module).__name__}, which has no save_pretrained: "
            "use format='safetensors'."
        )
    save(target)
    return target


def _models_of(trial: Any) -> list[nn.Module]:
    """Return what the trial has wrapped, which its context knows."""
    for value in vars(trial).values():
        if isinstance(value, PyTorchTrialContext):
            return [inner_module(wrapped) for wrapped in value.models]
    raise InvalidExperimentException(
        f"{type(trial).__name__} does not keep its context: write self.context = context in its "
        "__init__."
    )


def _chosen(models: list[nn.Module], index: int) -> nn.Module:
    if index >= len(models):
        raise ValueError(f"`model` must be below {len(models)}, the models wrapped; got {index}.")
    return models[index]


def _merged(module: nn.Module) -> nn.Module:
    merge: Any = getattr(module, "merge_and_unload", None)
    if not callable(merge):
        raise InvalidExperimentException(
            f"`merge` is for models of peft, and {type(module).__name__} has no adapter that it "
            "could merge: leave it out."
        )
    merged: nn.Module = merge()
    return merged
