"""`checkpoint_policy: best` compares with all trials of the experiment, on real ones."""

from __future__ import annotations

import pytest

from tests.support.lab import Lab, lab
from tests.support.line_trial import MODEL

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

# What a validation reports is decided by the hyperparameters and the batch alone.
SCORES = '        return {"loss": self.context.get_hparam("score") - self.batches / 100}\n'


def test_only_what_beats_every_trial_is_saved(lab: Lab) -> None:
    model = MODEL.replace(
        '        return {"loss": torch.nn.functional.mse_loss(self.model(x), y)}\n', SCORES
    ).replace(
        "        x, y = batch\n        loss",
        "        self.batches += 1\n        x, y = batch\n        loss",
    )
    model = model.replace(
        "        self.context = context\n",
        "        self.context = context\n        self.batches = 0\n",
    )
    experiment_id = lab.create(
        model,
        entrypoint="script:Line",
        hyperparameters={
            "lr": 0.1,
            "global_batch_size": 4,
            "score": {"type": "categorical", "vals": [5.0, 1.0]},
        },
        searcher={
            "name": "grid",
            "metric": "loss",
            "max_length": {"batches": 7},
            "max_concurrent_trials": 1,
        },
        min_validation_period={"batches": 2},
        checkpoint_policy="best",
        checkpoint_storage={"save_trial_best": 9, "save_trial_latest": 9},
    )
    assert lab.wait(experiment_id).state == "COMPLETED"
    first, second = lab.trials(experiment_id)
    saved = {
        trial.id: [
            c.steps_completed for c in lab.checkpoints(experiment_id) if c.trial_id == trial.id
        ]
        for trial in (first, second)
    }
    better, worse = (first, second) if first.hparams["score"] == 1.0 else (second, first)
    assert better.id < worse.id, "the grid begins at its end"
    assert saved[better.id] == [2, 4, 6, 7]
    assert saved[worse.id] == [7]  # the end is always saved
