"""What a display shows at one moment."""

from __future__ import annotations

from typing import NamedTuple


class Frame(NamedTuple):
    """One picture of the run. Equal pictures need no redrawing."""

    status: str
    batches_trained: int
    max_length_batches: int | None
    epoch: str
    speed: tuple[str, ...]
    training: tuple[tuple[str, str], ...]
    validation: tuple[tuple[str, str], ...]
    validated_at: int | None
    best: tuple[tuple[str, str], ...]
    best_at: int | None
    checkpoint: str
    is_saving: bool
