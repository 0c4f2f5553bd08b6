"""Detached mode: a script that you start yourself is an experiment of the platform.

    from determined.experimental import core_v2

    core_v2.init(config=core_v2.Config(name="mine", hparams={"lr": 0.1}))
    for step in range(100):
        ...
        core_v2.train.report_training_metrics(steps_completed=step, metrics={"loss": loss})
    core_v2.close()

`det experiment list` shows it like any other. Scripts that use `core.init()` or `pytorch.init()`
are recorded too, without ids of their own; this module is for those that want to know their ids,
resume by a name of their own, or have all that they print in the log.
"""

from __future__ import annotations

import atexit
import warnings
from typing import TYPE_CHECKING, Any

from determined._info import get_cluster_info
from determined.core import Context, DistributedContext, PreemptMode, TensorboardMode
from determined.core import init as _init_core
from determined.core._context import CheckpointStorage
from determined.experimental._detached import Config, open_detached
from determined.experimental._exit_status import ExitStatus

if TYPE_CHECKING:
    from determined._info import ClusterInfo
    from determined.core import (
        CheckpointContext,
        PreemptContext,
        SearcherContext,
        SearcherContextMissing,
        TrainContext,
    )

    checkpoint: CheckpointContext
    distributed: DistributedContext
    info: ClusterInfo | None
    preempt: PreemptContext
    searcher: SearcherContext | SearcherContextMissing
    train: TrainContext

__all__ = [
    "Config",
    "DefaultConfig",
    "UnmanagedConfig",
    "checkpoint",
    "close",
    "distributed",
    "info",
    "init",
    "init_context",
    "preempt",
    "searcher",
    "train",
    "url_reverse_webui_exp_view",
]

DefaultConfig = Config
UnmanagedConfig = Config

_PARTS = ("checkpoint", "distributed", "info", "preempt", "searcher", "train")
_context: Context | None = None
_status: ExitStatus | None = None


def init(
    *,
    config: Config | None = None,
    defaults: Config | None = None,
    unmanaged: Config | None = None,
    client: Any = None,
    distributed: DistributedContext | None = None,
    checkpoint_storage: CheckpointStorage | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> None:
    """Make this process a trial; `core_v2.train` and the other parts exist from then on.

    `close()` ends it, or the end of the process: as ERROR after an uncaught exception or
    `sys.exit()` with another status than 0, else as COMPLETED. Arguments are those of
    `init_context`.
    """
    global _context, _status
    if _context is not None:
        raise RuntimeError("core_v2.init() was already called: call core_v2.close() first.")
    _context = init_context(
        config=config,
        defaults=defaults,
        unmanaged=unmanaged,
        client=client,
        distributed=distributed,
        checkpoint_storage=checkpoint_storage,
        preempt_mode=preempt_mode,
        tensorboard_mode=tensorboard_mode,
    )
    _context.start()
    _status = ExitStatus()
    atexit.register(close)


def init_context(
    *,
    config: Config | None = None,
    defaults: Config | None = None,
    unmanaged: Config | None = None,
    client: Any = None,
    distributed: DistributedContext | None = None,
    checkpoint_storage: CheckpointStorage | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> Context:
    """Make this process a trial and return its context, to be used in a `with` statement.

    Every rank calls it. In a trial that the platform started it is `core.init()`, and `config` has
    no effect.

    Args:
        config: What the experiment is; external ids in it resume one.
        defaults: Deprecated: values for what `config` leaves out.
        unmanaged: Deprecated, likewise.
        client: Accepted for compatibility; the home is the one that `DET_HOME` names.
        distributed: The ranks of this job; without it, this process is the only one.
        checkpoint_storage: A path, a URL or a section; goes before the one in `config`. Default:
            the `checkpoints` folder of the home.
        preempt_mode: Who calls `preempt.should_preempt()`. Only signals ask to stop.
        tensorboard_mode: As for `core.init`.
    """
    wanted = _merged(config, defaults=defaults, unmanaged=unmanaged)
    if get_cluster_info() is not None:
        return _init_core(
            distributed=distributed,
            checkpoint_storage=checkpoint_storage,
            preempt_mode=preempt_mode,
            tensorboard_mode=tensorboard_mode,
        )
    return open_detached(wanted, distributed, checkpoint_storage, preempt_mode, tensorboard_mode)


def close() -> None:
    """End the trial that `init()` began, and forget its parts; does nothing if there is none."""
    global _context, _status
    context, status = _context, _status
    if context is None or status is None:
        return
    _context = _status = None
    atexit.unregister(close)
    error = status.error()
    status.close()
    context.close(None if error is None else type(error), error)


def url_reverse_webui_exp_view() -> str:
    """Where `det dashboard` shows this experiment, unless it was given another port."""
    known = _open_context("url_reverse_webui_exp_view()").info
    if known is None:
        raise RuntimeError("This process is not a trial, so it has no experiment to show.")
    return f"http://127.0.0.1:8090/experiments/{known.trial.experiment_id}"


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return getattr(_open_context(name), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _open_context(name: str) -> Context:
    if _context is None:
        raise RuntimeError(f"core_v2.{name}: call core_v2.init() first.")
    return _context


def _merged(config: Config | None, **older: Config | None) -> Config:
    merged = Config() if config is None else config
    for name, values in older.items():
        if values is not None:
            warnings.warn(
                f"`{name}` is deprecated: give all of it as `config=core_v2.Config(...)`.",
                DeprecationWarning,
                stacklevel=3,
            )
            merged = merged.over(values)
    return merged
