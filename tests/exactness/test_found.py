"""Cases that once broke the law, as small as they get; the generator found them."""

from __future__ import annotations

import pytest
import torch

from tests.exactness.generator import Case
from tests.exactness.recipe import Recipe
from tests.exactness.running import Fault, problems
from tests.support.victims import preload
from tests.support.workers import run_workers

pytestmark = pytest.mark.multiprocess

HALFWAY = (Fault(at=500),)
IN_VALIDATION = (Fault(at=350),)

FOUND: list[Case] = [
    (Recipe(), HALFWAY),
    (Recipe(scheduler="MultiStepLR", in_background=True), HALFWAY),
    (Recipe(scheduler="a scheduler with odd containers"), HALFWAY),
    (Recipe(optimizer="NAdam", dtype="bfloat16"), HALFWAY),
    (Recipe(optimizer="float32 master copies", dtype="bfloat16"), HALFWAY),
    (Recipe(optimizer="an optimizer with its own state_dict"), HALFWAY),
    (Recipe(optimizer="an optimizer with tensors of its own", in_background=True), HALFWAY),
    (Recipe(optimizer="an optimizer with tensors of its own", extras=("our loss guard",)), HALFWAY),
    (Recipe(extras=("a buffer that is not persistent",)), HALFWAY),
    (Recipe(extras=("a layer that is frozen later",), batches=9), (Fault(at=700),)),
    (Recipe(extras=("layers in evaluation mode",)), HALFWAY),
    (Recipe(extras=("a frozen reference model",)), HALFWAY),
    (Recipe(extras=("containers of all kinds", "objects of its own classes")), HALFWAY),
    (Recipe(extras=("our callbacks",)), HALFWAY),
    (Recipe(extras=("reducers",)), HALFWAY),
    (Recipe(extras=("averaged weights by .data",), validate_every=2, in_background=True), HALFWAY),
    (Recipe(extras=("ReduceLROnPlateau",), validate_every=2), (Fault(kind="error", at=400),)),
    (Recipe(extras=("a count of hooks",), validate_every=2), (Fault(kind="error", at=450),)),
    (Recipe(data="a dataset with state"), HALFWAY),
    (Recipe(data="a sampler that drifts"), HALFWAY),
    (Recipe(data="a sampler that reacts"), HALFWAY),
    (Recipe(data="torch's own loader, augmented"), HALFWAY),
    (Recipe(data="a stream with state", records=8, batches=8, report_every=1), (Fault(at=259),)),
    (
        Recipe(validation_data="with a generator of its own", validate_every=2, report_every=1),
        IN_VALIDATION,
    ),
    (
        Recipe(
            extras=("a buffer that is not persistent",),
            data="shuffled",
            accumulation=3,
            report_every=1,
            records=12,
            batches=9,
            ranks=2,
        ),
        (Fault(at=720),),
    ),
]


def _all_problems() -> list[str]:
    torch.set_num_threads(1)
    preload()
    return [f"{case}: {found}" for case in FOUND for found in ["\n".join(problems(*case))] if found]


def test_what_once_broke_the_law_does_not_any_more() -> None:
    (found,) = run_workers(1, _all_problems, process_group=False, deadline_seconds=300)
    assert found == []
