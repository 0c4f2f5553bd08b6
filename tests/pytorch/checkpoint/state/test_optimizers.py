"""A checkpoint whose optimizers are not those of the trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.pytorch import Batch, PyTorchTrialContext
from tests.support.messages import documented
from tests.support.trials import LineTrial


class Choosing(LineTrial):
    optimizer_class: Any = torch.optim.SGD
    split = False

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        context.optimizers.clear()
        groups = [{"params": [p]} for p in self.model.parameters()]
        if self.split:
            groups.append({"params": [torch.nn.Parameter(torch.ones(1))]})
        self.optimizer = context.wrap_optimizer(self.optimizer_class(groups, lr=0.01))


def fit(optimizer_class: Any, length: int, split: bool = False) -> None:
    trial_class = type(
        "Choosing", (Choosing,), {"optimizer_class": optimizer_class, "split": split}
    )
    with pytorch.init(run_id="run", checkpoint_storage="storage") as context:
        pytorch.Trainer(trial_class(context), context).fit(
            max_length=Batch(length), latest_checkpoint="latest"
        )


def test_another_optimizer_is_an_error_that_names_both() -> None:
    fit(torch.optim.SGD, 1)
    with pytest.raises(RuntimeError, match="is SGD.*is Adam") as raised:
        fit(torch.optim.Adam, 2)
    documented("a run is continued with another optimizer", str(raised.value))


def test_a_checkpoint_that_does_not_name_its_optimizers_is_told_apart() -> None:
    fit(torch.optim.SGD, 1)
    (file,) = Path("storage").glob("*/run.json")
    (file.parent / "manifest.json").unlink()
    record = json.loads(file.read_text())
    assert record.pop("optimizers") == ["SGD"]
    file.write_text(json.dumps(record))
    trial_class = type("Choosing", (Choosing,), {"optimizer_class": torch.optim.Adam})
    with (
        pytorch.init(checkpoint_storage="storage") as context,
        pytest.raises(RuntimeError, match="is of another class, with .*dampening"),
    ):
        pytorch.Trainer(trial_class(context), context).fit(
            max_length=Batch(2), latest_checkpoint=str(file.parent.absolute())
        )


def test_other_parameter_groups_are_an_error_with_their_sizes() -> None:
    fit(torch.optim.SGD, 1)
    with pytest.raises(RuntimeError, match=r"groups of 1 parameters.*has 1 \+ 1") as raised:
        fit(torch.optim.SGD, 2, split=True)
    documented("a run is continued with other parameter groups", str(raised.value))


def test_a_class_with_the_same_settings_goes_on_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fit(torch.optim.Adam, 1)
    fit(torch.optim.AdamW, 2)
    assert "was Adam and continues as AdamW" in caplog.text
