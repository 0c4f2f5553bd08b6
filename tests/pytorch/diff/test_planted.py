"""Differences planted into one of two runs are found, each with its batch, stage and tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from determined._contracts.run_diff import RunDiff
from determined.pytorch.diff import diff
from tests.support.planted import LENGTH, SCRIPT, launch, train

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(300)]


def compared(tmp_path: Path, script: str = SCRIPT, **knobs: Any) -> RunDiff:
    first = train(tmp_path, "first")
    second = train(tmp_path, "second", script, **knobs)
    return diff(first, second, launch=launch)


def sections(found: RunDiff) -> set[str]:
    """What differs on paper, besides the argument that holds the knobs."""
    return {one.section for one in found.paper if one.name != "arguments"}


@pytest.mark.parametrize(
    ("knobs", "batch", "stage", "name"),
    [
        ({"seed": 4}, 0, "weights", "weight 0.weight of model 0"),
        ({"rate": 0.02}, 30, "optimizer", "optimizer 0['param_groups'][0]['lr']"),
        ({"sample": 33}, 8, "data", "batch[0]"),
        ({"augment": 0.1}, 0, "data", "batch[0]"),
        ({"dropout": 0.2}, 0, "loss", "loss"),
        ({"flip": 27}, 27, "weights", "weight 2.weight of model 0"),
        ({"milestone": 25}, 24, "scheduler", "optimizer 0['param_groups'][0]['lr']"),
        ({"clip": 0.01}, 0, "gradient", "gradient 0.weight of model 0"),
        ({"dtype": "float64"}, 0, "weights", "weight 0.weight of model 0"),
        ({"eps": 1e-4}, 0, "optimizer", "weight 0.weight of model 0"),
        ({"swap": [21, 41]}, 5, "data", "batch[0]"),
        ({"accumulation": 2}, 0, "optimizer", "weight 0.weight of model 0"),
        ({"frozen": True}, 0, "gradient", "gradient 0.weight of model 0"),
        ({"length": 58}, 14, "data", "batch[0]"),
        ({"count": 2}, 30, "callback", "callback 'counting'['count']"),
        ({"decay": 0.8}, 0, "callback", "callback 'average'"),
        ({"validation": 7, "flip": 37}, 37, "weights", "weight 2.weight of model 0"),
        ({"draw": 17}, 17, "random state", "the random state of torch"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_the_first_difference_is_named(
    tmp_path: Path, knobs: dict[str, Any], batch: int, stage: str, name: str
) -> None:
    found = compared(tmp_path, **knobs)
    parting = found.parting
    assert parting is not None, str(found)
    assert (parting["batch"], parting["stage"]) == (batch, stage), str(found)
    assert parting["name"].startswith(name), str(found)
    assert found.replayed == 1
    assert found.checkpoints.start == batch // 10 * 10
    assert f"They part in batch {batch}, {stage}" in str(found)


def test_another_number_of_threads_is_named_on_paper(tmp_path: Path) -> None:
    runs = [train(tmp_path, f"with {n}", wide=True, threads=n) for n in (1, 2)]
    found = diff(*runs, launch=launch)
    (one,) = (one for one in found.paper if one.section == "environment")
    assert (one.name, one.first, one.second) == ("threads", 1, 2)
    assert found.parting is not None, str(found)
    # Which sum is rounded otherwise first is up to the processor.
    assert found.parting["name"].startswith(("loss", "gradient 0.weight of model 0")), str(found)


def test_a_step_that_only_one_run_makes_is_told_whichever_it_is(tmp_path: Path) -> None:
    runs = [train(tmp_path, str(n), accumulation=n) for n in (1, 2)]
    for both, words in (
        (runs, "in batch 0 the first run steps an optimizer, the second does not"),
        (runs[::-1], "in batch 0 the second run steps an optimizer, the first does not"),
    ):
        found = diff(*both, launch=launch)
        assert found.parting is not None
        assert found.parting["text"] == words
        assert found.parting["size"].startswith("32 of 32 elements")


def test_an_edited_file_is_named_on_paper(tmp_path: Path) -> None:
    found = compared(tmp_path, SCRIPT.replace("0.01, eps", "0.01000001, eps"))
    assert [one.name for one in found.paper if one.section == "code"] == ["train.py"]
    assert found.parting is not None
    assert (found.parting["batch"], found.parting["stage"]) == (0, "optimizer")
    assert found.parting["name"] == "weight 0.weight of model 0"
    assert found.settings["optimizer 0['param_groups'][0]['lr']"] == "0.01 and 0.01000001"


def test_another_version_of_a_package_is_named_on_paper(tmp_path: Path) -> None:
    places = []
    for version in ("1.0", "2.0"):
        place = tmp_path / version / "fancy"
        place.mkdir(parents=True)
        text = f'__version__ = "{version}"\nFACTOR = {version}\n'
        (place / "__init__.py").write_text(text)
        places.append(str(place.parent))
    runs = [train(tmp_path, name, packages=p) for name, p in zip("ab", places, strict=True)]
    found = diff(*runs, launch=launch)
    assert [str(one) for one in found.paper if one.section == "packages"] == [
        "packages: fancy 1.0 and 2.0"
    ]
    assert found.parting is not None
    assert (found.parting["batch"], found.parting["stage"]) == (0, "loss")
    assert found.parting["name"] == "loss"


def test_equal_runs_are_identical_without_training_any_again(tmp_path: Path) -> None:
    found = compared(tmp_path)
    assert str(found).endswith(f"identical through batch {LENGTH}")
    assert (found.is_identical, found.replayed, sections(found)) == (True, 0, set())
