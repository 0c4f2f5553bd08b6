"""The platform in Python: create experiments, follow them, get their results.

    from determined.experimental import client

    experiment = client.create_experiment("adaptive.yaml", ".")
    experiment.wait()
    best = experiment.list_checkpoints(max_results=1)[0]

These functions are the methods of one `Determined`, which is made when it is first needed.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from determined.experimental._client.checkpoint import Checkpoint, CheckpointTrainingMetadata
from determined.experimental._client.determined import Determined
from determined.experimental._client.enums import (
    CheckpointOrderBy,
    CheckpointSortBy,
    CheckpointState,
    DownloadMode,
    ExperimentOrderBy,
    ExperimentSortBy,
    ExperimentState,
    LogLevel,
    ModelOrderBy,
    ModelSortBy,
    OrderBy,
    TrialOrderBy,
    TrialSortBy,
    TrialState,
)
from determined.experimental._client.experiment import Experiment, ExperimentReference
from determined.experimental._client.metrics import (
    TrainingMetrics,
    TrialMetrics,
    ValidationMetrics,
)
from determined.experimental._client.model import Model, ModelVersion
from determined.experimental._client.project import Project
from determined.experimental._client.significance import (
    ConfigurationResults,
    SeedComparison,
    Significance,
)
from determined.experimental._client.trial import Trial, TrialReference
from determined.experimental._client.user import User
from determined.experimental._client.workspace import ResourcePool, Workspace

__all__ = [
    "Checkpoint",
    "CheckpointOrderBy",
    "CheckpointSortBy",
    "CheckpointState",
    "CheckpointTrainingMetadata",
    "ConfigurationResults",
    "Determined",
    "DownloadMode",
    "Experiment",
    "ExperimentOrderBy",
    "ExperimentReference",
    "ExperimentSortBy",
    "ExperimentState",
    "LogLevel",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "OrderBy",
    "Project",
    "ResourcePool",
    "SeedComparison",
    "Significance",
    "TrainingMetrics",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialReference",
    "TrialSortBy",
    "TrialState",
    "User",
    "ValidationMetrics",
    "Workspace",
    "add_oauth_client",
    "compare",
    "create_experiment",
    "create_model",
    "create_user",
    "create_workspace",
    "delete_workspace",
    "get_checkpoint",
    "get_experiment",
    "get_experiments",
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
    "list_oauth_clients",
    "list_users",
    "list_workspaces",
    "login",
    "logout",
    "remove_oauth_client",
    "search",
    "stream_trials_metrics",
    "stream_trials_training_metrics",
    "stream_trials_validation_metrics",
    "whoami",
]

P = ParamSpec("P")
T = TypeVar("T")

_default: Determined | None = None
_guard = threading.Lock()


def login(
    master: str | None = None,
    user: str | None = None,
    password: str | None = None,
    cert_path: str | None = None,
    cert_name: str | None = None,
    noverify: bool = False,
) -> None:
    """Accepted for existing code: there is no server, and no login is needed.

    May be called once, before all other functions of this module; else ValueError.
    """
    global _default
    with _guard:
        if _default is not None:
            raise ValueError("login() may be called once, before any other function of the client.")
        _default = Determined(master, user, password, cert_path, cert_name, noverify)


def _the_default() -> Determined:
    global _default
    with _guard:
        if _default is None:
            _default = Determined()
        return _default


def _function(method: Callable[Concatenate[Determined, P], T]) -> Callable[P, T]:
    """The method of the default `Determined`, as a function."""

    @functools.wraps(method)
    def function(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(_the_default(), *args, **kwargs)

    signature = inspect.signature(method)
    parameters = list(signature.parameters.values())[1:]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # inspect reads it
    function.__module__, function.__qualname__ = __name__, method.__name__
    return function


create_experiment = _function(Determined.create_experiment)
search = _function(Determined.search)
compare = _function(Determined.compare)
get_experiment = _function(Determined.get_experiment)
get_trial = _function(Determined.get_trial)
get_checkpoint = _function(Determined.get_checkpoint)
list_experiments = _function(Determined.list_experiments)
get_experiments = _function(Determined.get_experiments)
iter_trials_metrics = _function(Determined.iter_trials_metrics)
stream_trials_metrics = _function(Determined.stream_trials_metrics)
stream_trials_training_metrics = _function(Determined.stream_trials_training_metrics)
stream_trials_validation_metrics = _function(Determined.stream_trials_validation_metrics)
create_model = _function(Determined.create_model)
get_model = _function(Determined.get_model)
get_model_by_id = _function(Determined.get_model_by_id)
list_models = _function(Determined.list_models)
get_models = _function(Determined.get_models)
get_model_labels = _function(Determined.get_model_labels)
create_workspace = _function(Determined.create_workspace)
get_workspace = _function(Determined.get_workspace)
list_workspaces = _function(Determined.list_workspaces)
delete_workspace = _function(Determined.delete_workspace)
create_user = _function(Determined.create_user)
get_user_by_id = _function(Determined.get_user_by_id)
get_user_by_name = _function(Determined.get_user_by_name)
list_users = _function(Determined.list_users)
whoami = _function(Determined.whoami)
get_session_username = _function(Determined.get_session_username)
logout = _function(Determined.logout)
list_oauth_clients = _function(Determined.list_oauth_clients)
add_oauth_client = _function(Determined.add_oauth_client)
remove_oauth_client = _function(Determined.remove_oauth_client)
