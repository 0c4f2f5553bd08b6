"""Objects of a user's classes in a checkpoint: asked for by name, and nothing else runs."""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from determined import pytorch
from determined.errors import InvalidCheckpointException
from determined.pytorch import Batch, PyTorchCallback
from determined.pytorch._checkpoint.reading import read_tensors
from determined.pytorch._checkpoint.trust import own_classes
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


def test_a_run_says_how_to_load_objects_of_its_own_classes_and_loads_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fit(History(), 1)
    (said,) = [r.message for r in caplog.records if "trusted_classes" in r.message]
    documented("a checkpoint holds objects of the trial's own classes", said, __name__)
    with pytest.raises(InvalidCheckpointException) as raised:
        fit(None, 2)
    refused = str(raised.value)
    (file,) = re.findall(r"^\S+", refused)
    documented("such a checkpoint is continued without the classes", refused, file, __name__)
    (line,) = set(re.findall(r"trusted_classes=\[.*?\]", said + refused))
    module = __name__
    assert line == f"trusted_classes=[{module}.History, {module}.Inner, {module}.Kind]"

    history = fit(None, 2, trusted_classes=[History, Inner, Kind])
    assert type(history) is History
    assert history.inner.values.tolist() == [0.0, 1.0, 2.0]
    assert history.kind is Kind.GOOD
    assert history.itself is history


def test_trust_in_some_classes_is_none_in_others(tmp_path: Path) -> None:
    file = tmp_path / "file.pth"
    torch.save({"history": History(), "sly": Sly()}, file)
    trusted = torch.serialization.safe_globals([History, Inner, Kind, Sly])
    with trusted, pytest.raises(InvalidCheckpointException, match=r"needs posix\.mkdir"):
        read_tensors(file)
    assert not Path("sly").exists()


def test_trust_ends_with_the_context() -> None:
    fit(History(), 1, trusted_classes=[History, Inner, Kind])
    with pytest.raises(InvalidCheckpointException, match="trusted_classes"):
        fit(None, 2)


@pytest.mark.parametrize("classes", [History, "History", [History()], 3])
def test_what_is_no_list_of_classes_is_refused(classes: Any) -> None:
    with pytest.raises(TypeError, match="trusted_classes"):
        fit(None, 1, trusted_classes=classes)


@pytest.mark.parametrize("name", ["posix.mkdir", "pathlib.PosixPath", "no.such.Class", "Bare"])
def test_only_classes_of_the_running_program_are_own(name: str) -> None:
    assert own_classes([f"{__name__}.History", name]) is None


def test_loading_takes_an_explicit_flag() -> None:
    with pytorch.init(run_id="run") as context:
        trial = LineTrial(context)
        trial.callbacks = {"keeping": Keeping(Path("x"))}
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=Batch(1))
    path = str(trainer.latest_checkpoint)
    with pytest.raises(InvalidCheckpointException, match="allow_pickle=True"):
        pytorch.load_trial_from_checkpoint_path(path, LineTrial)
    loaded = pytorch.load_trial_from_checkpoint_path(path, LineTrial, allow_pickle=True)
    assert type(loaded) is LineTrial
