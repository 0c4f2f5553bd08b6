"""Tricks that got code past other restricted readers: in a checkpoint, none of them runs."""

from __future__ import annotations

import copyreg
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.errors import CheckpointNotFound, InvalidCheckpointException
from determined.pytorch._checkpoint.files.encoding import TAG
from tests.support.hostile import SENTINEL, forge, torch_archive
from tests.support.pickle_attacks import FILES, PICKLES, TAGS
from tests.support.resumable import ResumableTrial, checkpoints, train

REFUSED = (InvalidCheckpointException, CheckpointNotFound)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("intact")
    train(storage, 2)
    (found,) = checkpoints(storage)
    return storage / found.storage_id


@pytest.fixture
def checkpoint(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact, tmp_path / "hostile" / "one"))


@pytest.fixture(autouse=True)
def _nothing_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    copyreg.add_extension("posix", "system", 0x71)
    before = set(sys.modules)
    yield
    copyreg.remove_extension("posix", "system", 0x71)
    assert not list(tmp_path.rglob(f"{SENTINEL}*")), "it ran"
    assert "antigravity" not in set(sys.modules) - before


def is_refused(checkpoint: Path) -> None:
    forge(checkpoint)
    with pytest.raises(REFUSED) as caught:
        train(checkpoint.parent, 9, latest_checkpoint=checkpoint.name)
    assert len(str(caught.value)) < 1500
    with pytest.raises(REFUSED):
        pytorch.load_trial_from_checkpoint_path(str(checkpoint), trial_class=ResumableTrial)


@pytest.mark.parametrize("trick", PICKLES)
def test_a_pickle_that_hides_what_it_calls_is_refused(checkpoint: Path, trick: str) -> None:
    (checkpoint / "state_dict.pth").write_bytes(torch_archive(PICKLES[trick]))
    is_refused(checkpoint)


@pytest.mark.parametrize("trick", FILES)
def test_a_file_that_is_read_in_two_ways_is_refused(checkpoint: Path, trick: str) -> None:
    (checkpoint / "state_dict.pth").write_bytes(FILES[trick])
    is_refused(checkpoint)


def _with_state(checkpoint: Path, value: Any) -> None:
    file = checkpoint / "state_dict.pth"
    state = torch.load(file, weights_only=True)
    state["callbacks"]["counter"]["more"] = value
    torch.save(state, file)
    forge(checkpoint)


@pytest.mark.parametrize("trick", TAGS)
def test_an_object_that_is_no_state_is_refused(checkpoint: Path, trick: str) -> None:
    _with_state(checkpoint, TAGS[trick])
    with pytest.raises(InvalidCheckpointException) as caught:
        train(checkpoint.parent, 9, latest_checkpoint="one")
    assert str(checkpoint / "state_dict.pth") in str(caught.value)
    assert len(str(caught.value)) < 1500


class Watched:
    """A class whose methods tell that they ran."""

    ran: list[str] = []

    def __init__(self) -> None:
        self.ran.append("__init__")

    @property
    def setting(self) -> int:
        return 1

    @setting.setter
    def setting(self, value: int) -> None:
        self.ran.append("setter")

    class Inner:
        pass


def run_me(*arguments: Any) -> None:
    Watched.ran.append("function")


@pytest.mark.parametrize(
    "value",
    [
        {TAG: "object", "class": f"{__name__}:Watched", "slots": {"setting": 2}},
        {TAG: "object", "class": f"{__name__}:Watched", "slots": {"__class__": {}}},
        {TAG: "object", "class": f"{__name__}:Watched.Inner"},
        {TAG: "object", "class": f"{__name__}:pytest"},
        {TAG: "class", "class": f"{__name__}:run_me"},
        {TAG: "function", "class": f"{__name__}:run_me"},
        {TAG: "object", "class": f"{__name__}:Watched.__init__.__globals__"},
        {TAG: "object", "class": f"{__name__}:torch.nn.Module"},
    ],
    ids=lambda value: str(value)[20:90],
)
def test_trust_in_a_class_is_trust_in_nothing_else(checkpoint: Path, value: Any) -> None:
    Watched.ran.clear()
    _with_state(checkpoint, value)
    init = {"trusted_classes": [Watched]}
    with pytest.raises(InvalidCheckpointException):
        train(checkpoint.parent, 9, latest_checkpoint="one", init=init)
    assert Watched.ran == []


def test_functions_are_no_classes_to_trust(tmp_path: Path) -> None:
    for given in (run_me, "subprocess:Popen", print):
        with pytest.raises(TypeError, match="trusted_classes"):
            train(tmp_path / "storage", 1, init={"trusted_classes": [given]})
    conf = {"trusted_classes": [f"{__name__}:run_me"]}
    with pytest.raises(TypeError, match="must name classes"):
        train(tmp_path / "storage", 1, init={"exp_conf": conf})


@pytest.mark.parametrize("position", [-1, 625, 100_000])
def test_random_states_that_would_read_foreign_memory_are_refused(
    checkpoint: Path, position: int
) -> None:
    file = checkpoint / "ranks" / "rank_0.pth"
    state = torch.load(file, weights_only=False)
    name = next(key for key, value in _flat(state) if _is_numpy_state(value))
    _change(state, name, position)
    torch.save(state, file)
    forge(checkpoint)
    with pytest.raises(InvalidCheckpointException, match=r"rank_0\.pth"):
        train(checkpoint.parent, 9, latest_checkpoint="one")


def _flat(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _flat(entry, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            yield from _flat(entry, (*path, index))


def _is_numpy_state(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 5 and value[0] == "MT19937"


def _change(state: Any, path: tuple[Any, ...], position: int) -> None:
    holder = state
    for step in path[:-1]:
        holder = holder[step]
    values = list(holder[path[-1]])
    values[2] = position
    holder[path[-1]] = type(holder[path[-1]])(values)


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "trick", ["a dotted name through a module", "names from the memo", "the registry of extensions"]
)
def test_the_tricks_work_on_an_ordinary_reader(tmp_path: Path, trick: str) -> None:
    """Otherwise the tests above would prove nothing."""
    (tmp_path / "victim").mkdir()
    code = (
        "import copyreg, pickle, sys, torch.serialization\n"
        "copyreg.add_extension('posix', 'system', 0x71)\n"
        "pickle.loads(sys.stdin.buffer.read())"
    )
    words = [sys.executable, "-c", code]
    subprocess.run(words, input=PICKLES[trick], cwd=tmp_path / "victim", check=True)
    (tmp_path / "victim" / SENTINEL).unlink()


def test_counters_take_no_extension(checkpoint: Path) -> None:
    (checkpoint / "trial_state.pkl").write_bytes(PICKLES["the registry of extensions"])
    forge(checkpoint)
    with pytest.raises(InvalidCheckpointException, match=r"trial_state\.pkl"):
        train(checkpoint.parent, 9, latest_checkpoint="one")


def test_a_shard_that_is_a_link_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.pth"
    torch.save({"k": torch.zeros(1)}, secret)
    shard = {"determined.shard": "../../../secret", "shape": [1], "dtype": "float32"}
    state = torch.load(checkpoint / "state_dict.pth", weights_only=True)
    torch.save({**state, "more": shard}, checkpoint / "state_dict.pth")
    (checkpoint / "shards").mkdir()
    forge(checkpoint)
    (checkpoint / "shards" / "rank_0.pth").symlink_to(secret)
    with pytest.raises(REFUSED):
        train(checkpoint.parent, 9, latest_checkpoint="one")
