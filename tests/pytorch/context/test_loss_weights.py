"""`backward(loss, weight=...)`: any split of tokens over batches and ranks trains alike."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from determined import pytorch
from determined.errors import InvalidExperimentException
from determined.pytorch import Batch, Weighted
from tests.support.rank_pool import RankPool, rank_pool

VOCABULARY = 11
LR = 0.5


class TokenModel(nn.Module):
    """Predicts a token from the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 6)
        self.blocks = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.head = nn.Linear(6, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        logits: torch.Tensor = self.head(x)
        return logits


@dataclasses.dataclass(frozen=True)
class Example:
    """Lengths of the documents of each global batch, and how they are trained."""

    batches: list[list[int]]
    window: int
    kind: str = "ddp"
    clip: float | None = None
    scale: float = 64.0

    def documents(self, batch_idx: int, rank: int = 0, size: int = 1) -> tuple[Any, Any]:
        """Return inputs and targets of a rank's part of a batch; one token at least."""
        seeded = torch.Generator().manual_seed(batch_idx)
        all_of_batch = [
            torch.randint(VOCABULARY, (n + 1,), generator=seeded) for n in self.batches[batch_idx]
        ]
        mine = all_of_batch[rank::size]
        tokens = [(d[:-1], d[1:]) for d in mine]
        padding = torch.zeros(1, dtype=torch.long), torch.full((1,), -100)
        inputs, targets = zip(*tokens, padding, strict=True)
        return torch.cat(inputs), torch.cat(targets)


def summed_loss(model: nn.Module, inputs: Any, targets: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(inputs), targets, reduction="sum")


class TokenTrial(pytorch.PyTorchTrial):
    """Trains an `Example`."""

    def __init__(self, context: pytorch.PyTorchTrialContext, example: Example) -> None:
        self.context = context
        self.example = example
        self.reports: list[dict[str, Any]] = []
        self.validated: dict[str, Any] = {}
        self.scaler = None
        if example.kind == "scaler":
            self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=1024.0))
        if example.kind == "amp":
            context.experimental.use_amp(torch.float16)
            # Gradients of a few tokens overflow with torch's first scale, in plain torch as well.
            context._scale_losses_with(torch.amp.GradScaler("cpu", init_scale=example.scale))
        torch.manual_seed(0)
        parallel = "fsdp" if example.kind == "fsdp" else "ddp"
        self.model = context.wrap_model(TokenModel(), parallel=parallel)
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=LR, momentum=0.9)
        )
        self.perplexity: Any = context.wrap_reducer(pytorch.Perplexity(), "perplexity")

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"notes": _Notes(self)}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(range(1000), 1)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        batches = range(len(self.example.batches))
        return pytorch.DataLoader(batches, 1)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        distributed = self.context.distributed
        inputs, targets = self.example.documents(batch_idx, distributed.rank, distributed.size)
        loss = summed_loss(self.model, inputs, targets)
        weight = (targets >= 0).sum()
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        # A number on one half of all batches, a tensor on the other.
        self.context.backward(scaled, weight=weight if batch_idx % 2 else int(weight))
        self.context.step_optimizer(
            self.optimizer, clip_grad_norm=self.example.clip, scaler=self.scaler
        )
        if self.scaler is not None and self.context.is_update_batch:
            self.scaler.update()
        self.perplexity.update(loss.detach(), weight)
        self.context.count(tokens=weight)
        return {"loss": Weighted(loss, weight)}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        inputs, targets = self.example.documents(int(batch))
        loss, weight = summed_loss(self.model, inputs, targets), (targets >= 0).sum()
        self.perplexity.update(loss, weight)
        return {"loss": Weighted(loss, int(weight))}


class _Notes(pytorch.PyTorchCallback):
    def __init__(self, trial: TokenTrial) -> None:
        self.trial = trial

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        self.trial.reports.append({**avg_metrics, "rows": [dict(row) for row in batch_metrics]})

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        assert all(isinstance(output["loss"], Weighted) for output in outputs)

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.trial.validated = dict(metrics)


def train(example: Example, storage: str, batches: int | None = None) -> dict[str, Any]:
    """Train on the ranks of this job, on from what is in the storage; return what came of it."""
    with pytorch.init(
        seed=3,
        aggregation_frequency=example.window,
        enable_tensorboard_logging=False,
        checkpoint_storage=storage,
        run_id="tokens",
    ) as context:
        trial = TokenTrial(context, example)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(batches or len(example.batches)),
            checkpoint_policy="all",
            latest_checkpoint="latest",
        )
        weights = [
            (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone().numpy()
            for p in trial.model.parameters()
        ]
    return {"weights": weights, "reports": trial.reports, "validated": trial.validated}


def one_big_batch(example: Example) -> tuple[list[np.ndarray], list[tuple[float, int]]]:
    """Train in plain torch, each window in one batch; return weights, and losses per batch."""
    torch.manual_seed(0)
    model = TokenModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    losses = []
    for end in range(example.window, len(example.batches) + 1, example.window):
        indices = range(end - example.window, end)
        parts = [example.documents(i) for i in indices]
        for inputs, targets in parts:
            loss = summed_loss(model, inputs, targets)
            losses.append((loss.item(), int((targets >= 0).sum())))
        inputs, targets = (torch.cat(each) for each in zip(*parts, strict=True))
        count = max(1, int((targets >= 0).sum()))
        (summed_loss(model, inputs, targets) / count).backward()  # type: ignore[no-untyped-call]  # untyped in torch
        if example.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), example.clip)
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().numpy() for p in model.parameters()], losses


def mean_of(losses: list[tuple[float, int]]) -> float:
    return sum(total for total, _ in losses) / sum(count for _, count in losses)


@pytest.fixture(scope="module")
def pools() -> Iterator[Mapping[int, RankPool]]:
    with contextlib.ExitStack() as stack:
        yield {size: stack.enter_context(rank_pool(size)) for size in (1, 2, 3)}


@st.composite
def examples(draw: st.DrawFn) -> Example:
    window, windows = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    lengths = st.lists(st.integers(1, 9), max_size=5)
    batches = draw(st.lists(lengths, min_size=window * windows, max_size=window * windows))
    batches[-1] = [*batches[-1], 2]
    kind = draw(st.sampled_from(["ddp", "fsdp", "scaler", "amp"]))
    return Example(batches, window, kind, draw(st.sampled_from([None, 0.3])))


@settings(max_examples=6, derandomize=True)
@given(example=examples(), cut=st.integers(0, 11))
def test_any_window_and_any_interruption_is_one_big_batch(example: Example, cut: int) -> None:
    cut %= len(example.batches)
    with tempfile.TemporaryDirectory() as storage:
        started = train(example, storage, cut) if cut else None
        check(example, cut, started, train(example, storage))


@pytest.mark.slow
@pytest.mark.multiprocess
@settings(max_examples=25, derandomize=True)
@given(
    example=examples(), sizes=st.tuples(*[st.sampled_from([1, 2, 3])] * 2), cut=st.integers(0, 11)
)
def test_any_ranks_are_one_big_batch(
    pools: Mapping[int, RankPool], example: Example, sizes: tuple[int, int], cut: int
) -> None:
    cut %= len(example.batches)
    with tempfile.TemporaryDirectory() as storage:
        started = pools[sizes[0]].run(train, example, storage, cut)[0] if cut else None
        check(example, cut, started, pools[sizes[1]].run(train, example, storage)[0])


def check(example: Example, cut: int, started: Any, ended: Any) -> None:
    """Compare what came of training, in two parts if there is a cut, with plain torch."""
    weights, losses = one_big_batch(example)
    tolerance = 0.02 if example.kind == "amp" else 3e-6
    for found, wanted in zip(ended["weights"], weights, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)
    reported = losses[cut:]
    if sum(count for _, count in reported):
        (report,) = ended["reports"]
        assert report["loss"] == pytest.approx(mean_of(reported), abs=tolerance)
        assert report["perplexity"] == pytest.approx(np.exp(report["loss"]), rel=tolerance)
        rows = [row["loss"] for row in report["rows"]]
        assert report["tokens"] == sum(count for _, count in losses)
        means = [total / count if count else np.nan for total, count in reported]
        np.testing.assert_allclose(rows, means, rtol=0, atol=tolerance)
    if started is not None:
        assert len(started["reports"][0]["rows"]) == cut
    assert ended["validated"]["perplexity"] == pytest.approx(
        np.exp(ended["validated"]["loss"]), rel=1e-5
    )


# One rank, in this process.


class TwoLosses(TokenTrial):
    """A batch with two losses, of which some have weights."""

    def __init__(
        self, context: pytorch.PyTorchTrialContext, weights: list[Any], only: bool = False
    ) -> None:
        super().__init__(context, Example([[3]] * 4, 1))
        self.other = context.wrap_model(TokenModel())
        self.second = context.wrap_optimizer(torch.optim.SGD(self.other.parameters(), lr=LR))
        self.weights, self.only = weights, only
        self.gradients: list[float] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        inputs, targets = self.example.documents(batch_idx)
        pairs = ((self.model, self.optimizer), (self.other, self.second))
        for (model, optimizer), weight in zip(pairs, self.weights, strict=True):
            loss = summed_loss(model, inputs, targets)
            self.context.backward(loss, weight=weight, only=optimizer if self.only else None)
        for _, optimizer in pairs:
            self.context.step_optimizer(optimizer, clip_grads=self._note)
        return {"loss": loss}

    def _note(self, parameters: Any) -> None:
        self.gradients.append(float(nn.utils.get_total_norm([p.grad for p in parameters])))


def fit(tmp_path: Path, trial_of: Any, aggregation: int = 1) -> Any:
    with pytorch.init(
        seed=1,
        aggregation_frequency=aggregation,
        enable_tensorboard_logging=False,
        checkpoint_storage=tmp_path,
    ) as context:
        trial = trial_of(context)
        pytorch.Trainer(trial, context).fit(max_length=Batch(2), checkpoint_policy="none")
    return trial


def test_weights_of_several_losses_add_up_or_belong_to_one_optimizer(tmp_path: Path) -> None:
    def gradients(weights: list[Any], only: bool = False) -> np.ndarray:
        trial = fit(tmp_path, lambda context: TwoLosses(context, weights, only))
        return np.array(trial.gradients[:2])  # of the first update of both optimizers

    sums = gradients([None, None])
    np.testing.assert_allclose(gradients([2, 6]), sums / 8, rtol=1e-5)
    np.testing.assert_allclose(gradients([5, 0]), sums / 5, rtol=1e-5)
    np.testing.assert_allclose(gradients([2, 6], only=True), sums / [2, 6], rtol=1e-5)
    np.testing.assert_allclose(gradients([2, None], only=True), sums / [2, 1], rtol=1e-5)
    np.testing.assert_allclose(gradients([0.5, 0]), sums * 2, rtol=1e-5)
    np.testing.assert_allclose(gradients([0, 0.0]), sums, rtol=1e-5)


def test_bad_weights_are_refused_with_the_next_step(tmp_path: Path) -> None:
    for weights, message in (
        ([2, None], r"backward\(loss, weight=...\) and of backward\(loss\) at once"),
        ([-1, 1], "`weight` must be at least 0 and finite, got -1"),
        ([float("nan"), 1], "`weight` must be at least 0"),
        ([torch.tensor(float("inf")), 1], "`weight` must be at least 0"),
        ([torch.ones(2), 1], "`weight` must be one number"),
        (["3", 1], "`weight` must be a number, got '3'"),
    ):
        with pytest.raises((InvalidExperimentException, TypeError, ValueError), match=message):
            fit(tmp_path, lambda context, weights=weights: TwoLosses(context, weights))


def test_a_closure_takes_no_weights(tmp_path: Path) -> None:
    class Closure(TokenTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            def closure() -> torch.Tensor:
                self.optimizer.zero_grad()
                loss = summed_loss(self.model, *self.example.documents(batch_idx))
                self.context.backward(loss, weight=3)
                return loss

            self.context.step_optimizer(self.optimizer, closure=closure)
            return {"loss": closure().detach()}

    with pytest.raises(InvalidExperimentException, match="closure of step_optimizer cannot use"):
        fit(tmp_path, lambda context: Closure(context, Example([[3]] * 4, 1)))


def test_a_trial_can_ask_for_its_window(tmp_path: Path) -> None:
    seen = []

    class Asking(TokenTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            seen.append((self.context.aggregation_frequency, self.context.is_update_batch))
            return super().train_batch(batch, epoch_idx, batch_idx)

    fit(tmp_path, lambda context: Asking(context, Example([[3]] * 4, 1)), aggregation=2)
    assert seen == [(2, False), (2, True)]


def test_gradients_in_float16_are_as_small_as_those_of_means(tmp_path: Path) -> None:
    """A sum over many tokens would overflow float16 until the scaler has adapted to it."""

    class Large(TokenTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            metrics = super().train_batch(batch, epoch_idx, batch_idx)
            return {**metrics, "scale": self.context._scaler.get_scale()}

    example = Example([[30_000]] * 2, 1, "amp", scale=65536.0)
    trial = fit(tmp_path, lambda context: Large(context, example))
    assert [row["scale"] for row in trial.reports[0]["rows"]] == [65536.0, 65536.0]
