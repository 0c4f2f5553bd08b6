"""What the callback does at the hooks of real trainers, of both packages."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lightning", reason="the extra `lightning` is not installed")
pytest.importorskip("pytorch_lightning", reason="the extra `lightning` is not installed")

import determined as det
from determined import core
from determined.lightning import DetCallback
from tests.support.lightning_modules import build_loaders, build_module, build_trainer, digest
from tests.support.reports import recorded

# Lightning warns of small data, and uses what torch deprecates.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def pl(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


class Killed(Exception):
    """Stands for the end of the process."""


class Ask:
    """Asks to stop, or ends training as a kill does, after a batch."""

    def __init__(self, context: core.Context, stop_at: int, kill_at: int) -> None:
        self.context, self.stop_at, self.kill_at = context, stop_at, kill_at

    def at(self, batches: int) -> None:
        if batches == self.stop_at:
            self.context._backend.request_preemption()
        if batches == self.kill_at:
            raise Killed


def train(
    pl: Any,
    folder: Path,
    *,
    stop_at: int = -1,
    kill_at: int = -1,
    is_ours: bool = True,
    workers: int = 0,
    **given: Any,
) -> tuple[str, int]:
    """Train, from the newest checkpoint if there is one; return the weights and the batches."""
    pl.seed_everything(5, verbose=False)
    module = build_module(pl)

    class Asking(pl.Callback):  # type: ignore[misc]
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, idx: int) -> None:
            ask.at(trainer.fit_loop.total_batch_idx + 1)

    with core.init(checkpoint_storage=folder) as context:
        ask = Ask(context, stop_at, kill_at)
        callbacks: list[Any] = [Asking()]
        path = None
        if is_ours:
            callback = DetCallback(context)
            callbacks.append(callback)
            path = callback.latest()
        trainer = build_trainer(pl, *callbacks, **given)
        try:
            trainer.fit(module, **build_loaders(workers), ckpt_path=path)
        except Killed:
            return "killed", trainer.fit_loop.total_batch_idx
    return digest(module), trainer.fit_loop.total_batch_idx + 1


def steps_saved(folder: Path) -> list[int]:
    files = folder.glob("*/metadata.json")
    return sorted(json.loads(file.read_text())["steps_completed"] for file in files)


@pytest.mark.parametrize("stop_at", [3, 7, 10, 18])
def test_a_stopped_training_ends_as_an_unbroken_one(pl: Any, tmp_path: Path, stop_at: int) -> None:
    plain = train(pl, tmp_path / "plain", is_ours=False)
    assert train(pl, tmp_path / "whole") == plain
    assert steps_saved(tmp_path / "whole") == [7, 14, 21]
    assert train(pl, tmp_path / "cut", stop_at=stop_at)[1] == stop_at
    assert steps_saved(tmp_path / "cut")[-1] == stop_at
    assert train(pl, tmp_path / "cut") == plain


@pytest.mark.parametrize(
    ("stop_at", "stops_at", "given"),
    [
        (10, 11, {"accumulate_grad_batches": 2}),  # the end of the window
        (3, 3, {"val_check_interval": 3, "check_val_every_n_epoch": 2}),
        (9, 9, {"val_check_interval": 4, "check_val_every_n_epoch": None}),
        (8, 8, {"val_check_interval": 4, "check_val_every_n_epoch": None}),
        (10, 10, {"workers": 1}),
        (7, 7, {"limit_val_batches": 0}),
        (16, 16, {"min_epochs": 3, "limit_train_batches": 5, "max_epochs": 5}),
    ],
    ids=str,
)
def test_it_stops_where_nothing_is_lost(
    tmp_path: Path, stop_at: int, stops_at: int, given: dict[str, Any]
) -> None:
    pl = importlib.import_module("lightning.pytorch")
    plain = train(pl, tmp_path / "plain", is_ours=False, **given)
    assert train(pl, tmp_path / "cut", stop_at=stop_at, **given)[1] == stops_at
    assert steps_saved(tmp_path / "cut")[-1] == stops_at
    assert train(pl, tmp_path / "cut", **given) == plain


@pytest.mark.parametrize(
    ("saved", "given"),
    [
        (10, {"val_check_interval": 3}),
        (7, {"accumulate_grad_batches": 2}),
        # A validation in the midst of a window: saved at its end.
        (11, {"val_check_interval": 3, "accumulate_grad_batches": 2}),
    ],
    ids=str,
)
def test_a_killed_training_ends_as_an_unbroken_one(
    tmp_path: Path, saved: int, given: dict[str, Any]
) -> None:
    pl = importlib.import_module("lightning.pytorch")
    plain = train(pl, tmp_path / "plain", is_ours=False, **given)
    assert train(pl, tmp_path / "cut", kill_at=12, **given)[0] == "killed"
    assert steps_saved(tmp_path / "cut")[-1] == saved
    assert train(pl, tmp_path / "cut", **given) == plain
    assert train(pl, tmp_path / "cut", **given) == plain, "nothing is left to train"


def test_a_training_of_some_steps_is_continued_with_more(tmp_path: Path) -> None:
    pl = importlib.import_module("lightning.pytorch")
    plain = train(pl, tmp_path / "plain", is_ours=False, max_steps=17)
    assert train(pl, tmp_path / "cut", max_steps=10)[1] == 10
    assert train(pl, tmp_path / "cut", max_steps=17) == plain
    assert steps_saved(tmp_path / "cut") == [7, 10, 14, 17]


def test_what_is_logged_becomes_reports(tmp_path: Path) -> None:
    pl = importlib.import_module("lightning.pytorch")
    with recorded(tmp_path) as (context, reports):
        module = build_module(pl)

        class LogBatch(pl.Callback):  # type: ignore[misc, name-defined]
            def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
                module.log("batch_idx", float(trainer.fit_loop.batch_idx), on_epoch=True)

        build_trainer(pl, LogBatch(), DetCallback(context)).fit(module, **build_loaders())
        build_trainer(pl, DetCallback(context)).validate(module, build_loaders()["val_dataloaders"])
    assert reports.steps("validation") == [7, 14, 21]
    validations = [metrics for group, _, metrics in reports.made if group == "validation"]
    assert all(metrics.keys() == {"batches", "epochs", "error"} for metrics in validations)
    assert [metrics["epochs"] for metrics in validations] == [1, 2, 3]
    of_epochs = [
        steps
        for group, steps, metrics in reports.made
        if group == "training" and "batch_idx_epoch" in metrics
    ]
    assert of_epochs == [7, 14, 21], "and not again in the epoch after"
    losses = [(steps, group) for group, steps, metrics in reports.made if "loss" in metrics]
    assert losses == [(s, "training") for s in (2, 4, 6, 7, 8, 10, 12, 14, 16, 18, 20, 21)]
    assert reports.progress == pytest.approx([batch / 21 for batch in range(1, 22)])


def test_the_checkpoint_is_asked_of_the_newest_callback(tmp_path: Path) -> None:
    pl = importlib.import_module("lightning.pytorch")
    assert det.lightning.DetCallback is DetCallback
    with core.init(checkpoint_storage=tmp_path) as context:
        callback = DetCallback(context)
        assert DetCallback.latest() is None
        build_trainer(pl, callback, max_epochs=1).fit(build_module(pl), **build_loaders())
        path = DetCallback(context).latest()
        assert path is not None
        assert DetCallback.latest() == path
        assert set(torch.load(path, weights_only=True)) >= {"state_dict", "loops", "epoch"}
        metadata = {"steps_completed": 9, "run_id": callback._run_id}
        with context.checkpoint.store_path(metadata) as (folder, storage_id):
            (folder / "weights.pth").write_bytes(b"of somebody else")
        with pytest.raises(ValueError, match=f"{storage_id} has no `lightning.ckpt`"):
            DetCallback.latest()


def test_processes_that_lightning_would_start_are_refused(tmp_path: Path) -> None:
    pl = importlib.import_module("lightning.pytorch")
    with core.init(checkpoint_storage=tmp_path) as context:
        callback = DetCallback(context)
        trainer = build_trainer(pl, callback, devices=2, strategy="ddp")
        with pytest.raises(
            ValueError, match=r"2 process\(es\) and `core_context` has 1: start them"
        ):
            callback.setup(trainer, build_module(pl), "fit")
