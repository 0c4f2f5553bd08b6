"""DetCallback: what a trial does, at the events of `transformers.Trainer`."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from determined._info import ClusterInfo, trial_of
from determined._loops.resuming import describe_run, find_checkpoint, metadata_of, run_id_of
from determined._loops.saving import Saved, save_files
from determined._loops.stopping import StopRequests
from determined.core import Context
from determined.core.ranks.agreement import Ranks
from determined.errors import CheckpointNotFound
from determined.transformers._arguments import check_length, folder_of, hparams_of, private_folder
from determined.transformers._exact import DataRandomness, trust_numpy_states
from determined.transformers._metrics import TEST, VALIDATION, check_needed, group_of, metrics_of

logger = logging.getLogger("determined.transformers")

_USER_DATA = "my_data.json"
_BEST = "best_checkpoint"


class DetCallback(TrainerCallback):
    """Reports, saves, resumes and stops a training by `transformers.Trainer`.

    Construct it before `trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)`: it
    fetches the checkpoint to continue from and sets `args.resume_from_checkpoint`. In a trial that
    is the trial's newest; in a script that you start yourself the run's newest, if
    `args.resume_from_checkpoint` is "latest". On several ranks each has one.

    Args:
        core_context: what `core.init()` returned.
        args: the arguments that the `Trainer` gets.
        filter_metrics: report only metrics whose names have one of these words in them, and those
            that the search needs.
        user_data: JSON data, saved with each checkpoint as `my_data.json`.
    """

    def __init__(
        self,
        core_context: Context,
        args: TrainingArguments,
        filter_metrics: list[str] | None = None,
        user_data: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.core_context = core_context
        self.info: ClusterInfo | None = core_context.info
        self.filter_metrics = filter_metrics
        self.user_data = user_data
        self.searcher_metric: str | None = None
        self.last_train_metrics = -1
        self.last_eval_metrics = -1
        self.last_save = -1
        self.last_progress = 0
        self._time_metric: str | None = None
        self._stop = StopRequests(core_context)
        self._is_training = False
        self._data = DataRandomness()
        self._saved: dict[str, Saved] = {}
        self._last_saved: Saved | None = None
        _check_ranks(core_context, args)
        _check_user_data(user_data)

        trial = trial_of(self.info)
        if trial is not None:
            searcher = trial._config.get("searcher") or {}
            self.searcher_metric = searcher.get("metric")
            self._time_metric = searcher.get("time_metric")
            check_length(args, searcher)
            self._use_private_folder(args, trial.trial_id)
        folder = str(folder_of(args).resolve())
        self._run_id = run_id_of(core_context, type(self), output_dir=folder)
        continues = self._restore(args)
        describe_run(
            core_context,
            self._run_id,
            continues,
            hparams=hparams_of(args),
            seed=args.seed,
            metric=_metric_of(args),
            smaller_is_better=not args.greater_is_better,
        )

    # Events of the trainer.

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin to look for requests to stop, and to watch the data."""
        self._is_training = True
        self._stop.begin(state.global_step)
        if state.global_step > 0:
            self.last_save = max(self.last_save, state.global_step)
        # A trainer that resumes from its last step would train one more, unless it ends an epoch.
        is_over = state.global_step >= state.max_steps > 0
        self._data.watch(kwargs.get("train_dataloader"), is_over=is_over)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore what the order of the data depends on."""
        self._data.begin_epoch()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore what the data of the first step depends on."""
        self._data.begin_step()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Report progress, and look for a request to stop."""
        if args.max_steps > -1:
            percent = int(100 * state.global_step / args.max_steps)
            if percent > self.last_progress:
                self.last_progress = percent
                self._report_progress(state, state.global_step / args.max_steps)
        self._look(state, control)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Report metrics, and look for a request to stop."""
        if logs:
            self._report(state, logs)
        if self._is_training:
            self._look(state, control)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Save what the trainer has just written as a checkpoint. Every rank is here."""
        name = f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        folder = folder_of(args)
        rank = self.core_context.distributed.rank
        if (folder / name).is_dir():
            if not args.save_only_model and not _is_between_epochs(state):
                self._data.save(folder / name, rank)
            if rank == 0 and self.user_data is not None:
                (folder / name / _USER_DATA).write_text(json.dumps(self.user_data))
        self._last_saved = save_files(
            self.core_context,
            folder,
            lambda path: path.startswith((f"{name}/", "runs/")),
            {
                **metadata_of(self.core_context, state.global_step, self._run_id),
                **self._best(state),
            },
            step_folder=name,
            last=self._last_saved,
        )
        self._saved[name] = self._last_saved
        self.last_save = state.global_step

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Report progress; before training ends, have it evaluated and saved."""
        if args.max_steps <= -1 and args.num_train_epochs > 0:
            self._report_progress(state, (state.epoch or 0) / args.num_train_epochs)
        if state.global_step >= state.max_steps > 0:
            control.should_training_stop = True
        if not control.should_training_stop:
            return
        if self._stop.is_stopping:
            if not _is_between_epochs(state):
                # The trainer takes any end of its loop for the end of an epoch.
                control.should_evaluate = control.should_log = False
        elif args.do_eval and self.last_eval_metrics < state.global_step:
            control.should_evaluate = True
        if self.last_save < state.global_step:
            control.should_save = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Training is over; what is logged from now on is still reported."""
        self._is_training = False

    # Parts of the above.

    def _look(self, state: TrainerState, control: TrainerControl) -> None:
        if self._stop.after(state.global_step):
            control.should_training_stop = True

    def _report(self, state: TrainerState, logs: Mapping[str, Any]) -> None:
        group, step = group_of(logs), state.global_step
        if group == TEST:
            if state.is_world_process_zero:
                logger.warning("Metrics of a test are not reported: %s.", ", ".join(logs))
            return
        needed = [name for name in (self.searcher_metric, self._time_metric) if name]
        metrics = metrics_of(logs, step, state.epoch, self.filter_metrics or None, needed)
        if group == VALIDATION:
            if self.last_eval_metrics == step:
                return
            self.last_eval_metrics = step
            check_needed(metrics, needed)
            if state.is_world_process_zero:
                self.core_context.train.report_validation_metrics(step, metrics)
        elif self.last_train_metrics != step:
            self.last_train_metrics = step
            if state.is_world_process_zero:
                self.core_context.train.report_training_metrics(step, metrics)

    def _report_progress(self, state: TrainerState, progress: float) -> None:
        if state.is_world_process_zero:
            self.core_context.train.report_progress(min(progress, 1.0))

    def _use_private_folder(self, args: TrainingArguments, trial_id: int) -> None:
        given = folder_of(args)
        folder = private_folder(given, trial_id)
        if folder != given:
            if self.core_context.distributed.rank == 0:
                logger.info(
                    "Files of this trial go to %s: %s is the same folder for all trials.",
                    folder,
                    given,
                )
            args.output_dir = str(folder)

    # Resuming.

    def _restore(self, args: TrainingArguments) -> str | None:
        """Fetch the checkpoint to continue from, if there is one; return its storage id."""
        is_chief = self.core_context.distributed.rank == 0
        if getattr(args, "overwrite_output_dir", False):
            if is_chief:
                logger.info("No checkpoint is restored, because of `overwrite_output_dir`.")
            return None
        wanted = args.resume_from_checkpoint
        continues = find_checkpoint(self.core_context, wanted, self._run_id)
        if continues is None:
            if wanted == "latest":
                args.resume_from_checkpoint = None
            return None
        folder = folder_of(args)
        newest = self._fetch(continues, folder)
        step = _step_of(newest)
        if is_chief:
            logger.info("Training continues from checkpoint %s, at step %d.", continues, step)
        if self._run_id is None:
            Ranks(self.core_context.distributed, local=True).on_first(
                lambda: _remove_later(folder, step)
            )
        args.resume_from_checkpoint = str(folder / newest)
        trust_numpy_states()
        if not args.ignore_data_skip:
            self._data.load(folder / newest, self.core_context.distributed.rank)
        self._last_saved = self._saved[newest] = Saved(continues, newest)
        self._fetch_best(continues, folder)
        return continues

    def _fetch(self, storage_id: str, folder: Path) -> str:
        """Download a checkpoint; return the name of its newest folder."""
        checkpoint = self.core_context.checkpoint
        names = Ranks(self.core_context.distributed).on_first(
            lambda: sorted(_folders(checkpoint._storage_of(storage_id).resources(storage_id)))
        )
        if not names:
            raise ValueError(
                f"Checkpoint {storage_id} has no folder `{PREFIX_CHECKPOINT_DIR}-N`: it was not "
                "saved by `determined.transformers.DetCallback`, and this trainer cannot read it."
            )
        checkpoint.download(storage_id, folder)
        return max(names, key=_step_of)

    def _fetch_best(self, continues: str, folder: Path) -> None:
        """Fetch the checkpoint that the trainer calls the best, unless it is here or gone."""
        metadata = self.core_context.checkpoint.get_metadata(continues)
        best = metadata.get(_BEST)
        if not isinstance(best, dict) or best.get("uuid") == continues:
            return
        self._saved[best["folder"]] = Saved(best["uuid"], best["folder"])
        if (folder / best["folder"]).is_dir():
            return
        try:
            self._fetch(best["uuid"], folder)
        except (CheckpointNotFound, ValueError) as error:
            logger.warning("The best checkpoint so far cannot be restored: %s", error)

    def _best(self, state: TrainerState) -> dict[str, Any]:
        """Say in the metadata which checkpoint the trainer calls the best."""
        name = Path(state.best_model_checkpoint or "").name
        saved = self._saved.get(name)
        return {} if saved is None else {_BEST: {"uuid": saved.storage_id, "folder": name}}


def _check_ranks(core_context: Context, args: TrainingArguments) -> None:
    ranks = core_context.distributed.size
    if args.world_size != ranks:
        raise ValueError(
            f"The trainer has {args.world_size} process(es) and `core_context` has {ranks}: make "
            "it with `core.init(distributed=core.DistributedContext.from_torch_distributed())` "
            "where a launcher starts several."
        )


def _check_user_data(user_data: Any) -> None:
    try:
        json.dumps(user_data)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`user_data` must be JSON data: {error}.") from error


def _metric_of(args: TrainingArguments) -> str | None:
    name = args.metric_for_best_model
    return name if name is None or name.startswith("eval_") else f"eval_{name}"


def _is_between_epochs(state: TrainerState) -> bool:
    return state.epoch is not None and state.epoch == int(state.epoch)


def _folders(names: Mapping[str, int]) -> set[str]:
    """The folders of steps among the files of a checkpoint."""
    tops = {name.partition("/")[0] for name in names}
    return {top for top in tops if _step_of(top) >= 0}


def _step_of(name: str) -> int:
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == PREFIX_CHECKPOINT_DIR and number.isdecimal() else -1


def _remove_later(folder: Path, step: int) -> None:
    """Remove what a run that was killed left half-written: its steps are trained again."""
    for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        if _step_of(path.name) > step:
            shutil.rmtree(path, ignore_errors=True)
