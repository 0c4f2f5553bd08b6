"""Try a trial class: one training batch, one validation batch, one checkpoint."""

from __future__ import annotations

import logging
import tempfile
from typing import TYPE_CHECKING, Any

from determined._legacy.hparams import sample_hparams

if TYPE_CHECKING:
    from determined.pytorch import PyTorchTrial

logger = logging.getLogger("determined")


def test_one_batch(
    trial_class: type[PyTorchTrial],
    config: dict[str, Any] | None = None,  # noqa: PT028  # no test, in spite of its name
) -> None:
    """Train and validate `trial_class` on one batch, save a checkpoint, and leave nothing behind.

    Hyperparameter ranges in `config` are sampled. An error in the trial comes out unchanged.
    """
    from determined import pytorch

    config = {**(config or {}), "scheduling_unit": 1}
    seed = (config.get("reproducibility") or {}).get("experiment_seed")
    hparams = sample_hparams(config.get("hyperparameters") or {}, seed)
    with (
        tempfile.TemporaryDirectory(prefix="determined-test-") as storage,
        pytorch.init(
            hparams=hparams,
            exp_conf=config,
            enable_tensorboard_logging=False,
            checkpoint_storage=storage,
        ) as context,
    ):
        trainer = pytorch.Trainer(trial_class(context), context)
        trainer.fit(max_length=pytorch.Batch(1), test_mode=True)
    logger.info("%s trained and validated on one batch.", trial_class.__name__)


test_one_batch.__test__ = False  # type: ignore[attr-defined]  # not a test case for pytest
