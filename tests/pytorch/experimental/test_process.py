"""torch_batch_process: what is processed by whom, what is kept, and how it continues."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from determined import core, pytorch
from determined.core._distributed import DistributedContext
from determined.errors import CheckpointNotFound, InvalidCheckpointException
from determined.pytorch.experimental import (
    TorchBatchProcessor,
    TorchBatchProcessorContext,
    get_default_device,
    torch_batch_process,
)
from determined.storage import SharedFSStorageManager
from tests.support.tasks import become_a_task
from tests.support.terminal import file_script, run_in_pipes
from tests.support.workers import collect_workers, run_threads, run_workers


def numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


class Total(pytorch.MetricReducer):
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total = torch.zeros((), dtype=torch.int64)

    def per_slot_reduce(self) -> Any:
        return self.total

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        return sum(int(total) for total in per_slot_metrics)


class Recorder(TorchBatchProcessor):
    """Writes down all that happens to it; `stop_after` asks the run to stop."""

    events: ClassVar[list[Any]] = []
    stop_after: ClassVar[int | None] = None

    def __init__(self, context: TorchBatchProcessorContext) -> None:
        self.context = context
        self.total = context.wrap_reducer(Total(), name="total")
        self.seen: Any = context.wrap_reducer(lambda values: float(sum(values)), name="seen")
        self.in_order: Any = context.wrap_reducer(_as_number, name="in_order")

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        values = batch[0].tolist()
        self.events.append((batch_idx, values))
        assert isinstance(self.total, Total)
        self.total.total += sum(values)
        self.seen.update(len(values))
        self.in_order.update(values)
        if batch_idx == self.stop_after:
            backend: Any = self.context._core._backend
            backend.request_preemption()

    def on_checkpoint_start(self) -> None:
        self.events.append("checkpoint")

    def on_finish(self) -> None:
        self.events.append("finish")


def _as_number(values: list[list[int]]) -> int:
    """A number that depends on the order of the values."""
    return sum((place + 1) * value for place, value in enumerate(v for vs in values for v in vs))


@pytest.fixture(autouse=True)
def _fresh_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "events", [])
    monkeypatch.setattr(Recorder, "stop_after", None)


@pytest.fixture
def reports(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "determined")
    return caplog


def processed() -> list[int]:
    return [n for event in Recorder.events if isinstance(event, tuple) for n in event[1]]


def metrics_of(log: pytest.LogCaptureFixture) -> list[str]:
    return [m for m in log.messages if m.startswith("report_validation_metrics")]


def checkpoints(storage: Path) -> list[dict[str, Any]]:
    return [dict(c.metadata) for c in SharedFSStorageManager(storage).list()]


def test_every_record_is_processed_in_order_with_checkpoints_between(
    tmp_path: Path, reports: pytest.LogCaptureFixture
) -> None:
    torch_batch_process(
        Recorder, numbers(7), batch_size=2, checkpoint_interval=2, checkpoint_storage=tmp_path
    )
    assert Recorder.events == [
        (0, [0, 1]),
        (1, [2, 3]),
        "checkpoint",
        (2, [4, 5]),
        (3, [6]),
        "checkpoint",
        "finish",
    ]
    expected = f"{{'total': 21, 'seen': 7.0, 'in_order': {_as_number([list(range(7))])}}}"
    assert metrics_of(reports) == [
        f"report_validation_metrics(steps_completed=4, metrics={expected})"
    ]
    assert [m for m in reports.messages if m.startswith("report_progress")] == [
        "report_progress(progress=0.5)",
        "report_progress(progress=1)",
    ]


def test_a_last_checkpoint_is_written_unless_just_done_and_replaces_the_one_before(
    tmp_path: Path,
) -> None:
    torch_batch_process(
        Recorder, numbers(7), batch_size=1, checkpoint_interval=5, checkpoint_storage=tmp_path
    )
    assert Recorder.events.count("checkpoint") == 2
    (metadata,) = checkpoints(tmp_path)
    assert metadata["steps_completed"] == 7
    (stored,) = SharedFSStorageManager(tmp_path).list()
    file = tmp_path / stored.storage_id / "batch_completed.json"
    assert json.loads(file.read_text()) == {"batch_completed": 7}


def test_max_batches_limits_the_run_and_is_ignored_with_a_warning_when_out_of_range(
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch_batch_process(Recorder, numbers(6), batch_size=2, max_batches=2)
    assert processed() == [0, 1, 2, 3]
    Recorder.events.clear()
    torch_batch_process(Recorder, numbers(6), batch_size=2, max_batches=4)
    assert processed() == [0, 1, 2, 3, 4, 5]
    assert "`max_batches` is ignored" in caplog.text


def test_an_empty_dataset_is_finished_at_once(tmp_path: Path) -> None:
    torch_batch_process(Recorder, numbers(0), checkpoint_storage=tmp_path)
    assert Recorder.events == ["checkpoint", "finish"]
    assert [m["steps_completed"] for m in checkpoints(tmp_path)] == [0]


def test_loader_options_are_used_and_left_as_they_were() -> None:
    options = {"batch_size": 3, "drop_last": True, "shuffle": False, "sampler": None}
    given = dict(options)
    torch_batch_process(Recorder, numbers(7), dataloader_kwargs=options)
    assert [e for e in Recorder.events if isinstance(e, tuple)] == [(0, [0, 1, 2]), (1, [3, 4, 5])]
    assert options == given


class _Infinite(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"checkpoint_interval": 0}, "`checkpoint_interval` must be an integer of at least 1"),
        ({"checkpoint_interval": 1.5}, "`checkpoint_interval`"),
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1, got 0"),
        ({"batch_size": 2, "dataloader_kwargs": {"batch_size": 2}}, "not both"),
        ({"dataloader_kwargs": {"shuffle": True}}, "must not have `shuffle`"),
        ({"dataloader_kwargs": {"sampler": [0]}}, "must not have `sampler`"),
        ({"dataloader_kwargs": {"batch_sampler": [[0]]}}, "must not have `batch_sampler`"),
        ({"dataset": _Infinite()}, "_Infinite has no __len__"),
        ({"dataset": _Stream()}, "_Stream has no __len__"),
        ({"batch_processor_cls": object}, "must be a subclass of TorchBatchProcessor"),
        ({"batch_processor_cls": 3}, "got 3"),
    ],
)
def test_arguments_that_cannot_be_honoured_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    arguments = {"batch_processor_cls": Recorder, "dataset": numbers(2), **arguments}
    with pytest.raises((ValueError, TypeError), match=message):
        torch_batch_process(**arguments)


# Stopping and continuing.


def test_a_stopped_run_continues_and_reports_everything_once(
    tmp_path: Path, reports: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"batch_size": 2, "checkpoint_storage": tmp_path}
    Recorder.stop_after = 2  # between two checkpoints
    torch_batch_process(Recorder, numbers(21), **options)
    assert Recorder.events == [(0, [0, 1]), (1, [2, 3]), (2, [4, 5]), "checkpoint"]
    assert metrics_of(reports) == []

    Recorder.stop_after = None
    torch_batch_process(Recorder, numbers(21), latest_checkpoint="latest", **options)
    assert processed() == list(range(21))
    assert [e[0] for e in Recorder.events if isinstance(e, tuple)] == list(range(11))
    first, second = checkpoints(tmp_path)
    assert first["default_output_uuid"] == second["default_output_uuid"]
    expected = f"{{'total': 210, 'seen': 21.0, 'in_order': {_as_number([list(range(21))])}}}"
    assert metrics_of(reports) == [
        f"report_validation_metrics(steps_completed=11, metrics={expected})"
    ]


def test_latest_starts_from_the_beginning_when_there_is_nothing_of_this_run(
    tmp_path: Path, reports: pytest.LogCaptureFixture
) -> None:
    torch_batch_process(Recorder, numbers(4), checkpoint_storage=tmp_path)
    Recorder.events.clear()
    torch_batch_process(
        Recorder, numbers(3), checkpoint_storage=tmp_path, latest_checkpoint="latest"
    )
    assert processed() == [0, 1, 2]
    assert "Processing starts from the beginning" in reports.text


def test_a_finished_run_is_not_done_again_but_reports_the_same(
    tmp_path: Path, reports: pytest.LogCaptureFixture
) -> None:
    torch_batch_process(Recorder, numbers(4), checkpoint_storage=tmp_path)
    Recorder.events.clear()
    (stored,) = SharedFSStorageManager(tmp_path).list()
    path = tmp_path / stored.storage_id
    torch_batch_process(Recorder, numbers(4), checkpoint_storage=tmp_path, latest_checkpoint=path)
    assert Recorder.events == ["finish"]
    first, second = metrics_of(reports)
    assert first == second


def test_checkpoints_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    torch_batch_process(Recorder, numbers(4), checkpoint_storage=tmp_path)
    (stored,) = SharedFSStorageManager(tmp_path).list()
    options: dict[str, Any] = {"dataset": numbers(4), "checkpoint_storage": tmp_path}
    with pytest.raises(ValueError, match="`batch_size` must be 1, as in the checkpoint"):
        torch_batch_process(Recorder, latest_checkpoint=stored.storage_id, batch_size=2, **options)
    with pytest.raises(ValueError, match="has values of 3 reducers, but 0 are wrapped"):
        torch_batch_process(Quiet, latest_checkpoint=stored.storage_id, **options)
    with pytest.raises(CheckpointNotFound):
        torch_batch_process(Recorder, latest_checkpoint="no-such-id", **options)
    checkpoint = core._dummy_init(checkpoint_storage=tmp_path).checkpoint
    with checkpoint.store_path({"steps_completed": 3}) as (_, storage_id):
        pass
    with pytest.raises(InvalidCheckpointException, match="not a checkpoint of torch_batch_process"):
        torch_batch_process(Recorder, latest_checkpoint=storage_id, **options)


class Quiet(TorchBatchProcessor):
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        self.context = context

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        pass


class _Opaque(Total):
    """Holds something that no checkpoint can keep safely."""

    def reset(self) -> None:
        super().reset()
        self.path = Path("somewhere")


class WithOpaqueReducer(Recorder):
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        super().__init__(context)
        context.wrap_reducer(_Opaque(), name="opaque")


def test_reducers_that_cannot_be_kept_are_named_and_report_each_part(
    tmp_path: Path, reports: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"checkpoint_storage": tmp_path, "checkpoint_interval": 1}
    Recorder.stop_after = 1
    torch_batch_process(WithOpaqueReducer, numbers(4), **options)
    warnings = [m for m in reports.messages if "not saved in checkpoints" in m]
    assert len(warnings) == 1
    assert "pathlib" in warnings[0]
    Recorder.stop_after = None
    torch_batch_process(WithOpaqueReducer, numbers(4), latest_checkpoint="latest", **options)
    first, second = metrics_of(reports)
    assert "'total': 1," in first
    assert "'total': 5," in second


class Averager(pytorch.MetricReducer):
    """Keeps its state behind state_dict, as objects of other libraries do."""

    def __init__(self) -> None:
        self._hidden: dict[str, Any] = {"array": np.zeros(2), "opaque": object()}

    def reset(self) -> None:
        self._hidden["array"] = np.zeros(2)

    def add(self, value: float) -> None:
        self._hidden["array"] = self._hidden["array"] + np.array([value, 1])

    def state_dict(self) -> dict[str, Any]:
        return {"array": self._hidden["array"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._hidden["array"] = state["array"]

    def per_slot_reduce(self) -> Any:
        return self._hidden["array"]

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        total, count = sum(per_slot_metrics)
        return float(total / count)


class WithStateDict(Quiet):
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        super().__init__(context)
        self.average: Any = context.wrap_reducer(Averager(), name="average")

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        assert torch.is_inference_mode_enabled()
        self.average.add(float(batch[0]))
        if batch_idx == 3:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_stops_after_the_batch_and_a_state_dict_carries_the_metric_over(
    tmp_path: Path, reports: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"checkpoint_storage": tmp_path, "inference_mode": True}
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        torch_batch_process(WithStateDict, numbers(9), **options)
    assert stopped.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert [m["steps_completed"] for m in checkpoints(tmp_path)] == [4]
    torch_batch_process(WithStateDict, numbers(9), latest_checkpoint="latest", **options)
    assert metrics_of(reports) == [
        "report_validation_metrics(steps_completed=9, metrics={'average': 4.0})"
    ]


# What the context offers.


class Writer(TorchBatchProcessor):
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        self.context = context
        self.model = context.prepare_model_for_inference(nn.Linear(1, 1).train())
        assert not self.model.training
        assert context.device == next(self.model.parameters()).device
        context.report_task_using_checkpoint("some-uuid")
        context.report_task_using_model_version("some-version")

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        moved: Any = self.context.to_device(batch)
        (values,) = moved
        scores = self.model(values.float().unsqueeze(1))
        assert scores.requires_grad  # no `no_grad` unless asked for
        with self.context.upload_path() as path:
            (path / f"batch_{batch_idx}.json").write_text(json.dumps(values.tolist()))
            (path / "newest").mkdir()
            (path / "newest" / "batch").write_text(str(batch_idx))
        with contextlib.suppress(ZeroDivisionError), self.context.upload_path() as path:
            (path / "never").write_text("")
            raise ZeroDivisionError
        (self.context.get_tensorboard_path() / "note").write_text("")

    def on_finish(self) -> None:
        rank, size = self.context.get_distributed_rank(), self.context.get_distributed_size()
        if rank == 0:
            self.context.report_metrics("inference", 1, {"size": size})


def outputs(storage: Path) -> dict[str, str]:
    (metadata,) = checkpoints(storage)
    root = storage / metadata["default_output_uuid"]
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text() for path in files}


def test_outputs_of_all_batches_come_together_in_one_place(
    tmp_path: Path, reports: pytest.LogCaptureFixture
) -> None:
    torch_batch_process(Writer, numbers(3), batch_size=2, checkpoint_storage=tmp_path)
    assert outputs(tmp_path) == {
        "rank_0/batch_0.json": "[0, 1]",
        "rank_0/batch_1.json": "[2]",
        "rank_0/newest/batch": "1",
    }
    assert "report_metrics(group='inference', steps_completed=1, metrics={'size': 1})" in (
        reports.messages
    )
    assert not [path for path in tmp_path.iterdir() if ".tmp-" in path.name]


def test_outputs_go_to_an_object_store_too() -> None:
    import fsspec

    from determined.pytorch.experimental._processor import _keep_files
    from determined.storage import FsspecStorageManager

    memory = fsspec.filesystem("memory")
    storage = FsspecStorageManager(lambda: memory, "/batch-output", protocol="memory")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir("/")
        folder = Path(os.environ["DET_STORAGE"])
        (folder / "part").mkdir(parents=True)
        (folder / "part" / "a.txt").write_text("a")
        _keep_files(storage, folder, "some-uuid/rank_1")
    assert memory.cat("/batch-output/some-uuid/rank_1/part/a.txt") == b"a"
    assert storage.list() == []


def test_without_a_platform_and_cuda_there_are_no_hparams_and_the_cpu(
    tmp_path: Path,
) -> None:
    with core._dummy_init(checkpoint_storage=tmp_path) as core_context:
        assert get_default_device(core_context) == torch.device("cpu")
        context = TorchBatchProcessorContext(core_context, "uuid/rank_0")
        with pytest.raises(AssertionError, match="not run by the platform"):
            context.get_hparams()


class ReadsHparams(Recorder):
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        super().__init__(context)
        self.events.append(context.get_hparams())


def test_on_the_platform_the_trial_gives_hparams_storage_and_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = tmp_path / "kept"
    torch_batch_process(Recorder, numbers(6), max_batches=2, checkpoint_storage=storage)
    (stored,) = SharedFSStorageManager(storage).list()
    Recorder.events.clear()
    become_a_task(
        tmp_path / "info",
        monkeypatch,
        {"checkpoint_storage": {"type": "shared_fs", "host_path": str(storage)}},
        latest_checkpoint=stored.storage_id,
    )
    torch_batch_process(ReadsHparams, numbers(6), checkpoint_interval=2)
    assert Recorder.events[0] == {}
    assert processed() == [2, 3, 4, 5]
    # There the platform decides what to delete.
    assert [m["steps_completed"] for m in checkpoints(storage)] == [2, 4, 6]


def test_importing_the_module_leaves_logging_alone() -> None:
    script = (
        "import logging\nimport determined.pytorch.experimental\n"
        "root = logging.getLogger()\nassert not root.handlers and root.level == logging.WARNING\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# Several ranks.


@contextlib.contextmanager
def _messages() -> Iterator[list[str]]:
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("determined.core")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    length=st.integers(0, 23),
    batch_size=st.integers(1, 3),
    parts=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3),
)
def test_each_record_is_processed_once_however_often_the_run_is_cut(
    tmp_path_factory: pytest.TempPathFactory,
    length: int,
    batch_size: int,
    parts: list[tuple[int, int]],
) -> None:
    storage = tmp_path_factory.mktemp("storage")
    seen: list[list[int]] = []
    names: list[tuple[int, int]] = []

    class Threaded(TorchBatchProcessor):
        def __init__(self, context: TorchBatchProcessorContext) -> None:
            self.context = context
            self.total: Any = context.wrap_reducer(Total(), name="total")

        def process_batch(self, batch: Any, batch_idx: int) -> None:
            seen.append(batch[0].tolist())
            names.append((self.context.get_distributed_rank(), batch_idx))
            self.total.total += int(batch[0].sum())

    def work(limit: int | None) -> Any:
        def run(ranks: DistributedContext) -> None:
            torch_batch_process(
                Threaded,
                numbers(length),
                batch_size=batch_size,
                max_batches=limit,
                distributed_context=ranks,
                checkpoint_storage=storage,
                latest_checkpoint="latest",
            )

        return run

    limit = 0
    for size, more in parts:
        limit += more
        run_threads((1, size), work(limit))
    with _messages() as messages:
        run_threads((1, parts[-1][0]), work(None))
    batches = [list(range(i, min(i + batch_size, length))) for i in range(0, length, batch_size)]
    assert sorted(seen) == batches
    assert len(set(names)) == len(batches)  # so no output takes the place of another
    (line,) = [m for m in messages if m.startswith("report_validation_metrics")]
    assert f"metrics={{'total': {sum(range(length))}}}" in line


def _process_on_ranks(storage: str, stop_after: int | None) -> tuple[list[Any], list[str]]:
    Recorder.stop_after = stop_after if os.environ["RANK"] == "1" else None
    with _messages() as messages:
        torch_batch_process(
            Recorder,
            numbers(21),
            batch_size=2,
            checkpoint_interval=2,
            checkpoint_storage=storage,
            latest_checkpoint="latest",
        )
    return Recorder.events, [m for m in messages if m.startswith("report_validation_metrics")]


@pytest.mark.multiprocess
def test_ranks_share_the_batches_and_continue_with_another_number_of_ranks(
    tmp_path: Path,
) -> None:
    first = run_workers(2, _process_on_ranks, str(tmp_path), 2, process_group=False)
    assert [events for events, _ in first] == [
        [(0, [0, 1]), (1, [4, 5]), "checkpoint", (2, [8, 9]), (3, [12, 13]), "checkpoint"],
        [(0, [2, 3]), (1, [6, 7]), "checkpoint", (2, [10, 11]), (3, [14, 15]), "checkpoint"],
    ]
    assert [found for _, found in first] == [[], []]

    ((events, (line,)),) = run_workers(
        1, _process_on_ranks, str(tmp_path), None, process_group=False
    )
    assert [e for e in events if isinstance(e, tuple)] == [(4, [16, 17]), (5, [18, 19]), (6, [20])]
    assert "'total': 210, 'seen': 21.0" in line


@pytest.mark.multiprocess
def test_two_ranks_give_the_metrics_of_one(
    tmp_path: Path, reports: pytest.LogCaptureFixture
) -> None:
    torch_batch_process(Recorder, numbers(21), batch_size=2, checkpoint_storage=tmp_path / "one")
    (alone,) = metrics_of(reports)
    both = run_workers(2, _process_on_ranks, str(tmp_path / "two"), None, process_group=False)
    (_, chief), (other_events, other) = both
    assert [line.partition("metrics=")[2] for line in chief] == [alone.partition("metrics=")[2]]
    assert other == []
    assert other_events[-1] == "finish"


def _fail_on_one_rank(storage: str) -> None:
    class Failing(Quiet):
        def process_batch(self, batch: Any, batch_idx: int) -> None:
            if self.context.get_distributed_rank() == 1:
                raise ZeroDivisionError("bad record")

    torch_batch_process(Failing, numbers(8), checkpoint_storage=storage)


@pytest.mark.multiprocess
def test_an_error_on_one_rank_ends_the_others(tmp_path: Path) -> None:
    outcomes = collect_workers(2, _fail_on_one_rank, str(tmp_path), process_group=False)
    assert [outcome.exit_code for outcome in outcomes] == [1, 1]
    assert "bad record" in (outcomes[0].error or "")
    assert checkpoints(tmp_path) == []


@pytest.mark.multiprocess
@pytest.mark.slow
def test_the_example_writes_predictions_and_continues(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "batch_inference" / "predict.py"
    first, second = (run_in_pipes(file_script(example, cwd=tmp_path)) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0), first.errors + second.errors
    assert first.output == f"29 files with 1797 labels are in {tmp_path / 'predictions'}.\n"
    assert second.output == first.output
    reported = [
        line for line in first.errors.splitlines() if line.startswith("report_validation_metrics")
    ]
    assert reported
    assert reported == [
        line for line in second.errors.splitlines() if line.startswith("report_validation_metrics")
    ]
