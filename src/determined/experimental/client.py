"""The names of the platform's client, so that code which imports them at its top can be imported.

The platform is not part of this release: whatever is used of them says so.
"""

from __future__ import annotations

from typing import Any

from determined.errors import DeterminedError

CLASSES = [
    "Checkpoint",
    "Determined",
    "DownloadMode",
    "Experiment",
    "ExperimentReference",
    "ExperimentState",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "OrderBy",
    "Project",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialReference",
    "TrialSortBy",
    "User",
    "Workspace",
]
_FUNCTIONS = [
    "create_experiment",
    "create_model",
    "create_user",
    "create_workspace",
    "delete_workspace",
    "get_checkpoint",
    "get_experiment",
    "get_model",
    "get_model_by_id",
    "get_model_labels",
    "get_models",
    "get_session_username",
    "get_trial",
    "get_user_by_id",
    "get_user_by_name",
    "get_workspace",
    "iter_trials_metrics",
    "list_experiments",
    "list_models",
    "list_users",
    "list_workspaces",
    "login",
    "logout",
    "stream_trials_metrics",
    "stream_trials_training_metrics",
    "stream_trials_validation_metrics",
    "whoami",
]

__all__ = [*CLASSES, *_FUNCTIONS]  # the names are all strings


def _missing(what: str) -> DeterminedError:
    return DeterminedError(
        f"client.{what} needs the platform, which this release does not have yet. Here, "
        "pytorch.Trainer trains, `trainer.latest_checkpoint` names what it saved, and "
        "pytorch.load_trial_from_checkpoint_path loads it."
    )


class _Missing(type):
    """The type of classes that can be named, in annotations for example, but not used."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _missing(f"{cls.__name__}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise _missing(cls.__name__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    stand_in = globals()[name] = _Missing(name, (), {"__module__": __name__})
    return stand_in


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
