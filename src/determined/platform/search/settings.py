"""The `searcher` section of a configuration as a validated value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

NAMES = ("single", "random", "grid", "async_halving", "adaptive_asha", "custom")
SAMPLERS = ("random", "tpe", "gp", "cmaes", "qmc")
MODES = ("aggressive", "standard", "conservative")
_LARGEST_LOG = 700.0  # of a float


@dataclass(frozen=True, slots=True)
class Settings:
    """How to search; the names are those of the configuration."""

    name: str
    metric: str
    smaller_is_better: bool = True
    max_trials: int = 1
    max_concurrent_trials: int = 16
    max_time: int = 1
    time_metric: str = "batches"
    num_rungs: int = 1
    divisor: float = 4
    mode: str = "standard"
    max_rungs: int = 5
    bracket_rungs: tuple[int, ...] = ()
    stop_once: bool = True
    sampler: str = "random"
    extra: dict[str, Any] = field(default_factory=dict)  # keys of a user's own method

    def __post_init__(self) -> None:
        _one_of("name", self.name, NAMES)
        _one_of("sampler", self.sampler, SAMPLERS)
        _one_of("mode", self.mode, MODES)
        for key in ("max_trials", "max_time", "num_rungs", "max_rungs"):
            _at_least(key, getattr(self, key), 1)
        _at_least("max_concurrent_trials", self.max_concurrent_trials, 0)
        for number in self.bracket_rungs:
            _at_least("bracket_rungs", number, 1)
        if not self.divisor > 1:
            raise ValueError(f"searcher.divisor: expected a number above 1, got {self.divisor!r}.")
        _few_enough("num_rungs", self.num_rungs, self.divisor)
        _few_enough("bracket_rungs", max(self.bracket_rungs, default=1), self.divisor)
        if self.sampler != "random" and self.name in ("single", "grid", "custom"):
            raise ValueError(
                f"searcher.sampler: a {self.name} search draws no samples from a model; remove "
                f"`sampler: {self.sampler}` or search with random, async_halving or adaptive_asha."
            )

    @classmethod
    def from_dict(cls, searcher: dict[str, Any]) -> Settings:
        """Return the settings of a configuration's section; absent and null keys get defaults."""
        needed = {
            "random": ("max_trials",),
            "async_halving": ("max_trials", "num_rungs", "max_time", "time_metric"),
            "adaptive_asha": ("max_trials", "max_time", "time_metric"),
            "custom": ("class",),
        }
        given = {key: value for key, value in searcher.items() if value is not None}
        for key in ("name", "metric", *needed.get(given.get("name", ""), ())):
            if key not in given:
                raise ValueError(f"searcher.{key}: this key is required by the search.")
        known = {item.name for item in fields(cls)} - {"extra"}
        values = {key: value for key, value in given.items() if key in known}
        values["bracket_rungs"] = tuple(values.get("bracket_rungs", ()))
        extra = {key: value for key, value in given.items() if key not in known}
        return cls(**values, extra=extra)

    @property
    def is_halving(self) -> bool:
        return self.name in ("async_halving", "adaptive_asha")


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"searcher.{key}: expected one of {', '.join(allowed)}, got {value!r}.")


def _at_least(key: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"searcher.{key}: expected an integer >= {least}, got {value!r}.")


def _few_enough(key: str, rungs: int, divisor: float) -> None:
    """Reject rungs whose lengths exceed the range of a float."""
    most = int(_LARGEST_LOG / math.log(divisor))
    if rungs > most:
        raise ValueError(
            f"searcher.{key}: {rungs} rungs, each {divisor} times as long as the last, are too "
            f"many. Use {most} or fewer."
        )
