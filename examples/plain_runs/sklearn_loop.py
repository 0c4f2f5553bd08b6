"""A loop around scikit-learn: `core.init` says what the run is, `train.log` what happens in it.

python sklearn_loop.py      then `det experiment list`, or `det dashboard`
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split

from determined import core


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a linear classifier on digits.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--alpha", type=float, default=1e-3, help="strength of regularization")
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images / 16, labels, test_size=0.2, random_state=0)
    train_images, test_images, train_labels, test_labels = split
    model = SGDClassifier(loss="log_loss", alpha=args.alpha, random_state=0)

    with core.init(
        name="digits with scikit-learn",
        project="examples/plain runs",
        labels=["scikit-learn"],
        hparams={"alpha": args.alpha},
        metric="val/accuracy",
        smaller_is_better=False,
    ) as context:
        for _ in range(args.epochs):
            model.partial_fit(train_images, train_labels, classes=np.arange(10))
            context.train.log(
                {
                    "train/loss": log_loss(train_labels, model.predict_proba(train_images)),
                    "val/loss": log_loss(test_labels, model.predict_proba(test_images)),
                    "val/accuracy": accuracy_score(test_labels, model.predict(test_images)),
                }
            )
        best = context.train.get_experiment_best_validation()
    print(f"{best:.1%} of the held-out digits are right in the best epoch.")


if __name__ == "__main__":
    main()
