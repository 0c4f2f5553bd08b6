"""The law of exactness on trials that nobody wrote, trained on the device."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
import torch

from tests.exactness.generator import QUIET, Case, cases
from tests.exactness.running import Fault, problems

_COUNT, _SEED = 24, 5
# A process that has computed gradients on a device cannot be forked, so nothing is killed here.
_IN_PROCESS = {"kill": "stop", "kill in a save": "signal"}


def _in_process(case: Case) -> Case:
    recipe, faults = case
    return recipe, tuple(Fault(_IN_PROCESS.get(f.kind, f.kind), f.at) for f in faults)


def _law(case: Case) -> None:
    assert problems(*case) == [], case


def test_what_was_interrupted_ends_like_what_was_not_or_says_so() -> None:
    assert torch.accelerator.current_accelerator() is not None
    given = hypothesis.given(cases().map(_in_process))
    test: Callable[[], None] = given(_law)
    phases = [hypothesis.Phase.generate]  # to shrink takes minutes, and belongs to a reader
    settings = hypothesis.settings(QUIET, max_examples=_COUNT, phases=phases)
    hypothesis.seed(_SEED)(settings(test))()
