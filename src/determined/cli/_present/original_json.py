"""Experiments and steps of trials as data, in the form of the original's `describe --json`.

Scripts that were written for the original read this: keys and states are the ones of its API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from determined.cli._present.tables import iso_time

if TYPE_CHECKING:
    from determined.platform.queries.workloads import Workload
    from determined.platform.service import Service
    from determined.store import Experiment, Trial


def experiment_response(service: Service, record: Experiment, pool: str) -> dict[str, Any]:
    """An experiment with its configuration, in which secrets are masked."""
    from determined.config import masked

    workspace, project = service.project_names(record.project_id)
    config = masked(record.config)
    return {
        "experiment": {
            "archived": record.archived,
            "bestTrialId": record.best_trial_id,
            "bestTrialSearcherMetric": record.best_validation,
            "checkpointCount": record.checkpoint_count,
            "checkpointSize": record.checkpoint_size,
            "config": config,
            "description": record.description,
            "endTime": iso_time(record.ended),
            "externalExperimentId": record.external_id,
            "forkedFrom": record.parent_id,
            "id": record.id,
            "labels": record.labels,
            "name": record.name,
            "notes": record.notes,
            "numTrials": record.num_trials,
            "originalConfig": record.original_config if config == record.config else None,
            "progress": record.progress,
            "projectId": record.project_id,
            "projectName": project,
            "resourcePool": pool,
            "searcherMetric": record.searcher_metric,
            "searcherType": record.config.get("searcher", {}).get("name"),
            "startTime": iso_time(record.started or record.created),
            "state": f"STATE_{record.state}",
            "stateReason": record.reason,
            "unmanaged": record.unmanaged,
            "username": record.owner,
            "workspaceName": workspace,
        },
        "config": config,
    }


def trial_additions(trial: Trial) -> dict[str, Any]:
    """The original's names of what a trial has, to be added to ours."""
    return {
        "checkpointCount": trial.checkpoint_count,
        "endTime": iso_time(trial.ended),
        "experimentId": trial.experiment_id,
        "searcherMetricValue": trial.best_validation,
        "startTime": iso_time(trial.started),
        "taskId": trial.task_id,
        "totalBatchesProcessed": trial.total_batches,
        "totalCheckpointSize": trial.checkpoint_size,
        "warmStartCheckpointUuid": trial.warm_start_checkpoint,
    }


def workload_containers(
    steps: Iterable[Workload], batches: Mapping[int, list[dict[str, Any]]] | None = None
) -> list[dict[str, Any]]:
    """What happened at each step: a training, a validation or a checkpoint each.

    `batches` are the metrics of single batches by step, if they are wanted.
    """
    found: list[dict[str, Any]] = []
    for step in steps:
        if step.training_time is not None:
            metrics: dict[str, Any] = {"avgMetrics": step.training}
            if batches and step.steps_completed in batches:
                metrics["batchMetrics"] = batches[step.steps_completed]
            found.append({"training": _reported(step, step.training_time, metrics)})
        if step.validation_time is not None:
            metrics = {"avgMetrics": step.validation}
            found.append({"validation": _reported(step, step.validation_time, metrics)})
        if (checkpoint := step.checkpoint) is not None:
            found.append(
                {
                    "checkpoint": {
                        "endTime": iso_time(checkpoint.report_time),
                        "metadata": checkpoint.metadata,
                        "resources": checkpoint.resources,
                        "state": f"STATE_{checkpoint.state}",
                        "totalBatches": step.steps_completed,
                        "uuid": checkpoint.uuid,
                    }
                }
            )
    return found


def _reported(step: Workload, time: float, metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {"endTime": iso_time(time), "metrics": metrics, "totalBatches": step.steps_completed}
