"""A trial that ignores what `wrap_model` returns would train other weights on each rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from determined.pytorch import PyTorchTrialContext
from determined.pytorch._ranks.ddp import inner_module
from tests.support.messages import documented
from tests.support.ranked import NetTrial, fit
from tests.support.trials import LineTrial, one_weight, train
from tests.support.workers import collect_workers, run_workers

pytestmark = pytest.mark.multiprocess


class Ignoring(NetTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.model = inner_module(self.model)


def _run(trial_class: type[NetTrial], storage: Path, aggregation: int) -> Any:
    init: dict[str, Any] = {
        "hparams": {"global_batch_size": 8},
        "checkpoint_storage": storage,
        "aggregation_frequency": aggregation,
    }
    return fit(trial_class, init).digests


@pytest.mark.parametrize("aggregation", [1, 2])
def test_an_ignored_result_is_an_error_at_the_first_update(
    aggregation: int, tmp_path: Path
) -> None:
    found = collect_workers(2, _run, Ignoring, tmp_path, aggregation)
    assert [outcome.exit_code for outcome in found] == [1, 1]
    for outcome in found:
        assert "not through the wrapped model that context.wrap_model returned" in (
            outcome.error or ""
        )
    text = found[0].error or ""
    message = text[text.index("Model 0") :].splitlines()[0]
    documented("what `wrap_model` returned is not used, on several ranks", message)


def test_a_kept_result_keeps_ranks_equal(tmp_path: Path) -> None:
    first, second = run_workers(2, _run, NetTrial, tmp_path, 1)
    assert first == second


def test_on_one_rank_an_ignored_result_is_fine() -> None:
    class Trial(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            self.context = context
            self.log, self.callbacks = [], {}
            self.model = one_weight()
            context.wrap_model(self.model)
            sgd = torch.optim.SGD(self.model.parameters(), lr=self.learning_rate)
            self.optimizer = context.wrap_optimizer(sgd)

    assert train(Trial).weight == train(LineTrial).weight
