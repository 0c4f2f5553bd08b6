"""`checkpoint_policy: best`, and what a trial says of its best, are about that trial alone."""

from __future__ import annotations

import pytest

from tests.support.lab import Lab, lab
from tests.support.line_trial import MODEL

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

# What a validation reports is decided by the hyperparameters and the batch alone.
SCORES = '        return {"loss": self.context.get_hparam("score") + abs(self.batches - 4) / 100}\n'


def test_each_trial_keeps_its_own_best_and_tells_of_it(lab: Lab) -> None:
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
    )
    assert lab.wait(experiment_id).state == "COMPLETED"
    first, second = lab.trials(experiment_id)
    assert (first.hparams["score"], second.hparams["score"]) == (1.0, 5.0), "a better one before"

    def states(trial_id: int) -> dict[int, str]:
        saved = [c for c in lab.checkpoints(experiment_id) if c.trial_id == trial_id]
        return {c.steps_completed: c.state for c in saved}

    # Saved as the best so far at 2 and 4, and at the end; the best and the newest stay.
    expected = {2: "DELETED", 4: "COMPLETED", 7: "COMPLETED"}
    lab.until(lambda: states(first.id) == states(second.id) == expected)
    for trial in (first, second):
        (run,) = [r for r in lab.runs(experiment_id) if r.trial_id == trial.id]
        log = lab.log(run)
        assert f"Best        loss {trial.hparams['score']:g}\n" in log
