"""A callback for XGBoost that reports every round.

pip install xgboost
python xgboost_callback.py      then `det experiment list`, or `det dashboard`
"""

from __future__ import annotations

import argparse
from typing import Any

import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from determined import core


class Report(xgboost.callback.TrainingCallback):
    """Reports what XGBoost evaluates after each round, as `data/metric`."""

    def __init__(self, context: core.Context) -> None:
        super().__init__()
        self.context = context

    def after_iteration(self, model: Any, epoch: int, evals_log: dict[str, Any]) -> bool:
        newest = {
            f"{data}/{metric}": values[-1]
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        self.context.train.log(newest, step=epoch + 1)
        return self.context.preempt.should_preempt()  # True ends training


def main() -> None:
    parser = argparse.ArgumentParser(description="Boost trees on digits.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--eta", type=float, default=0.3)
    parser.add_argument("--depth", type=int, default=4)
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=0.2, random_state=0)
    train = xgboost.DMatrix(split[0], split[2])
    held_out = xgboost.DMatrix(split[1], split[3])
    hparams = {"eta": args.eta, "max_depth": args.depth}

    with core.init(
        name="digits with XGBoost",
        project="examples/plain runs",
        labels=["xgboost"],
        hparams=hparams,
        metric="val/merror",
    ) as context:
        fixed = {"objective": "multi:softprob", "num_class": 10, "seed": 0, "nthread": 1}
        xgboost.train(
            hparams | fixed | {"eval_metric": ["mlogloss", "merror"]},
            train,
            args.rounds,
            evals=[(train, "train"), (held_out, "val")],
            verbose_eval=False,
            callbacks=[Report(context)],
        )
        best = context.train.get_experiment_best_validation()
    print(f"{best:.1%} of the held-out digits are wrong in the best round.")


if __name__ == "__main__":
    main()
