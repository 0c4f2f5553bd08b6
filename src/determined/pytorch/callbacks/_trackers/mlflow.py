"""Reports in MLflow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch.callbacks._trackers.tracker import MetricsTracker, Report, require

_RUN_KEY = "determined.run_key"
_MAX_METRICS_PER_CALL = 1000
_MAX_PARAMS_PER_CALL = 100
_MAX_PARAM_LENGTH = 6000


class MLflowTracker(MetricsTracker):
    """Records reports and hyperparameters as a run of MLflow.

    Steps are batches trained; validation metrics have names with `val_`, as in TensorBoard.
    Characters that MLflow does not allow in names become `_`. A resumed run continues its MLflow
    run. Needs the extra `mlflow`: only the client, which needs a server or a store that it
    supports; the run is ended as FAILED when training ended with an exception.

    Args:
        context: The trial's context.
        experiment_name: The MLflow experiment; created if needed.
        tracking_uri: Where MLflow stores data, by default as MLflow is configured.
        run_name: Name of the run, by default one that MLflow generates.
        tags: More tags of the run.
        **options: As for `MetricsTracker`.
    """

    def __init__(
        self,
        context: PyTorchTrialContext,
        experiment_name: str = "Default",
        *,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        require("mlflow", "mlflow")
        super().__init__(context, **options)
        self._experiment_name = experiment_name
        self._tracking_uri = tracking_uri
        self._run_name = run_name
        self._tags = dict(tags or {})
        self._client: Any = None
        self._run_id = ""

    def open(self) -> None:
        """Find the run to continue, or start one."""
        from mlflow import MlflowClient

        self._client = MlflowClient(tracking_uri=self._tracking_uri)
        experiment = self._client.get_experiment_by_name(self._experiment_name)
        if experiment is not None:
            experiment_id = experiment.experiment_id
        else:
            experiment_id = self._client.create_experiment(self._experiment_name)
        found = self._client.search_runs(
            [experiment_id], f"tags.`{_RUN_KEY}` = '{self.run_key}'", max_results=1
        )
        if found:
            self._run_id = found[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            return
        run = self._client.create_run(
            experiment_id, tags={**self._tags, _RUN_KEY: self.run_key}, run_name=self._run_name
        )
        self._run_id = run.info.run_id
        self._log_params()

    def record(self, report: Report) -> None:
        """Log the metrics of a report."""
        from mlflow.entities import Metric

        milliseconds = int(report.time * 1000)
        metrics = [
            Metric(_allowed(name), value, milliseconds, report.steps_completed)
            for name, value in report.named().items()
        ]
        for start in range(0, len(metrics), _MAX_METRICS_PER_CALL):
            part = metrics[start : start + _MAX_METRICS_PER_CALL]
            self._client.log_batch(self._run_id, metrics=part)

    def close(self, failed: bool) -> None:
        """End the run."""
        self._client.set_terminated(self._run_id, "FAILED" if failed else "FINISHED")

    def _log_params(self) -> None:
        from mlflow.entities import Param

        params = [
            Param(_allowed(name), str(value)[:_MAX_PARAM_LENGTH])
            for name, value in _flat(self._hparams())
        ]
        for start in range(0, len(params), _MAX_PARAMS_PER_CALL):
            part = params[start : start + _MAX_PARAMS_PER_CALL]
            self._client.log_batch(self._run_id, params=part)


def _allowed(name: str) -> str:
    return re.sub(r"[^\w\-./ ]", "_", name, flags=re.ASCII)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
