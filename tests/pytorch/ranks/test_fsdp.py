"""Sharded models train like whole ones, and their checkpoints load on any number of ranks."""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from determined import pytorch
from determined.errors import InvalidExperimentException
from determined.pytorch._ranks.fsdp import accumulated_gradients, is_sharded, shard
from determined.pytorch.callbacks import ExponentialMovingAverage, GradientNorm, LossGuard
from tests.support.sharded import Net, ShardedTrial, Validations, train
from tests.support.workers import collect_workers, run_workers

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

Seen = dict[Any, Any]


def assert_equal(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def assert_close(one: Any, other: Any, tolerance: float = 1e-6) -> None:
    """Sums over ranks, and over the batches of a window, may be taken in another order."""
    torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


# What two ranks do, once for all tests that look at it.


def _train_on_two(root: Path) -> Seen:
    seen: Seen = {}
    for aggregation in (1, 4):
        for parallel in ("ddp", "fsdp"):
            callback = Validations()
            trial, path = train(
                root / f"{parallel} {aggregation}",
                12,
                aggregation,
                parallel=parallel,
                callbacks={"validations": callback},
            )
            seen[parallel, aggregation] = trial.whole_state(), callback.metrics, path
            assert trial.is_split() == (parallel == "fsdp")
        storage = root / f"cut {aggregation}"
        train(storage, 12, aggregation, stop_after=6)
        resumed, _ = train(storage, 12, aggregation, checkpoint="latest")
        seen["resumed", aggregation] = resumed.whole_state()
    split, _ = train(root / "from ddp", 12, checkpoint=seen["ddp", 1][2])
    seen["from ddp"] = split.whole_state()
    seen["to ddp"] = train(root / "to ddp", 12, checkpoint=seen["fsdp", 1][2], parallel="ddp")[
        0
    ].whole_state()
    return seen


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory to work in: its code would be part of every checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        (path := tmp_path_factory.mktemp("fsdp") / "work").mkdir()
        patch.chdir(path)
        yield path.parent


@pytest.fixture(scope="module")
def on_two(root: Path) -> Seen:
    first, second = run_workers(2, _train_on_two, root, deadline_seconds=150)
    assert_equal(first["fsdp", 1][0], second["fsdp", 1][0])
    return first


@pytest.mark.parametrize("aggregation", [1, 4])
def test_split_model_reaches_the_weights_of_a_whole_one(on_two: Seen, aggregation: int) -> None:
    whole, split = on_two["ddp", aggregation], on_two["fsdp", aggregation]
    assert_close(split[0], whole[0])
    assert_close(split[1], whole[1])


@pytest.mark.parametrize("aggregation", [1, 4])
def test_resumed_run_is_bit_exact_even_inside_a_window(on_two: Seen, aggregation: int) -> None:
    assert_equal(on_two["resumed", aggregation], on_two["fsdp", aggregation][0])


def test_each_validation_record_counts_once_when_ranks_have_unequal_batches(
    on_two: Seen,
) -> None:
    _, validations, _ = on_two["fsdp", 1]
    assert [metrics["records"] for metrics in validations] == [10, 10, 10]


def test_each_rank_writes_its_part_and_the_manifest_covers_all(on_two: Seen) -> None:
    path = Path(on_two["fsdp", 1][2])
    names = {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}
    expected = {f"{kind}/rank_{rank}.pth" for kind in ("ranks", "shards") for rank in (0, 1)}
    assert expected | {"state_dict.pth", "run.json", "manifest.json"} <= names
    manifest = (path / "manifest.json").read_text()
    assert all(name in manifest for name in expected)
    state = torch.load(path / "state_dict.pth", weights_only=True)
    assert state["models_state_dict"][0]["embed.weight"] == {
        "determined.shard": "checkpoint['models_state_dict'][0]['embed.weight']",
        "shape": [7, 3],
        "dtype": "float32",
    }
    parts = torch.load(path / "shards" / "rank_1.pth", weights_only=True)
    start, rows = parts["checkpoint['models_state_dict'][0]['embed.weight']"]
    assert (start, rows.shape, rows.untyped_storage().nbytes()) == (4, (3, 3), 36)


def test_one_process_continues_with_the_same_tensors(on_two: Seen, tmp_path: Path) -> None:
    trial, _ = train(tmp_path / "one", 12, checkpoint=on_two["fsdp", 1][2])
    assert not trial.is_split()
    assert_equal(trial.whole_state(), on_two["fsdp", 1][0])
    trial, _ = train(tmp_path / "one", 14, checkpoint=on_two["fsdp", 1][2])


def test_trial_is_loaded_from_its_path(on_two: Seen) -> None:
    state, _, path = on_two["fsdp", 1]
    trial = pytorch.load_trial_from_checkpoint_path(path, ShardedTrial)
    assert_equal(dict(trial.model.state_dict()), state["model"])  # type: ignore[attr-defined]  # of ours


def test_checkpoints_go_from_whole_to_split_and_back(on_two: Seen) -> None:
    assert_equal(on_two["to ddp"], on_two["fsdp", 1][0])
    assert_equal(on_two["from ddp"], on_two["ddp", 1][0])


def _train_on_four(root: Path, checkpoint: str) -> list[Any]:
    restored, _ = train(root / "restored", 12, checkpoint=checkpoint)
    on_many = restored.whole_state()
    more, _ = train(root / "restored", 16, checkpoint=checkpoint)
    states = [train(root / name, 5, parallel=name)[0].whole_state() for name in ("ddp", "fsdp")]
    callback = Validations()
    train(root / "short", 1, callbacks={"v": callback}, trial_class=_FewRecords)
    return [on_many, more.whole_state(), states, callback.metrics]


class _FewRecords(ShardedTrial):
    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(super().build_validation_data_loader().dataset, 5)


def test_four_ranks_continue_what_two_began(on_two: Seen, tmp_path: Path) -> None:
    state, _, path = on_two["fsdp", 1]
    results = run_workers(4, _train_on_four, tmp_path, path, deadline_seconds=150)
    restored, more, (whole, split), validations = results[0]
    assert_equal(restored, state)
    assert more["optimizer"]["state"][0]["step"] == 16
    assert_close(split, whole, 1e-5)  # more ranks, more orders
    assert [metrics["records"] for metrics in validations] == [10]  # two ranks had no batch


# Options, and what goes with them.


def _try_options(root: Path) -> Seen:
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

    seen: Seen = {}
    plain, _ = train(root / "plain", 6)
    seen["plain"] = plain.whole_state()
    for dtype in (torch.bfloat16, torch.float16):
        trials = [
            train(root / f"{dtype} {parallel}", 6, use_amp=dtype, parallel=parallel)[0]
            for parallel in ("ddp", "fsdp")
        ]
        seen[dtype] = [trial.whole_state() for trial in trials]
    choices: dict[str, dict[str, Any]] = {
        "compiled": {"compile": {"backend": "eager"}},
        "kept": {"reshard_after_forward": False},
        "one unit": {"shard_modules": []},
        "linear units": {"shard_modules": lambda module: isinstance(module, nn.Linear)},
        "offloaded": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
    }
    for name, options in choices.items():
        trial, _ = train(root / name, 6, **options)
        units = [n for n, module in trial.model.named_modules() if is_sharded(module)]
        seen[name] = trial.whole_state(), units
    policy: dict[str, Any] = {
        "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32),
        "norm": nn.LayerNorm,
    }
    uncut, _ = train(root / "mixed", 8, 4, **policy)
    train(root / "mixed cut", 8, 4, stop_after=6, **policy)
    resumed, _ = train(root / "mixed cut", 8, 4, checkpoint="latest", **policy)
    seen["mixed"] = uncut.whole_state(), resumed.whole_state()
    open_ones, _ = train(root / "open", 2, 4)
    seen["open"] = accumulated_gradients(open_ones.model)
    seen["unsent"] = [parameter.grad for parameter in open_ones.model.parameters()]
    seen["export"] = train(root / "export", 1, fit={"export": "safetensors"})[1]
    seen["zeroed by hand"] = _leave_gradients(root)
    seen["stale"] = _look_at_outputs(root)
    for parallel in ("ddp", "fsdp"):
        trial, _ = train(root / f"watched {parallel}", 6, trial_class=_Watched, parallel=parallel)
        seen["watched", parallel] = trial.callbacks["notes"].notes  # type: ignore[attr-defined]  # of ours
    train(root / "watched cut", 6, stop_after=5, trial_class=_Watched)
    trial, _ = train(root / "watched cut", 6, checkpoint="latest", trial_class=_Watched)
    seen["watched", "cut"] = trial.callbacks["notes"].notes  # type: ignore[attr-defined]  # of ours
    return seen


class _Notes(pytorch.PyTorchCallback):
    def __init__(self) -> None:
        self.notes: list[dict[str, Any]] = []

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        self.notes.append(dict(avg_metrics))

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.notes.append(dict(metrics))


class _Watched(ShardedTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext, parallel: str = "fsdp") -> None:
        super().__init__(context, parallel)
        self.callbacks = {
            "average": ExponentialMovingAverage(context, 0.5),
            "norm": GradientNorm(context),
            "guard": LossGuard(context, "rollback", spike_factor=1e6),
            "notes": _Notes(),
        }


class _LeavesGradients(ShardedTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if self.stop_after == batch_idx + 1:
            self.context.set_stop_requested(True)
        if batch_idx % 2 == 0:
            self.optimizer.zero_grad()
        loss = self._loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, auto_zero_grads=False)
        return {"loss": loss}


def _leave_gradients(root: Path) -> tuple[Any, Any]:
    uncut, _ = train(root / "left", 6, trial_class=_LeavesGradients)
    train(root / "left cut", 6, stop_after=3, trial_class=_LeavesGradients)
    resumed, _ = train(root / "left cut", 6, checkpoint="latest", trial_class=_LeavesGradients)
    return uncut.whole_state(), resumed.whole_state()


class _LooksAtOutputs(ShardedTrial):
    """Runs the model once more between the backward pass and the step."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = self._loss(batch)
        self.context.backward(loss)
        with torch.no_grad():
            self.model(batch[0])
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}


def _look_at_outputs(root: Path) -> list[Any]:
    trials = [
        train(root / f"looks {parallel}", 6, trial_class=_LooksAtOutputs, parallel=parallel)[0]
        for parallel in ("ddp", "fsdp")
    ]
    return [trial.whole_state() for trial in trials]


@pytest.fixture(scope="module")
def options(root: Path) -> list[Seen]:
    return run_workers(2, _try_options, root, deadline_seconds=150)


def test_the_outermost_lists_of_layers_are_split_block_by_block(
    options: list[Seen],
) -> None:
    assert options[0]["kept"][1] == ["", "blocks.0", "blocks.1"]
    assert options[0]["one unit"][1] == [""]
    linear = ["", "embed", "blocks.0.0", "blocks.1.0", "head"]
    assert options[0]["linear units"][1] == linear


@pytest.mark.parametrize("name", ["compiled", "kept", "one unit", "linear units", "offloaded"])
def test_options_do_not_change_what_is_learnt(options: list[Seen], name: str) -> None:
    assert_close(options[0][name][0], options[0]["plain"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_automatic_mixed_precision_goes_as_with_whole_models(
    options: list[Seen], dtype: torch.dtype
) -> None:
    whole, split = options[0][dtype]
    assert_close(split, whole)
    assert split["model"]["embed.weight"].dtype == torch.float32
    plain = options[0]["plain"]["model"]["embed.weight"]
    assert not torch.equal(split["model"]["embed.weight"], plain)


def test_a_window_in_mixed_precision_resumes_bit_exactly(options: list[Seen]) -> None:
    uncut, resumed = options[0]["mixed"]
    assert_equal(resumed, uncut)


def test_nothing_is_sent_before_the_window_ends(options: list[Seen]) -> None:
    first, second = (option["open"] for option in options)
    assert set(first) == set(second) == {name for name, _ in Net().named_parameters()}
    assert not torch.equal(first["embed.weight"], second["embed.weight"])
    assert first["embed.weight"].shape == (7, 3)
    assert options[0]["unsent"] == [None] * len(first)


def test_gradients_left_by_the_trial_are_resumed(options: list[Seen]) -> None:
    uncut, resumed = options[0]["zeroed by hand"]
    assert_equal(resumed, uncut)


def test_a_pass_between_backward_and_step_leaves_no_old_weights(
    options: list[Seen],
) -> None:
    whole, split = options[0]["stale"]
    assert_close(split, whole)


def test_callbacks_see_the_same_as_with_whole_models(options: list[Seen]) -> None:
    whole, split = (options[0]["watched", parallel] for parallel in ("ddp", "fsdp"))
    assert_close(split, whole)
    assert "gradient_norm/AdamW" in split[0]
    assert_equal(options[0]["watched", "cut"], split[-2:])  # validated with the average


def test_exported_weights_are_whole(options: list[Seen]) -> None:
    import safetensors.torch

    path = options[0]["export"]
    exported = safetensors.torch.load_file(Path(path) / "model_0.safetensors")
    trial = pytorch.load_trial_from_checkpoint_path(path, ShardedTrial)
    assert_equal(exported, dict(trial.model.state_dict()))  # type: ignore[attr-defined]  # of ours


# Mistakes.


class _FullDataset(ShardedTrial):
    evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {"error": 0.0}


class _EarlyOptimizer(ShardedTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        context.wrap_model(model, parallel="fsdp")
        context.wrap_optimizer(optimizer)


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.layers[2].weight = self.layers[0].weight


def _make_mistakes(root: Path) -> Seen:
    messages: Seen = {}

    def wrap(make: Callable[[], nn.Module], **options: Any) -> Callable[[], Any]:
        def attempt() -> list[str]:
            with pytorch.init(checkpoint_storage=root) as context:
                model = context.wrap_model(make(), parallel="fsdp", **options)
                return [name for name, module in model.named_modules() if is_sharded(module)]

        return attempt

    def on_meta() -> nn.Module:
        with torch.device("meta"):
            return Net()

    for name, attempt in {
        "full dataset": lambda: train(root, 1, trial_class=_FullDataset),
        "early optimizer": lambda: train(root, 1, trial_class=_EarlyOptimizer),
        "not inside": wrap(Net, shard_modules=[nn.Linear(1, 1)]),
        "no module": wrap(Net, shard_modules=3),
        "tied": wrap(_Tied),
        "meta": wrap(on_meta),
    }.items():
        try:
            messages[name] = attempt()
        except (InvalidExperimentException, ValueError) as e:
            messages[name] = f"{type(e).__name__}: {e}"
    return messages


def test_mistakes_are_named(tmp_path: Path) -> None:
    messages, _ = run_workers(2, _make_mistakes, tmp_path)
    for name, pattern in {
        "full dataset": "InvalidExperiment.*override evaluate_batch instead",
        "early optimizer": "InvalidExperiment.*SGD was built before.*from the wrapped model's",
        "not inside": "ValueError: `shard_modules` must be submodules.*Linear",
        "no module": "ValueError: `shard_modules` must be submodules.*3",
        "meta": "InvalidExperiment.*Net has weights on the meta device.*on the CPU",
    }.items():
        assert re.match(pattern, messages[name]), messages[name]
    # Weights that two blocks share stay with the rest of the model.
    assert messages["tied"] == ["", "layers.1"]


def test_options_are_checked_on_one_rank_too() -> None:
    with pytorch.init() as context:
        with pytest.raises(ValueError, match="`parallel` must be 'ddp' or 'fsdp', got 'mpi'"):
            context.wrap_model(Net(), parallel="mpi")
        with pytest.raises(TypeError, match="no option 'static_graph'; it has mp_policy, offload"):
            context.wrap_model(Net(), parallel="fsdp", static_graph=True)
        with pytest.raises(TypeError, match="no option 'mp_policy'; it has"):
            context.wrap_model(Net(), mp_policy=None)
        with pytest.raises(ValueError, match="`shard_modules` is for parallel='fsdp'"):
            context.wrap_model(Net(), shard_modules=[])
        model = context.wrap_model(Net(), parallel="fsdp", reshard_after_forward=True)
        assert type(model) is Net


# Losing a rank.


class _KillsTheOther(pytorch.PyTorchCallback):
    """The chief kills rank 1 when all files of the second checkpoint are there."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self._others = context.distributed.allgather(os.getpid())
        self._saves = 0

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        self._saves += 1
        if self._saves == 2:
            assert (Path(checkpoint_dir) / "shards" / "rank_1.pth").is_file()
            os.kill(self._others[1], signal.SIGKILL)


class _LosesARank(ShardedTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context, callbacks={"killer": _KillsTheOther(context)})


def _lose_a_rank(root: Path) -> None:
    periods = {"checkpoint_period": pytorch.Batch(2)}
    train(root, 6, trial_class=_LosesARank, fit=periods)


def test_a_rank_killed_in_a_save_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    first, second = collect_workers(2, _lose_a_rank, storage, deadline_seconds=60)
    assert first.exit_code != 0
    assert second.exit_code == -signal.SIGKILL
    (kept,) = [path for path in storage.iterdir() if not path.name.startswith(".")]
    trial, _ = train(storage, 3, checkpoint="latest")
    assert trial.context.get_initial_batch() == 2
    assert '"steps_completed": 2' in (kept / "metadata.json").read_text()


class _FullDisk(pytorch.PyTorchCallback):
    """Rank 1 cannot write large files while the first checkpoint is saved."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self._is_to_fail = context.distributed.rank == 1
        assert context._core.checkpoint.storage_base is not None
        self._storage = context._core.checkpoint.storage_base
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        if self._is_to_fail:
            self._is_to_fail = False
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, self._limits[1]))

    def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        while any(self._storage.glob(".*.tmp-*")):  # until the save has failed on all ranks
            time.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


class _FillsTheDisk(ShardedTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context, callbacks={"disk": _FullDisk(context)})


def _fill_the_disk(root: Path, in_background: bool) -> str | None:
    fit = {"checkpoint_period": pytorch.Batch(2), "on_checkpoint_error": "continue"}
    fit["async_checkpoint"] = in_background
    return train(root, 4, trial_class=_FillsTheDisk, fit=fit)[1]


@pytest.mark.parametrize("in_background", [False, True])
def test_training_goes_on_when_one_rank_could_not_save(tmp_path: Path, in_background: bool) -> None:
    storage = tmp_path / "storage"
    saved = run_workers(2, _fill_the_disk, storage, in_background)
    (kept,) = [path for path in storage.iterdir() if not path.name.startswith(".")]
    assert saved == [str(kept)] * 2
    assert '"steps_completed": 4' in (kept / "metadata.json").read_text()


class _Buffered(nn.Module):
    """Has so many buffers that two orders of their names are never the same by chance."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        for index in range(20):
            self.register_buffer(f"buffer_{index}", torch.tensor(float(index)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)
        return result


def _share_buffers() -> tuple[list[str], dict[str, float]]:
    rank = torch.distributed.get_rank()
    model = shard(_Buffered(), torch.device("cpu"), None, {})
    names = {name for name, _ in model.named_buffers()}
    for buffer in model.buffers():
        buffer += 100 * rank
    model(torch.zeros(1, 2))
    return list(names), {name: buffer.item() for name, buffer in model.named_buffers()}


def test_ranks_that_order_sets_differently_share_each_buffer_by_its_name() -> None:
    (one_order, chiefs), (other_order, others) = run_workers(2, _share_buffers)
    assert one_order != other_order
    assert chiefs == others == {f"buffer_{index}": index for index in range(20)}
