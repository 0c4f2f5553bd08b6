"""The platform as an object: create, find and list things."""

from __future__ import annotations

import functools
import logging
import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.errors import EnterpriseOnlyError, NotFoundError
from determined.experimental._client.checkpoint import Checkpoint
from determined.experimental._client.deprecation import deprecated
from determined.experimental._client.enums import (
    AnyOrder,
    ExperimentSortBy,
    ExperimentState,
    ModelSortBy,
    OrderBy,
    is_descending,
    sort_key,
)
from determined.experimental._client.experiment import Experiment
from determined.experimental._client.metrics import TrialMetrics, iter_reports
from determined.experimental._client.model import Model
from determined.experimental._client.session import Session
from determined.experimental._client.significance import Significance, compare_experiments
from determined.experimental._client.trial import Trial
from determined.experimental._client.user import User, no_accounts
from determined.experimental._client.workspace import Workspace

if TYPE_CHECKING:
    from determined.config import Loaded

__all__ = ["Determined"]
logger = logging.getLogger("determined.client")
_ACTIVE = ("QUEUED", "PULLING", "STARTING", "RUNNING")


@functools.cache  # once for each address is enough
def _note_address(address: str) -> None:
    logger.warning(
        f"The master {address} is not used: experiments run on this machine, without a server."
    )


class Determined:
    """The experiments, models and workspaces in a home. Safe to share between threads.

    Args:
        master: Accepted and ignored, with a note: there is no server.
        user: Accepted and ignored: there are no logins.
        password: Accepted and ignored.
        cert_path: Accepted and ignored.
        cert_name: Accepted and ignored.
        noverify: Accepted and ignored.
        home: The folder that holds everything; default: `DET_HOME`, else the user's data folder.
    """

    def __init__(
        self,
        master: str | None = None,
        user: str | None = None,
        password: str | None = None,
        cert_path: str | None = None,
        cert_name: str | None = None,
        noverify: bool = False,
        *,
        home: str | os.PathLike[str] | None = None,
    ) -> None:
        if address := master or os.environ.get("DET_MASTER"):
            _note_address(address)
        self._session = Session(home)

    # Experiments, trials, checkpoints

    def create_experiment(
        self,
        config: str | Path | Mapping[str, Any],
        model_dir: str | os.PathLike[str] | None = None,
        includes: Iterable[str | os.PathLike[str]] | None = None,
        project_id: int | None = None,
        template: str | Path | Mapping[str, Any] | None = None,
        *,
        parent_id: int | None = None,
        paused: bool = False,
        allow_host_changes: bool = False,
    ) -> Experiment:
        """Create an experiment and start it.

        Args:
            config: A dict, the path of a YAML file, or YAML of several lines.
            model_dir: The folder with the code; a copy of it is stored with the experiment.
            includes: More files and folders to store with the code.
            project_id: The project it belongs to.
            template: A configuration (as `config`) with defaults for `config`.
            parent_id: The experiment it was forked from.
            paused: Create it without starting it.
            allow_host_changes: Run a startup-hook.sh that changes this machine.

        Raises:
            ConfigurationError: the configuration is invalid; lists all problems at once.
            RefusedError: the platform will not do it; the message says why.
        """
        service = self._session.service
        loaded = self._load(config, template)
        for note in loaded.notes:
            logger.warning("%s", note)
        if project_id is not None:
            workspace, project = service.project_names(project_id)
            loaded.effective["workspace"], loaded.effective["project"] = workspace, project
        if parent_id is not None:
            service.experiment(parent_id)
        folder = None if model_dir is None else Path(model_dir)
        snapshot = service.take_snapshot(folder, [Path(path) for path in includes or ()])
        experiment_id = service.create(
            loaded,
            snapshot,
            folder,
            paused=paused,
            original_config=_written(config),
            parent_id=parent_id,
            allow_host_changes=allow_host_changes,
        )
        logger.info("created experiment %s", experiment_id)
        return Experiment(experiment_id, self._session)

    def search(
        self,
        target: Callable[..., Any],
        space: Mapping[str, Any],
        metric: str,
        max_trials: int | None = None,
        *,
        smaller_is_better: bool = True,
        max_length: int | Mapping[str, int] | None = None,
        searcher: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        wait: bool = True,
        progress: bool | None = None,
    ) -> Experiment:
        """Search the best hyperparameters of a function or a trial class, and return the search.

        Trials are processes, as many at once as there are slots, and everything is stored as in any
        experiment. The target may be defined in a script or a notebook cell: it is sent by value,
        with what it uses, and a copy of the files around it.

        Args:
            target: A function of the hyperparameters (a dict) that returns the metric, or a dict of
                metrics; or a function of these and a `core.Context`, which reports by itself
                (`context.train.report_validation_metrics`) and may be stopped early; or a
                subclass of `PyTorchTrial`.
            space: The hyperparameters: ranges and constants, as in a configuration.
            metric: The validation metric to optimize.
            max_trials: How many trials to run; a grid knows by itself.
            smaller_is_better: Whether to minimize it.
            max_length: How long to train a trial class: batches, or such as `{"epochs": 3}`.
            searcher: More keys of the `searcher` section, such as another `name` or a `sampler`.
            config: More sections of the configuration, such as `resources` or `name`.
            wait: Whether to wait for the end and show a progress bar; the search does not depend
                on this process either way.
            progress: Whether to show a progress bar; by default in notebooks and terminals.

        Raises:
            ConfigurationError: the space or another setting is invalid.
            DeterminedError: all trials failed; the message has the traceback of one.
        """
        from tempfile import TemporaryDirectory

        from determined.experimental._client import searching

        section: dict[str, Any] = {
            "name": "random",
            "metric": metric,
            "smaller_is_better": smaller_is_better,
            "max_trials": max_trials,
            "max_length": max_length,
            **(searcher or {}),
        }
        section = {key: value for key, value in section.items() if value is not None}
        searching.check_target(target, section)
        with TemporaryDirectory(prefix="determined-") as folder:
            code, import_root = searching.stage(target, folder)
            whole = searching.search_config(target, space, section, config or {}, import_root)
            experiment = self.create_experiment(whole, code)
        searching.announce(experiment)
        if wait:
            searching.await_results(experiment, progress)
        return experiment

    def _load(
        self,
        config: str | Path | Mapping[str, Any],
        template: str | Path | Mapping[str, Any] | None,
    ) -> Loaded:
        from determined.config import load, load_file
        from determined.platform.service.completion import completion

        given = None if template is None else _source(template)
        gaps = completion(given, self._session.home)
        if isinstance(config, Mapping):
            return load(config, completion=gaps)
        if isinstance(config, str) and "\n" in config:
            return load(config, completion=gaps)
        if isinstance(config, (str, Path)):
            return load_file(config, completion=gaps)
        raise ValueError(f"`config` must be a dict or the path of a YAML file, got {config!r}.")

    def get_experiment(self, experiment_id: int) -> Experiment:
        """Return an experiment by its id; raises NotFoundError if there is none."""
        return Experiment(_number("experiment_id", experiment_id), self._session)

    def get_trial(self, trial_id: int) -> Trial:
        """Return a trial by its id; raises NotFoundError if there is none."""
        return Trial(_number("trial_id", trial_id), self._session)

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        """Return a checkpoint by its UUID; raises NotFoundError if there is none."""
        if not isinstance(uuid, str):
            raise ValueError(f"`uuid` must be text, got {uuid!r}.")
        if not uuid.isprintable():
            raise NotFoundError(f"There is no checkpoint {uuid!r}.")
        return Checkpoint(uuid, self._session)

    def list_experiments(
        self,
        sort_by: ExperimentSortBy | None = None,
        order_by: AnyOrder | None = None,
        experiment_ids: Sequence[int] | None = None,
        labels: Sequence[str] | None = None,
        users: Sequence[str] | None = None,
        states: Sequence[ExperimentState] | None = None,
        name: str | None = None,
        project_id: int | None = None,
    ) -> list[Experiment]:
        """List the experiments that match every filter.

        Args:
            sort_by: What to sort by; default: the id.
            order_by: Ascending or descending.
            experiment_ids: Only these.
            labels: Only those with any of these labels.
            users: Only those created by one of these users.
            states: Only those in one of these states; QUEUED and RUNNING mean ACTIVE.
            name: Only those whose name contains this, ignoring case.
            project_id: Only those of a project.
        """
        from determined.store import ExperimentFilter, Order

        order = Order(sort_key(sort_by, ExperimentSortBy), is_descending(order_by))
        where = ExperimentFilter(
            ids=None if experiment_ids is None else [operator.index(n) for n in experiment_ids],
            states=None if states is None else _states(states),
            project_id=project_id,
            name_contains=name,
        )
        reader = self._session.reader
        found = [] if reader is None else reader.experiments(where, order).rows
        return [
            Experiment._of(record, self._session)
            for record in found
            if (not labels or set(labels) & set(record.labels))
            and (users is None or record.owner in users)
        ]

    def compare(
        self,
        *experiments: Experiment | int,
        metric: str | None = None,
        smaller_is_better: bool | None = None,
    ) -> Significance:
        """Compare configurations over the seeds of `repeat`: is a difference real, or noise?

        With two configurations these two, else the best one with each of the others. They are
        compared on the seeds that they share, if they do (give both the same `experiment_seed`).

        Args:
            experiments: Experiments or their ids: two with one configuration each, or any number
                with any number of configurations.
            metric: A validation metric; by default the metric of the first one's search.
            smaller_is_better: Whether smaller values win; by default as in that search.
        """
        if not experiments:
            raise ValueError("`experiments` must be one or more experiments or ids, got none.")
        ids = [
            one.id if isinstance(one, Experiment) else _number("experiment_id", one)
            for one in experiments
        ]
        distinct = list(dict.fromkeys(ids))
        return compare_experiments(self._session, distinct, metric, smaller_is_better)

    @deprecated("list_experiments()")
    def get_experiments(self, *args: Any, **kwargs: Any) -> list[Experiment]:
        """List the experiments that match every filter."""
        return self.list_experiments(*args, **kwargs)

    def iter_trials_metrics(
        self, trial_ids: Sequence[int], group: str | None = None
    ) -> Iterator[TrialMetrics]:
        """Yield the metrics that trials reported, by trial and step.

        Args:
            trial_ids: Which trials.
            group: Only this group of metrics, such as `validation`; all by default.
        """
        numbers = [_number("trial_id", trial_id) for trial_id in trial_ids]
        for number in numbers:
            self._session.service.trial(number)
        return iter_reports(self._session, numbers, group)

    @deprecated("iter_trials_metrics()")
    def stream_trials_metrics(
        self, trial_ids: Sequence[int], group: str | None = None
    ) -> Iterator[TrialMetrics]:
        """Yield the metrics that trials reported."""
        return self.iter_trials_metrics(trial_ids, group)

    @deprecated('iter_trials_metrics(ids, "training")')
    def stream_trials_training_metrics(self, trial_ids: Sequence[int]) -> Iterator[TrialMetrics]:
        """Yield the training metrics of trials."""
        return self.iter_trials_metrics(trial_ids, "training")

    @deprecated('iter_trials_metrics(ids, "validation")')
    def stream_trials_validation_metrics(self, trial_ids: Sequence[int]) -> Iterator[TrialMetrics]:
        """Yield the validation metrics of trials."""
        return self.iter_trials_metrics(trial_ids, "validation")

    # Models

    def create_model(
        self,
        name: str,
        description: str | None = "",
        metadata: Mapping[str, Any] | None = None,
        labels: Sequence[str] | None = None,
        workspace_name: str | None = None,
    ) -> Model:
        """Add a model to the registry.

        Args:
            name: Its name, which must be unique.
            description: What the model is for.
            metadata: Any metadata to store with it.
            labels: Labels to filter models by.
            workspace_name: The workspace it belongs to.
        """
        workspace = None if workspace_name is None else self.get_workspace(workspace_name)
        record = self._session.registry.create(
            name,
            description=description or "",
            metadata=metadata,
            labels=labels or (),
            workspace_id=1 if workspace is None else workspace.id,
        )
        return Model._of(record, self._session)

    def get_model(self, identifier: str | int) -> Model:
        """Return a model by its name or id; raises NotFoundError if there is none."""
        return Model(identifier, self._session)

    @deprecated("get_model()")
    def get_model_by_id(self, model_id: int) -> Model:
        """Return a model by its id."""
        return self.get_model(model_id)

    def list_models(
        self,
        sort_by: ModelSortBy = ModelSortBy.NAME,
        order_by: AnyOrder = OrderBy.ASCENDING,
        name: str | None = None,
        description: str | None = None,
        model_id: int | None = None,
        workspace_names: Sequence[str] | None = None,
        workspace_ids: Sequence[int] | None = None,
    ) -> list[Model]:
        """List the models that match every filter.

        Args:
            sort_by: What to sort by.
            order_by: Ascending or descending.
            name: Only those whose name contains this, ignoring case.
            description: Only those whose description contains this.
            model_id: Only the model with this id.
            workspace_names: Only those in these workspaces.
            workspace_ids: Only those in these workspaces.
        """
        key = sort_key(sort_by, ModelSortBy)
        wanted_ids = set(workspace_ids or ())
        wanted_ids |= {self.get_workspace(workspace).id for workspace in workspace_names or ()}
        registry = self._session.registry
        found = [
            record
            for record in registry.models()
            if (name or "").lower() in record.name.lower()
            and (description or "").lower() in record.description.lower()
            and model_id in (None, record.id)
            and (not wanted_ids or record.workspace_id in wanted_ids)
        ]
        counts = {record.id: len(registry.versions(record.id)) for record in found}
        found.sort(
            key=lambda r: counts[r.id] if key == "num_versions" else getattr(r, key),
            reverse=is_descending(order_by),
        )
        return [Model._of(record, self._session) for record in found]

    @deprecated("list_models()")
    def get_models(self, *args: Any, **kwargs: Any) -> list[Model]:
        """List the models that match every filter."""
        return self.list_models(*args, **kwargs)

    def get_model_labels(self) -> list[str]:
        """Return the labels of all models, most used first."""
        records = self._session.registry.models()
        return [label for label, _ in Counter(x for r in records for x in r.labels).most_common()]

    # Workspaces

    def create_workspace(self, name: str) -> Workspace:
        """Create a workspace."""
        return Workspace._of(self._session.workspaces.create(name), self._session)

    def get_workspace(self, name: str) -> Workspace:
        """Return a workspace by its name; raises NotFoundError if there is none."""
        return Workspace(self._session, workspace_name=name)

    def list_workspaces(self) -> list[Workspace]:
        """List all workspaces."""
        records = self._session.workspaces.all()
        return [Workspace._of(record, self._session) for record in records]

    def delete_workspace(self, name: str) -> None:
        """Delete an empty workspace."""
        self._session.workspaces.delete(self.get_workspace(name).id)

    # Users

    def whoami(self) -> User:
        """Return the user who runs this process."""
        return User._me()

    def get_session_username(self) -> str:
        """Return the name of the user who runs this process."""
        return User._me().username

    def list_users(self, active: bool | None = None) -> list[User]:
        """List the users: there is only one."""
        return [] if active is False else [User._me()]

    def get_user_by_id(self, user_id: int) -> User:
        """Return the only user, whose id is 1."""
        return self._user(user_id == 1, user_id)

    def get_user_by_name(self, user_name: str) -> User:
        """Return the only user, by name."""
        return self._user(user_name == User._me().username, user_name)

    def create_user(self, username: str, admin: bool = False, password: str | None = None) -> User:
        """Not supported: users are the accounts of the machine."""
        raise no_accounts("create a user")

    def logout(self) -> None:
        """Do nothing: there are no logins."""

    def list_oauth_clients(self) -> None:
        """Not supported: there is no server to log in to."""
        raise EnterpriseOnlyError("OAuth is not supported: there is no server to log in to.")

    def add_oauth_client(self, domain: str, name: str) -> None:
        """Not supported: there is no server to log in to."""
        self.list_oauth_clients()

    def remove_oauth_client(self, client_id: str) -> None:
        """Not supported: there is no server to log in to."""
        self.list_oauth_clients()

    @staticmethod
    def _user(is_me: bool, wanted: object) -> User:
        if not is_me:
            raise NotFoundError(f"There is no user {wanted!r}: the only user is {User._me()!r}.")
        return User._me()


def _written(config: str | Path | Mapping[str, Any]) -> str:
    """Return the configuration as its author wrote it, to store with the experiment."""
    if isinstance(config, Mapping):
        return ""
    if isinstance(config, str) and "\n" in config:
        return config
    return Path(config).read_text("utf-8", "replace")


def _source(config: str | Path | Mapping[str, Any]) -> str | Mapping[str, Any]:
    return config if isinstance(config, Mapping) else _written(config)


def _number(name: str, number: int) -> int:
    try:  # numbers of numpy, as from a DataFrame, are as good
        number = operator.index(None if isinstance(number, bool) else number)  # type: ignore[arg-type]  # checks it
    except TypeError:
        raise ValueError(f"`{name}` must be an integer, got {number!r}.") from None
    if not 0 < number < 2**63:
        raise NotFoundError(f"There is no {name.removesuffix('_id')} {number}: ids start at 1.")
    return number


def _states(states: Sequence[ExperimentState]) -> list[str]:
    for state in states:
        if not isinstance(state, ExperimentState):
            raise ValueError(f"`states` must hold ExperimentStates, got {state!r}.")
    return ["ACTIVE" if state.name in _ACTIVE else state.name for state in states]
