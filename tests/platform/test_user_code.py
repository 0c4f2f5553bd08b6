"""Folders as users have them, old and new, created and run as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.config import Completion, load_file
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

_FOLDER = Path(__file__).parent / "user_code"


def create(lab: Lab, name: str) -> int:
    storage = {"type": "shared_fs", "host_path": str(lab.home.checkpoints)}
    loaded = load_file(_FOLDER / name / "config.yaml", (), Completion(5, name, None, storage))
    snapshot = lab.service.take_snapshot(_FOLDER / name)
    return lab.service.create(loaded, snapshot, _FOLDER / name)


def test_folders_of_users_run_unchanged(lab: Lab) -> None:
    hook, uploads, gan = (create(lab, name) for name in ("hook", "uploads", "gan"))
    for experiment_id in (hook, uploads, gan):
        ended = lab.wait(experiment_id)
        assert ended.state == "COMPLETED", lab.account()
    assert "in workdir with hooked" in lab.log(lab.runs(hook)[0])
    (trial,) = lab.trials(hook)
    assert list(lab.service.reader.metrics.summaries(trial.id)["test"]) == ["f1"]
    kinds = [trial.hparams["training_arguments"]["kind"] for trial in lab.trials(uploads)]
    assert sorted(kinds) == ["a", "b"]
    assert all("checkpoint-3/model.bin" in c.resources for c in lab.checkpoints(uploads))
    (trial,) = lab.trials(gan)
    validations = list(lab.service.reader.metrics.reports(trial.id, "validation"))
    assert [row.steps_completed for row in validations] == [0, 4, 8]
    assert set(validations[0].metrics) >= {"accuracy", "score"}
    trained = list(lab.service.reader.metrics.reports(trial.id, "training"))
    assert [row.steps_completed for row in trained] == [2, 4, 6, 8]
    assert "epochs 2" in lab.log(lab.runs(gan)[0])
