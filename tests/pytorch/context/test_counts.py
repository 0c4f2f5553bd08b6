"""`context.count`: tokens in reports, and their rates in everything that shows rates."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import Batch, DataLoader
from determined.pytorch._context.counts import Counts, joined_counts
from tests.support.ranked import on_ranks


class CountingTrial(pytorch.PyTorchTrial):
    """Counts 10 tokens in the first batch, 20 in the second, and so on."""

    def __init__(self, context: pytorch.PyTorchTrialContext, **counted: Any) -> None:
        self.context = context
        self.counted = counted
        self.reports: list[dict[str, Any]] = []
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(TensorDataset(torch.ones(8, 1)), 1)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        trial = self

        class Notes(pytorch.PyTorchCallback):
            def on_training_workload_end(
                self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
            ) -> None:
                trial.reports.append(dict(avg_metrics))

        return {"notes": Notes()}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.model(batch[0]).square().sum()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        counted = {"tokens": 10 * (batch_idx + 1), **self.counted}
        if counted["tokens"] is not None:
            self.context.count(**counted)
        return loss


def fit(storage: Path, batches: int, **counted: Any) -> CountingTrial:
    with pytorch.init(
        seed=0, checkpoint_storage=storage, tensorboard_path=storage / "tb", run_id="counts"
    ) as context:
        trial = CountingTrial(context, **counted)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(batches),
            reporting_period=Batch(2),
            checkpoint_policy="all",
            latest_checkpoint="latest",
            progress=True,
        )
    return trial


def test_reports_have_tokens_since_the_start_across_interruptions(tmp_path: Path) -> None:
    first = fit(tmp_path, 3)
    assert [report["tokens"] for report in first.reports] == [30, 60]
    second = fit(tmp_path, 6)
    assert [report["tokens"] for report in second.reports] == [100, 210]


def test_rates_are_shown_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    fit(tmp_path, 4, flops=1e6, peak_flops=1e12)
    line = next(line for line in capsys.readouterr().err.splitlines() if "training" in line)
    assert re.search(r" tokens=\d+/s mfu=[\d.]+% memory=\d\.\d\dGB .*loss=", line), line
    assert "throughput" in caplog.text
    assert "tokens_per_second" in caplog.text
    written = b"".join(file.read_bytes() for file in (tmp_path / "tb").rglob("*tfevents*"))
    for name in (b"tokens_per_second", b"flops_utilization", b"peak_memory_bytes"):
        assert b"throughput/" + name in written


def test_utilization_is_of_the_peak_of_all_ranks() -> None:
    counts = Counts()
    counts.add(7, flops=600.0, peak_flops=100.0)
    counted = counts.report([counts.own(), (5, 200.0)])
    rates = counted.rates(2.0, torch.device("cpu"))
    assert rates["tokens_per_second"] == 6
    assert rates["flops_utilization"] == 800 / 2 / 200
    assert rates["peak_memory_bytes"] > 1e7
    assert counts.report([counts.own(), (5, 200.0)]).tokens == 0  # nothing was added


def test_counts_move_to_the_chief_if_the_number_of_ranks_changes() -> None:
    states: list[dict[str, Any]] = [
        {"tokens": 3, "flops": 1.0, "reported": [5, 1.0]},
        {"tokens": 4, "flops": 0.0},
    ]
    assert joined_counts(states, 0) == {"tokens": 7, "flops": 1.0, "reported": [5, 1.0]}
    assert joined_counts(states, 1)["tokens"] == 0


def _count_on_one_rank(storage: Path, batches: int, counting_rank: int) -> list[Any]:
    is_counting = int(os.environ["RANK"]) == counting_rank
    trial = fit(storage, batches, **({} if is_counting else {"tokens": None}))
    return [report.get("tokens") for report in trial.reports]


@pytest.mark.multiprocess
@pytest.mark.parametrize("counting_rank", [0, 1])
def test_one_rank_may_count_for_all(counting_rank: int, tmp_path: Path) -> None:
    for tokens in on_ranks(2, _count_on_one_rank, tmp_path, 3, counting_rank):
        assert tokens == [30, 60]
    assert [report["tokens"] for report in fit(tmp_path, 6).reports] == [100, 210]


@pytest.mark.parametrize(
    ("counted", "message"),
    [
        ({"tokens": -1}, "`tokens` must be at least 0"),
        ({"tokens": "many"}, "`tokens` must be a number"),
        ({"tokens": torch.ones(2)}, "`tokens` must be one number"),
        ({"flops": float("inf")}, "`flops` must be"),
        ({"peak_flops": "A100"}, "`peak_flops` must be a number"),
    ],
)
def test_what_is_no_count_is_refused(counted: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        fit(tmp_path, 1, **counted)
