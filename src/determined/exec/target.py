"""Run one trial of `client.search`: call the function, or train the trial class.

    python -m determined.exec.target IMPORT_ROOT

The code and the target are in the working directory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from determined import core
from determined._code.shipped_target import load_target, name_of, takes_context
from determined._info import get_cluster_info
from determined.exec import harness


def main(import_root: str) -> int:
    """Run the trial to its end; returns 0."""
    target = load_target(Path.cwd(), import_root)
    if isinstance(target, type):
        harness.train(target)
    else:
        call(target)
    return 0


def call(function: Callable[..., Any]) -> None:
    """Call a function with this trial's hyperparameters, and report what it returns."""
    info = get_cluster_info()
    if info is None:
        raise RuntimeError("This module runs trials that the platform has started.")
    with core.init() as context:
        hparams = info.trial.hparams
        if takes_context(function):
            function(hparams, context)
            return
        metric = info.trial._config["searcher"]["metric"]
        metrics = metrics_of(function(hparams), metric, name_of(function))
        context.train.report_validation_metrics(1, metrics)


def metrics_of(returned: Any, metric: str, name: str) -> dict[str, Any]:
    """Return what a function returned as metrics: a number is the one that is searched by."""
    if isinstance(returned, Mapping):
        if metric in returned:
            return dict(returned)
        known = ", ".join(repr(key) for key in returned) or "none"
        raise ValueError(f"{name} must return {metric!r} among its metrics; it returned {known}.")
    if not isinstance(returned, (str, bytes, bool)):
        try:
            return {metric: float(returned)}
        except (TypeError, ValueError):
            pass
    raise TypeError(
        f"{name} must return {metric!r} as a number, or a dict of metrics, got {returned!r}."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
