"""The proof that users run on their own scripts: it must find what is not exact, and say where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from determined.pytorch.verify_resume import verify_resume
from determined.pytorch.verify_resume.__main__ import main
from determined.pytorch.verify_resume._compare import Report, compare
from determined.pytorch.verify_resume._interruptions import KINDS
from determined.pytorch.verify_resume._part import Part, run_part
from tests.support.workers import run_workers

_SCRIPT = """
import random
import numpy as np
import torch
from determined import pytorch

class Data(torch.utils.data.Dataset):
    rng = np.random.default_rng(1)

    def __getitem__(self, index):
        x = torch.full((2,), index / 12)
        return x, x.sum(0, keepdim=True)

    def __len__(self):
        return 12

class Counting(torch.utils.data.Sampler):
    # It claims to know about epochs.
    passes = 0

    def set_epoch(self, epoch):
        pass

    def __iter__(self):
        self.passes += 1
        return iter([(i * 5 + self.passes) % 12 for i in range(12)])

    def __len__(self):
        return 12

class Callback(pytorch.PyTorchCallback):
    calls = 0

    def on_training_batch_end(self, epoch_idx, batch_idx, metrics):
        self.calls += 1
        IN_CALLBACK

    def on_training_workload_end(self, avg_metrics, batch_metrics):
        IN_REPORT

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        layers = torch.nn.Linear(2, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1)
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))
        self.calls = 0

    def build_callbacks(self):
        return {"callback": Callback()}

    def build_training_data_loader(self):
        return pytorch.DataLoader(Data(), batch_size=2, ORDER)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Data(), batch_size=4)

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = batch
        self.calls += 1
        loss = ((self.model(x) - y) ** 2).mean()
        IN_TRAINING
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        x, y = batch
        IN_VALIDATION
        return {"error": ((self.model(x) - y) ** 2).mean()}

if __name__ == "__main__":
    with pytorch.init() as context:
        trainer = pytorch.Trainer(Trial(context), context)
        trainer.fit(max_length=pytorch.Epoch(50), validation_period=pytorch.Batch(4))
    raise AssertionError("what follows training is not part of the proof")
"""

_MARKERS = {
    "ORDER": "shuffle=True",
    "IN_TRAINING": "pass",
    "IN_VALIDATION": "pass",
    "IN_CALLBACK": "pass",
    "IN_REPORT": "pass",
}


def _script(directory: Path, **changes: str) -> Path:
    text = _SCRIPT
    for marker, code in {**_MARKERS, **changes}.items():
        text = text.replace(marker, code)
    script = directory / "train.py"
    script.write_text(text)
    return script


def _part(directory: Path, part: Part, script: Path) -> None:
    os.chdir(directory)
    run_part(part, str(script), [])


def _report(directory: Path, script: Path, batches: int, cut: int | None = None) -> Report:
    """Verify in forks of a process that has torch loaded, which is quicker than the command."""

    def run(part: Part) -> None:
        run_workers(1, _part, directory, part, script)

    return compare(run, batches, cut)


def _difference(directory: Path, script: Path, batches: int, cut: int) -> str | None:
    return _report(directory, script, batches, cut).difference


@pytest.mark.multiprocess
@pytest.mark.slow
def test_exact_script_is_proved_exact_at_a_validation_boundary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--batches", "9", "--cut", "4", str(_script(tmp_path))]) == 0
    assert "bit-exact: 9 batches in one go equal 4 batches" in capsys.readouterr().out


@pytest.mark.multiprocess
@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"IN_TRAINING": "loss = loss * (1 + self.calls)"},
            [
                "after the resume, in train_batch of batch 7, metric loss differs",
                "No checkpoint holds self.calls, which the resumed run started with new values",
            ],
        ),
        (
            {"IN_TRAINING": "loss = loss + random.SystemRandom().random()"},
            ["before any interruption: in train_batch of batch 0, metric loss differs", "seed=..."],
        ),
        (
            {"IN_CALLBACK": "self.calls > 7 and np.random.rand()"},
            [
                "in the callbacks' on_training_batch_end, batch 7, the random state of numpy "
                "differs: this stage drew"
            ],
        ),
        (
            {"IN_REPORT": "self.calls > 7 and random.random()"},
            ["just before the validation after batch 7, the random state of Python differs"],
        ),
        (
            {"IN_VALIDATION": "self.calls > 7 and torch.rand(1)"},
            ["in the validation after batch 7, the random state of torch differs"],
        ),
    ],
    ids=["training", "no seed", "callback", "report", "validation"],
)
def test_a_difference_is_found_with_its_batch_and_stage(
    changes: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    difference = _difference(tmp_path, _script(tmp_path, **changes), batches=10, cut=7)
    assert difference is not None
    for text in expected:
        assert text in difference


@pytest.mark.multiprocess
@pytest.mark.slow
def test_a_sampler_that_counts_its_own_passes_is_no_difference(tmp_path: Path) -> None:
    script = _script(tmp_path, ORDER="sampler=Counting()")
    assert _difference(tmp_path, script, batches=10, cut=7) is None


@pytest.mark.multiprocess
@pytest.mark.slow
def test_an_optimizer_that_is_not_wrapped_is_named_as_the_cause(tmp_path: Path) -> None:
    step = "(self.model(x) ** 2).mean().backward(); self.second.step(); self.second.zero_grad()"
    script = _script(tmp_path, IN_TRAINING=f"{step}; loss = ((self.model(x) - y) ** 2).mean()")
    text = script.read_text().replace("        self.calls += 1\n        loss", "        loss")
    made = "self.second = torch.optim.Adam(self.model.parameters())"
    script.write_text(text.replace("self.calls = 0", made))
    difference = _difference(tmp_path, script, batches=6, cut=3)
    assert difference is not None
    assert "No checkpoint holds self.second (Adam, not wrapped), which" in difference


@pytest.mark.multiprocess
@pytest.mark.slow
def test_augmentation_that_no_checkpoint_keeps_is_found_with_the_samples(tmp_path: Path) -> None:
    script = _script(tmp_path, ORDER="collate_fn=augmented")
    augmented = """
def augmented(samples):
    return [t + Data.rng.random() for t in torch.utils.data.default_collate(samples)]

class Trial("""
    script.write_text(script.read_text().replace("class Trial(", augmented.lstrip()))
    difference = _difference(tmp_path, script, batches=4, cut=2)
    assert difference is not None
    assert "in fetching batch 2, batch[0], batch[1] differ" in difference
    assert "the same samples (4, 5) gave different data" in difference


@pytest.mark.multiprocess
@pytest.mark.slow
def test_by_default_a_script_is_stopped_at_a_place_of_each_kind(tmp_path: Path) -> None:
    script = _script(tmp_path, IN_REPORT="assert self.calls >= 0")
    text = script.read_text().replace("Batch(4))", "Batch(2), checkpoint_period=pytorch.Batch(3))")
    script.write_text(text)
    report = _report(tmp_path, script, batches=12)
    assert report.difference is None
    assert [stop.split(" (")[0] for stop in report.stops] == list(KINDS)
    assert str(report).startswith(
        "bit-exact: 12 batches in one go equal a run in 6 processes, stopped between two batches"
    )


@pytest.mark.multiprocess
@pytest.mark.slow
def test_what_a_callback_forgets_is_named_with_the_stop_after_which_it_was_missing(
    tmp_path: Path,
) -> None:
    script = _script(tmp_path, IN_CALLBACK="pass")
    forgets = """    def state_dict(self):
        return {"calls": self.calls}

    def on_training_workload_end("""
    text = script.read_text().replace("    def on_training_workload_end(", forgets)
    script.write_text(text)
    difference = _report(tmp_path, script, batches=6).difference
    assert difference is not None
    assert "after the resume from the stop between two batches (before data, batch 1)" in difference
    assert "just before batch 2 was fetched, callback 'callback'['calls'] differs" in difference
    assert "do its state_dict and load_state_dict cover all that its hooks change?" in difference


def test_bad_arguments_name_what_was_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="between 1 and 3"):
        verify_resume(_script(tmp_path), batches=4, cut=4)
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "missing.py")])
    assert "There is no script" in capsys.readouterr().err
