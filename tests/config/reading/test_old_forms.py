"""Configurations as people have written them for years load, with notes for what is old."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined._legacy.entrypoint import is_trial_class
from determined.config import (
    Completion,
    load,
    load_file,
    masked,
    to_yaml,
    typed_hyperparameters,
)

_FILES = sorted((Path(__file__).parents[1] / "older").glob("*.yaml"))
_COMPLETION = Completion(checkpoint_storage={"type": "shared_fs", "host_path": "/checkpoints"})


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_older_file_loads_and_its_effective_form_is_stable(path: Path) -> None:
    loaded = load_file(path, (), _COMPLETION)
    again = load(loaded.effective, completion=_COMPLETION)
    assert again.effective == loaded.effective
    assert again.configuration == loaded.configuration
    assert load(to_yaml(loaded.effective), completion=Completion()).effective == loaded.effective
    assert (
        typed_hyperparameters(loaded.effective).keys() == loaded.effective["hyperparameters"].keys()
    )
    assert "secret" not in str(masked(loaded.effective)["environment"]["registry_auth"])
    entrypoint = loaded.effective["entrypoint"]
    is_old = is_trial_class(entrypoint) or "determined.launch.horovod" in entrypoint
    assert is_old == any("entrypoint: old form" in str(note) for note in loaded.notes)


def test_there_are_enough_older_files() -> None:
    assert len(_FILES) >= 55


def test_line_ends_and_byte_order_marks_change_nothing() -> None:
    folder = Path(__file__).parents[1] / "older"
    for name, mark in (("crlf.yaml", b"\r\n"), ("byte_order_mark.yaml", b"\xef\xbb\xbf")):
        data = (folder / name).read_bytes()
        assert mark in data
        plain = data.replace(mark, b"\n" if mark == b"\r\n" else b"")
        as_it_is, without = load(data, completion=_COMPLETION), load(plain, completion=_COMPLETION)
        assert as_it_is.effective == without.effective


@pytest.mark.parametrize(
    ("resources", "slots", "note"),
    [
        ("{slots: 2}", 2, "means `slots_per_trial` here; write that"),
        ("{slots: 2, slots_per_trial: 4}", 4, "no effect: `slots_per_trial` is set"),
        ("{slots_per_trial: 4}", 4, None),
    ],
)
def test_slots_of_commands_are_slots_of_trials(
    resources: str, slots: int, note: str | None
) -> None:
    start = "entrypoint: python3 a.py\nsearcher: {name: single, metric: loss}\n"
    loaded = load(f"{start}resources: {resources}", completion=_COMPLETION)
    assert loaded.effective["resources"]["slots_per_trial"] == slots
    assert "slots" not in loaded.effective["resources"]
    found = [str(told).rpartition("resources.slots: ")[2] for told in loaded.notes]
    assert found == ([] if note is None else [note])
