"""The environment is part of the state: restored, or said, or refused; equal ones are silent."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.errors import NotExactError
from determined.pytorch import Batch
from determined.pytorch._checkpoint.resuming import environment
from determined.pytorch._checkpoint.resuming.environment import current_environment, differences
from tests.support.messages import documented
from tests.support.trials import LineTrial, checkpoints, the_checkpoint, train
from tests.support.workers import run_workers

_SCRIPT = """
import hashlib, sys
import torch
from determined import pytorch
{before}

class Net(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        layers = [torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten()]
        self.model = context.wrap_model(torch.nn.Sequential(*layers, torch.nn.Linear(1600, 10)))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), 0.1))

    def build_training_data_loader(self):
        x = torch.randn(64, 3, 12, 12, generator=torch.Generator().manual_seed(1))
        return pytorch.DataLoader(torch.utils.data.TensorDataset(x), 16)

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = (self.model(batch[0]) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss

with pytorch.init(seed=1, checkpoint_storage="checkpoints", run_id="run", {init}) as context:
    trial = Net(context)
    pytorch.Trainer(trial, context).fit(
        max_length=pytorch.Batch(int(sys.argv[1])), latest_checkpoint="latest"
    )
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in trial.model.parameters())
    print(hashlib.sha256(weights).hexdigest())
"""


def _run(
    folder: Path, batches: int, *, before: str = "", init: str = "", **variables: str | None
) -> tuple[str, str, int]:
    """Run the script in a new process; return the weights' digest, its log, and its status."""
    script = folder / "train.py"
    script.write_text(_SCRIPT.format(before=before, init=init))
    kept = {n: v for n, v in os.environ.items() if not n.endswith("_NUM_THREADS")}
    given = {"DET_PROGRESS": "off", "DET_TRACKING": "off", **variables}
    done = subprocess.run(
        [sys.executable, str(script), str(batches)],
        cwd=folder,
        env={**kept, **{n: v for n, v in given.items() if v is not None}},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout.strip(), done.stderr, done.returncode


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of one thread after two batches, and the weights of an unbroken one after six."""
    folder = tmp_path_factory.mktemp("begun")
    unbroken = _run(tmp_path_factory.mktemp("unbroken"), 6, OMP_NUM_THREADS="1")
    assert _run(folder, 2, OMP_NUM_THREADS="1")[2] == 0
    return folder, unbroken[0]


@pytest.fixture
def resumed(begun: tuple[Path, str], tmp_path: Path) -> Callable[..., tuple[bool, str, int]]:
    """Continue the run; say whether the weights are those of the unbroken one."""

    def resume(**given: Any) -> tuple[bool, str, int]:
        folder = Path(shutil.copytree(begun[0], tmp_path / "run"))
        weights, log, status = _run(folder, 6, **given)
        return weights == begun[1], log, status

    return resume


def _said(log: str) -> list[str]:
    return [line for line in log.splitlines() if line.strip()]


Resumed = Callable[..., tuple[bool, str, int]]


def test_a_run_gets_its_threads_back_where_nobody_chose_another_number(resumed: Resumed) -> None:
    same, log, status = resumed()  # as many as the machine has processors
    assert (same, _said(log), status) == (True, [], 0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"OMP_NUM_THREADS": "2"}, "2 threads instead of 1 (OMP_NUM_THREADS is set; "),
        ({"before": "torch.set_num_threads(3)"}, "3 threads instead of 1 (the script calls "),
        (
            {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"},
            "instruction set DEFAULT instead of ",
        ),
        (
            {"ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "1"},
            "the variable ONEDNN_MAX_CPU_ISA has another value",
        ),
    ],
    ids=["variable", "call", "instruction-set", "library"],
)
def test_what_a_new_process_computes_with_is_said(
    resumed: Resumed, given: dict[str, str], said: str
) -> None:
    same, log, status = resumed(**given)
    (line,) = _said(log)
    assert said in line
    assert status == 0


def test_an_exact_run_refuses_another_number_of_threads(resumed: Resumed) -> None:
    same, log, status = resumed(OMP_NUM_THREADS="2", init="exact=True")
    assert status == 1
    assert "NotExactError: pytorch.init(exact=True): this run cannot continue exactly: 2 thr" in log


@pytest.mark.parametrize(
    "variables",
    [
        {"OMP_NUM_THREADS": "2", "DET_SET_VARIABLES": "OMP_NUM_THREADS=2 MKL_NUM_THREADS=2"},
        {"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2"},
    ],
    ids=["platform", "torchrun"],
)
def test_what_a_launcher_set_is_nobodys_choice(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name in ("MKL_NUM_THREADS", "DET_SET_VARIABLES", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment._chosen_by() is None
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert environment._chosen_by() == "OMP_NUM_THREADS"


@pytest.fixture
def _flags() -> Iterator[None]:
    """Leave no flag of torch changed behind."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment]  # a property of the module
    torch.use_deterministic_algorithms(False)
    torch.set_flush_denormal(False)


class _Precise(LineTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True)


@pytest.mark.usefixtures("_flags")
def test_flags_that_the_script_sets_again_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    train(_Precise, max_length=Batch(2))
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)
    train(_Precise, max_length=Batch(4), latest_checkpoint=the_checkpoint(2))
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


def _no_mkldnn() -> None:
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]  # a property of the module


@pytest.mark.usefixtures("_flags")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: torch.set_float32_matmul_precision("medium"), "matmul precision medium instead"),
        (_no_mkldnn, "mkldnn.enabled off instead of on"),
        (lambda: torch.use_deterministic_algorithms(True), "deterministic algorithms on instead"),
        (lambda: torch.set_flush_denormal(True), "flushing of denormals on instead of off"),
    ],
    ids=["precision", "mkldnn", "deterministic", "denormals"],
)
def test_flags_that_differ_are_said_once_and_kept(
    caplog: pytest.LogCaptureFixture, change: Callable[[], None], said: str
) -> None:
    train(max_length=Batch(2))
    change()
    train(max_length=Batch(4), latest_checkpoint=the_checkpoint(2))
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert record.getMessage().startswith(
        "From batch 2 on, this run may not be, bit for bit, what an unbroken one would be: "
    )
    assert said in record.getMessage()
    if "precision" in said:
        documented("a run continues with other flags of torch", record.getMessage())
    caplog.clear()
    train(max_length=Batch(6), latest_checkpoint=the_checkpoint(4))
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    (path,) = checkpoints()[6]
    (departure,) = json.loads((path / "run.json").read_text())["departures"]
    assert (departure["batches"], len(departure["what"])) == (2, 1)


@pytest.mark.usefixtures("_flags")
def test_an_exact_run_refuses_another_flag() -> None:
    train(max_length=Batch(2), init={"exact": True})
    torch.set_float32_matmul_precision("medium")
    with pytest.raises(NotExactError) as error:
        train(max_length=Batch(4), latest_checkpoint=the_checkpoint(2), init={"exact": True})
    documented("`init(exact=True)`, and a flag of torch is set otherwise", str(error.value))


@pytest.mark.usefixtures("_flags")
def test_flags_that_torch_refuses_to_read_do_not_stop_a_save() -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.matmul.allow_tf32 = False  # another API for the same: now neither is read
    with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
        torch.get_float32_matmul_precision()
    train(max_length=Batch(2))
    train(max_length=Batch(4), latest_checkpoint=the_checkpoint(2))
    assert 4 in checkpoints()


def test_a_checkpoint_says_where_it_was_saved_without_any_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE-secret")
    train(max_length=Batch(1))
    text = (checkpoints()[1][0] / "run.json").read_text()
    (saved,) = json.loads(text)["environments"]
    assert saved["version"] == 1
    assert saved["threads"] == torch.get_num_threads()
    assert saved["instruction_set"] == torch.backends.cpu.get_cpu_capability()
    assert saved["torch"] == torch.__version__
    assert saved["variables"].keys() >= {"MKL_CBWR"}
    assert "COMPATIBLE-secret" not in text


def test_a_checkpoint_of_an_earlier_release_loads_and_what_is_unknown_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train(max_length=Batch(2))
    (path,) = checkpoints()[2]
    record = json.loads((path / "run.json").read_text())
    for name in ("environments", "departures", "constructed"):
        record.pop(name)
    (path / "run.json").write_text(json.dumps(record))
    (path / "manifest.json").unlink()
    trial: LineTrial = train(max_length=Batch(4), latest_checkpoint=str(path))
    assert trial.batches == [2, 3]
    (warning,) = [r.getMessage() for r in caplog.records if "environment" in r.getMessage()]
    documented("a checkpoint of an earlier release is continued", warning)


def test_only_what_changes_numbers_is_a_difference() -> None:
    now = current_environment(torch.device("cpu"), 1)
    assert differences(now, now) == []
    assert differences({**now, "interop_threads": 99, "python": now["python"] + "9"}, now) == []
    assert differences({}, now) != []
    other: dict[str, Any] = {
        "processor": "Z80",
        "instructions": "avx",
        "torch": "1.0",
        "ranks": 4,
        "device": "A100",
    }
    assert [text.split(" ")[0] for text in differences({**now, **other}, now)] == [
        "1",
        "device",
        "processor",
        "torch",
    ]


def _train_ranks(folder: str, batches: int) -> list[str]:
    os.chdir(folder)
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("determined.pytorch").addHandler(handler)
    latest = "latest" if batches > 2 else None
    train(max_length=Batch(batches), latest_checkpoint=latest, init={"run_id": "ranks"})
    return [text for text in messages if text.startswith("From batch")]


def test_another_number_of_processes_is_said_by_the_chief(tmp_path: Path) -> None:
    run_workers(2, _train_ranks, str(tmp_path), 2)
    assert run_workers(2, _train_ranks, str(tmp_path), 4) == [[], []]
    ((said,),) = run_workers(1, _train_ranks, str(tmp_path), 6)
    assert "1 process instead of 2" in said


def test_imports_meanwhile_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A garbage collection may let another thread go on, which may import."""
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    modules = sys.modules

    def begin_to_import(phase: str, info: dict[str, int]) -> None:
        modules[f"imported_{len(modules)}"] = sys

    thresholds = gc.get_threshold()
    gc.callbacks.append(begin_to_import)
    gc.set_threshold(1)
    try:
        found = environment._packages()
    finally:
        gc.callbacks.remove(begin_to_import)
        gc.set_threshold(*thresholds)
    assert found["torch"] == torch.__version__
