"""Tools about experiments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from determined.config import Loaded, load, load_file, masked
from determined.errors import ConfigurationError, RefusedError
from determined.mcp.answers import experiment_row, filled, page, shortened, trial_row
from determined.platform.service import Service
from determined.store import TERMINAL_STATES, ExperimentFilter, Order, TrialFilter

LONGEST_WAIT_SECONDS = 600.0
_MOST_PROBLEMS = 20
_BEST_TRIALS = 3

ExperimentId = Annotated[int, Field(ge=1, description="The id of an experiment.")]
Limit = Annotated[int, Field(ge=1, le=200, description="How many rows at most.")]
Folder = Annotated[str, Field(description="The folder with the code, as an absolute path.")]
Config = Annotated[
    dict[str, Any] | str,
    Field(
        description="The configuration as an object, or the path of a YAML file (relative paths "
        "begin at the folder)."
    ),
]
Overrides = Annotated[
    list[str], Field(description="Values that override the configuration, as `a.b=value`.")
]
State = Literal["ACTIVE", "PAUSED", "COMPLETED", "CANCELED", "ERROR"]


class ExperimentTools:
    """What can be asked about experiments, and done with them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def readers(self) -> tuple[Callable[..., Any], ...]:
        """Those that change nothing."""
        return (
            self.validate_configuration,
            self.preview_search,
            self.list_experiments,
            self.describe_experiment,
            self.list_trials,
            self.compare_experiments,
        )

    @property
    def actors(self) -> tuple[Callable[..., Any], ...]:
        """Those that change something; none of them deletes."""
        return (
            self.create_experiment,
            self.pause_experiment,
            self.activate_experiment,
            self.cancel_experiment,
            self.kill_experiment,
        )

    def create_experiment(
        self,
        folder: Folder,
        config: Config,
        overrides: Overrides = [],  # noqa: B006
        paused: Annotated[bool, Field(description="Do not start it yet.")] = False,
        key: Annotated[
            str | None,
            Field(
                min_length=1,
                max_length=200,
                description="A name of this request that you choose. However often it is sent, "
                "one experiment is created: send it again if no answer came.",
            ),
        ] = None,
    ) -> dict[str, Any]:
        """Create an experiment from a folder with code and a configuration, and start it.

        A copy of the folder is stored with the experiment, so it may change afterwards. Returns
        at once: `wait_for_experiment` waits for the end.
        """
        code = _folder(folder)
        loaded = self._load(config, overrides, code)
        snapshot = self._service.take_snapshot(code)
        original = "" if isinstance(config, dict) else (code / config).read_text("utf-8", "replace")
        number = self._service.create(
            loaded, snapshot, code, paused=paused, original_config=original, key=key
        )
        notes = [*map(str, loaded.notes), *snapshot.notes]
        return filled(experiment_id=number, notes=[shortened(note) for note in notes])

    def validate_configuration(
        self,
        config: Config,
        folder: Folder = ".",
        overrides: Overrides = [],  # noqa: B006
        show: Annotated[bool, Field(description="Return it with all defaults, too.")] = False,
    ) -> dict[str, Any]:
        """Check a configuration: all problems at once, each with its line and the next step."""
        try:
            loaded = self._load(config, overrides, _folder(folder))
        except ConfigurationError as error:
            problems = [str(problem) for problem in error.problems]
            return {"valid": False, "problems": problems[:_MOST_PROBLEMS]}
        return {"valid": True} | filled(
            notes=[str(note) for note in loaded.notes],
            configuration=masked(loaded.effective) if show else None,
        )

    def preview_search(
        self,
        config: Config,
        folder: Folder = ".",
        overrides: Overrides = [],  # noqa: B006
    ) -> dict[str, Any]:
        """Predict how many trials a search will have, how long they train, and the total cost."""
        from determined.platform.search.simulation.preview import preview_of

        loaded = self._load(config, overrides, _folder(folder))
        try:
            found, unit = preview_of(loaded.effective)
        except ValueError as error:
            raise RefusedError(str(error)) from None
        return filled(**asdict(found) | {"unit": unit})

    def list_experiments(
        self,
        limit: Limit = 20,
        states: Annotated[list[State] | None, Field(description="Only these states.")] = None,
        name: Annotated[str | None, Field(description="Only names with this text.")] = None,
        labels: Annotated[list[str], Field(description="Only with all of these labels.")] = [],  # noqa: B006
        archived: Annotated[bool, Field(description="Include archived ones.")] = False,
    ) -> dict[str, Any]:
        """List experiments, newest first."""
        if not self._service.has_store:
            return {"experiments": []}
        wanted = ExperimentFilter(
            states=states,
            name_contains=name,
            labels=labels,
            archived=None if archived else False,
        )
        order = Order("id", descending=True)
        rows = self._service.reader.experiments(wanted, order, limit + 1).rows
        running = self._service.running_experiments()
        shown = [experiment_row(record, is_running=record.id in running) for record in rows]
        return {"experiments": []} | page(shown, limit, "experiments")

    def describe_experiment(
        self,
        experiment_id: ExperimentId,
        config: Annotated[bool, Field(description="Include the configuration.")] = False,
    ) -> dict[str, Any]:
        """Describe an experiment: state, trials by state, the best ones, and why trials failed."""
        from determined.platform.queries.outcome import last_log_lines, outcome

        record = self._service.experiment(experiment_id)
        reader = self._service.reader
        running = {run.trial_id for run in reader.unfinished_runs()}
        best = outcome(reader, record)
        of_states = reader.tables.trial_states([experiment_id]).get(experiment_id, {})
        failed = reader.trials(
            TrialFilter(experiment_id=experiment_id, states=["ERROR"]), limit=1
        ).rows
        failure = None
        if failed:
            failure = filled(
                trial_id=failed[0].id,
                reason=shortened(failed[0].reason),
                traceback=[shortened(line, 300) for line in last_log_lines(reader, failed[0])],
            )
        is_running = record.id in self._service.running_experiments()
        return experiment_row(record, is_running=is_running) | filled(
            trial_states=of_states,
            best_trials=[
                trial_row(trial, is_running=trial.id in running)
                for trial in self._best_trials(experiment_id, _BEST_TRIALS)
            ],
            best_checkpoint=None if best.checkpoint is None else best.checkpoint.uuid,
            load_it_with=list(best.python),
            first_failure=failure,
            config=masked(record.config) if config else None,
        )

    def list_trials(self, experiment_id: ExperimentId, limit: Limit = 20) -> dict[str, Any]:
        """List the trials of an experiment, the best first."""
        self._service.experiment(experiment_id)
        running = {run.trial_id for run in self._service.reader.unfinished_runs()}
        rows = [
            trial_row(trial, is_running=trial.id in running)
            for trial in self._best_trials(experiment_id, limit + 1)
        ]
        return {"trials": []} | page(rows, limit, "trials")

    def compare_experiments(
        self,
        experiment_ids: Annotated[list[int], Field(min_length=1, max_length=20)],
        metric: Annotated[
            str | None, Field(description="A validation metric; default: the searcher's.")
        ] = None,
        smaller_is_better: Annotated[
            bool | None, Field(description="Default: as the first experiment's search.")
        ] = None,
        significance: Annotated[
            bool,
            Field(
                description="Say whether configurations differ by more than their seeds do; needs "
                "`repeat` in their configurations."
            ),
        ] = False,
        limit: Limit = 10,
    ) -> dict[str, Any]:
        """Compare the trials of experiments: what differs, and which is best."""
        from determined.platform.queries.comparison import compare
        from determined.platform.queries.seeds.repeats import judge_all, judgement_json

        reader = self._service.reader
        records = [self._service.experiment(number) for number in dict.fromkeys(experiment_ids)]
        trials = [t for r in records for t in reader.trials(TrialFilter(experiment_id=r.id)).rows]
        seen = compare(reader, records, trials, metric, smaller_is_better)
        if significance:
            try:
                return judgement_json(seen, judge_all(seen, experiment_ids))
            except ValueError as error:
                raise RefusedError(str(error)) from None
        rows = [
            filled(
                experiment_id=row.trial.experiment_id,
                trial_id=row.trial.id,
                state=row.trial.state,
                hparams={n: row.hparams[n] for n in seen.differing if n in row.hparams},
                best=row.best,
                best_at_batch=row.best_steps,
                batches=row.trial.total_batches,
            )
            for row in seen.rows
        ]
        head = {"metric": seen.metric, "smaller_is_better": seen.smaller_is_better}
        return head | {"trials": []} | page(rows, limit, "trials")

    def pause_experiment(self, experiment_id: ExperimentId) -> dict[str, Any]:
        """Pause an experiment: its trials save a checkpoint and free their slots."""
        self._service.pause(experiment_id)
        return self._state(experiment_id)

    def activate_experiment(self, experiment_id: ExperimentId) -> dict[str, Any]:
        """Start or resume an experiment that is paused."""
        self._service.activate(experiment_id)
        return self._state(experiment_id)

    def cancel_experiment(self, experiment_id: ExperimentId) -> dict[str, Any]:
        """End an experiment: its trials save a checkpoint first."""
        self._service.cancel(experiment_id)
        return self._state(experiment_id)

    def kill_experiment(self, experiment_id: ExperimentId) -> dict[str, Any]:
        """End an experiment at once, without a last checkpoint; what is saved stays."""
        self._service.kill(experiment_id)
        return self._state(experiment_id)

    def is_settled(self, experiment_id: int) -> bool:
        """Whether nothing more happens unless somebody acts; starts a supervisor if need be."""
        self._service.wake_if_needed()
        state = self._service.experiment(experiment_id).state
        return state == "PAUSED" or state in TERMINAL_STATES

    def _state(self, experiment_id: int) -> dict[str, Any]:
        record = self._service.experiment(experiment_id)
        return filled(experiment_id=experiment_id, state=record.state, reason=record.reason)

    def _best_trials(self, experiment_id: int, limit: int) -> list[Any]:
        record = self._service.experiment(experiment_id)
        order = Order("best_validation", descending=not record.smaller_is_better)
        only = TrialFilter(experiment_id=experiment_id)
        return list(self._service.reader.trials(only, order, limit).rows)

    def _load(self, config: dict[str, Any] | str, overrides: list[str], folder: Path) -> Loaded:
        from determined.platform.service.completion import completion
        from determined.platform.service.search_checks import check_search

        given = completion(home=self._service.home)
        if isinstance(config, dict):
            loaded, source = load(config, "configuration", overrides, given), "configuration"
        else:
            source = str(folder / config)
            loaded = load_file(source, overrides, given)
        check_search(loaded, source)
        return loaded


def _folder(folder: str) -> Path:
    path = Path(folder).expanduser().absolute()
    if not path.is_dir():
        raise RefusedError(f"`folder` must be an existing folder, got {folder!r}.")
    return path
