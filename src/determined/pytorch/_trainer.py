"""The entry point: `init()` creates a context, `Trainer.fit` trains a trial in it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Generator, Sequence
from typing import Any, ParamSpec

import torch

from determined._contracts.replay_span import asked_span
from determined._info import get_cluster_info, trial_of
from determined._os.notebook import in_ipython
from determined.core import Context, DistributedContext, PreemptMode, TensorboardMode
from determined.core import init as init_core
from determined.core.backends.titles import title_of, with_configured
from determined.pytorch._checkpoint.files.trust import check_classes
from determined.pytorch._checkpoint.forking.request import with_overrides
from determined.pytorch._checkpoint.saving.frozen import ALWAYS, ONCE
from determined.pytorch._checks.arguments import (
    check_choice,
    check_count,
    check_flag,
    check_kind,
    check_path,
)
from determined.pytorch._checks.foreign_arguments import naming_our_arguments
from determined.pytorch._checks.trial import check_takes_part
from determined.pytorch._context.context import PyTorchTrialContext, RunOptions
from determined.pytorch._context.determinism import deterministic
from determined.pytorch._data.seed import seed_everything
from determined.pytorch._display.profile import ProfileOptions
from determined.pytorch._identity.identity import file_name
from determined.pytorch._identity.naming import identity_of
from determined.pytorch._instrumentation.overrides import Overrides, current_overrides
from determined.pytorch._loop import TrainLoop
from determined.pytorch._plan import FitPlan, plan_fit, plan_validation
from determined.pytorch._ranks.process_group import start_ranks
from determined.pytorch._ranks.together import naming_the_failed_rank
from determined.pytorch._reporter import checkpoint_address
from determined.pytorch._schedule import Batch, TrainUnit, is_whole_number
from determined.pytorch._trial import PyTorchTrial

logger = logging.getLogger("determined.pytorch")

P = ParamSpec("P")


def _overrides() -> Overrides:
    """Return what decides besides the script: a tool around it, or a replay."""
    span = asked_span()
    if span is None:
        return current_overrides()
    from determined.pytorch.replay._replaying import Replaying  # only where needed

    return Replaying(span)


class _Init(contextlib._GeneratorContextManager[PyTorchTrialContext]):
    """What `init()` returns: says what to write when it is taken for the context itself."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"pytorch.init() has no {name!r}: it has not been entered. Write `with "
            "pytorch.init(...) as context:` and create the trial and the trainer inside that "
            "block."
        )


def _entered_by_with(
    function: Callable[P, Generator[PyTorchTrialContext, None, None]],
) -> Callable[P, contextlib.AbstractContextManager[PyTorchTrialContext]]:
    @functools.wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> _Init:
        return _Init(function, args, _overrides().init(kwargs))

    return make


@_entered_by_with
def init(
    *,
    hparams: dict[str, Any] | None = None,
    exp_conf: dict[str, Any] | None = None,
    distributed: DistributedContext | None = None,
    aggregation_frequency: int = 1,
    enable_tensorboard_logging: bool = True,
    seed: int | None = None,
    checkpoint_storage: str | os.PathLike[str] | dict[str, Any] | None = None,
    tensorboard_path: str | os.PathLike[str] | None = None,
    run_id: str | None = None,
    allow_pickle: bool = False,
    trusted_classes: Sequence[type] = (),
    device: torch.device | str | None = None,
    exact: bool = False,
    save_frozen: str | None = None,
    name: str | None = None,
    project: str | None = None,
    labels: Sequence[str] | None = None,
    description: str | None = None,
) -> Generator[PyTorchTrialContext, None, None]:
    """Create the context of a trial; use it as `with pytorch.init() as context:` on every rank.

    Under torchrun, this starts the process group (and later destroys it), unless the script did.
    If SIGTERM, SIGHUP or Ctrl-C stopped training, the process exits with 128 + the signal's
    number.

    Args:
        hparams: Hyperparameters, for `context.get_hparam`. `global_batch_size` sets the batch
            sizes.
        exp_conf: Experiment configuration, for `context.get_experiment_config`.
        distributed: Ranks of this job; by default those that torchrun announces.
        aggregation_frequency: Batches whose gradients are accumulated before each optimizer
            update.
        enable_tensorboard_logging: Write metrics to TensorBoard automatically.
        seed: Seeds all random numbers and the data order; by default the configuration's
            `reproducibility.experiment_seed`. Without either, random numbers stay as the script
            left them and the data order derives from torch's seed.
        checkpoint_storage: Path, URL or configuration of the checkpoint storage; by default
            `DET_STORAGE`, else the user's data directory.
        tensorboard_path: Where event files go; by default next to the checkpoints.
        run_id: Names the run for `latest_checkpoint="latest"`; by default made from the script and
            its arguments, the seed, the hyperparameters and the trial class. Arguments that say how
            long to train, such as `--epochs`, do not count (see the page on checkpoints).
        allow_pickle: Load checkpoints that need more than tensors and plain values. This can run
            code from the checkpoint: only for files you trust.
        trusted_classes: Your own classes whose objects checkpoints may contain, for example in the
            `state_dict` of a callback. Loading creates such objects, and runs no other code.
        device: Where to train; by default the accelerator of this rank, else the CPU.
        exact: Compute the same bits each time: torch's deterministic algorithms, and on CUDA
            `CUBLAS_WORKSPACE_CONFIG`, no cuDNN benchmark and no TF32. Operators without a
            deterministic form raise. And refuse to continue a run where it could end with other
            bits than an unbroken one, for example with another number of threads or another
            instruction set, instead of saying so.
        save_frozen: `once`: weights that require no gradient go into files of their own, which the
            next checkpoints share as long as they are the same. `always`: each checkpoint has them
            in `state_dict.pth`. By default the configuration's `checkpoint_storage.save_frozen`,
            else `always`.
        name, project, labels, description: What a run that nobody launched is called and where it
            is filed; by default as in `exp_conf`, named after the script. A project that
            does not exist yet, `project` or `workspace/project`, is created. In a trial of the
            platform they have no effect.
    """
    if not is_whole_number(aggregation_frequency) or aggregation_frequency < 1:
        raise ValueError(
            "`aggregation_frequency` must be an integer of at least 1, got "
            f"{aggregation_frequency!r}."
        )
    check_kind("hparams", hparams, dict, "a dictionary")
    _check_config(exp_conf)
    check_kind("distributed", distributed, DistributedContext, "a core.DistributedContext")
    check_flag("enable_tensorboard_logging", enable_tensorboard_logging)
    check_path("tensorboard_path", tensorboard_path)
    check_kind("run_id", run_id, str, "a string")
    check_flag("allow_pickle", allow_pickle)
    check_flag("exact", exact)
    check_classes(trusted_classes)
    check_choice("save_frozen", save_frozen, (None, ALWAYS, ONCE))
    info = get_cluster_info()
    trial_info = trial_of(info)
    hparams = with_overrides(hparams)
    title = title_of(name, project, labels, description)
    if trial_info is not None:
        exp_conf, seed, distributed = trial_info._config, trial_info.trial_seed, None
    else:
        title = with_configured(title, exp_conf or {})
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.serialization.safe_globals(list(trusted_classes)))
        distributed = start_ranks(stack, distributed)
        if seed is None:
            seed = ((exp_conf or {}).get("reproducibility") or {}).get("experiment_seed")
        if seed is not None:
            seed = _checked_seed(seed)
            seed_everything(seed)
        given_seed = seed
        core_context = stack.enter_context(
            init_core(
                distributed=distributed,
                checkpoint_storage=checkpoint_storage,
                preempt_mode=PreemptMode.WorkersAskChief,
                tensorboard_mode=TensorboardMode.MANUAL,
                tensorboard_path=tensorboard_path,
                hparams=None if trial_info is not None else hparams,
                **dataclasses.asdict(title),
            )
        )
        stack.enter_context(naming_the_failed_rank(core_context.distributed))
        core_context.checkpoint._check_storage()
        if seed is None:
            seed = core_context.distributed.broadcast(torch.initial_seed() % 2**31)
            logger.info(f"No seed was given; data order derives from seed {seed}.")
        context = PyTorchTrialContext(
            core_context=core_context,
            trial_seed=seed,
            hparams=hparams,
            slots_per_trial=core_context.distributed.size,
            num_gpus=torch.accelerator.device_count() if torch.accelerator.is_available() else 0,
            exp_conf=exp_conf,
            aggregation_frequency=int(aggregation_frequency),
            steps_completed=trial_info._steps_completed if trial_info is not None else 0,
            managed_training=True,
            debug_enabled=bool(trial_info is not None and trial_info._debug),
            enable_tensorboard_logging=enable_tensorboard_logging,
            device=device,
            options=RunOptions(
                run_id=run_id if info is None or trial_info is None else info.task_id,
                given_seed=given_seed,
                storage_section=checkpoint_storage if isinstance(checkpoint_storage, dict) else {},
                allow_pickle=allow_pickle,
                exact=exact,
                save_frozen=save_frozen,
            ),
        )
        if exact:
            stack.enter_context(deterministic(context.device))
        if trial_info is None:
            run_name = run_id if run_id is not None else identity_of(context).name
            core_context.train._name_tensorboard_run(file_name(run_name), is_continued=True)
        yield context
        status = _status_after_stop(core_context)
    if status is not None and not in_ipython():
        # Stopped, not finished: what the script would do next must not take one for the other.
        raise SystemExit(status)


def _status_after_stop(core_context: Context) -> int | None:
    """The exit status after a stop; None if training finished."""
    preempt = core_context.preempt
    if preempt.signal_received is not None:
        return 128 + preempt.signal_received
    return 0 if preempt.is_preempted and core_context._backend.restarts_trials else None


def _check_config(exp_conf: Any) -> None:
    check_kind("exp_conf", exp_conf, dict, "a dictionary")
    for section in ("checkpoint_storage", "data", "reproducibility", "searcher"):
        value = (exp_conf or {}).get(section)
        check_kind(f"{section}` in `exp_conf", value, dict, "a dictionary")


def _checked_seed(seed: Any) -> int:
    if not is_whole_number(seed) or not -(2**63) <= seed < 2**63:
        raise ValueError(
            f"`seed` (or reproducibility.experiment_seed of the configuration) must be a whole "
            f"number of 64 bits, got {seed!r}."
        )
    return int(seed)


class Trainer:
    """Trains one trial; create it inside the `pytorch.init()` block.

    Attributes:
        latest_checkpoint: The newest exact checkpoint of the run: the last one that `fit` saved
            (known to the chief only, if it raised), else the one it continued from. A path where
            the storage is local, else an id. `fit` accepts it, and so does
            `load_trial_from_checkpoint_path` if it is a path.
        latest_metrics: The metrics of the last validation, on the chief.
    """

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        self._trial = trial
        self._context = context
        self._profile = ProfileOptions()
        self._plan: FitPlan | None = None
        self.latest_checkpoint: str | None = None
        self.latest_metrics: dict[str, Any] = {}

    @property
    def best_checkpoint(self) -> str | None:
        """The run's checkpoint with the best `metric` of `fit`, named like `latest_checkpoint`.

        None without a metric, or if no checkpoint was validated. Reads the storage each time and
        verifies the result; call it on the chief if other ranks cannot reach the storage.
        """
        if self._plan is None or self._plan.metric is None:
            return None
        found = self._context._core.checkpoint._storage.best(
            self._plan.metric, self._plan.smaller_is_better, self._context._run_id
        )
        return None if found is None else checkpoint_address(self._context, found.storage_id)

    def configure_profiler(
        self,
        sync_timings: bool = True,
        enabled: bool = False,
        begin_on_batch: int = 0,
        end_after_batch: int | None = None,
    ) -> None:
        """Configure profiling for the next `fit`; the last call wins.

        Args:
            sync_timings: Synchronize with the accelerator after each timing, so that each part gets
                its own time. Slows training down a little.
            enabled: Whether to measure at all; `fit(profiling_enabled=True)` does so too.
            begin_on_batch: First batch to measure, counted from the start of the trial.
            end_after_batch: Last batch to measure; by default all.
        """
        check_flag("sync_timings", sync_timings)
        check_flag("enabled", enabled)
        check_count("begin_on_batch", begin_on_batch)
        check_count("end_after_batch", end_after_batch, optional=True)
        self._profile = ProfileOptions(sync_timings, enabled, begin_on_batch, end_after_batch)

    @naming_our_arguments
    def fit(
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit | None = Batch(100),  # noqa: B008  # a value that never changes
        checkpoint_policy: str = "best",
        latest_checkpoint: str | None = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
        *,
        metric: str | None = None,
        smaller_is_better: bool | None = None,
        async_checkpoint: bool = True,
        on_checkpoint_error: str = "raise",
        export: str | None = None,
        progress: bool | None = None,
        sanity_validation: int = 0,
        keep_last: int | None = None,
        keep_best: int | None = None,
        limit_validation_batches: int | None = None,
        settings_from: str = "checkpoint",
        fork_from: tuple[str, int] | None = None,
    ) -> None:
        """Train the trial.

        What happens, in this order, on every rank:

            restore the checkpoint; validate (if step_zero_validation)
            until max_length is reached:
                train batches until something is due
                report training metrics
                validate         if due   (saves a checkpoint as checkpoint_policy says)
                save             if due   (unless just saved)
                stop             if asked to, with a checkpoint
            validate and save    (unless just done)

        Periods are `Batch(n)` or `Epoch(n)`, or a container of counts such as `Batch([10, 100])`.

        Args:
            checkpoint_period: When to save a checkpoint, besides the end.
            validation_period: When to validate, besides the end.
            max_length: How long to train, counted from the start of the trial.
            reporting_period: When to report training metrics, besides whenever anything else is
                due.
            checkpoint_policy: Whether a validation saves a checkpoint: `best` if its metric is
                better than all before, `all`, or `none`. One is always saved at the end.
            latest_checkpoint: Where to continue: a checkpoint's id or path, or `latest` or `best`
                of this run (which start from the beginning if there is none yet). `latest` skips
                those that were saved after an error and are not exact.
            step_zero_validation: Validate before training.
            test_mode: Train one batch, validate one batch, save, to see that everything works.
            profiling_enabled: Measure where the time goes and how busy the machine is: a table at
                the end, `profile.json` and curves in the TensorBoard directory.
            metric: Validation metric that `best` compares; by default the configuration's
                `searcher.metric`.
            smaller_is_better: Whether to minimize it; by default as in the configuration, else
                True.
            async_checkpoint: Write checkpoints in the background. Callbacks that need the files
                make saves wait anyway. Needs main memory for a copy of the state, which also lets a
                stop cut a validation short.
            on_checkpoint_error: `raise`, or `continue` training when a checkpoint cannot be
                written.
            export: `safetensors` to write the weights in that format too, `safetensors-ema` to
                write the average of `callbacks.ExponentialMovingAverage` instead.
            progress: Whether to show progress; by default yes, unless `DET_PROGRESS=off`.
            sanity_validation: Run the validation on this many batches before training, so that a
                mistake in it shows at once. Leaves no trace: no hooks, no reports, and random
                states, reducers and weights as they were. Not with `evaluate_full_dataset`.
            keep_last: How many of the run's newest checkpoints to keep; older ones are deleted once
                a new one is saved. By default all, or 1 if `keep_best` is given.
            keep_best: How many of those with the best `metric` to keep in addition. By default all,
                or 1 if `keep_last` is given.
            limit_validation_batches: Validate at most this many batches on each rank.
            settings_from: Whose settings of optimizers and schedulers count when a run continues
                and the script gives others by now: those of the `checkpoint`, so that it goes on as
                it began, or those of the `script`, with schedules where they would be at this
                batch.
            fork_from: Branch off from another run: its run id, or the path or id of a checkpoint of
                it, and the number of batches that both share. Unchanged, the fork ends like its
                parent. Settings that the script gives otherwise take effect at that batch, which
                must have a checkpoint then (see the page on forks). With
                `latest_checkpoint="latest"`, a fork that has checkpoints of its own continues.

        If an exception ends training, the state is saved before it propagates (on a single rank).
        `latest` finds it if it is exact: no user code was running, or only a validation.
        """
        check_takes_part(self._trial, self._context)
        plan = plan_fit(
            self._context,
            self._profile,
            checkpoint_period=checkpoint_period,
            validation_period=validation_period,
            max_length=max_length,
            reporting_period=reporting_period,
            checkpoint_policy=checkpoint_policy,
            latest_checkpoint=latest_checkpoint,
            step_zero_validation=step_zero_validation,
            test_mode=test_mode,
            profiling_enabled=profiling_enabled,
            metric=metric,
            smaller_is_better=smaller_is_better,
            async_checkpoint=async_checkpoint,
            on_checkpoint_error=on_checkpoint_error,
            export=export,
            progress=progress,
            sanity_validation=sanity_validation,
            keep_last=keep_last,
            keep_best=keep_best,
            limit_validation_batches=limit_validation_batches,
            settings_from=settings_from,
            fork_from=fork_from,
        )
        overrides = _overrides()
        self._plan = overrides.fit(plan)
        observer = overrides.observer(self._trial, self._context)
        loop = TrainLoop(self._trial, self._context, self._plan, observer)
        try:
            loop.run()
        finally:
            self.latest_checkpoint = loop.latest_checkpoint or self.latest_checkpoint
            self.latest_metrics = loop.latest_metrics or self.latest_metrics
        overrides.after_fit(self.latest_checkpoint)

    def validate(
        self,
        latest_checkpoint: str | None = None,
        *,
        limit_validation_batches: int | None = None,
        progress: bool | None = None,
    ) -> dict[str, Any]:
        """Validate the trial as it is now, or from a checkpoint, and return the metrics.

        Every rank must call it, and all get the metrics, as plain numbers. Nothing is trained,
        saved or reported, and the random state is not affected. A checkpoint's
        weights stay in the trial.

        Args:
            latest_checkpoint: The id or path of a checkpoint, or `latest` of this run. After
                `fit(metric=...)` also `best`.
            limit_validation_batches: Validate at most this many batches on each rank.
            progress: Whether to show the result; by default yes, unless `DET_PROGRESS=off`.
        """
        plan = plan_validation(latest_checkpoint, limit_validation_batches, progress, self._plan)
        self.latest_metrics = TrainLoop(self._trial, self._context, plan).validate()
        return self.latest_metrics
