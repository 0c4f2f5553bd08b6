"""Checks across several keys, on plain values; values that are wrong by themselves are skipped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeGuard

from determined.config.messages.problems import Path, Problem, shown
from determined.config.model.searcher import REMOVED
from determined.config.model.storage import is_below
from determined.config.reading.old_forms import uses_harness
from determined.config.sbatch_options import refusal

_LARGEST_LOG = 700.0  # of a float


def check(config: dict[str, Any], *, managed: bool) -> Iterator[Problem]:
    """Yield every problem that involves more than one key."""
    yield from _entrypoint(config, managed)
    yield from _workspace(config)
    yield from _searcher(config, _section(config, "searcher"))
    yield from _repeat(config.get("repeat"), _section(config, "searcher").get("name"))
    yield from _resources(_section(config, "resources"))
    yield from _storage(_section(config, "checkpoint_storage"))
    yield from _profiling(_section(config, "profiling"))
    yield from _environment(_section(config, "environment"))
    yield from _log_policies(config.get("log_policies"))
    yield from _slurm(_section(config, "slurm"))
    is_grid = _section(config, "searcher").get("name") == "grid"
    yield from _group(_section(config, "hyperparameters"), ("hyperparameters",), is_grid)


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def _slurm(section: dict[str, Any]) -> Iterator[Problem]:
    words = section.get("sbatch_args")
    for number, word in enumerate(words if isinstance(words, (list, tuple)) else ()):
        if isinstance(word, str) and (why := refusal(word)):
            yield Problem(why, ("slurm", "sbatch_args", number))


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _entrypoint(config: dict[str, Any], managed: bool) -> Iterator[Problem]:
    if managed and config.get("entrypoint") is None:
        hint = "for example `entrypoint: python3 train.py`"
        yield Problem("missing; expected a command", ("entrypoint",), hint, points_at="key")


def _workspace(config: dict[str, Any]) -> Iterator[Problem]:
    given = [key for key in ("workspace", "project") if config.get(key) not in (None, "")]
    if len(given) == 1:
        other = "project" if given == ["workspace"] else "workspace"
        yield Problem(f"needs `{other}` as well: both or neither", (given[0],), points_at="key")


def _searcher(config: dict[str, Any], searcher: dict[str, Any]) -> Iterator[Problem]:
    name = str(searcher.get("name"))
    if name in REMOVED:
        yield Problem(
            f"`{name}` was removed and is not valid for new experiments",
            ("searcher", "name"),
            f"use {REMOVED[name]}",
        )
    sources = ("source_trial_id", "source_checkpoint_uuid")
    if all(searcher.get(key) is not None for key in sources):
        words = "give source_trial_id or source_checkpoint_uuid, not both"
        yield Problem(words, ("searcher", "source_checkpoint_uuid"), points_at="key")
    no_length = searcher.get("max_length") is None and searcher.get("max_time") is None
    if searcher and no_length and name not in REMOVED and uses_harness(config.get("entrypoint")):
        yield Problem(
            "missing; says how long to train a trial class",
            ("searcher", "max_length"),
            "for example `max_length: {batches: 1000}`",
            points_at="key",
        )
    if name == "custom" and searcher.get("sampler") not in (None, "random"):
        words = "a custom search draws no samples from a model"
        yield Problem(words, ("searcher", "sampler"), "remove it", points_at="key")
    yield from _rungs(searcher)
    if name == "pbt":
        yield from _population(config, searcher)


def _population(config: dict[str, Any], searcher: dict[str, Any]) -> Iterator[Problem]:
    interval, max_time = searcher.get("interval"), searcher.get("max_time")
    if _is_number(interval) and _is_number(max_time) and interval >= 1 and max_time % interval:
        words = f"expected a multiple of interval ({shown(interval)}), got {shown(max_time)}"
        lower = int(max_time // interval * interval)
        near = f"{lower} or {lower + int(interval)}" if lower else str(int(interval))
        yield Problem(words, ("searcher", "max_time"), f"use {near}")
    given = searcher.get("inherit")
    inherited = {name for name in given if isinstance(name, str)} if _is_list(given) else set()
    searched = set(_searched(_section(config, "hyperparameters"), ""))
    if unknown := sorted(inherited - searched):
        words = f"{shown(unknown[0])} is not a searched hyperparameter"
        known = ", ".join(sorted(searched)) or "none"
        yield Problem(words, ("searcher", "inherit"), f"these are: {known}")
    elif not searched - inherited:
        words = "nothing would change from member to member"
        hint = "give at least one hyperparameter a range" if not searched else "inherit fewer"
        yield Problem(words, ("searcher", "inherit" if searched else "name"), hint)
    factors = searcher.get("perturb")
    if _is_list(factors) and factors and all(_is_number(f) and f == 1 for f in factors):
        words = "a factor of 1 changes nothing"
        yield Problem(words, ("searcher", "perturb"), "for example [0.8, 1.25]")


def _is_list(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(value, (list, tuple))


def _searched(group: dict[str, Any], before: str) -> Iterator[str]:
    """The names of hyperparameters that have more than one value."""
    for name, entry in group.items():
        if not isinstance(entry, dict):
            continue
        if "type" not in entry:
            yield from _searched(entry, f"{before}{name}.")
        elif entry["type"] == "categorical":
            values = entry.get("vals")
            if not _is_list(values) or len(values) > 1:
                yield f"{before}{name}"
        elif entry["type"] != "const":
            yield f"{before}{name}"


def _repeat(repeat: Any, searcher: Any) -> Iterator[Problem]:
    if not _is_number(repeat) or repeat <= 1 or searcher in (None, "single", "grid"):
        return
    why = {
        "random": "a random search draws new values instead of training the same ones again",
        "custom": "a custom search decides by itself which trials run",
    }.get(str(searcher), "trials that are stopped early have no results to average over seeds")
    yield Problem(
        f"only for `single` and `grid`, and this is `{searcher}`: {why}",
        ("repeat",),
        "search first, then repeat the best values with `searcher: {name: single, ...}`",
        points_at="key",
    )


def _rungs(searcher: dict[str, Any]) -> Iterator[Problem]:
    """Reject rungs whose lengths exceed the range of a float."""
    divisor = searcher.get("divisor") or 4.0
    if not _is_number(divisor) or not divisor > 1:
        return
    most = int(_LARGEST_LOG / math.log(divisor))
    brackets = searcher.get("bracket_rungs")
    counted = [("num_rungs", searcher.get("num_rungs"))]
    counted += [("bracket_rungs", n) for n in (brackets if isinstance(brackets, list) else [])]
    for key, rungs in counted:
        if _is_number(rungs) and rungs > most:
            words = f"{rungs} rungs, each {divisor} times as long as the last, are too many"
            yield Problem(words, ("searcher", key), f"use {most} or fewer")


def _resources(resources: dict[str, Any]) -> Iterator[Problem]:
    slots = resources.get("slots_per_trial")
    slots = 1 if slots is None else slots
    most, shared = resources.get("max_slots"), resources.get("trials_per_slot")
    if _is_number(slots) and _is_number(most) and most < slots:
        words = f"expected at least slots_per_trial ({slots}), got {most}"
        yield Problem(words, ("resources", "max_slots"), "no trial could ever start")
    if _is_number(slots) and _is_number(shared) and shared > 1 and slots > 1:
        words = f"trials of {slots} slots cannot share a slot"
        yield Problem(words, ("resources", "trials_per_slot"), "set slots_per_trial to 1")


def _storage(storage: dict[str, Any]) -> Iterator[Problem]:
    here = "checkpoint_storage"
    if storage.get("type") == "azure":
        ways = [k for k in ("connection_string", "account_url") if storage.get(k) is not None]
        if len(ways) != 1:
            words = "expected connection_string or account_url, got "
            words += "both" if ways else "neither"
            yield Problem(words, (here, *ways[1:]), points_at="key")
    root = storage.get("host_path")
    for key in ("storage_path", "checkpoint_path", "tensorboard_path"):
        inner = storage.get(key)
        if isinstance(root, str) and isinstance(inner, str) and not is_below(inner, root):
            words = f"expected a subdirectory of host_path ({root}), got {shown(inner)}"
            yield Problem(words, (here, key))


def _profiling(profiling: dict[str, Any]) -> Iterator[Problem]:
    begin, end = profiling.get("begin_on_batch") or 0, profiling.get("end_after_batch")
    if _is_number(begin) and _is_number(end) and end < begin:
        words = f"expected at least begin_on_batch ({begin}), got {end}"
        yield Problem(words, ("profiling", "end_after_batch"))


def _environment(environment: dict[str, Any]) -> Iterator[Problem]:
    if environment.get("python") is not None and environment.get("virtualenv") is not None:
        words = "give python or virtualenv, not both"
        yield Problem(words, ("environment", "virtualenv"), points_at="key")


def _log_policies(policies: Any) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, policy in enumerate(policies if isinstance(policies, list) else []):
        name = policy.get("name") if isinstance(policy, dict) else None
        if isinstance(name, str) and name in seen:
            words = f"another policy has the name {shown(name)}"
            yield Problem(words, ("log_policies", index, "name"))
        elif isinstance(name, str):
            seen.add(name)


def _group(group: dict[str, Any], path: Path, is_grid: bool) -> Iterator[Problem]:
    if is_grid and path == ("hyperparameters",) and not group:
        words = "a grid search needs hyperparameters, and there are none"
        yield Problem(words, path, points_at="key")
    for name, entry in group.items():
        here = (*path, name)
        if isinstance(entry, dict) and "type" not in entry:
            yield from _group(entry, here, is_grid)
        elif isinstance(entry, dict):
            yield from _range(entry, here, is_grid)


def _range(entry: dict[str, Any], path: Path, is_grid: bool) -> Iterator[Problem]:
    kind = entry.get("type")
    if kind == "categorical" and is_grid and isinstance(entry.get("vals"), list):
        yield from _repeated(entry["vals"], (*path, "vals"))
    if kind not in ("int", "double", "log", "log_int"):
        return
    low, high, step = entry.get("minval"), entry.get("maxval"), entry.get("step")
    if _is_number(low) and _is_number(high) and math.isfinite(low) and math.isfinite(high):
        if low >= high:
            words = f"expected less than maxval ({shown(high)}), got {shown(low)}"
            yield Problem(words, (*path, "minval"))
        elif kind == "log":
            yield from _overflow(entry, path)
        elif kind in ("int", "double") and _is_number(step) and step > high - low:
            words = f"expected at most maxval - minval ({shown(high - low)}), got {shown(step)}"
            yield Problem(words, (*path, "step"))
    if is_grid and entry.get("count") is None and step is None:
        words = "missing; a grid search needs the number of points in this range"
        yield Problem(words, (*path, "count"), points_at="key")


def _overflow(entry: dict[str, Any], path: Path) -> Iterator[Problem]:
    base = entry.get("base")
    base = 10.0 if base is None else base
    if not _is_number(base) or base <= 0:
        return
    if base == 1:
        words = "expected a number other than 1, whose powers are all 1"
        yield Problem(f"{words}, got {shown(base)}", (*path, "base"))
        return
    try:
        values = [float(base) ** float(entry[key]) for key in ("minval", "maxval")]
    except OverflowError:
        values = [float("inf")]
    if not all(0 < value < float("inf") for value in values):
        yield Problem(
            f"{shown(base)} to the power of {shown(entry['maxval'])} is out of range",
            (*path, "maxval"),
            "minval and maxval are exponents",
        )


def _repeated(values: list[Any], path: Path) -> Iterator[Problem]:
    for index, value in enumerate(values):
        if any(repr(earlier) == repr(value) for earlier in values[:index]):  # True is not 1
            words = f"{shown(value)} is listed twice: the grid would have equal trials"
            yield Problem(words, (*path, index))
