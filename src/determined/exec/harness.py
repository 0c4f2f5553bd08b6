"""Train a trial class as its experiment configuration says, without a script of the user's.

    python -m determined.exec.harness package.module:TrialClass

The old way of starting a trial, kept for configurations with an entrypoint `module:Class`. It needs
the platform's description of the trial. A script with `pytorch.init` and `Trainer.fit` can do the
same, anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from determined._info import ClusterInfo, get_cluster_info, trial_of
from determined._legacy.entrypoint import is_trial_class
from determined._legacy.experiment_config import ExperimentConfig
from determined.common._logging import LOG_FORMAT
from determined.core import Unit
from determined.core._searcher import parse_length
from determined.load import trial_class_from_entrypoint

if TYPE_CHECKING:
    from determined.pytorch import TrainUnit

_STACKS_EVERY_SECONDS = 30


def main(entrypoint: str) -> int:
    """Train to the end of the configured length; returns 0."""
    info = _trial_info()
    config = ExperimentConfig(info.trial._config)
    _configure_logging(config.debug_enabled())
    if is_trial_class(config.get("entrypoint")):
        warnings.warn(
            "An entrypoint `module:Class` is deprecated: write a script that calls "
            "determined.pytorch.init and Trainer.fit.",
            FutureWarning,
            stacklevel=2,
        )
    train(trial_class_from_entrypoint(entrypoint))
    return 0


def train(trial_class: Any) -> None:
    """Train a class for as long as the configuration says."""
    from determined import pytorch

    info = _trial_info()
    config = ExperimentConfig(info.trial._config)
    optimizations = config.get_optimizations_config()
    with (
        _stack_dumps(config.debug_enabled()),
        pytorch.init(
            hparams=info.trial.hparams,
            exp_conf=config,
            aggregation_frequency=int(optimizations.get("aggregation_frequency", 1)),
        ) as context,
    ):
        context._set_default_gradient_compression(
            bool(optimizations.get("gradient_compression", False))
        )
        context._set_default_average_aggregated_gradients(
            bool(optimizations.get("average_aggregated_gradients", True))
        )
        context._set_is_pre_trainer()
        batch_size = info.trial.hparams.get("global_batch_size")
        pytorch.Trainer(trial_class(context), context).fit(
            checkpoint_period=_period(config.get_min_checkpoint_period(), batch_size),
            validation_period=_period(config.get_min_validation_period(), batch_size),
            max_length=_max_length(config, batch_size),
            reporting_period=pytorch.Batch(config.scheduling_unit()),
            checkpoint_policy=config.get("checkpoint_policy", "best"),
            latest_checkpoint=info.latest_checkpoint,
            step_zero_validation=bool(config.get("perform_initial_validation", False)),
            profiling_enabled=config.profiling_enabled(),
        )


def _trial_info() -> ClusterInfo:
    info = get_cluster_info()
    if info is None or trial_of(info) is None:
        raise AssertionError(
            "`module:Class` needs the platform's description of a trial, which is missing here. "
            "Write a script that calls determined.pytorch.init and Trainer.fit, and launch that."
        )
    return info


def _configure_logging(debug: bool) -> None:
    quiet = logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING
    level = logging.DEBUG if debug else quiet
    logging.basicConfig(level=level, format=LOG_FORMAT, stream=sys.stdout, force=True)


@contextlib.contextmanager
def _stack_dumps(wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    faulthandler.dump_traceback_later(_STACKS_EVERY_SECONDS, repeat=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _period(length: dict[str, int], batch_size: int | None) -> TrainUnit | None:
    """Return a period; without one, or with 0, nothing happens periodically."""
    from determined.pytorch import TrainUnit

    if not any(length.values()):
        return None
    return TrainUnit._from_values(**length, global_batch_size=batch_size)


def _max_length(config: ExperimentConfig, batch_size: int | None) -> TrainUnit:
    from determined.pytorch import TrainUnit

    configured = parse_length(config.get("searcher") or {})
    if configured is None:
        raise ValueError(
            "searcher.max_length: expected one of {batches: n}, {epochs: n}, {records: n}, got "
            "none."
        )
    length, unit = configured
    return TrainUnit._from_searcher_unit(length, unit or Unit.BATCHES, batch_size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m determined.exec.harness", description=__doc__)
    parser.add_argument("entrypoint", metavar="module:Class", help="the trial class to train")
    sys.exit(main(parser.parse_args().entrypoint))
