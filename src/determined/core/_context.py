"""Context: the services of one training process, and `init()`, which puts them together."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from determined._contracts.replay_span import asked_span
from determined._info import (
    ClusterInfo,
    TrialInfo,
    checkpoint_elsewhere,
    get_cluster_info,
    trial_of,
)
from determined.core._checkpoint import CheckpointContext, build_local
from determined.core._distributed import DistributedContext, DummyDistributedContext
from determined.core._enums import EarlyExitReason, PreemptMode, TensorboardMode
from determined.core._experimental import ExperimentalCoreContext
from determined.core._preempt import PreemptContext
from determined.core._profiler import ProfilerContext
from determined.core._searcher import (
    DummySearcherContext,
    SearcherContext,
    SearcherContextMissing,
    parse_length,
)
from determined.core._train import TrainContext, default_tensorboard_path
from determined.core.backends.backend import Backend, LocalBackend, RunDescription
from determined.core.backends.titles import RunTitle, title_of, warn_of_ignored_arguments
from determined.core.backends.tracking import is_tracked
from determined.core.hangs.forced_exit import end_with_launcher
from determined.core.hangs.keeper_watch import end_with_keeper
from determined.core.hangs.stack_dump import install_stack_dump
from determined.errors import InvalidHP
from determined.storage import section_of

logger = logging.getLogger("determined.core")

CheckpointStorage = str | os.PathLike[str] | dict[str, Any]

_ALERT_LEVELS = ("debug", "info", "warn", "error")


class Context:
    """The services of one training process; use it as `with core.init() as core_context:`.

    Parts that are not given are those of a local run.
    """

    def __init__(
        self,
        checkpoint: CheckpointContext,
        distributed: DistributedContext | None = None,
        preempt: PreemptContext | None = None,
        train: TrainContext | None = None,
        searcher: SearcherContext | SearcherContextMissing | None = None,
        info: ClusterInfo | None = None,
        experimental: ExperimentalCoreContext | None = None,
        profiler: ProfilerContext | None = None,
        backend: Backend | None = None,
    ) -> None:
        self._backend = backend or LocalBackend()
        self.checkpoint = checkpoint
        self.distributed = distributed or DummyDistributedContext()
        self.preempt = preempt or PreemptContext(self._backend, self.distributed)
        self.train = train or TrainContext(self._backend, self.distributed)
        self.searcher = searcher or DummySearcherContext(self.distributed)
        self.info = info
        self._trial = trial_of(info)
        self.experimental = experimental or ExperimentalCoreContext(self._backend)
        self.profiler = profiler or ProfilerContext(self._backend, self.distributed)
        self._undo_stack_dump: Callable[[], None] = lambda: None
        self._leave_launcher: Callable[[], None] = lambda: None
        self._other_parts: list[Callable[[], None]] = []

    def _close_also(self, *closers: Callable[[], None]) -> None:
        """Close other things together with this context."""
        self._other_parts += closers

    def start(self) -> None:
        """Begin to listen for stop requests. `init()` calls it."""
        self._undo_stack_dump = install_stack_dump()
        self._leave_launcher = end_with_launcher(lambda: self.preempt.signal_handled_at)
        self.preempt.start()

    def close(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Close every part, even if one fails; then raise the first failure.

        Pass the exception that ended training, if any: the other ranks are notified.
        """
        failure = None if isinstance(exc_val, SystemExit) and not exc_val.code else exc_val
        self._backend.note_end(exc_val, self.preempt.signal_received)
        parts: list[Callable[[], None]] = [
            self.preempt.close,
            lambda: self.distributed.close(failure),
            self.profiler.close,  # it makes a last report
            self.train.close,
            self._undo_stack_dump,
            self._leave_launcher,
            *self._other_parts,
        ]
        first: BaseException | None = None
        for close in parts:
            try:
                close()
            except BaseException as error:
                first = first or error
        if first is not None:
            raise first

    def alert(
        self, title: str | None = None, description: str | None = None, level: str = "info"
    ) -> None:
        """Report something that needs attention; `level` is `debug`, `info`, `warn` or `error`."""
        known = level.lower() if isinstance(level, str) else level
        if known not in _ALERT_LEVELS:
            raise ValueError(f"`level` must be one of {', '.join(_ALERT_LEVELS)}, got {level!r}.")
        self._backend.alert(title, description, known)

    def __enter__(self) -> Context:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if isinstance(exc_val, InvalidHP):
            self.train.report_early_exit(EarlyExitReason.INVALID_HP)
        try:
            self.close(exc_type, exc_val, exc_tb)
        except BaseException as error:
            if exc_val is None:
                raise
            logger.error("Closing after a failure failed too: %r", error)
        if isinstance(exc_val, InvalidHP):
            logger.info("The hyperparameters are invalid: %s", exc_val.msg)
            if self._backend.restarts_trials:
                raise SystemExit(0)


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: CheckpointStorage | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
    tensorboard_path: str | os.PathLike[str] | None = None,
    name: str | None = None,
    project: str | None = None,
    labels: Sequence[str] | None = None,
    description: str | None = None,
    hparams: Mapping[str, Any] | None = None,
    metric: str | None = None,
    smaller_is_better: bool = True,
) -> Context:
    """Build the services of this training process; every rank calls this.

    `InvalidHP` that leaves the `with` block is reported as such. Under a supervisor the process
    then exits with status 0; otherwise the exception is raised to the caller.

    Args:
        distributed: the ranks of this job; without it, this process is the only one.
        checkpoint_storage: a path, a URL such as `s3://bucket/prefix`, or a configuration
            dictionary. Default: the experiment's storage, else `DET_STORAGE`, else the user's data
            directory.
        preempt_mode: who calls `preempt.should_preempt()`.
        tensorboard_mode: with AUTO, reported training and validation metrics go to TensorBoard;
            with MANUAL, only what you write yourself.
        tensorboard_path: where event files go. Default: next to the checkpoints.
        name, project, labels, description: what a run that nobody launched is called and where it
            is filed; a project that does not exist yet, `project` or `workspace/project`, is made.
            In a trial of the platform they have no effect.
        hparams: hyperparameters, for the record of such a run.
        metric: the validation metric that decides which validation is the best.
        smaller_is_better: whether to minimize it.
    """
    title = title_of(name, project, labels, description)
    run = RunDescription(
        hparams=dict(hparams or {}), metric=metric, smaller_is_better=smaller_is_better
    )
    info = get_cluster_info()
    if trial_of(info) is not None and (distributed is None or distributed.rank == 0):
        given = {**dataclasses.asdict(title), "hparams": hparams, "metric": metric}
        warn_of_ignored_arguments(given)
    if info is not None:
        _check_slots(info, distributed)
        if isinstance(checkpoint_storage, dict) and checkpoint_storage.get("type") == "shared_fs":
            raise ValueError(
                "`checkpoint_storage` of type shared_fs must be given as a path, not as a dict."
            )
    return build_context(
        info,
        distributed or DummyDistributedContext(),
        checkpoint_storage,
        preempt_mode,
        tensorboard_mode,
        tensorboard_path,
        lambda rank: _build_backend(info, rank, checkpoint_storage, title, run),
    )


def _dummy_init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: CheckpointStorage | None = None,
    tensorboard_path: str | os.PathLike[str] | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
) -> Context:
    """Build the services of a local run, whatever surrounds this process."""
    return build_context(
        None,
        distributed or DummyDistributedContext(),
        checkpoint_storage,
        preempt_mode,
        TensorboardMode.MANUAL,
        tensorboard_path,
        lambda rank: LocalBackend(),
    )


def build_context(
    info: ClusterInfo | None,
    distributed: DistributedContext,
    checkpoint_storage: CheckpointStorage | None,
    preempt_mode: PreemptMode,
    tensorboard_mode: TensorboardMode,
    tensorboard_path: str | os.PathLike[str] | None,
    build_backend: Callable[[int], Backend],
) -> Context:
    """Put the services of a process together; `build_backend` is given its rank."""
    trial = trial_of(info)
    backend: Backend | None = None
    try:
        backend = build_backend(distributed.rank)
        storage = checkpoint_storage
        if storage is None and trial is not None:
            storage = trial._config.get("checkpoint_storage")
        checkpoint = build_local(distributed, storage, backend)
        if trial is not None and (elsewhere := checkpoint_elsewhere()) is not None:
            checkpoint._read_elsewhere(*elsewhere)
        if backend.restarts_trials and distributed.rank == 0:
            checkpoint.check_object_store()
        directory = _agree_on_tensorboard_path(tensorboard_path, checkpoint, trial, distributed)
        is_default = tensorboard_path is None and trial is None
        steps = 0 if trial is None else trial._steps_completed
        train = TrainContext(backend, distributed, directory, tensorboard_mode, is_default, steps)
        return Context(
            checkpoint=checkpoint,
            distributed=distributed,
            preempt=PreemptContext(backend, distributed, preempt_mode),
            train=train,
            searcher=_build_searcher(trial, backend, distributed),
            info=info,
            profiler=ProfilerContext(backend, distributed, None if info is None else info.agent_id),
            backend=backend,
        )
    except BaseException as error:
        if backend is not None:
            backend.close()
        distributed.fail(error)  # the other ranks may already wait for this one
        raise


def _build_backend(
    info: ClusterInfo | None,
    rank: int,
    checkpoint_storage: CheckpointStorage | None,
    title: RunTitle,
    run: RunDescription,
) -> Backend:
    """Record a script that was started manually, on its chief, unless tracking is off."""
    if info is None and rank == 0 and is_tracked() and asked_span() is None:
        from determined.core.backends.tracked import TrackedBackend  # only where needed

        backend: Backend = TrackedBackend(section_of(checkpoint_storage), title, run)
    else:
        backend = _choose_backend(trial_of(info), rank)
    if info is None:
        backend.set_best_tracking(run.metric, run.smaller_is_better)
    return backend


def _choose_backend(trial: TrialInfo | None, rank: int) -> Backend:
    """Ask what run this is: one that the platform started has a folder of its own."""
    span = asked_span()
    if span is not None and rank == 0:
        from determined.core.backends.replay import ReplayBackend

        return ReplayBackend(span)
    folder = os.environ.get("DET_RUN_DIR")
    if trial is None or not folder:
        return LocalBackend()
    from determined.core.backends.journal import JournalBackend

    _end_with_keeper(str(Path(folder, "alive")))
    backend = JournalBackend(Path(folder), trial._trial_run_id, trial._steps_completed, rank)
    searcher = trial._config.get("searcher") or {}
    backend.set_best_tracking(searcher.get("metric"), searcher.get("smaller_is_better", True))
    return backend


@functools.cache  # once per process
def _end_with_keeper(alive: str) -> None:
    if Path(alive).exists():
        end_with_keeper(alive)


def _check_slots(info: ClusterInfo, distributed: DistributedContext | None) -> None:
    num_containers, num_slots = len(info.container_addrs), len(info.slot_ids)
    if distributed is None and (num_containers > 1 or num_slots > 1):
        raise ValueError(
            f"This task has {num_containers} container(s) and {num_slots} slot(s): pass a "
            "`distributed` context, for example DistributedContext.from_torch_distributed()."
        )


def _build_searcher(
    trial: TrialInfo | None, backend: Backend, distributed: DistributedContext
) -> SearcherContext | SearcherContextMissing:
    if trial is None:
        return DummySearcherContext(distributed)
    length = parse_length(trial._config.get("searcher") or {})
    if length is None:
        return SearcherContextMissing()
    return SearcherContext(backend, distributed, *length)


def _agree_on_tensorboard_path(
    given: str | os.PathLike[str] | None,
    checkpoint: CheckpointContext,
    trial: TrialInfo | None,
    distributed: DistributedContext,
) -> Path:
    """The chief decides, so that all ranks of a run write below one directory."""
    ids = None if trial is None else (trial.experiment_id, trial.trial_id)
    given = given or os.environ.get("DET_TENSORBOARD_DIR")  # of a run of the platform
    path = Path(given) if given else default_tensorboard_path(checkpoint.storage_base, ids)
    return Path(distributed.broadcast(str(path.absolute())))
