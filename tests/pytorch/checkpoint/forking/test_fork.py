"""A fork shares its parent's first batches, then takes its changes: once, there, and by rules."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.errors import CheckpointNotFound, ForkError
from determined.pytorch import Batch, LRScheduler
from determined.storage import SharedFSStorageManager
from tests.support.resumable import checkpoints, digest, train
from tests.support.workers import run_workers

schedulers = torch.optim.lr_scheduler
Schedule = Callable[[torch.optim.Optimizer], Any]

LENGTH = 13
AT = 6


# Unchanged.


@pytest.mark.parametrize("at", [4, 6, 8, 9], ids=["at one", "after one", "at another", "between"])
def test_an_unchanged_fork_ends_like_its_parent(tmp_path: Path, at: int) -> None:
    whole = train(tmp_path, LENGTH, checkpoint_period=Batch(4))
    forked = train(tmp_path, LENGTH, init={"run_id": "fork"}, fork_from=("run", at))
    assert forked.ends_like(whole)
    assert len(forked.losses) == LENGTH - at // 4 * 4  # nothing before the checkpoint again


def test_an_unchanged_fork_inside_an_accumulation_window_ends_like_its_parent(
    tmp_path: Path,
) -> None:
    whole = train(tmp_path, LENGTH, aggregation=3, checkpoint_period=Batch(4))
    forked = train(tmp_path, LENGTH, aggregation=3, init={"run_id": "fork"}, fork_from=("run", 5))
    assert forked.ends_like(whole)


def test_a_fork_of_a_fork_ends_like_the_first_parent(tmp_path: Path) -> None:
    whole = train(tmp_path, LENGTH, checkpoint_period=Batch(4))
    train(
        tmp_path,
        11,
        init={"run_id": "fork"},
        fork_from=("run", 6),
        checkpoint_period=Batch(5),
    )
    again = train(tmp_path, LENGTH, init={"run_id": "second"}, fork_from=("fork", 10))
    assert again.ends_like(whole)
    assert len(again.losses) == 3


def test_a_fork_that_was_cut_continues_by_its_own_checkpoint(tmp_path: Path) -> None:
    whole = train(tmp_path, LENGTH, checkpoint_period=Batch(4))
    how: dict[str, Any] = {"init": {"run_id": "fork"}, "fork_from": ("run", 6)}
    for length in (5, 6, 9):  # before it leaves its parent, there, and later
        train(tmp_path, length, latest_checkpoint="latest", **how)
    forked = train(tmp_path, LENGTH, latest_checkpoint="latest", **how)
    assert forked.ends_like(whole)
    assert len(forked.losses) == LENGTH - 9


def test_a_checkpoint_by_path_or_id_can_be_forked_too(tmp_path: Path) -> None:
    whole = train(tmp_path, LENGTH, checkpoint_period=Batch(4))
    first = checkpoints(tmp_path)[0].storage_id
    for number, source in enumerate((str(tmp_path / first), first, tmp_path / first)):
        storage = tmp_path if source == first else tmp_path / "other"
        init = {"run_id": f"fork-{number}"}
        assert train(storage, LENGTH, init=init, fork_from=(source, 5)).ends_like(whole)


def test_a_fork_of_the_same_script_gets_a_name_of_its_own(tmp_path: Path) -> None:
    train(tmp_path, 4, init={"run_id": None})
    (parent,) = (c.run_id for c in checkpoints(tmp_path, None))
    train(tmp_path, 6, init={"run_id": None}, fork_from=(parent, 4))
    names = {c.run_id for c in checkpoints(tmp_path, None)} - {parent}
    assert len(names) == 1
    assert str(names.pop()).startswith(f"{parent}-fork-4-")


def _two_ranks(storage: Path) -> None:
    whole = train(storage, LENGTH, checkpoint_period=Batch(4))
    forked = train(storage, LENGTH, init={"run_id": "fork"}, fork_from=("run", 6))
    assert forked.ends_like(whole)


def test_an_unchanged_fork_on_two_ranks_ends_like_its_parent(tmp_path: Path) -> None:
    run_workers(2, _two_ranks, tmp_path)


# What cannot be forked.


@pytest.mark.parametrize(
    ("fork_from", "error", "words"),
    [
        ("run", TypeError, "must be a pair"),
        ((3, 4), TypeError, "run id"),
        (("run", 0), ValueError, "at least 1"),
        (("run", 2.5), ValueError, "whole number"),
        (("nobody", 4), CheckpointNotFound, "nobody' has no exact checkpoint"),
        (("run", 3), CheckpointNotFound, "at batches 4, 6 only"),
    ],
)
def test_what_is_no_place_to_fork_from_is_refused(
    tmp_path: Path, fork_from: Any, error: type[Exception], words: str
) -> None:
    train(tmp_path, 6, checkpoint_period=Batch(4))
    with pytest.raises(error, match=words):
        train(tmp_path, 8, init={"run_id": "fork"}, fork_from=fork_from)


def test_a_fork_needs_a_name_of_its_own(tmp_path: Path) -> None:
    train(tmp_path, 4)
    with pytest.raises(ForkError, match="like its parent"):
        train(tmp_path, 8, fork_from=("run", 4))


def test_a_checkpoint_of_after_the_batch_is_refused(tmp_path: Path) -> None:
    train(tmp_path, 4)
    path = str(tmp_path / checkpoints(tmp_path)[0].storage_id)
    with pytest.raises(ForkError, match="is at batch 4, so no run can branch off from it at ba"):
        train(tmp_path, 8, init={"run_id": "fork"}, fork_from=(path, 3))


def test_another_place_to_start_from_beside_a_fork_is_refused(tmp_path: Path) -> None:
    train(tmp_path, 4)
    with pytest.raises(ValueError, match="both say where to start"):
        train(tmp_path, 8, fork_from=("run", 4), latest_checkpoint="best", metric="error")


# Changed.


class Tiny(pytorch.PyTorchTrial):
    """Everything comes from hyperparameters; notes what each batch was trained with."""

    by_hand: ClassVar[Any] = None

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        hparams = context.get_hparams()
        hidden = hparams.get("hidden", 4)
        self.dropout = nn.Dropout(hparams.get("dropout", 0.2))
        self.model = context.wrap_model(
            nn.Sequential(nn.Linear(3, hidden), self.dropout, nn.Linear(hidden, 1))
        )
        make = hparams.get("optimizer", "SGD")
        settings = {"lr": hparams["lr"], **hparams.get("settings", {})}
        if make == "SGD":
            settings.setdefault("momentum", 0.9)
        self.optimizer = context.wrap_optimizer(
            getattr(torch.optim, make)(self.model.parameters(), **settings)
        )
        self.scheduler: Any = None
        if "schedule" in hparams:
            self.scheduler = SCHEDULES[hparams["schedule"]](self.optimizer, hparams)
            context.wrap_lr_scheduler(self.scheduler, LRScheduler.StepMode.STEP_EVERY_BATCH)
        self.callbacks: dict[str, pytorch.PyTorchCallback] = {"notes": Notes()}
        self.trained: list[tuple[float, str, float, int]] = []

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return self.callbacks

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == AT and self.by_hand is not None:
            self.by_hand()
        group = self.optimizer.param_groups[0]
        others = {name: group.get(name) for name in ("weight_decay", "momentum")}
        self.trained.append((float(group["lr"]), str(others), self.dropout.p, len(batch[0])))
        loss = 0.01 * nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"error": nn.functional.mse_loss(self.model(batch[0]), batch[1])}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        size = self.context.get_hparams().get("batch_size", 2)
        return pytorch.DataLoader(_points(), batch_size=size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(_points(), batch_size=4)


class Notes(pytorch.PyTorchCallback):
    """Notes which changes it was told of."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_fork(self, changed: dict[str, tuple[Any, Any]]) -> None:
        self.told.append(changed)


def _points() -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 3, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True))


def run(storage: Path, name: str, hparams: dict[str, Any], length: int = 12, **fit: Any) -> Tiny:
    """Train a `Tiny` trial."""
    trial_class: type[Tiny] = fit.pop("trial_class", Tiny)
    init = fit.pop("init", {})
    with pytorch.init(
        hparams=hparams,
        seed=5,
        checkpoint_storage=storage,
        run_id=name,
        enable_tensorboard_logging=False,
        **init,
    ) as context:
        trial = trial_class(context)
        fit = {"checkpoint_policy": "none", "progress": False, **fit}
        pytorch.Trainer(trial, context).fit(max_length=Batch(length), **fit)
    return trial


def fork(storage: Path, old: dict[str, Any], new: dict[str, Any], at: int = AT, **fit: Any) -> Tiny:
    """Train a parent, and a fork of it with other hyperparameters."""
    run(storage, "parent", old, at, init=fit.pop("init_parent", {}))
    return run(storage, "fork", new, fork_from=("parent", at), **fit)


def changed_by_hand(storage: Path, hparams: dict[str, Any], change: Callable[[Tiny], None]) -> Tiny:
    """Train in one go with code of the user's that changes things at the batch of the fork."""
    by_hand = type("ByHand", (Tiny,), {"by_hand": change})
    return run(storage / "by-hand", "by-hand", hparams, trial_class=by_hand)


def _set(**settings: Any) -> Callable[[Tiny], None]:
    return lambda trial: trial.optimizer.param_groups[0].update(settings)


def _set_dropout(p: float) -> Callable[[Tiny], None]:
    def change(trial: Tiny) -> None:
        trial.dropout.p = p

    return change


@pytest.mark.parametrize(
    ("new", "change"),
    [
        ({"lr": 0.01}, _set(lr=0.01)),
        ({"lr": 0.1, "settings": {"weight_decay": 0.3}}, _set(weight_decay=0.3)),
        ({"lr": 0.1, "settings": {"momentum": 0.5}}, _set(momentum=0.5)),
        ({"lr": 0.1, "dropout": 0.7}, _set_dropout(0.7)),
    ],
    ids=["lr", "weight_decay", "momentum", "dropout"],
)
def test_a_change_takes_effect_at_the_batch_as_if_made_by_hand(
    tmp_path: Path, new: dict[str, Any], change: Callable[[Tiny], None]
) -> None:
    forked = fork(tmp_path, {"lr": 0.1}, new)
    expected = changed_by_hand(tmp_path, {"lr": 0.1}, change)
    assert forked.trained == expected.trained[AT:]
    assert digest(forked.model.state_dict()) == digest(expected.model.state_dict())
    assert digest(forked.optimizer.state_dict()) == digest(expected.optimizer.state_dict())
    assert forked.trained[0] != expected.trained[AT - 1]


def test_a_changed_adam_is_as_if_changed_by_hand(tmp_path: Path) -> None:
    old = {"lr": 0.1, "optimizer": "AdamW"}
    new = {"lr": 0.01, "optimizer": "AdamW", "settings": {"betas": (0.8, 0.9)}}
    forked = fork(tmp_path, old, new)
    expected = changed_by_hand(tmp_path, old, _set(lr=0.01, betas=(0.8, 0.9)))
    assert digest(forked.model.state_dict()) == digest(expected.model.state_dict())


def test_another_batch_size_continues_at_the_same_record(tmp_path: Path) -> None:
    class Seen(Tiny):
        seen: list[Any] = []

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            self.seen.extend(batch[0][:, 0].tolist())
            return super().train_batch(batch, epoch_idx, batch_idx)

    run(tmp_path, "whole", {"lr": 0.1}, 18, trial_class=Seen)
    whole, Seen.seen = Seen.seen, []
    run(tmp_path, "parent", {"lr": 0.1}, AT)
    new = {"lr": 0.1, "batch_size": 4}
    forked = run(tmp_path, "fork", new, fork_from=("parent", AT), trial_class=Seen)
    assert [size for *_, size in forked.trained] == [4] * 6
    assert Seen.seen == whole[2 * AT :]


def test_another_length_is_trained(tmp_path: Path) -> None:
    longer = fork(tmp_path, {"lr": 0.1}, {"lr": 0.1}, length=20)
    whole = run(tmp_path / "whole", "whole", {"lr": 0.1}, 20)
    assert longer.trained == whole.trained[AT:]
    assert digest(longer.model.state_dict()) == digest(whole.model.state_dict())


def test_another_seed_changes_what_comes_after_the_batch_only(tmp_path: Path) -> None:
    run(tmp_path, "parent", {"lr": 0.1}, AT)
    with pytorch.init(
        hparams={"lr": 0.1}, seed=6, checkpoint_storage=tmp_path, run_id="fork"
    ) as context:
        trial = Tiny(context)
        pytorch.Trainer(trial, context).fit(max_length=Batch(12), fork_from=("parent", AT))
    whole = run(tmp_path / "whole", "whole", {"lr": 0.1})
    assert len(trial.trained) == 12 - AT
    assert digest(trial.model.state_dict()) != digest(whole.model.state_dict())
    assert context.get_trial_seed() == 6


def test_changes_are_applied_once_however_often_the_fork_is_cut(tmp_path: Path) -> None:
    old, new = {"lr": 0.1, "schedule": "step"}, {"lr": 0.4, "schedule": "step"}
    run(tmp_path, "parent", old, AT)
    whole = run(tmp_path, "fork", new, fork_from=("parent", AT))
    told: list[Any] = []
    rates: list[float] = []
    for length in (8, 9, 12):
        part = run(
            tmp_path, "cut", new, length, fork_from=("parent", AT), latest_checkpoint="latest"
        )
        told += part.callbacks["notes"].told  # type: ignore[attr-defined]  # it is Notes
        rates += [rate for rate, *_ in part.trained]
    assert told == [{"lr": (0.1, 0.4)}]
    assert rates == [rate for rate, *_ in whole.trained]
    assert digest(part.model.state_dict()) == digest(whole.model.state_dict())
    records = [_record(tmp_path, c.storage_id) for c in checkpoints(tmp_path, "cut")]
    told_of = {"name": "cut", "parent": "parent", "at": AT, "applied": True}
    assert [r["fork"] for r in records] == [told_of] * 3


def _record(storage: Path, storage_id: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((storage / storage_id / "run.json").read_text())
    return record


def test_a_change_between_checkpoints_is_refused_with_the_way_out(tmp_path: Path) -> None:
    run(tmp_path, "parent", {"lr": 0.1}, checkpoint_period=Batch(4))
    with pytest.raises(ForkError, match=r"no checkpoint of parent at batch 6.*at batch 4\. Make "):
        run(tmp_path, "fork", {"lr": 0.2}, fork_from=("parent", AT))
    run(tmp_path, "base", {"lr": 0.1}, AT, fork_from=("parent", AT))
    forked = run(tmp_path, "fork", {"lr": 0.2}, fork_from=("base", AT))
    expected = changed_by_hand(tmp_path, {"lr": 0.1}, _set(lr=0.2))
    assert digest(forked.model.state_dict()) == digest(expected.model.state_dict())


# Schedules.

SCHEDULES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "step": lambda o, h: schedulers.StepLR(o, 4, gamma=h.get("gamma", 0.5)),
    "milestones": lambda o, h: schedulers.MultiStepLR(o, [3, 8]),
    "exponential": lambda o, h: schedulers.ExponentialLR(o, 0.9),
    "multiplicative": lambda o, h: schedulers.MultiplicativeLR(o, lambda step: 0.95),
    "lambda": lambda o, h: schedulers.LambdaLR(o, lambda step: 1 / (1 + step)),
    "constant": lambda o, h: schedulers.ConstantLR(o, 0.3, 8),
    "linear": lambda o, h: schedulers.LinearLR(o, 0.1, 1.0, 9),
    "polynomial": lambda o, h: schedulers.PolynomialLR(o, 15, 2.0),
    "cosine": lambda o, h: schedulers.CosineAnnealingLR(o, 10),
    "cosine with a floor": lambda o, h: schedulers.CosineAnnealingLR(o, 10, eta_min=0.02),
    "restarts": lambda o, h: schedulers.CosineAnnealingWarmRestarts(o, 4),
    "restarts with a floor": lambda o, h: schedulers.CosineAnnealingWarmRestarts(
        o, 4, eta_min=0.02
    ),
    "sequence": lambda o, h: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, 0.1, 1.0, 3), schedulers.CosineAnnealingLR(o, 10)], [8]
    ),
    "chain": lambda o, h: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(o, 0.1, 3), schedulers.ExponentialLR(o, 0.9)], o
    ),
    "cycle": lambda o, h: schedulers.OneCycleLR(o, h["lr"], total_steps=20),
    "triangles": lambda o, h: schedulers.CyclicLR(o, h["lr"] / 10, h["lr"], 3),
    "floors in a chain": lambda o, h: schedulers.ChainedScheduler(
        [schedulers.CosineAnnealingLR(o, 10, eta_min=0.01), schedulers.ExponentialLR(o, 0.9)], o
    ),
    "own": lambda o, h: _Own(o),
}
WITHOUT_RULE = ("cycle", "triangles", "floors in a chain", "own")


class _Own(schedulers.StepLR):
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer, 3)


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name not in WITHOUT_RULE])
@pytest.mark.parametrize("new", [0.3, 0.011])
def test_a_rate_is_scaled_as_if_the_schedule_had_begun_with_it(
    tmp_path: Path, schedule: str, new: float
) -> None:
    forked = fork(
        tmp_path, {"lr": 0.1, "schedule": schedule}, {"lr": new, "schedule": schedule}, length=24
    )
    # The optimizer and the scheduler alone, from the beginning with the new rate.
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], new)
    scheduler = SCHEDULES[schedule](optimizer, {"lr": new})
    expected = []
    for _ in range(24):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert [rate for rate, *_ in forked.trained] == pytest.approx(expected[AT:], rel=1e-9)


def test_a_scaled_rate_is_as_if_changed_by_hand_in_the_script(tmp_path: Path) -> None:
    def scale(trial: Tiny) -> None:
        trial.scheduler.base_lrs = [0.3]
        group = trial.optimizer.param_groups[0]
        group["initial_lr"] = 0.3
        group["lr"] = group["lr"] * (0.3 / 0.1)

    old, new = {"lr": 0.1, "schedule": "cosine"}, {"lr": 0.3, "schedule": "cosine"}
    forked = fork(tmp_path, old, new)
    expected = changed_by_hand(tmp_path, old, scale)
    assert forked.trained == expected.trained[AT:]
    assert digest(forked.model.state_dict()) == digest(expected.model.state_dict())


class Plateau(Tiny):
    """Lowers its rate after three batches without regard to any metric."""

    min_lr = 0.0

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        self.scheduler = schedulers.ReduceLROnPlateau(
            self.optimizer, factor=0.1, patience=0, min_lr=self.min_lr
        )
        context.wrap_lr_scheduler(self.scheduler, LRScheduler.StepMode.MANUAL_STEP)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx in (2, 3, 9):
            self.scheduler.step(1.0)
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_a_rate_that_a_plateau_has_lowered_stays_lowered(tmp_path: Path) -> None:
    run(tmp_path, "parent", {"lr": 0.1}, AT, trial_class=Plateau)
    forked = run(tmp_path, "fork", {"lr": 0.2}, trial_class=Plateau, fork_from=("parent", AT))
    assert [rate for rate, *_ in forked.trained] == pytest.approx([0.02] * 3 + [0.002] * 3)


def test_a_rate_on_the_floor_of_a_plateau_is_refused(tmp_path: Path) -> None:
    floored = type("Floored", (Plateau,), {"min_lr": 0.02})
    run(tmp_path, "parent", {"lr": 0.1}, AT, trial_class=floored)
    with pytest.raises(ForkError, match="lowered it to its min_lr"):
        run(tmp_path, "fork", {"lr": 0.2}, trial_class=floored, fork_from=("parent", AT))


def test_a_schedule_laid_out_by_the_script_is_a_rule_of_its_own(tmp_path: Path) -> None:
    old, new = ({"lr": 0.1, "schedule": "step", "gamma": g} for g in (0.5, 0.2))
    forked = fork(tmp_path, old, new, settings_from="script")
    assert [rate for rate, *_ in forked.trained] == pytest.approx([0.02] * 2 + [0.004] * 4)


# Refused.


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            {"lr": 0.1, "schedule": "step", "gamma": 0.5},
            {"lr": 0.1, "schedule": "step", "gamma": 0.2},
            r"gamma 0.5 -> 0.2: gamma of scheduler 0 \(StepLR\): 0.2 instead of 0.5",
        ),
        *(
            (
                {"lr": 0.1, "schedule": name},
                {"lr": 0.2, "schedule": name},
                r"lr of optimizer 0 \(SGD\): .* \(there is no rule for ",
            )
            for name in WITHOUT_RULE
        ),
        (
            {"lr": 0.0, "schedule": "step"},
            {"lr": 0.2, "schedule": "step"},
            "a rate of 0.0 cannot be scaled",
        ),
        (
            {"lr": 0.02, "schedule": "cosine with a floor"},
            {"lr": 0.2, "schedule": "cosine with a floor"},
            "a rate of 0.02 cannot be scaled",
        ),
        ({"lr": 0.1, "hidden": 4}, {"lr": 0.1, "hidden": 5}, "hidden 4 -> 5: the state does not"),
        (
            {"lr": 0.1, "optimizer": "Adam"},
            {"lr": 0.1, "optimizer": "Adam", "settings": {"amsgrad": True}},
            r"amsgrad of optimizer 0 \(Adam\): True instead of False",
        ),
        ({"lr": 0.1, "optimizer": "Rprop"}, {"lr": 0.2, "optimizer": "Rprop"}, "depends on it"),
        ({"lr": 0.1, "optimizer": "ASGD"}, {"lr": 0.2, "optimizer": "ASGD"}, "depends on it"),
        (
            {"lr": 0.1, "optimizer": "RMSprop"},
            {"lr": 0.1, "optimizer": "RMSprop", "settings": {"momentum": 0.5}},
            "momentum of optimizer 0",
        ),
        (
            {"lr": 0.1, "optimizer": "SGD"},
            {"lr": 0.1, "optimizer": "Adam"},
            "optimizer 'SGD' -> 'Adam': the state does not fit",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_what_no_rule_covers_is_refused_by_name_before_anything_trains(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], words: str
) -> None:
    run(tmp_path, "parent", old, AT)
    before = len(SharedFSStorageManager(tmp_path).list())
    trained: list[Any] = []

    class Watched(Tiny):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            trained.append(batch_idx)
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(ForkError, match=words):
        run(tmp_path, "fork", new, fork_from=("parent", AT), trial_class=Watched)
    assert trained == []
    assert len(SharedFSStorageManager(tmp_path).list()) == before


def test_a_value_that_training_has_changed_itself_is_refused(tmp_path: Path) -> None:
    class Decaying(Tiny):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            self.optimizer.param_groups[0]["lr"] *= 0.5
            return super().train_batch(batch, epoch_idx, batch_idx)

    run(tmp_path, "parent", {"lr": 0.1}, AT, trial_class=Decaying)
    with pytest.raises(ForkError, match="by now, which no scheduler has set"):
        run(tmp_path, "fork", {"lr": 0.2}, fork_from=("parent", AT), trial_class=Decaying)


@pytest.mark.parametrize(
    ("old", "new", "is_possible"), [(2, 3, True), (4, 3, False), (2, 4, False)]
)
def test_another_accumulation_is_possible_between_windows_of_both(
    tmp_path: Path, old: int, new: int, is_possible: bool
) -> None:
    run(tmp_path, "parent", {"lr": 0.1}, AT, init={"aggregation_frequency": old})
    how: dict[str, Any] = {"init": {"aggregation_frequency": new}, "fork_from": ("parent", AT)}
    if is_possible:
        forked = run(tmp_path, "fork", {"lr": 0.2}, **how)
        assert forked.trained[0][0] == 0.2
        return
    with pytest.raises(ForkError, match="inside an accumulation window"):
        run(tmp_path, "fork", {"lr": 0.2}, **how)


def test_a_changed_scaler_is_refused(tmp_path: Path) -> None:
    class Scaled(Tiny):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            interval = context.get_hparams()["interval"]
            context.wrap_scaler(torch.amp.GradScaler("cpu", growth_interval=interval))
            super().__init__(context)

    run(tmp_path, "parent", {"lr": 0.1, "interval": 3}, AT, trial_class=Scaled)
    with pytest.raises(ForkError, match="growth_interval of the scaler: 5 instead of 3"):
        run(
            tmp_path,
            "fork",
            {"lr": 0.1, "interval": 5},
            fork_from=("parent", AT),
            trial_class=Scaled,
        )


def test_a_fork_says_what_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fork(tmp_path, {"lr": 0.1}, {"lr": 0.2})
    said = [r.getMessage() for r in caplog.records if "leaves it" in r.getMessage()]
    assert said == [
        "This fork of parent leaves it after batch 6: lr 0.1 -> 0.2; lr of optimizer 0 (SGD): 0.2 "
        "instead of 0.1."
    ]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
