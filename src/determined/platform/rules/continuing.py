"""What continuing an experiment means for its configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from determined.errors import RefusedError

_HALVING = ("async_halving", "adaptive_asha")
_TAKES = {
    "max_trials": ("random", *_HALVING, "custom"),
    "max_time": (*_HALVING, "pbt", "custom"),
    "max_length": ("single", "random", "grid", "custom"),
}
_INSTEAD = {
    ("max_length", "async_halving"): " Raise max_time: its rungs determine how long trials train.",
    ("max_length", "adaptive_asha"): " Raise max_time: its rungs determine how long trials train.",
    ("max_trials", "pbt"): " Raise max_time: its population stays as large as it is.",
    ("max_length", "pbt"): " Raise max_time.",
    ("max_time", "single"): " Raise max_length.",
    ("max_time", "random"): " Raise max_length.",
    ("max_time", "grid"): " Raise max_length.",
}


@dataclass(frozen=True)
class Limits:
    """New limits of a finished experiment; None leaves a limit as it is."""

    max_trials: int | None = None
    max_time: int | None = None
    max_length: int | None = None
    rerun_failed: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def continued_config(
    config: dict[str, Any],
    limits: Limits,
    overrides: Sequence[str] = (),
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the configuration of an experiment once it is continued.

    Args:
        config: the effective configuration so far.
        limits: the new limits.
        overrides: `key=value`, for a `single` experiment.
        changes: a configuration that overrides the one so far, for a `single` experiment.

    Raises:
        RefusedError: if the searcher has no such limit, or nothing but limits may change.
        ConfigurationError: with all problems of the result.
    """
    from determined.config import Completion, load

    name = config["searcher"]["name"]
    if (overrides or changes) and name != "single":
        raise RefusedError(
            f"A {name} search keeps its configuration: only its limits can be raised. Other "
            "values can only be changed for an experiment with a single trial (searcher: single)."
        )
    raised = [f"searcher.{key}={value}" for key, value in _raised(config, limits).items()]
    written = [*overrides, *raised]
    if not written and not changes:
        return config
    completion = Completion(template=config)
    new = load(dict(changes) if changes else config, "configuration", written, completion).effective
    if new["searcher"]["name"] != name:
        raise RefusedError(
            f"searcher.name: a {name} experiment cannot become {new['searcher']['name']}."
        )
    if (new.get("repeat") or 1) != (config.get("repeat") or 1):
        raise RefusedError(
            f"repeat: it is {config.get('repeat') or 1} and stays so when an experiment is "
            "continued. Create a new one: with the same experiment_seed, its first seeds are the "
            "same."
        )
    for key in ("workspace", "project"):
        if new[key] != config[key]:
            raise RefusedError(f"{key}: an experiment cannot be moved by continuing it.")
    return new


def _raised(config: dict[str, Any], limits: Limits) -> dict[str, int]:
    """The limits that change, by their keys in the searcher's section."""
    searcher = config["searcher"]
    found = {}
    for key, names in _TAKES.items():
        value = getattr(limits, key)
        if value is None:
            continue
        if searcher["name"] not in names:
            hint = _INSTEAD.get((key, searcher["name"]), "")
            raise RefusedError(
                f"{key}: a {searcher['name']} search does not have this limit.{hint}"
            )
        old = searcher.get(key)
        path, old = _limit_path(key, old)
        if isinstance(old, int) and value < old:
            raise RefusedError(f"{key} is {old} and can only be raised, not set to {value}.")
        found[path] = value
    return found


def _limit_path(key: str, old: Any) -> tuple[str, Any]:
    """A length keeps the unit that it has."""
    if isinstance(old, dict) and len(old) == 1:
        ((unit, number),) = old.items()
        return f"{key}.{unit}", number
    return key, old
