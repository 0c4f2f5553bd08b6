"""The control file: what the platform tells a run; the counterpart of a journal."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONTROL_FILE = "control"


@dataclass(frozen=True)
class Control:
    """The content of a control file; missing keys have their defaults.

    `best_validation` is the experiment's, `last_validation` the step of this trial's newest
    validation. `notice` is what the log should say when a checkpoint is saved.
    """

    preempt: bool = False
    reason: str = ""
    best_validation: float | None = None
    last_validation: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    notice: str = ""

    @classmethod
    def parse(cls, text: str) -> Control:
        """Parse the JSON of a control file; ValueError if it is not valid."""
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError(f"expected a JSON object, got {type(content).__name__}")
        best: Any = content.get("best_validation")
        last = content.get("last_validation")
        return cls(
            preempt=content.get("preempt") is True,
            reason=str(content.get("reason") or ""),
            best_validation=float(best) if _is_number(best) else None,
            last_validation=last if isinstance(last, int) else None,
            metadata=dict(content.get("metadata") or {}),
            notice=str(content.get("notice") or ""),
        )

    def write(self, folder: Path) -> None:
        """Replace the control file of a run atomically: readers see the old or the new content."""
        new = folder / f".{CONTROL_FILE}.{os.getpid()}"
        new.touch(mode=0o600)
        new.write_text(json.dumps(vars(self)), encoding="utf-8")
        new.replace(folder / CONTROL_FILE)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not math.isnan(value)
