"""Labels that several people give at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from determined.platform.service import NotFoundError
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess]

_GIVE = """
import sys
from determined.platform.homes.home import Home
from determined.platform.service import Service
service = Service(Home(sys.argv[1]))
sys.stdin.readline()
for number in range(12):
    service.label(1, f"{sys.argv[2]}-{number}")
    service.label(1, f"{sys.argv[2]}-{number - 1}", remove=number % 2 == 1)
"""


def test_labels_given_at_once_are_all_kept(lab: Lab) -> None:
    lab.create("", paused=True, labels=["first"])
    givers = [
        subprocess.Popen(
            [sys.executable, "-c", _GIVE, str(lab.home.path), name], stdin=subprocess.PIPE
        )
        for name in ("a", "b")
    ]
    for giver in givers:
        assert giver.stdin is not None
        giver.stdin.write(b"\n")
        giver.stdin.close()
    assert [giver.wait(90) for giver in givers] == [0, 0]
    expected = {f"{name}-{number}" for name in "ab" for number in range(-1, 12) if number % 2 == 1}
    assert set(lab.experiment(1).labels) == {"first", *expected}
    lab.service.kill(1)


def test_a_label_is_given_once_and_may_be_gone_already(lab: Lab) -> None:
    lab.create("", paused=True, labels=["a", "b"])
    lab.service.label(1, "a")
    lab.service.label(1, "c", remove=True)
    assert lab.experiment(1).labels == ["a", "b"]
    with pytest.raises(NotFoundError, match="no experiment 2"):
        lab.service.label(2, "a")
    lab.service.kill(1)
