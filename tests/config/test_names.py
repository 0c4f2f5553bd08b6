"""Names of experiments that have none."""

from __future__ import annotations

import random

from determined import config


def test_names_are_drawn_from_the_generator() -> None:
    first, again = (config.random_name(random.Random(7)) for _ in range(2))
    assert first == again
    assert first.startswith("Experiment (")
    assert first.count("-") == 2
    assert len({config.random_name(random.Random(seed)) for seed in range(200)}) > 190
