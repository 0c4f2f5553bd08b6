"""Names, labels and priorities of experiments."""

from __future__ import annotations

import pytest

from tests.cli.det import det_on_a_terminal, told_by
from tests.cli.scripts import STEPS
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_names_labels_and_priorities_can_be_set(lab: Lab) -> None:
    lab.create(STEPS, paused=True)
    told_by("e", "set", "name", "1", "a \x1b[31mred name")
    told_by("e", "set", "description", "1", "long story")
    told_by("e", "set", "priority", "1", "7")
    told_by("e", "set", "max-slots", "1", "1")
    told_by("e", "label", "add", "1", "good")
    told_by("e", "label", "add", "1", "better")
    told_by("e", "label", "remove", "1", "good")
    found = lab.experiment(1)
    assert (found.name, found.description) == ("a \x1b[31mred name", "long story")
    assert (found.priority, found.max_slots, found.labels) == (7, 1, ["better"])
    told_by("e", "set", "max-slots", "1", "none")
    assert lab.experiment(1).max_slots is None
    told_by("e", "set", "max-slots", "1", "many", code=2)
    assert "no trial could ever start" in told_by("e", "set", "max-slots", "1", "0", code=1)
    told_by("e", "set", "priority", "1", "100", code=2)
    with det_on_a_terminal("e", "describe", "1") as terminal:
        assert terminal.end() == 0
    assert terminal.output.startswith("Experiment 1 is \x1b[33mPAUSED\x1b[0m.")
    assert "\x1b[31m" not in terminal.output
    lab.service.kill(1)
