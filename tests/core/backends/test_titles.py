"""What a run that nobody launched is called."""

from __future__ import annotations

from typing import Any

import pytest

from determined import core, pytorch
from determined.core.backends.titles import RunTitle, title_of, with_configured


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"name": 5}, "`name` must be a string, got 5"),
        ({"project": ["a"]}, "`project` must be a string"),
        ({"labels": "one"}, "`labels` must be a list of strings, got 'one'"),
        ({"labels": [1]}, "`labels` must be a list of strings"),
    ],
)
def test_what_cannot_be_a_title_is_refused(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(TypeError, match=named):
        core.init(**arguments)


def test_a_configuration_counts_where_nothing_is_given() -> None:
    config = {
        "name": "configured",
        "workspace": "vision",
        "project": "resnets",
        "labels": ["a"],
        "description": "text",
    }
    nothing = title_of(None, None, None, None)
    assert nothing == RunTitle()
    whole = RunTitle("configured", "vision/resnets", ("a",), "text")
    assert with_configured(nothing, config) == whole
    given = title_of("mine", "p", ["b"], "other")
    assert with_configured(given, config) == given
    assert with_configured(given, {}) == given
    assert with_configured(nothing, {"project": "p"}) == RunTitle(project="p")


def test_the_trainer_library_names_runs_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("DET_TRACKING", "on")
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    config = {"labels": ["a"], "name": "configured"}
    with pytorch.init(name="mine", exp_conf=config, hparams={"lr": 1}) as context:
        backend: Any = context._core._backend
        assert backend._title == RunTitle("mine", labels=("a",))
        assert backend._description.hparams == {"lr": 1}
