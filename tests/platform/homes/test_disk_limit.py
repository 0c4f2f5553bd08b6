"""`disk_limit`: what policies do not keep goes first, then creations and saves say so."""

from __future__ import annotations

import json

import pytest

from determined.errors import DeterminedError, RefusedError
from determined.platform.homes.disk_limit import find_limit, used_bytes
from determined.platform.homes.home import Home
from tests.cli.det import call_det
from tests.cli.scripts import STEPS
from tests.support.lab import Lab, lab
from tests.support.messages import documented

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(200)]

# Saves a megabyte each tenth of a second until it is told to stop.
_SAVES = """
import time
from determined import core
with core.init() as ctx:
    steps = 0
    while not ctx.preempt.should_preempt():
        steps += 1
        ctx.train.report_validation_metrics(steps, {"loss": 1.0 / steps})
        with ctx.checkpoint.store_path({"steps_completed": steps}) as (path, _):
            (path / "weights").write_bytes(bytes(1_000_000))
        time.sleep(0.1)
"""


def _limit(home: Home, text: str) -> None:
    home.make()
    (home.path / "platform.yaml").write_text(f"disk_limit: {text}\n")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("200 GB", 200 * 10**9), ("1.5TiB", 3 * 2**39), ("7k", 7000), ("123", 123), ("null", None)],
)
def test_amounts_are_read(lab: Lab, text: str, wanted: int | None) -> None:
    _limit(lab.home, text)
    assert find_limit(lab.home) == wanted


@pytest.mark.parametrize("text", ["much", "-5", "true", "5 XB", "[1]"])
def test_an_amount_that_cannot_be_read_is_named(lab: Lab, text: str) -> None:
    _limit(lab.home, text)
    with pytest.raises(DeterminedError, match="platform.yaml: disk_limit: expected"):
        find_limit(lab.home)


def test_an_experiment_is_not_created_beyond_the_limit(lab: Lab) -> None:
    lab.wait(lab.create(STEPS, name="large"))
    limit = used_bytes(lab.home) // 2
    _limit(lab.home, str(limit))
    with pytest.raises(RefusedError) as refused:
        lab.create(STEPS)
    words = str(refused.value).replace(" takes ", "\0", 1)
    size, here = words.partition("\0")[2].partition(",")[0], str(lab.home.path)
    small = words.partition("platform.yaml is ")[2].partition(". ")[0]
    told = words.replace("\0", " takes ")
    documented("an experiment is created beyond disk_limit", told, here, size, small)
    assert len(lab.service.reader.experiments().rows) == 1
    _limit(lab.home, "1 TB")
    assert lab.wait(lab.create(STEPS)).state == "COMPLETED"


def test_what_policies_do_not_keep_goes_first(lab: Lab) -> None:
    number = lab.create(_SAVES, checkpoint_storage={"type": "shared_fs"} | _kept(lab))
    lab.until(lambda: len(lab.checkpoints(number)) >= 8)
    lab.service.pause(number)
    lab.until(lambda: not lab.service.running_experiments())
    _limit(lab.home, str(used_bytes(lab.home) - 3_000_000))
    other = lab.create(STEPS, paused=True)  # there is room once older checkpoints are gone
    left = [c for c in lab.checkpoints(number) if c.state == "COMPLETED"]
    assert 1 <= len(left) <= 2
    for experiment_id in (number, other):
        lab.service.kill(experiment_id)
        lab.wait(experiment_id)


def _kept(lab: Lab) -> dict[str, object]:
    return {
        "host_path": str(lab.home.checkpoints),
        "save_experiment_best": 0,
        "save_trial_best": 1,
        "save_trial_latest": 1,
    }


@pytest.mark.slow
def test_a_run_that_saves_beyond_the_limit_says_so_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = {"type": "shared_fs"} | _kept(lab) | {"save_trial_latest": 1000}
    number = lab.create(_SAVES, checkpoint_storage=storage)
    lab.until(lambda: lab.checkpoints(number))
    _limit(lab.home, "10 kB")
    lab.until(lambda: "disk_limit in platform.yaml is 10 kB" in lab.log(lab.runs(number)[0]))
    seen = len(lab.checkpoints(number))
    lab.until(lambda: len(lab.checkpoints(number)) > seen + 3)  # and goes on
    assert lab.log(lab.runs(number)[0]).count("disk_limit in platform.yaml") == 1
    lab.service.kill(number)
    lab.wait(number)


def test_df_shows_who_takes_what(lab: Lab) -> None:
    lab.wait(lab.create(STEPS, name="large"))
    _limit(lab.home, "5 GB")
    shown = call_det("store", "df", home=lab.home.path).output
    assert "disk_limit" in shown
    assert "5 GB" in shown
    assert "large" in shown
    parts = json.loads(call_det("store", "df", "--json", home=lab.home.path).output)
    sizes = {part["what"]: part["bytes"] for part in parts}
    assert sizes["disk_limit"] == 5 * 10**9
    assert sizes["experiment 1"] > 0
    assert "experiment 1" in call_det("store", "df", "--csv", home=lab.home.path).output
