"""Train a table of configurations x epochs on scikit-learn's data, once.

python -m benchmarks.search.tables      writes benchmarks/results/search-curves.npz
"""

from __future__ import annotations

import json
import multiprocessing
import pathlib
import sys
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.search.space import SPACE
from determined.platform.search.randomness import Stream
from determined.platform.search.space import Space

EPOCHS, CONFIGURATIONS = 27, 800
TASKS = ("digits", "cancer", "moons", "blobs")
PATH = pathlib.Path(__file__).resolve().parents[1] / "results" / "search-curves.npz"
_WORST = 5.0  # a loss above it is no better than any other


def configurations() -> list[dict[str, Any]]:
    """Return the configurations of the table: random ones, always the same."""
    space, stream = Space(SPACE), Stream(2024)
    return [space.values(space.draw(stream)) for _ in range(CONFIGURATIONS)]


def data(task: str) -> tuple[Any, Any, Any, Any]:
    """Return inputs and labels to train on, then those to validate on."""
    from sklearn import datasets
    from sklearn.preprocessing import StandardScaler

    if task == "digits":
        inputs, labels = datasets.load_digits(return_X_y=True)
        inputs, labels, train = inputs[:1100], labels[:1100], 300
    elif task == "cancer":
        inputs, labels = datasets.load_breast_cancer(return_X_y=True)
        train = 250
    elif task == "moons":
        inputs, labels = datasets.make_moons(1000, noise=0.25, random_state=0)
        train = 300
    else:
        inputs, labels = datasets.make_classification(
            1200, n_features=20, n_informative=8, n_classes=4, flip_y=0.05, random_state=0
        )
        train = 400
    order = np.random.RandomState(0).permutation(len(labels))
    inputs, labels = StandardScaler().fit_transform(inputs)[order], labels[order]
    return inputs[:train], labels[:train], inputs[train:], labels[train:]


def curve(job: tuple[str, dict[str, Any]]) -> tuple[list[float], float]:
    """Train one configuration; return its loss after each epoch, and seconds per epoch."""
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    task, hparams = job
    train_inputs, train_labels, inputs, labels = data(task)
    classes = np.unique(train_labels)
    model = MLPClassifier(
        hidden_layer_sizes=(hparams["hidden"],),
        activation=hparams["activation"],
        solver=hparams["solver"],
        alpha=hparams["alpha"],
        batch_size=hparams["batch_size"],
        learning_rate_init=hparams["lr"],
        momentum=hparams["momentum"],
        random_state=0,
    )
    losses, began = [], time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for _ in range(EPOCHS):
            try:
                model.partial_fit(train_inputs, train_labels, classes=classes)
                loss = log_loss(labels, model.predict_proba(inputs), labels=classes)
            except ValueError as error:
                if "finite" not in str(error) and "NaN" not in str(error):
                    raise
                loss = _WORST  # diverged
            losses.append(min(float(loss), _WORST) if loss == loss else _WORST)
    return losses, (time.perf_counter() - began) / EPOCHS


def main() -> None:
    chosen = configurations()
    found: dict[str, Any] = {}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for task in TASKS:
            began = time.monotonic()
            trained = pool.map(curve, [(task, hparams) for hparams in chosen], chunksize=10)
            found[task] = np.array([losses for losses, _ in trained], dtype=np.float32)
            found[f"{task}-seconds"] = np.array([s for _, s in trained], dtype=np.float32)
            print(f"{task}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    PATH.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(PATH, configurations=json.dumps(chosen), **found)
    print(f"Written to {PATH}")


if __name__ == "__main__":
    main()
