"""What a checkpoint holds: names, keys and values, and how they come back."""

from __future__ import annotations

import json
import logging
import pickle
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import determined
from determined import pytorch
from determined.pytorch._checkpoint.state.training_state import load_model
from tests.support.resumable import (
    ResumableTrial,
    checkpoints,
    train,
    trial_in_working_directory,
)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of three batches."""
    train(
        tmp_path / "storage",
        3,
        trial_class=trial_in_working_directory(monkeypatch),
        init={"hparams": {"global_batch_size": 3, "width": 2}, "exp_conf": {"name": "n"}},
    )
    return only_checkpoint(tmp_path / "storage")


def only_checkpoint(storage: Path) -> Path:
    (found,) = checkpoints(storage)
    return storage / found.storage_id


def load(checkpoint: Path, name: str = "state_dict.pth") -> Any:
    return torch.load(checkpoint / name, weights_only=True)


def test_directory_has_the_files_of_the_original_and_ours_beside_them(saved: Path) -> None:
    files = {str(p.relative_to(saved)) for p in saved.rglob("*") if p.is_file()}
    assert files == {
        "state_dict.pth",
        "trial_state.pkl",
        "load_data.json",
        "metadata.json",
        "code/model_def.py",
        "hashes.json",
        "run.json",
        "ranks/rank_0.pth",
        "manifest.json",
    }
    assert stat.S_IMODE((saved / "code").stat().st_mode) == 0o755


def test_state_has_the_keys_of_the_original(saved: Path) -> None:
    state = load(saved)
    assert set(state) == {
        "models_state_dict",
        "optimizers_state_dict",
        "lr_schedulers_state_dict",
        "callbacks",
        "rng_state",
        "scaler_state_dict",
    }
    assert [sorted(model) for model in state["models_state_dict"]][1] == ["bias", "weight"]
    assert len(state["optimizers_state_dict"]) == len(state["lr_schedulers_state_dict"]) == 2
    assert state["callbacks"] == {"counter": {"batches": 3}}
    assert set(state["rng_state"]) == {"cpu_rng_state", "np_rng_state", "random_rng_state"}


def test_a_trial_without_scaler_saves_none(tmp_path: Path) -> None:
    train_plain(tmp_path, 1)
    assert "scaler_state_dict" not in load(only_checkpoint(tmp_path))


def test_trial_state_is_a_plain_dictionary_of_counters(saved: Path) -> None:
    assert pickle.loads((saved / "trial_state.pkl").read_bytes()) == {
        "trial_id": 0,
        "last_ckpt": 3,
        "step_id": 0,
        "last_val": 3,
        "batches_trained": 3,
        "epochs_trained": 0,
    }


def test_load_data_names_the_class_and_keeps_config_and_hparams_apart(
    saved: Path, tmp_path: Path
) -> None:
    assert json.loads((saved / "load_data.json").read_text()) == {
        "trial_type": "PyTorchTrial",
        "experiment_config": {"name": "n"},
        "hparams": {"global_batch_size": 3, "width": 2},
        "trial_cls_spec": "model_def:Trial",
        "is_trainer": True,
        "code_root": ".",
        "code_spec": "model_def:Trial",
    }
    train(tmp_path / "other", 1, init={"hparams": {"width": 5}})
    stored = json.loads((only_checkpoint(tmp_path / "other") / "load_data.json").read_text())
    assert (stored["hparams"], stored["experiment_config"]) == ({"width": 5}, None)


def test_no_value_of_a_variable_is_saved(tmp_path: Path) -> None:
    variables = {"cpu": ["DATABASE=hush", "HF_TOKEN=hush"], "cuda": []}
    config = {"name": "n", "environment": {"environment_variables": variables}}
    train(tmp_path, 1, init={"exp_conf": config})
    files = [path for path in only_checkpoint(tmp_path).rglob("*") if path.is_file()]
    assert files
    assert not any(b"hush" in path.read_bytes() for path in files)
    assert config["environment"] == {"environment_variables": variables}  # the trial gets them


def test_metadata_has_the_keys_of_the_original(saved: Path) -> None:
    text = (saved / "metadata.json").read_text()
    metadata = json.loads(text)
    assert text.startswith('{\n  "')
    assert metadata["determined_version"] == determined.__version__
    assert metadata["steps_completed"] == 3
    assert metadata["framework"] == f"torch-{torch.__version__}"
    assert metadata["format"] == "pickle"


def test_values_that_json_cannot_hold_are_kept_as_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        train(tmp_path, 1, init={"hparams": {"kind": ResumableTrial, "sizes": np.array([1, 2])}})
    stored = json.loads((only_checkpoint(tmp_path) / "load_data.json").read_text())
    assert "ResumableTrial" in stored["hparams"]["kind"]
    assert "only as text" in caplog.text


def test_code_copy_leaves_out_a_storage_inside_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial_class = trial_in_working_directory(monkeypatch)
    for _ in range(2):
        train(Path("checkpoints"), 1, trial_class=trial_class)
    for found in checkpoints(Path("checkpoints")):
        code = Path("checkpoints") / found.storage_id / "code"
        assert [p.name for p in code.rglob("*")] == ["model_def.py"]


def test_later_checkpoints_have_the_code_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial_class = trial_in_working_directory(monkeypatch)
    code_before = Path("model_def.py").read_text()

    class Editor(trial_class):  # type: ignore[valid-type,misc]  # made at run time
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            if batch_idx == 1:
                Path("model_def.py").write_text("SECOND = 2\n")
                Path("new.py").touch()
            metrics: dict[str, Any] = super().train_batch(batch, epoch_idx, batch_idx)
            return metrics

    Editor.__module__ = trial_class.__module__
    every_batch: dict[str, Any] = {"checkpoint_period": pytorch.Batch(1), "async_checkpoint": False}
    train(tmp_path / "s", 3, trial_class=Editor, **every_batch)
    first, *_, last = checkpoints(tmp_path / "s")
    for found in (first, last):
        code = tmp_path / "s" / found.storage_id / "code"
        assert [p.name for p in code.iterdir()] == ["model_def.py"]
        assert (code / "model_def.py").read_text() == code_before


@pytest.mark.parametrize("aggregation", [1, 3])
def test_open_gradients_are_saved_only_where_a_window_is_open(
    tmp_path: Path, aggregation: int
) -> None:
    train(tmp_path, 4, aggregation=aggregation, checkpoint_period=pytorch.Batch(1))
    for found in checkpoints(tmp_path):
        rank = load(tmp_path / found.storage_id, "ranks/rank_0.pth")
        is_open = found.metadata["steps_completed"] % aggregation != 0
        assert ("gradients" in rank) == is_open


class Plain(ResumableTrial):
    """One model, one optimizer, gradients added up by hand over three batches."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.head = context.wrap_model(nn.Linear(4, 2))
        self.body = nn.Identity()
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.head.parameters(), 0.1))
        self.callbacks = {}
        self.losses, self.sample_ids = [], []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        ids, inputs, targets = batch
        loss = nn.functional.cross_entropy(self.head(inputs), targets)
        self.context.backward(loss)
        if batch_idx % 3 == 2:
            self.context.step_optimizer(self.optimizer)
        self.losses.append(loss.item())
        return {"loss": loss}


def train_plain(storage: Path, batches: int, **fit: Any) -> list[float]:
    with pytorch.init(seed=1, checkpoint_storage=storage, run_id="run") as context:
        trial = Plain(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(batches), checkpoint_policy="none", **fit
        )
    return trial.losses


def test_gradients_that_a_trial_adds_up_itself_survive(tmp_path: Path) -> None:
    whole = train_plain(tmp_path, 9)
    assert train_plain(tmp_path, 4) == whole[:4]
    assert train_plain(tmp_path, 9, latest_checkpoint="latest") == whole[4:]


# Names of weights: with and without DDP, compiled or not.


def linear_state(prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}weight": torch.ones(2, 3), f"{prefix}bias": torch.zeros(2)}


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_prefixes_of_ddp_and_compile_do_not_matter(prefix: str) -> None:
    model = nn.Linear(3, 2)
    load_model(model, linear_state(prefix), "model 0")
    assert torch.equal(model.weight, torch.ones(2, 3))


def test_a_real_mismatch_is_shown_in_full() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)model 4 \(Linear\).*other.weight"):
        load_model(nn.Linear(3, 2), linear_state("other."), "model 4")
    wrong = {**linear_state("module."), "module.weight": torch.ones(9, 9)}
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        load_model(nn.Linear(3, 2), wrong, "model 0")
    with pytest.raises(RuntimeError, match='Missing key.* "bias"') as caught:
        load_model(nn.Linear(3, 2), {"module.weight": torch.ones(2, 3)}, "model 0")
    assert "Unexpected" not in str(caught.value)


def test_a_module_that_is_called_module_keeps_its_name() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(3, 2)

    model = Outer()
    load_model(model, linear_state("module."), "model 0")
    assert torch.equal(model.module.weight, torch.ones(2, 3))
    load_model(model, linear_state("module.module."), "model 0")


# Both sides of what a checkpoint and a trial have.


def edited(storage: Path, **changes: Any) -> str:
    """Train one batch, edit its state as old releases or other trials would have written it."""
    train(storage, 1)
    checkpoint = only_checkpoint(storage)
    state = torch.load(checkpoint / "state_dict.pth", weights_only=False)
    for key, change in changes.items():
        if change is None:
            state.pop(key)
        else:
            state[key] = change(state) if callable(change) else change
    torch.save(state, checkpoint / "state_dict.pth")
    (checkpoint / "manifest.json").unlink()
    return str(checkpoint)


def test_both_forms_of_a_key_are_refused(tmp_path: Path) -> None:
    path = edited(tmp_path, optimizer_state_dict=lambda s: s["optimizers_state_dict"][0])
    with pytest.raises(RuntimeError, match="'optimizers_state_dict'.*'optimizer_state_dict'"):
        train(tmp_path / "new", 2, latest_checkpoint=path)


def test_the_old_form_for_several_objects_is_refused(tmp_path: Path) -> None:
    path = edited(tmp_path, lr_schedulers_state_dict=None, lr_scheduler={})
    with pytest.raises(RuntimeError, match="one 'lr_scheduler', but the trial wraps 2"):
        train(tmp_path / "new", 2, latest_checkpoint=path)


def test_another_number_of_objects_is_refused(tmp_path: Path) -> None:
    path = edited(tmp_path, models_state_dict=lambda s: s["models_state_dict"][:1])
    with pytest.raises(RuntimeError, match="1 entries in 'models_state_dict', the trial wraps 2"):
        train(tmp_path / "new", 2, latest_checkpoint=path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scaler_state_dict": None}, "no scaler state"),
        ({"amp_state": {}}, "apex state, but the trial does not use apex"),
        ({"callbacks": None}, "no state for the callback 'counter'"),
    ],
)
def test_what_one_side_lacks_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], message: str
) -> None:
    path = edited(tmp_path, **changes)
    with caplog.at_level(logging.WARNING):
        train(tmp_path / "new", 2, latest_checkpoint=path)
    assert re.search(message, caplog.text)


def test_a_missing_random_state_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(edited(tmp_path, rng_state=None))
    (path / "ranks" / "rank_0.pth").unlink()
    with caplog.at_level(logging.WARNING):
        train(tmp_path / "new", 2, latest_checkpoint=str(path))
    assert "no random state" in caplog.text


def test_callbacks_may_edit_the_state_on_both_ways(tmp_path: Path) -> None:
    found: list[Any] = []

    class Editor(pytorch.PyTorchCallback):
        def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["extra"] = {"tensor": torch.arange(3), "array": np.arange(2.0)}

        def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
            found.append(checkpoint["extra"])
            checkpoint["callbacks"]["counter"]["batches"] = 100

    class Trial(ResumableTrial):
        def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
            return {**self.callbacks, "editor": Editor()}

    train(tmp_path, 1, trial_class=Trial)
    result = train(tmp_path, 2, trial_class=Trial, latest_checkpoint="latest")
    assert result.callback == 101
    assert found[0]["tensor"].tolist() == [0, 1, 2]
    assert type(found[0]["array"]) is np.ndarray
    assert found[0]["array"].tolist() == [0.0, 1.0]


def test_a_restored_optimizer_does_not_live_in_the_file(tmp_path: Path) -> None:
    """The file is only mapped into memory; who keeps a tensor must keep a copy."""
    train(tmp_path, 2)
    (checkpoint,) = tmp_path.glob("*/state_dict.pth")
    with pytorch.init(checkpoint_storage=tmp_path, run_id="run") as context:
        trial = ResumableTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(2), latest_checkpoint="latest", checkpoint_policy="none"
        )
    mapped = Path("/proc/self/maps").read_text()
    assert str(checkpoint) not in mapped
    assert trial.body_optimizer.state_dict()["state"]
