"""Weights for other programs, beside the checkpoint's own files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from determined.pytorch._checkpoint.files.export import write_safetensors
from tests.support.resumable import checkpoints, train


def test_each_model_is_exported_with_each_checkpoint(tmp_path: Path) -> None:
    train(tmp_path, 2, export="safetensors")
    (found,) = checkpoints(tmp_path)
    folder = tmp_path / found.storage_id
    state = torch.load(folder / "state_dict.pth", weights_only=True)
    for index, saved in enumerate(state["models_state_dict"]):
        name = f"model_{index}.safetensors"
        exported = load_file(folder / name)
        assert exported.keys() == saved.keys()
        assert all(torch.equal(exported[key], saved[key]) for key in saved)
        assert name in found.manifest.contents.files


def test_nothing_is_exported_unless_asked_for(tmp_path: Path) -> None:
    train(tmp_path, 1)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_tied_sliced_and_transposed_weights_are_written_out(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    state = {"a": weight, "tied": weight, "row": weight[1], "t": weight.t(), "empty": weight[:0]}
    write_safetensors(tmp_path, [state])
    exported = load_file(tmp_path / "model_0.safetensors")
    assert all(torch.equal(exported[name], value) for name, value in state.items())


def test_extra_state_of_a_module_stays_in_the_checkpoint(tmp_path: Path) -> None:
    class Module(nn.Linear):
        def get_extra_state(self) -> Any:
            return {"version": 3}

        def set_extra_state(self, state: Any) -> None: ...

    write_safetensors(tmp_path, [Module(2, 2).state_dict()])
    assert load_file(tmp_path / "model_0.safetensors").keys() == {"weight", "bias"}


def test_a_missing_package_is_named_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(ImportError, match=r"determined-pytorch\[export\]"):
        train(tmp_path, 1, export="safetensors")
    with pytest.raises(ValueError, match="export.*'onnx'"):
        train(tmp_path, 1, export="onnx")
    assert checkpoints(tmp_path) == []


def test_exported_files_have_the_mode_of_the_others(tmp_path: Path) -> None:
    train(tmp_path, 1, export="safetensors")
    (found,) = checkpoints(tmp_path)
    folder = tmp_path / found.storage_id
    exported, other = folder / "model_0.safetensors", folder / "state_dict.pth"
    assert exported.stat().st_mode == other.stat().st_mode
