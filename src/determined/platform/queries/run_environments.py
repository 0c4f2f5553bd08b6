"""What the runs of a trial computed with, and where that was not as before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from determined.store import Reader


@dataclass
class RunEnvironment:
    """The environment of one run: threads, instruction set, versions, flags."""

    run_id: int
    environment: dict[str, Any]
    differences: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The most important of it, in a line."""
        known = self.environment
        parts = [
            _count(known.get("threads"), "thread", "threads"),
            _count(known.get("ranks"), "process", "processes"),
            *(known.get(name) for name in ("instruction_set", "processor", "device")),
            *(f"{name} {known[name]}" for name in ("torch", "numpy", "python") if name in known),
        ]
        return ", ".join(str(part) for part in parts if part)


def environments_of(reader: Reader, trial_id: int) -> list[RunEnvironment]:
    """The environments of a trial's runs, oldest first; runs that recorded none are left out."""
    found: dict[int, RunEnvironment] = {}
    for event in reader.environments(trial_id):
        one = found.setdefault(event.run_id or 0, RunEnvironment(event.run_id or 0, {}))
        one.environment = dict(event.details.get("environment") or {})
        one.differences += [str(text) for text in event.details.get("differences") or ()]
    return list(found.values())


def _count(number: Any, one: str, several: str) -> str | None:
    return None if number is None else f"{number} {one if number == 1 else several}"
