"""Where two runs part, as far as records tell: on paper, and by hashes of their checkpoints. Pure.

The third step, training both again batch by batch, starts at what the second one has found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from determined._contracts.replay_check import different_paths
from determined._contracts.tensor_hashes import TensorHashes

Facts = Mapping[str, Mapping[str, Any]]
"""What is known of a run on paper: values by name, by section."""

SECTIONS = ("configuration", "code", "packages", "environment", "data")
_SHOWN = 3
_LONGEST = 60


@dataclass(frozen=True)
class OnPaper:
    """A value that differs; None where a run has none."""

    section: str
    name: str
    first: Any
    second: Any

    def __str__(self) -> str:
        return f"{self.section}: {self.name} {_shown(self.first)} and {_shown(self.second)}"


@dataclass(frozen=True)
class Point:
    """A recorded checkpoint: its hashes outlive its files."""

    batch: int
    name: str
    has_files: bool
    hashes: TensorHashes | None = None


@dataclass(frozen=True)
class ByHashes:
    """What checkpoints at the same batches tell.

    `equal` is the last batch at which both held the same, `different` the first at which they did
    not; `settings` are states without tensors that differ in all of them. `start` is the last equal
    one with files in both runs, 0 for the beginning.
    """

    compared: int
    equal: int | None = None
    different: int | None = None
    paths: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    start: int = 0

    def __str__(self) -> str:
        if self.equal is None and self.different is None:
            return "no two checkpoints at the same batch have hashes"
        if self.different is None:
            return f"the checkpoints at batch {self.equal} are equal"
        since = "" if self.equal is None else f"equal at batch {self.equal}, "
        rest = f" and {len(self.paths) - _SHOWN} more" if len(self.paths) > _SHOWN else ""
        return f"{since}different at batch {self.different}: {', '.join(self.paths[:_SHOWN])}{rest}"


@dataclass(frozen=True)
class RunDiff:
    """The answer: `parting` is the first difference, None if there is none up to `through`.

    `settings` are values of optimizers, schedulers and callbacks that differ where both start.
    """

    paper: Sequence[OnPaper]
    checkpoints: ByHashes
    through: int | None
    parting: Mapping[str, Any] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    replayed: int = 0
    """How many intervals were trained again, by both."""
    note: str = ""

    @property
    def is_identical(self) -> bool:
        """Whether the runs trained the same, whatever is different on paper."""
        is_known = self.through is not None
        return is_known and self.parting is None and self.checkpoints.different is None

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        found = self.checkpoints
        return {
            "identical_through": self.through if self.is_identical else None,
            "on_paper": [vars(one) for one in self.paper],
            "checkpoints": {
                "compared": found.compared,
                "last_equal": found.equal,
                "first_different": found.different,
                "tensors": list(found.paths),
                "replayed_from": found.start if self.replayed else None,
            },
            "settings": dict(self.settings),
            "parting": None if self.parting is None else dict(self.parting),
            "replayed_intervals": self.replayed,
            "note": self.note,
        }

    def __str__(self) -> str:
        lines = [f"On paper, {one}" for one in self.paper] or ["On paper, nothing differs."]
        lines.append(f"By hashes, {self.checkpoints}.")
        lines += [f"From the start, {name}: {both}" for name, both in self.settings.items()]
        if self.note:
            lines.append(self.note)
        parting = self.parting
        if parting is not None:
            size = f" ({parting['size']})" if parting.get("size") else ""
            what = f": {parting['name']}{size}" if parting.get("name") else ""
            where = f" on rank {parting['rank']}" if parting.get("rank") else ""
            lines.append(f"They part in batch {parting['batch']}{where}, {parting['stage']}{what}.")
            lines.append(f"  {parting['text']}.")
        elif self.is_identical:
            lines.append(f"identical through batch {self.through}")
        return "\n".join(lines)


def on_paper(first: Facts, second: Facts) -> list[OnPaper]:
    """Return what differs, section by section."""
    found = []
    for section in SECTIONS:
        one, two = first.get(section, {}), second.get(section, {})
        for name in (*one, *(name for name in two if name not in one)):
            if not _same(one.get(name), two.get(name)):
                found.append(OnPaper(section, name, one.get(name), two.get(name)))
    return found


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested values with dots in their names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


def fingerprints(points: Sequence[Point]) -> dict[str, Any]:
    """Return what checkpoints recorded of the data, for a comparison on paper."""
    found: dict[str, Any] = {}
    for point in points:
        data = {} if point.hashes is None else point.hashes.data
        if "dataset_length" in data:
            found["length"] = data["dataset_length"]
        for name in ("first", "last"):
            if isinstance(data.get(name), list) and len(data[name]) == 2:
                batch, digest = data[name]
                found[f"the {name} sample of batch {batch}"] = digest
    return found


def by_hashes(first: Sequence[Point], second: Sequence[Point]) -> ByHashes:
    """Search for the first checkpoint at which two runs differ; looks at few of them."""
    ours = {point.batch: point for point in first}
    theirs = {point.batch: point for point in second}
    both = [
        batch
        for batch in sorted(ours.keys() & theirs.keys())
        if ours[batch].hashes is not None and theirs[batch].hashes is not None
    ]
    if not both:
        return ByHashes(0)

    def paths(batch: int) -> list[str]:
        one, two = ours[batch].hashes, theirs[batch].hashes
        assert one is not None
        assert two is not None
        return different_paths(one, two)

    at_start = paths(both[0])
    aside = [path for path in at_start if _is_plain(path)]
    if len(aside) < len(at_start):
        aside = []  # they have parted before: nothing is to be set aside
    low, high, compared = -1, len(both), 1
    while high - low > 1:
        middle = (low + high) // 2
        compared += 1
        if set(paths(both[middle])) <= set(aside):
            low = middle
        else:
            high = middle
    equal = both[low] if low >= 0 else None
    starts = [b for b in both[: low + 1] if ours[b].has_files and theirs[b].has_files]
    different = both[high] if high < len(both) else None
    found = () if different is None else tuple(p for p in paths(different) if p not in aside)
    return ByHashes(compared, equal, different, found, tuple(aside), starts[-1] if starts else 0)


def _is_plain(path: str) -> bool:
    """Whether a hash belongs to something that is no tensor, such as `schedulers/0`."""
    return path.count("/") <= (2 if path.startswith("ranks/") else 1)


def _same(one: Any, two: Any) -> bool:
    if one is None or two is None:
        return one is two
    return json.dumps(one, sort_keys=True, default=str) == json.dumps(
        two, sort_keys=True, default=str
    )


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
