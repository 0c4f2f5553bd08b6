"""The `searcher` section as search methods read it: every key, whichever method it is for.

`determined.config` has checked the values; what comes here was loaded, or recorded by a search.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


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
    initial: tuple[dict[str, Any], ...] = ()
    stop_when: dict[str, Any] = field(default_factory=dict)
    repeat: int = 1  # beside the section in a configuration
    population: int = 0
    interval: int = 1
    quantile: float = 0.25
    perturb: tuple[float, ...] = (0.8, 1.25)
    resample: float = 0.25
    inherit: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)  # keys of a user's own method

    @classmethod
    def from_dict(cls, searcher: dict[str, Any], repeat: int | None = None) -> Settings:
        """Return the settings of a configuration's section; absent and null keys get defaults."""
        given = {key: value for key, value in searcher.items() if value is not None}
        known = {item.name for item in fields(cls)} - {"extra", "repeat"}
        values = {key: value for key, value in given.items() if key in known}
        for name in ("bracket_rungs", "initial", "perturb", "inherit"):
            if name in values:
                values[name] = tuple(values[name])
        extra = {key: value for key, value in given.items() if key not in known}
        return cls(**values, repeat=repeat or 1, extra=extra)

    @property
    def is_halving(self) -> bool:
        return self.name in ("async_halving", "adaptive_asha")

    @property
    def needs_results(self) -> bool:
        """Whether a trial that reports no usable result has failed."""
        return self.is_halving or self.name == "pbt"

    @property
    def most_initial(self) -> int:
        """How many configurations may be given to try first."""
        return self.population if self.name == "pbt" else self.max_trials
