"""Writes checkpoints in the layouts of old releases of the original, byte formats included."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support import old_trial

WEIGHT = torch.arange(6.0).reshape(2, 3)
BIAS = torch.tensor([1.0, -1.0])
MOMENTUM = torch.full((2, 3), 0.5)
CONFIG = {
    "entrypoint": "model_def:OldTrial",
    "searcher": {"name": "single", "metric": "loss", "smaller_is_better": True},
    "resources": {"slots_per_trial": 8},
    "checkpoint_storage": {"type": "shared_fs", "host_path": "/nowhere"},
    "reproducibility": {"experiment_seed": 99},
}
HPARAMS = {"width": 3, "global_batch_size": 2}


@dataclasses.dataclass(frozen=True)
class Layout:
    """How one release wrote a checkpoint."""

    release: str
    metadata: dict[str, Any]
    load_data: dict[str, Any] | None = None
    sequencer: dict[str, Any] | None = None
    trial_state: dict[str, Any] | None = None
    state_file: str = "state_dict.pth"
    prefix: str = ""
    is_zip: bool = True
    on_gpu: bool = False
    single_keys: bool = False
    batches: int = 0
    epochs: int = 0

    def __str__(self) -> str:
        return self.release

    def write(self, path: Path, trial_id: int = 0) -> Path:
        """Write the checkpoint into a new directory; counters are of the trial `trial_id`."""
        (path / self.state_file).parent.mkdir(parents=True)
        state = _state(self)
        save(state, path / self.state_file, self.is_zip, self.on_gpu)
        (path / "metadata.json").write_text(json.dumps(self.metadata, indent=2))
        if self.load_data is not None:
            (path / "load_data.json").write_text(json.dumps(self.load_data))
        for name, counters in (
            ("workload_sequencer.pkl", self.sequencer),
            ("trial_state.pkl", self.trial_state),
        ):
            if counters is not None:
                (path / name).write_bytes(pickle.dumps({**counters, "trial_id": trial_id}))
        (path / "code").mkdir()
        shutil.copy(old_trial.__file__, path / "code" / "model_def.py")
        return path


def _state(layout: Layout) -> dict[str, Any]:
    model = {f"{layout.prefix}weight": WEIGHT, f"{layout.prefix}bias": BIAS}
    group = {"lr": 0.1, "momentum": 0.9, "dampening": 0, "weight_decay": 0, "nesterov": False}
    optimizer = {
        "state": {0: {"momentum_buffer": MOMENTUM}, 1: {"momentum_buffer": BIAS}},
        "param_groups": [{**group, "params": [0, 1]}],
    }
    state: dict[str, Any] = {
        "models_state_dict": [model],
        "optimizers_state_dict": [optimizer],
        "lr_schedulers_state_dict": [],
    }
    if layout.single_keys:
        state = {"model_state_dict": model, "optimizer_state_dict": optimizer}
    return {**state, "callbacks": {}, "rng_state": _rng_state(layout.on_gpu)}


def _rng_state(on_gpu: bool) -> dict[str, Any]:
    state = {
        "cpu_rng_state": torch.Generator().manual_seed(5).get_state(),
        "np_rng_state": np.random.RandomState(5).get_state(),
        "random_rng_state": random.Random(5).getstate(),
    }
    if on_gpu:
        state["gpu_rng_state"] = torch.zeros(16, dtype=torch.uint8)
    return state


def first_draws() -> tuple[float, float, float]:
    """What `OldTrial` draws first after it was resumed from any of these checkpoints."""
    generator = torch.Generator().manual_seed(5)
    first = torch.rand((), generator=generator).item()
    return first, float(np.random.RandomState(5).rand()), random.Random(5).random()


def save(state: Any, file: Path, is_zip: bool = True, on_gpu: bool = False) -> None:
    """Save as a torch of then with a numpy 1 would have."""
    with pytest.MonkeyPatch.context() as patch:
        if on_gpu:
            patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        torch.save(state, file, _use_new_zipfile_serialization=is_zip)
    if not is_zip:
        file.write_bytes(_as_numpy_1(file.read_bytes()))
        return
    with zipfile.ZipFile(file) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    writer = torch._C.PyTorchFileWriter(str(file))
    for name, content in records.items():
        _, _, record = name.partition("/")
        if record == "data.pkl":
            content = _as_numpy_1(content)
        if record not in ("version", ".data/serialization_id"):  # the writer adds its own
            writer.write_record(record, content, len(content))
    writer.write_end_of_file()


def _as_numpy_1(content: bytes) -> bytes:
    return content.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


_LOAD_DATA: dict[str, Any] = {
    "trial_type": "PyTorchTrial",
    "experiment_config": CONFIG,
    "hparams": HPARAMS,
    "trial_cls_spec": "model_def:OldTrial",
}
_TRAINER_DATA = {
    **_LOAD_DATA,
    "experiment_config": None,
    "hparams": None,
    "is_trainer": True,
}
_TRIAL_STATE = {
    "last_ckpt": 6,
    "step_id": 0,
    "last_val": 6,
    "batches_trained": 6,
    "epochs_trained": 1,
}
_OLD_METADATA = {
    "format": "cloudpickle",
    "framework": "torch-1.4.0",
    "experiment_config": CONFIG,
    "hparams": HPARAMS,
}
_NEW_METADATA = {"steps_completed": 6, "framework": "torch-1.12.1", "format": "pickle"}

OLD_API = Layout(
    "0.13.13 old api",
    {**_OLD_METADATA, "experiment_config": {**CONFIG, "entrypoint": "model_def:OldApiTrial"}},
    is_zip=False,
)
IN_MAIN = Layout(
    "0.21.0 in main",
    _NEW_METADATA,
    load_data={**_TRAINER_DATA, "trial_cls_spec": "__main__:OldTrial"},
    trial_state=_TRIAL_STATE,
    batches=6,
    epochs=1,
)
LAYOUTS = [
    OLD_API,
    Layout("0.13.13", _OLD_METADATA, is_zip=False),
    Layout(
        "0.17.6",
        _OLD_METADATA,
        sequencer={"last_ckpt": 4, "latest_batch": 4, "step_id": 1, "last_val": 0},
        batches=4,
        epochs=1,
    ),
    Layout(
        "0.17.7",
        {"latest_batch": 4, "framework": "torch-1.9.0", "format": "pickle"},
        load_data=_LOAD_DATA,
        sequencer={"last_ckpt": 4, "latest_batch": 4, "step_id": 1, "last_val": 0},
        batches=4,
        epochs=1,
    ),
    Layout(
        "0.20.0",
        _NEW_METADATA,
        load_data=_LOAD_DATA,
        sequencer={"last_ckpt": 6, "steps_completed": 6, "step_id": 0, "last_val": 6},
        on_gpu=True,
        batches=6,
        epochs=1,
    ),
    Layout(
        "0.21.0 trainer",
        _NEW_METADATA,
        load_data=_TRAINER_DATA,
        trial_state=_TRIAL_STATE,
        batches=6,
        epochs=1,
    ),
    Layout(
        "0.21.0 legacy",
        _NEW_METADATA,
        load_data=_LOAD_DATA,
        trial_state=_TRIAL_STATE,
        batches=6,
        epochs=1,
    ),
    Layout(
        "0.38.1 ddp",
        _NEW_METADATA,
        load_data=_TRAINER_DATA,
        trial_state=_TRIAL_STATE,
        prefix="module.",
        batches=6,
        epochs=1,
    ),
    IN_MAIN,
    Layout("determined folder", _OLD_METADATA, state_file="determined/state_dict.pth"),
    Layout("pedl folder", _OLD_METADATA, state_file="pedl/state_dict.pth", is_zip=False),
    Layout(
        "checkpoint.pt",
        {"torch_version": "1.1.0", "experiment_config": CONFIG, "hparams": HPARAMS},
        state_file="checkpoint.pt",
        is_zip=False,
    ),
]
SINGLE_KEYS = Layout("single keys", OLD_API.metadata, single_keys=True, is_zip=False)
