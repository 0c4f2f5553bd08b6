"""Reports in Weights & Biases."""

from __future__ import annotations

import os
from typing import Any, Literal

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch.callbacks._trackers.tracker import MetricsTracker, Report, require

_MODES = ("offline", "online")


class WandbTracker(MetricsTracker):
    """Records reports and hyperparameters as a run of Weights & Biases.

    Steps are batches trained; validation metrics have names with `val_`, as in TensorBoard. A
    resumed run has the id of the one it continues. Needs the extra `wandb`.

    Args:
        context: The trial's context.
        project: The W&B project.
        mode: `"offline"` writes files only, for `wandb sync` to send later; `"online"` sends them
            as they come and needs a login.
        directory: Where the `wandb` folder goes, by default the working directory.
        name: Name of the run, by default one that W&B generates.
        **options: As for `MetricsTracker`.
    """

    def __init__(
        self,
        context: PyTorchTrialContext,
        project: str | None = None,
        *,
        mode: Literal["offline", "online"] = "offline",
        directory: str | os.PathLike[str] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        if mode not in _MODES:
            raise ValueError(f"`mode` must be one of {_MODES}, got {mode!r}.")
        require("wandb", "wandb")
        super().__init__(context, **options)
        self._project = project
        self._mode = mode
        self._directory = directory
        self._name = name
        self._run: Any = None

    def open(self) -> None:
        """Start the run, or continue it."""
        import wandb

        if self._directory is not None:
            os.makedirs(self._directory, exist_ok=True)  # noqa: PTH103  # takes any path
        self._run = wandb.init(
            project=self._project,
            name=self._name,
            id=self.run_key,
            resume="allow",
            mode=self._mode,
            dir=self._directory,
            config=self._hparams(),
            # What is printed belongs to the program and to its progress display.
            settings=wandb.Settings(console="off", silent=True),
        )

    def record(self, report: Report) -> None:
        """Log the metrics of a report."""
        self._run.log(report.named(), step=report.steps_completed)

    def close(self, failed: bool) -> None:
        """End the run."""
        self._run.finish(exit_code=1 if failed else 0)
