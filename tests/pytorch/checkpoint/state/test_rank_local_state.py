"""What ranks have for themselves survives a resume; weights must not differ."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from determined.errors import InvalidExperimentException
from determined.pytorch import PyTorchCallback
from tests.support import odd_ranks
from tests.support.odd_ranks import WIDTH, Way
from tests.support.ranked import on_ranks
from tests.support.resumable import checkpoints

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


class Counts(PyTorchCallback):
    """Counts with another step on each rank, or with the same on all."""

    def __init__(self, step: int) -> None:
        self.count, self.step = 0, step

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        self.count += self.step

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "tensor": torch.tensor([self.count])}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        assert state_dict["tensor"].tolist() == [state_dict["count"]]
        self.count = state_dict["count"]


class Remembers(nn.Linear):
    """Counts its training passes, twice as fast on rank 1, in what `get_extra_state` returns."""

    passes = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.passes += 1 + dist.get_rank()
        return super().forward(x) * (1 + 0.01 * self.passes)

    def get_extra_state(self) -> dict[str, int]:
        return {"passes": self.passes}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.passes = state["passes"]


def _callbacks(trial: Any) -> dict[str, PyTorchCallback]:
    trial.counts = {
        "own": Counts(1 + trial.context.distributed.rank),
        "common": Counts(1),
    }
    return dict(trial.counts)


def _add_statistics(trial: Any) -> None:
    statistics = nn.BatchNorm1d(WIDTH, affine=False)
    trial.statistics = trial.context.wrap_model(statistics)
    trial.models[0].module.register_forward_pre_hook(
        lambda module, inputs: (trial.statistics(inputs[0]),)
    )


def _remembering() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), Remembers(WIDTH, 3))


def _compress(trial: Any) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    trial.models[0].register_comm_hook(state, powerSGD_hook.powerSGD_hook)


OWN = {
    "callbacks": Way(callbacks=_callbacks),
    "extra state": Way(_remembering),
    "statistics": Way(prepare=_add_statistics),
}


def _counted(storage: Path) -> dict[str, Any]:
    """Stop a run in between; return both endings, the counts, and what is in the rank's file."""
    os.chdir(storage)
    way = OWN["callbacks"]
    counts = []
    for length in (3, 5):
        trial = odd_ranks.train(storage / "counted", way, length)
        counts.append({name: counter.count for name, counter in trial.counts.items()})  # type: ignore[attr-defined]  # set above
    found: dict[str, Any] = {"counts": counts}
    dist.barrier()
    newest = checkpoints(storage / "counted", "way")[-1].storage_id
    file = storage / "counted" / newest / "ranks" / f"rank_{dist.get_rank()}.pth"
    found["saved"] = list(torch.load(file, weights_only=True).get("own", {}))
    return found


def test_callbacks_whose_states_differ_each_keep_their_own(tmp_path: Path) -> None:
    first, second = on_ranks(2, _counted, tmp_path)
    assert first["counts"] == [{"own": 3, "common": 3}, {"own": 5, "common": 5}]
    assert second["counts"] == [{"own": 6, "common": 3}, {"own": 10, "common": 5}]
    assert (first["saved"], second["saved"]) == ([], [("callbacks", "own")])
    (alone,) = on_ranks(1, _continued_alone, tmp_path)
    assert alone["counts"] == {"own": 7, "common": 7}
    assert len(alone["said"]) == 1
    assert "callback 'own'" in alone["said"][0]


def _continued_alone(storage: Path) -> dict[str, Any]:
    said = _warnings("differed between the 2 ranks")
    trial = odd_ranks.train(storage / "counted", OWN["callbacks"], 7)
    return {
        "counts": {name: counter.count for name, counter in trial.counts.items()},  # type: ignore[attr-defined]  # set above
        "said": said,
    }


def _warnings(text: str) -> list[str]:
    """Return a list to which warnings with this text will be added."""
    found: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if text in record.getMessage():
                found.append(record.getMessage())

    logging.getLogger("determined.pytorch").addHandler(Listener(logging.WARNING))
    return found


@pytest.mark.parametrize("name", ["extra state", "statistics"])
def test_state_of_models_that_is_a_ranks_own_is_exact(tmp_path: Path, name: str) -> None:
    for rank in on_ranks(2, odd_ranks.unbroken_and_stopped, tmp_path, {name: OWN[name]}, 5, [3]):
        unbroken, stopped = rank[name]
        assert stopped == unbroken


def test_power_sgd_is_exact(tmp_path: Path) -> None:
    way = Way(options={}, prepare=_compress)  # one bucket: with several, torch's hook can hang
    for rank in on_ranks(3, odd_ranks.unbroken_and_stopped, tmp_path, {"way": way}, 7, [1, 4]):
        unbroken, stopped = rank["way"]
        assert stopped == unbroken


def _local(trial: Any) -> None:
    """Have each rank keep its own gradients, by a hook with a state that nobody can save."""

    def hook(state: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    hook.__annotations__.clear()  # torch does not understand those that are text
    trial.models[0].register_comm_hook(object(), hook)


def _disturb(trial: Any) -> None:
    """Have rank 1 change a weight by itself, as a script with a mistake does."""
    if trial.context.distributed.rank == 1:
        trial.models[0].module[2][0].weight.data.add_(1e-3)


def _trained(storage: Path, prepare: Callable[[Any], None]) -> dict[str, Any]:
    os.chdir(storage)
    said, error = _warnings(""), ""
    try:
        odd_ranks.train(storage / "ranks", Way(prepare=prepare), 2)
    except InvalidExperimentException as e:
        error = str(e)
    dist.barrier()
    return {"said": said, "error": error, "saved": len(checkpoints(storage / "ranks", "way"))}


def test_ranks_with_different_weights_are_an_error_that_names_the_tensor(tmp_path: Path) -> None:
    for rank in on_ranks(2, _trained, tmp_path, _disturb):
        assert "2.0.weight of model 0 differs between rank 0 and rank 1 by 1.0e-03" in rank["error"]
        assert rank["saved"] == 0


def test_a_hook_of_the_trials_own_is_said_instead(tmp_path: Path) -> None:
    first, second = on_ranks(2, _trained, tmp_path, _local)
    assert (first["error"], second["error"], second["said"]) == ("", "", [])
    assert first["saved"] == 1
    unsaved, different = first["said"]
    assert "do not hold the state of the communication hook" in unsaved
    assert "ranks hold different weights" in different
    assert "communication hook of the trial's own" in different
