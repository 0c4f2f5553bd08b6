"""Fit a logistic regression to scikit-learn's handwritten digits, one pass at a time.

det experiment create median.yaml .
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import determined as det
from determined import core

PASSES = 10


def main() -> None:
    info = det.get_cluster_info()
    learning_rate = 0.01 if info is None else info.trial.hparams["learning_rate"]
    data = load_digits()
    held_out = np.arange(len(data.target)) % 5 == 0
    model = SGDClassifier(
        loss="log_loss", learning_rate="constant", eta0=learning_rate, random_state=7
    )
    with core.init() as context:
        for step in range(1, PASSES + 1):
            model.partial_fit(data.data[~held_out], data.target[~held_out], classes=range(10))
            accuracy = float(model.score(data.data[held_out], data.target[held_out]))
            context.train.report_validation_metrics(step, {"accuracy": accuracy})
            if context.preempt.should_preempt():  # the search has seen enough
                return
    print(f"{accuracy:.1%} of the held-out digits are right.")


if __name__ == "__main__":
    main()
