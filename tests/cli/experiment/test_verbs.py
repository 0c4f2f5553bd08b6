"""`det experiment pause`, `activate`, `kill` and their like."""

from __future__ import annotations

import pytest

from tests.cli.det import told_by
from tests.cli.scripts import ENDLESS
from tests.support.lab import Lab
from tests.support.messages import documented

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_verbs_tell_what_they_did_and_what_they_cannot_do(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    lab.until(lambda: lab.trials(number)[0].total_batches > 0)
    assert "RUNNING" in told_by("e", "list")
    assert told_by("e", "pause", "1") == "Paused experiment 1\n"
    assert told_by("e", "unpause", "1") == "Activated experiment 1\n"
    told = told_by("e", "archive", "1", code=1)
    documented("an experiment is archived before it has ended", told)
    assert told_by("e", "cancel", "1") == "Canceled experiment 1\n"
    lab.wait(number)
    told = told_by("e", "kill", "1")
    assert told == "Experiment 1 had already ended: it is CANCELED\n"
    documented("an experiment that has ended is killed", told)
    assert told_by("e", "cancel", "1") == told
    assert told_by("t", "kill", "1") == "Trial 1 had already ended: it is CANCELED\n"
    documented("an experiment is paused after its end", told_by("e", "pause", "1", code=1))
    assert told_by("e", "archive", "1") == "Archived experiment 1\n"
    assert "only archived experiments" in told_by("e", "list")
    assert "CANCELED" in told_by("e", "list", "-a")
    assert told_by("e", "unarchive", "1") == "Unarchived experiment 1\n"
    documented("an experiment is not there", told_by("e", "pause", "77", code=1))
    documented("a trial is not there", told_by("t", "kill", "77", code=1))
