"""Objects of a user's classes in a checkpoint: asked for by name, and nothing else runs."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Verbosity as Example

from determined import pytorch
from determined.errors import CheckpointError, InvalidCheckpointException
from determined.pytorch import Batch, PyTorchCallback
from determined.pytorch._checkpoint.files.reading import read_tensors
from determined.pytorch._checkpoint.files.seal import seal
from determined.pytorch._checkpoint.files.trust import own_classes
from determined.storage import FileDigest
from tests.support.messages import documented
from tests.support.trials import LineTrial


class Kind(enum.Enum):
    GOOD = 1


@dataclasses.dataclass
class Inner:
    values: Any


class History:
    def __init__(self) -> None:
        self.inner = Inner(np.arange(3.0))
        self.kind = Kind.GOOD
        self.itself = self


class Sly:
    """Runs something when it is loaded."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("sly",)


class Keeping(PyTorchCallback):
    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]


def fit(value: Any, length: int, **init: Any) -> Any:
    """Return the state of the callback at the end."""
    callback = Keeping(value)
    with pytorch.init(run_id="run", **init) as context:
        trial = LineTrial(context)
        trial.callbacks = {"keeping": callback}
        pytorch.Trainer(trial, context).fit(max_length=Batch(length), latest_checkpoint="latest")
    return callback.value


def is_whole(history: Any) -> bool:
    return (
        type(history) is History
        and history.inner.values.tolist() == [0.0, 1.0, 2.0]
        and history.kind is Kind.GOOD
        and history.itself is history
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


def test_objects_of_the_trials_own_code_are_loaded_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fit(History(), 1)
    assert is_whole(fit(None, 2))
    assert warnings(caplog) == []


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "another home"))


def test_in_a_checkpoint_of_another_home_they_are_refused_until_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fit(History(), 1)
    elsewhere(monkeypatch, tmp_path)
    with pytest.raises(InvalidCheckpointException) as raised:
        fit(None, 2)
    refused = str(raised.value)
    (file,) = re.findall(r"^\S+", refused)
    documented("a checkpoint of somebody else has objects of your classes", refused, file, __name__)
    m = __name__
    assert f"trusted_classes=[{m}.History, {m}.Inner, {m}.Kind]" in refused
    assert f"trusted_classes: [{m}:History, {m}:Inner, {m}:Kind]" in refused
    assert is_whole(fit(None, 2, trusted_classes=[History, Inner, Kind]))


def test_the_configuration_names_them_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fit(History(), 1)
    elsewhere(monkeypatch, tmp_path)
    names = [f"{__name__}:History", f"{__name__}.Inner", f"{__name__}:Kind"]
    assert is_whole(fit(None, 2, exp_conf={"trusted_classes": names}))


@pytest.mark.parametrize(
    "names", [["no.such:Class"], [f"{__name__}:fit"], "History", [3], [f"{__name__}:Missing"]]
)
def test_what_the_configuration_cannot_mean_is_refused(names: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="trusted_classes"):
        fit(None, 1, exp_conf={"trusted_classes": names})


def test_a_file_that_was_changed_in_the_storage_is_refused() -> None:
    fit(History(), 1, checkpoint_storage="storage")
    (file,) = Path("storage").glob("*/state_dict.pth")
    state = torch.load(file, weights_only=False)
    state["callbacks"]["keeping"]["value"]["attributes"]["more"] = 1
    torch.save(state, file)
    manifest = json.loads((file.parent / "manifest.json").read_text())
    manifest.pop("checksum")
    for entry in manifest["files"]:
        if entry["path"] == file.name:
            content = file.read_bytes()
            entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    text = json.dumps(manifest, sort_keys=True).encode()
    manifest["checksum"] = hashlib.sha256(text).hexdigest()
    (file.parent / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidCheckpointException, match=r"History.*trusted_classes"):
        fit(None, 2, checkpoint_storage="storage")


def test_a_seal_is_of_one_run_and_of_these_bytes() -> None:
    files = {"a": FileDigest(1, "0" * 64)}
    one, other = seal("run", files), seal("other", files)
    assert one is not None
    assert other is not None
    assert one["files"] == other["files"] == ["a"]
    assert one["code"] != other["code"]
    assert one == seal("run", files)
    assert one != seal("run", {"a": FileDigest(1, "1" * 64)})


def test_classes_of_packages_are_announced_after_the_first_update(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reasons: list[str] = []

    class Watching(Keeping):
        def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
            reasons.append(" ".join(warnings(caplog)))

    with pytorch.init(run_id="run") as context:
        trial = LineTrial(context)
        trial.callbacks = {"keeping": Watching(Example.quiet)}
        pytorch.Trainer(trial, context).fit(max_length=Batch(3))
    assert reasons[0] == ""
    assert "hypothesis" in reasons[1]
    assert reasons[1] == reasons[2] == " ".join(warnings(caplog))  # once
    documented("the state of a callback has objects of other classes", warnings(caplog)[0])


def test_a_state_that_cannot_be_written_ends_training_after_the_first_update() -> None:
    with pytest.raises(CheckpointError, match="state of the callback 'keeping' cannot be saved"):
        fit(threading.Lock(), 3)


def test_what_only_a_pickle_can_hold_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    fit(re.compile("x"), 1)
    assert "allow_pickle=True" in warnings(caplog)[0]


def test_trust_in_some_classes_is_none_in_others(tmp_path: Path) -> None:
    file = tmp_path / "file.pth"
    torch.save({"history": History(), "sly": Sly()}, file)
    trusted = torch.serialization.safe_globals([History, Inner, Kind, Sly])
    with trusted, pytest.raises(InvalidCheckpointException, match=r"needs posix\.mkdir"):
        read_tensors(file)
    assert not Path("sly").exists()


def test_trust_ends_with_the_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fit(History(), 1, trusted_classes=[History, Inner, Kind])
    elsewhere(monkeypatch, tmp_path)
    with pytest.raises(InvalidCheckpointException, match="trusted_classes"):
        fit(None, 2)


@pytest.mark.parametrize("classes", [History, "History", [History()], 3])
def test_what_is_no_list_of_classes_is_refused(classes: Any) -> None:
    with pytest.raises(TypeError, match="trusted_classes"):
        fit(None, 1, trusted_classes=classes)


@pytest.mark.parametrize("name", ["posix.mkdir", "pathlib.PosixPath", "no.such.Class", "Bare"])
def test_only_classes_of_the_running_program_are_own(name: str) -> None:
    assert own_classes([f"{__name__}.History", name]) is None


def test_the_weights_alone_need_no_trust() -> None:
    with pytorch.init(run_id="run") as context:
        trial = LineTrial(context)
        trial.callbacks = {"keeping": Keeping(Example.quiet)}
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=Batch(1))
    path = str(trainer.latest_checkpoint)
    assert type(pytorch.load_trial_from_checkpoint_path(path, LineTrial)) is LineTrial
    assert torch.load(Path(path) / "state_dict.pth", weights_only=True)


def test_a_pickle_takes_an_explicit_flag() -> None:
    with pytorch.init(run_id="run") as context:
        trial = LineTrial(context)
        trial.callbacks = {"keeping": Keeping(re.compile("x"))}
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=Batch(1))
    path = str(trainer.latest_checkpoint)
    with pytest.raises(InvalidCheckpointException, match="allow_pickle=True"):
        pytorch.load_trial_from_checkpoint_path(path, LineTrial)
    loaded = pytorch.load_trial_from_checkpoint_path(path, LineTrial, allow_pickle=True)
    assert type(loaded) is LineTrial
