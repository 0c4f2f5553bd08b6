"""`--json` on verbs: what was done, for programs, and nothing else on standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.det import run_det
from tests.support.lab import Lab

pytestmark = pytest.mark.multiprocess

_CONFIG = """
name: told
entrypoint: "true"
searcher: {name: single, metric: loss}
resources: {slots_per_trial: 0}
"""


def _told(lab: Lab, *words: str, code: int = 0) -> Any:
    answer = run_det(*words, "--json", environment={"DET_HOME": str(lab.home.path)})
    assert answer.returncode == code, answer.stderr
    return json.loads(answer.stdout)


def test_verbs_tell_what_they_did_as_json(lab: Lab, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(_CONFIG)
    created = _told(lab, "e", "create", str(config), "--paused")
    assert created["experiment_id"] == 1
    assert created["files"] == 0
    assert _told(lab, "e", "label", "add", "1", "mine")["labels"] == ["mine"]
    assert _told(lab, "e", "set", "name", "1", "new")["name"] == "new"
    assert _told(lab, "e", "activate", "1") == [{"experiment_id": 1, "state": "ACTIVE"}]
    ended = _told(lab, "e", "wait", "1")
    assert (ended["id"], ended["state"]) == (1, "COMPLETED")
    assert _told(lab, "e", "archive", "1") == [{"experiment_id": 1, "state": "COMPLETED"}]
    assert _told(lab, "e", "move", "1", "Uncategorized", "Uncategorized")["experiment_id"] == 1
    assert _told(lab, "e", "delete", "1", "--yes") == {"deleted": [1]}
