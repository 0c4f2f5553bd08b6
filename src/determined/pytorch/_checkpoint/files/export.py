"""Weights in a form that other programs read."""

from __future__ import annotations

import pathlib
import stat
from collections.abc import Mapping, Sequence

import torch

from determined._contracts.checkpoint_layout import export_file
from determined._os.weak_file_systems import chmod


def require_safetensors() -> None:
    """Raise now rather than at the first checkpoint if the package is missing."""
    try:
        import safetensors.torch  # noqa: F401
    except ImportError as e:
        raise ImportError(
            "`export` needs the safetensors package: pip install 'determined-pytorch[export]'."
        ) from e


def write_safetensors(
    path: pathlib.Path, models: Sequence[Mapping[str, torch.Tensor]], weights: str = "trained"
) -> None:
    """Write `model_<i>.safetensors` for each model; weights that share memory are written twice.

    The header of the files says which `weights` they are.
    """
    import safetensors.torch

    for index, state in enumerate(models):
        tensors = {
            name: tensor.contiguous()
            for name, tensor in state.items()
            if isinstance(tensor, torch.Tensor)  # a module's extra state may be anything
        }
        seen: set[int] = set()
        for name, tensor in tensors.items():
            if tensor.untyped_storage().data_ptr() in seen:
                tensors[name] = tensor.clone()
            seen.add(tensor.untyped_storage().data_ptr())
        file = path / export_file(index)
        file.touch()  # for the mode that new files have here: the package makes private ones
        mode = file.stat().st_mode
        safetensors.torch.save_file(tensors, file, metadata={"format": "pt", "weights": weights})
        chmod(file, stat.S_IMODE(mode), file)
