"""What callbacks ask about gradients and states."""

from __future__ import annotations

import torch

from determined.pytorch.callbacks._gradients import are_finite
from tests.exactness.parts.optimizers import Scaled


def test_tensors_made_of_tensors_are_looked_into_as_they_may_not_compute_norms() -> None:
    assert are_finite([Scaled.of(torch.ones(3)), torch.ones(2)])
    assert not are_finite([Scaled(torch.ones(3, dtype=torch.int8), torch.tensor(torch.inf))])
