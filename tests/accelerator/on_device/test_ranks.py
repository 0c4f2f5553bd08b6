"""Two ranks, each with a device of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from determined import pytorch
from determined.pytorch import Batch
from tests.accelerator.on_device.test_training import Classifier
from tests.support.workers import run_workers

pytestmark = pytest.mark.multiprocess


def _train(storage: str, parallel: str, batches: int) -> tuple[str, str, list[float]]:
    class Trial(Classifier):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            self.context = context
            layers = [torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)]
            self.model = context.wrap_model(torch.nn.Sequential(*layers), parallel=parallel)
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
            self.optimizer = context.wrap_optimizer(optimizer)

    with pytorch.init(seed=3, checkpoint_storage=storage) as context:
        trial = Trial(context)
        pytorch.Trainer(trial, context).fit(max_length=Batch(batches), latest_checkpoint="latest")
        first: Any = next(trial.model.parameters())
        current = f"simulated:{torch.accelerator.current_device_index()}"
        whole = first.full_tensor() if hasattr(first, "full_tensor") else first
        return str(first.device), current, whole.detach().cpu().flatten().tolist()


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_each_rank_trains_on_its_device_and_resumes_exactly(parallel: str, tmp_path: Any) -> None:
    whole = run_workers(2, _train, str(tmp_path / "whole"), parallel, 6, process_group=False)
    run_workers(2, _train, str(tmp_path / "cut"), parallel, 3, process_group=False)
    cut = run_workers(2, _train, str(tmp_path / "cut"), parallel, 6, process_group=False)
    assert [devices for *devices, _ in whole] == [["simulated:0"] * 2, ["simulated:1"] * 2]
    assert whole[0][2] == whole[1][2]
    assert cut == whole
