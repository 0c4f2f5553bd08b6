"""Configurations as people have written them for years load, with notes for what is old."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.config import (
    Completion,
    is_trial_class,
    load,
    load_file,
    masked,
    to_yaml,
    typed_hyperparameters,
)

_FILES = sorted((Path(__file__).parent / "older").glob("*.yaml"))
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
    is_old = is_trial_class(loaded.effective["entrypoint"])
    assert is_old == any("entrypoint: old form" in str(note) for note in loaded.notes)


def test_there_are_enough_older_files() -> None:
    assert len(_FILES) >= 30
