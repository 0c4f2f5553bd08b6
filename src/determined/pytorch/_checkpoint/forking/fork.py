"""A run that leaves its parent at a batch: what it may change there, and that it does so once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from determined._contracts.checkpoint_layout import LOAD_DATA
from determined.errors import ForkError
from determined.pytorch._checkpoint.files.reading import read_json
from determined.pytorch._checkpoint.forking.request import Fork
from determined.pytorch._checkpoint.forking.rules import ForkRules
from determined.pytorch._checkpoint.resuming.resume import SavedRun
from determined.pytorch._checkpoint.resuming.settings import (
    apply_settings,
    began_with,
    other_settings,
)
from determined.pytorch._checkpoint.state.training_state import RunRecord
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._run import Fit
from determined.pytorch._schedule import _TrialState

logger = logging.getLogger("determined.pytorch")

_Changed = dict[str, tuple[Any, Any]]


def settle_fork(fit: Fit, saved: SavedRun, record: RunRecord, state: _TrialState) -> bool:
    """Bring a fork from its parent's state to its own; return whether it changes anything here.

    That is once, at the batch where it leaves its parent. What is not possible is refused as soon
    as the first state is there.
    """
    fork = fit.plan.fork
    if fork is None or fork.at is None or _is_done(fork, saved, record):
        return False
    if saved.record is None:
        raise ForkError(
            f"The checkpoint {saved.name} was not saved by this library: no run can branch off "
            "from it. fit(latest_checkpoint=...) starts a run with its weights."
        )
    name = _name(fork, record)
    known = saved.record.fork if _has_name(saved.record.fork, name) else None
    parent = saved.record.run_id if known is None else known.get("parent")
    record.fork = {"name": name, "parent": parent, "at": fork.at, "applied": False}
    behind = fork.at - state.batches_trained
    if behind < 0 and not fork.is_check:
        raise ForkError(
            f"The checkpoint {saved.name} is at batch {state.batches_trained}, so no run can "
            f"branch off from it at batch {fork.at}: name an earlier one."
        )
    changed = _changed(fork, saved, fit.context)
    began = began_with(saved.record.constructed)
    settings = [] if began is None else other_settings(fit.context, began)
    seed = _own_seed(fit, fork)
    if not changed and not settings and seed in (None, saved.record.seed):
        record.fork["applied"] = True  # nothing is left to do
        return False
    _refuse(fit, saved, _problems(fit, saved, fork, began), changed)
    if fork.is_check:
        return False
    if behind > 0:
        what = _listed(changed) or "; ".join(settings) or "the seed"
        raise ForkError(
            f"There is no checkpoint of {parent} at batch {fork.at}, where this fork changes "
            f"{what}: the newest before it, {saved.name}, is at batch "
            f"{state.batches_trained}. Make one first: run the parent's script, as it was, "
            f"with fit(fork_from=({parent!r}, {fork.at}), max_length=Batch({fork.at})), and fork "
            "from that run."
        )
    if began is not None:
        if fit.plan.settings_from == "script":
            apply_settings(fit.context, began)
        else:
            ForkRules(fit.context, began).apply()
    record.fork["applied"] = True
    if fit.context.distributed.rank == 0:
        what = "; ".join(filter(None, [_listed(changed), *settings])) or f"seed {seed}"
        logger.info(f"This fork of {parent} leaves it after batch {fork.at}: {what}.")
    if changed:
        fit.hooks.call("on_fork", changed)
    return True


def fork_seed(fit: Fit, saved: SavedRun, record: RunRecord) -> int:
    """Return the seed from here on: the parent's, unless the fork has one of its own."""
    fork = fit.plan.fork
    if fork is None or fork.is_check or _is_done(fork, saved, record):
        return record.seed
    if saved.batches_trained(fit.context.get_trial_id()) != fork.at:
        return record.seed
    given = _own_seed(fit, fork)
    return record.seed if given is None else given


def _own_seed(fit: Fit, fork: Fork) -> int | None:
    return fork.seed if fork.source is None else fit.context._given_seed


@contextlib.contextmanager
def refusing_other_architectures(fit: Fit, saved: SavedRun, record: RunRecord) -> Iterator[None]:
    """Say of which fork it is that the parent's state does not fit into what was built."""
    fork = fit.plan.fork
    try:
        yield
    except RuntimeError as e:
        if fork is None or fork.at is None or _is_done(fork, saved, record):
            raise
        changed = _changed(fork, saved, fit.context)
        _refuse(fit, saved, [f"the state does not fit: {e}"], changed)
        raise


def _is_done(fork: Fork, saved: SavedRun, record: RunRecord) -> bool:
    """Whether a checkpoint was saved after the fork left its parent."""
    if saved.record is None or fork.at is None:
        return False
    found = saved.record.fork
    if not _has_name(found, _name(fork, record)):
        if saved.record.run_id == record.run_id and fork.source is not None:
            raise ForkError(
                f"A fork is a run of its own, but this one is called {record.run_id}, like its "
                'parent: give it another name, pytorch.init(run_id="...").'
            )
        return False
    beyond = saved.counters is not None and saved.counters.get("batches_trained", 0) > fork.at
    return bool(found and found.get("applied")) or beyond


def _name(fork: Fork, record: RunRecord) -> str:
    return fork.name or record.run_id


def _has_name(found: Mapping[str, Any] | None, name: str) -> bool:
    return found is not None and found.get("name") == name


def _changed(fork: Fork, saved: SavedRun, context: PyTorchTrialContext) -> _Changed:
    """Return the old and the new values of hyperparameters that differ."""
    if fork.changed is not None:
        return dict(fork.changed)
    old = (read_json(saved.path / LOAD_DATA) or {}).get("hparams") or {}
    new = context._hparams or {}
    return {
        name: (old.get(name), new.get(name))
        for name in (*old, *(name for name in new if name not in old))
        if old.get(name) != new.get(name)
    }


def _problems(fit: Fit, saved: SavedRun, fork: Fork, began: Mapping[str, Any] | None) -> list[str]:
    assert saved.record is not None
    assert fork.at is not None
    found = []
    old, new = saved.record.aggregation_frequency, fit.context._aggregation_frequency
    if old != new and (fork.at % old or fork.at % new):
        found.append(
            f"aggregation_frequency: {new} instead of {old} (batch {fork.at} is inside an "
            "accumulation window)"
        )
    if began is None:
        found.append(
            "the checkpoint does not say what its run began with, as those of earlier releases"
        )
    elif fit.plan.settings_from != "script":
        found += ForkRules(fit.context, began).problems
    return found


def _refuse(fit: Fit, saved: SavedRun, problems: list[str], changed: _Changed) -> None:
    if not problems:
        return
    what = f" with {_listed(changed)}" if changed else ""
    raise ForkError(
        f"This run cannot branch off from {saved.name}{what}: {'; '.join(problems)}. Fork without "
        "that change, or train from the beginning with it. For a schedule laid out as if it had "
        'been there from the beginning: fit(settings_from="script").'
    )


def _listed(changed: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} {old!r} -> {new!r}" for name, (old, new) in changed.items())
