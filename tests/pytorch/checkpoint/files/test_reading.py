"""Checkpoints from strangers: nothing in them runs, and what is wrong is named."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import random
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import pytorch
from determined.errors import CheckpointNotFound, InvalidCheckpointException
from determined.pytorch._checkpoint.files.reading import (
    read_counters,
    read_json,
    read_tensors,
    unsafe_names,
)
from tests.support.old_checkpoints import LAYOUTS
from tests.support.old_trial import OldTrial
from tests.support.resumable import (
    FILES,
    ResumableTrial,
    checkpoints,
    train,
    trial_in_working_directory,
)

BY_NAME = {layout.release: layout for layout in LAYOUTS}
SENTINEL = "executed"


class Hostile:
    """Calls a function with arguments when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._call = (function, args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


class Stateful(Hostile):
    """The same, with a state set afterwards."""

    def __reduce__(self) -> Any:
        return (*super().__reduce__(), {"a": 1})


def attacks() -> dict[str, Any]:
    create = f"open({SENTINEL!r}, 'w')"
    return {
        "os.system": Hostile(os.system, f"touch {SENTINEL}"),
        "eval": Hostile(eval, create),
        "exec": Hostile(exec, create),
        "open": Hostile(open, SENTINEL, "w"),
        "getattr": Hostile(getattr, "text", "upper"),
        "import": Hostile(__import__, "os"),
        "torch.load": Hostile(torch.load, SENTINEL),
        "torch.save": Hostile(torch.save, {}, SENTINEL),
        "numpy": Hostile(np.save, SENTINEL, np.ones(1)),
        "with state": Stateful(os.mkdir, SENTINEL),
    }


ATTACKS = sorted(attacks())


@pytest.fixture
def sentinel() -> Any:
    yield
    assert not list(Path().glob(f"{SENTINEL}*"))


def nested(attack: Any) -> dict[str, Any]:
    """A whole training state with one thing in it that does not belong there."""
    return {
        "models_state_dict": [{"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}],
        "optimizers_state_dict": [],
        "lr_schedulers_state_dict": [],
        "callbacks": {"deep": [{"er": (attack,)}]},
        "rng_state": {},
    }


def resume(path: Path, storage: Path) -> None:
    with pytorch.init(hparams={"width": 3}, checkpoint_storage=storage) as context:
        pytorch.Trainer(OldTrial(context), context).fit(
            max_length=pytorch.Batch(9), latest_checkpoint=str(path)
        )


def refuse(path: Path, storage: Path, match: str) -> None:
    """Both ways in refuse the checkpoint, and say why."""
    with pytest.raises(InvalidCheckpointException, match=match):
        resume(path, storage)
    with pytest.raises(InvalidCheckpointException, match=match):
        pytorch.load_trial_from_checkpoint_path(str(path), trial_class=OldTrial)


@pytest.mark.usefixtures("sentinel")
@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("name", ATTACKS)
def test_tensor_files_run_nothing(tmp_path: Path, name: str, is_zip: bool) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    state = nested(attacks()[name])
    torch.save(state, path / "state_dict.pth", _use_new_zipfile_serialization=is_zip)
    refuse(path, tmp_path / "storage", "state_dict.pth was not loaded: it needs .*allow_pickle")


@pytest.mark.usefixtures("sentinel")
@pytest.mark.parametrize(
    "file", ["determined/state_dict.pth", "pedl/state_dict.pth", "checkpoint.pt"]
)
def test_tensor_files_of_all_names_run_nothing(tmp_path: Path, file: str) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    (path / "state_dict.pth").unlink()
    (path / file).parent.mkdir(exist_ok=True)
    torch.save(nested(attacks()["os.system"]), path / file)
    refuse(path, tmp_path / "storage", f"{file} was not loaded: it needs .*system")


@pytest.mark.usefixtures("sentinel")
@pytest.mark.parametrize("name", ATTACKS)
def test_rank_files_run_nothing(tmp_path: Path, name: str) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    (path / "ranks").mkdir()
    torch.save({"rng_state": attacks()[name]}, path / "ranks" / "rank_0.pth")
    with pytest.raises(InvalidCheckpointException, match="ranks/rank_0.pth"):
        resume(path, tmp_path / "storage")


@pytest.mark.usefixtures("sentinel")
@pytest.mark.parametrize("file", ["trial_state.pkl", "workload_sequencer.pkl"])
@pytest.mark.parametrize("name", ATTACKS)
def test_counter_files_run_nothing(tmp_path: Path, name: str, file: str) -> None:
    path = BY_NAME["0.13.13"].write(tmp_path / "checkpoint")
    for content in (attacks()[name], {"trial_id": attacks()[name]}):
        (path / file).write_bytes(pickle.dumps(content))
        with pytest.raises(InvalidCheckpointException, match=f"{file}.*was not used"):
            resume(path, tmp_path / "storage")


@pytest.mark.usefixtures("sentinel")
def test_raw_pickles_in_the_place_of_torch_files_run_nothing(tmp_path: Path) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    for attack in attacks().values():
        (path / "state_dict.pth").write_bytes(pickle.dumps(attack))
        refuse(path, tmp_path / "storage", "state_dict.pth")


def test_a_file_that_is_trusted_loads(tmp_path: Path) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    state = torch.load(path / "state_dict.pth", weights_only=False)
    state["callbacks"]["mine"] = {"where": Path("x")}
    torch.save(state, path / "state_dict.pth")
    refuse(path, tmp_path / "storage", "pathlib")
    with pytorch.init(checkpoint_storage=tmp_path, allow_pickle=True) as context:
        pytorch.Trainer(OldTrial(context), context).fit(
            max_length=pytorch.Batch(9), latest_checkpoint=str(path)
        )
    trial = pytorch.load_trial_from_checkpoint_path(
        str(path), trial_class=OldTrial, torch_load_kwargs={"weights_only": False}
    )
    assert type(trial) is OldTrial


# numpy data, which numpy itself would read without a question.


def loaded(value: Any, is_zip: bool = True) -> Any:
    buffer = io.BytesIO()
    torch.save({"value": value}, buffer, _use_new_zipfile_serialization=is_zip)
    buffer.seek(0)
    return read_tensors(buffer)["value"]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([1 + 2j]),
        np.array([True, False]),
        np.array(["text", "ä"]),
        np.array([b"bytes"]),
        np.array([1.5], dtype=">f4"),
        np.array(7),
        np.empty((0, 4)),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_plain_arrays_come_back_as_they_were(array: np.ndarray[Any, Any]) -> None:
    for is_zip in (True, False):
        value = loaded([array], is_zip)[0]
        assert type(value) is np.ndarray
        assert value.dtype == array.dtype
        assert value.flags.writeable
        assert value.flags.f_contiguous == array.flags.f_contiguous
        assert np.array_equal(value, array)


@pytest.mark.parametrize("number", [np.float64(1.5), np.int8(-3), np.bool_(True)])
def test_numbers_of_numpy_come_back_as_they_were(number: Any) -> None:
    value = loaded({"deep": (number, [number])})["deep"]
    assert value[0] == number
    assert type(value[0]) is type(number)


def test_random_states_of_numpy_come_back_as_they_were() -> None:
    name, keys, *rest = np.random.get_state()
    found = loaded(np.random.get_state())
    assert (found[0], list(found[2:])) == (name, rest)
    assert np.array_equal(found[1], keys)


class _Raw:
    """Pickles as a call of numpy's own functions with arguments of our choice."""

    def __init__(self, *reduced: Any) -> None:
        self._reduced = reduced

    def __reduce__(self) -> Any:
        return self._reduced


def forged_arrays() -> dict[str, Any]:
    reconstruct = np.empty(0).__reduce__()[0]
    empty = (np.ndarray, (0,), b"b")
    pointers = b"\x41" * 8
    made_up = _Raw(np.dtype, ("f8", False, True), _FIELDS)
    return {
        "objects from bytes": _Raw(np.ndarray, ((1,), "O", pointers)),
        "dtype with fields": _Raw(reconstruct, empty, (1, (1,), made_up, False, pointers)),
        "object dtype": _Raw(reconstruct, empty, (1, (1,), np.dtype("O"), False, pointers)),
        "list of objects": np.array([{}, None], dtype=object),
        "too few bytes": _Raw(reconstruct, empty, (1, (1 << 40,), np.dtype("f8"), False, pointers)),
        "negative": _Raw(reconstruct, empty, (1, (-1, -1), np.dtype("f8"), False, pointers)),
        "structured": np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]),
        "huge": _Raw(np.ndarray, ((1 << 50,), "u1")),
        "scalar": _Raw(np.float64(0).__reduce__()[0], (np.dtype("O"), pointers)),
    }


_FIELDS = (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0)


@pytest.mark.parametrize("name", sorted(forged_arrays()))
def test_forged_arrays_are_refused(name: str) -> None:
    with pytest.raises(InvalidCheckpointException):
        loaded(forged_arrays()[name])


def test_what_a_user_registered_with_torch_is_left_as_it_was() -> None:
    torch.serialization.add_safe_globals([np.ndarray, np.dtype, Hostile])
    try:
        before = set(torch.serialization.get_safe_globals())
        assert type(loaded(np.ones(2))) is np.ndarray
        assert set(torch.serialization.get_safe_globals()) == before
    finally:
        torch.serialization.clear_safe_globals()


def test_names_that_need_trust_are_found(tmp_path: Path) -> None:
    torch.save({"a": Path("x"), "b": np.ones(1), "c": torch.ones(1)}, tmp_path / "file")
    assert [name.partition(".")[0] for name in unsafe_names(tmp_path / "file")] == ["pathlib"]


# Damage: whatever happens to whichever file, it is found before anything is used.


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of our own; tests work on copies of it."""
    storage = tmp_path_factory.mktemp("intact")
    with pytest.MonkeyPatch.context() as patch:
        (storage / "work").mkdir()
        patch.chdir(storage / "work")
        trial_class = trial_in_working_directory(patch)
        train(storage / "checkpoints", 2, trial_class=trial_class)
    (found,) = checkpoints(storage / "checkpoints")
    return storage / "checkpoints" / found.storage_id


def copy_of(checkpoint: Path, target: Path) -> Path:
    shutil.copytree(checkpoint, target)
    return target


ALL_FILES = [*FILES, "code/model_def.py"]


def is_refused(path: Path, storage: Path) -> str:
    """Return the reason; both ways in give one, and no trial is built."""
    with pytest.raises((InvalidCheckpointException, CheckpointNotFound)) as caught:
        train(storage, 3, latest_checkpoint=str(path))
    with pytest.raises((InvalidCheckpointException, CheckpointNotFound, AssertionError)):
        pytorch.load_trial_from_checkpoint_path(str(path), trial_class=ResumableTrial)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("file", ALL_FILES)
def test_truncated_files_are_found(intact: Path, tmp_path: Path, file: str) -> None:
    size = (intact / file).stat().st_size
    for index, kept in enumerate((0, size // 2, size - 1)):
        path = copy_of(intact, tmp_path / str(index))
        os.truncate(path / file, kept)
        assert Path(file).name in is_refused(path, tmp_path / "storage")


@pytest.mark.parametrize("file", ALL_FILES)
def test_flipped_bits_are_found(intact: Path, tmp_path: Path, file: str) -> None:
    draw = random.Random(file)
    content = (intact / file).read_bytes()
    path = copy_of(intact, tmp_path / "copy")
    for _ in range(4):
        damaged = bytearray(content)
        damaged[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        (path / file).write_bytes(damaged)
        assert Path(file).name in is_refused(path, tmp_path / "storage")


@pytest.mark.parametrize("file", [name for name in ALL_FILES if name != "manifest.json"])
def test_missing_files_are_found(intact: Path, tmp_path: Path, file: str) -> None:
    path = copy_of(intact, tmp_path / "copy")
    (path / file).unlink()
    assert file in is_refused(path, tmp_path / "storage")


def test_swapped_files_are_found(intact: Path, tmp_path: Path) -> None:
    path = copy_of(intact, tmp_path / "copy")
    (path / "state_dict.pth").rename(path / "other")
    (path / "ranks" / "rank_0.pth").rename(path / "state_dict.pth")
    (path / "other").rename(path / "ranks" / "rank_0.pth")
    assert "bytes instead of" in is_refused(path, tmp_path / "storage")


@pytest.mark.parametrize("file", ["manifest.json", "run.json"])
def test_newer_formats_are_refused(intact: Path, tmp_path: Path, file: str) -> None:
    path = copy_of(intact, tmp_path / "copy")
    stored = json.loads((path / file).read_text())
    (path / "manifest.json").unlink()
    (path / file).write_text(json.dumps({**stored, "format_version": 99}))
    with pytest.raises(InvalidCheckpointException, match=f"{file} has format version 99"):
        train(tmp_path / "storage", 3, latest_checkpoint=str(path))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "seven"},
        {"best": [1]},
        {"run_id": None},
        {"validation_pending": 5},
        {"format_version": None},
    ],
)
def test_a_made_up_run_record_is_refused(
    intact: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    path = copy_of(intact, tmp_path / "copy")
    (path / "manifest.json").unlink()
    stored = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**stored, **change}))
    with pytest.raises(InvalidCheckpointException, match="run.json"):
        train(tmp_path / "storage", 3, latest_checkpoint=str(path))


@pytest.mark.parametrize("target", ["outside.pth", "state_dict.pth", "/etc/passwd", "."])
def test_links_in_a_checkpoint_are_refused(intact: Path, tmp_path: Path, target: str) -> None:
    path = copy_of(intact, tmp_path / "copy")
    (path / "ranks" / "rank_1.pth").symlink_to(target)
    assert "symbolic link" in is_refused(path, tmp_path / "storage")


@pytest.mark.parametrize("file", ["load_data.json", "run.json", "metadata.json"])
@pytest.mark.parametrize("kind", ["deep", "huge", "list", "garbage", "number", "nan"])
def test_hostile_json_is_refused(tmp_path: Path, file: str, kind: str) -> None:
    contents = {
        "deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "huge": b'{"a": "' + b"x" * (17 << 20) + b'"}',
        "list": b"[1, 2]",
        "garbage": b"\xff\xfe\x00",
        "number": b'{"a": ' + b"9" * 10_000 + b"}",
        "nan": b"NaN",
    }
    (tmp_path / file).write_bytes(contents[kind])
    with pytest.raises(InvalidCheckpointException, match=file):
        read_json(tmp_path / file)


@pytest.mark.parametrize(
    "change", [{"hparams": [1]}, {"experiment_config": "x"}, {"trial_cls_spec": 5}]
)
def test_made_up_load_data_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    stored = json.loads((path / "load_data.json").read_text())
    (path / "load_data.json").write_text(json.dumps({**stored, **change}))
    with pytest.raises((InvalidCheckpointException, ValueError)):
        pytorch.load_trial_from_checkpoint_path(str(path))


@pytest.mark.parametrize(
    "counters",
    [[], {"batches_trained": -1}, {"batches_trained": "9"}, {"step_id": 1.5}, None, {"a": {}}],
)
def test_made_up_counters_are_refused(tmp_path: Path, counters: Any) -> None:
    (tmp_path / "trial_state.pkl").write_bytes(pickle.dumps(counters))
    with pytest.raises(InvalidCheckpointException, match="trial_state.pkl"):
        read_counters(tmp_path)


def test_a_huge_counter_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "trial_state.pkl").open("wb") as file:
        file.truncate(1 << 40)  # takes no space on disk
    with pytest.raises(InvalidCheckpointException, match="1,099,511,627,776 bytes"):
        read_counters(tmp_path)


@pytest.mark.parametrize(
    "state",
    [
        [],
        {},
        torch.ones(2),
        {"models_state_dict": 5},
        {"models_state_dict": [5]},
        {"models_state_dict": [{5: torch.ones(1)}]},
        {"models_state_dict": {"weight": torch.ones(1)}},
    ],
    ids=str,
)
def test_a_file_that_is_no_training_state_is_refused(tmp_path: Path, state: Any) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    torch.save(state, path / "state_dict.pth")
    refuse(path, tmp_path / "storage", "state_dict.pth holds")


def rewritten(file: Path, compression: int, change: Callable[[str, bytes], bytes]) -> None:
    with zipfile.ZipFile(file) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in records.items():
            archive.writestr(name, change(name, content))


def test_archives_that_grow_are_refused(tmp_path: Path) -> None:
    """A thousand bytes of file for every byte in memory would be a bomb."""
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    torch.save(nested(torch.zeros(1 << 20)), path / "state_dict.pth")
    rewritten(path / "state_dict.pth", zipfile.ZIP_DEFLATED, lambda _, content: content)
    assert (path / "state_dict.pth").stat().st_size < 1 << 16
    refuse(path, tmp_path / "storage", "compressed")


def test_archives_whose_parts_overlap_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "state_dict.pth"
    torch.save(nested(torch.zeros(1 << 10)), file)
    content = file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    size = largest.file_size.to_bytes(4, "little")
    start = content.rindex(largest.filename.encode()) - 46
    assert content[start : start + 4] == b"PK\x01\x02"
    claimed = (1 << 30).to_bytes(4, "little")
    directory = content[start:].replace(size + size, claimed + claimed, 1)
    file.write_bytes(content[:start] + directory)
    with pytest.raises(InvalidCheckpointException, match="more bytes than it has"):
        read_tensors(file)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_damage_to_a_torch_file_without_manifest_is_one_kind_of_error(
    data: st.DataObject,
) -> None:
    """Old checkpoints have no checksums: garbage may load as other numbers, but never run."""
    is_zip = data.draw(st.booleans())
    buffer = io.BytesIO()
    torch.save(nested(np.ones(3)), buffer, _use_new_zipfile_serialization=is_zip)
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(content), len(content) // 2, 100, 0]))
    with contextlib.suppress(InvalidCheckpointException):
        read_tensors(io.BytesIO(bytes(content[:cut])))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_as_counters_are_one_kind_of_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "trial_state.pkl").write_bytes(content)
        with contextlib.suppress(InvalidCheckpointException):
            read_counters(Path(folder))
