"""The proof that users run on their own scripts: it must find what is not exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.pytorch.verify_resume import main, verify_resume

_SCRIPT = """
import random, torch
from determined import pytorch

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        layers = torch.nn.Linear(2, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1)
        model = torch.nn.Sequential(*layers)
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))
        self.calls = 0

    def data(self):
        x = torch.arange(24.0).reshape(12, 2) / 24
        return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))

    def build_training_data_loader(self):
        return pytorch.DataLoader(self.data(), batch_size=2, shuffle=True)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(self.data(), batch_size=4)

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = batch
        self.calls += 1
        loss = ((self.model(x) - y) ** 2).mean() EXTRA
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        x, y = batch
        return {"error": ((self.model(x) - y) ** 2).mean()}

if __name__ == "__main__":
    with pytorch.init() as context:
        trainer = pytorch.Trainer(Trial(context), context)
        trainer.fit(max_length=pytorch.Epoch(50), validation_period=pytorch.Batch(4))
    raise AssertionError("what follows training is not part of the proof")
"""


def _script(directory: Path, extra: str = "") -> Path:
    script = directory / "train.py"
    script.write_text(_SCRIPT.replace(" EXTRA", extra))
    return script


@pytest.mark.multiprocess
@pytest.mark.slow
def test_exact_script_is_proved_exact_at_a_validation_boundary(tmp_path: Path) -> None:
    report = verify_resume(_script(tmp_path), batches=10, cut=4)
    assert report.difference is None, report
    assert "bit-exact" in str(report)


@pytest.mark.multiprocess
@pytest.mark.slow
def test_state_that_no_checkpoint_keeps_is_found_with_its_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = _script(tmp_path, " * (1 + self.calls)")
    assert main(["--batches", "6", "--cut", "3", str(script)]) == 1
    said = capsys.readouterr().out
    assert "after the resume" in said
    assert "end of training of batch 3: metric loss differs" in said


@pytest.mark.multiprocess
@pytest.mark.slow
def test_randomness_without_a_seed_is_not_blamed_on_the_resume(tmp_path: Path) -> None:
    report = verify_resume(_script(tmp_path, " + random.SystemRandom().random()"), batches=4)
    assert report.difference is not None
    assert "before any cut" in report.difference


def test_bad_arguments_name_what_was_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="between 1 and 3"):
        verify_resume(_script(tmp_path), batches=4, cut=4)
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "missing.py")])
    assert "There is no script" in capsys.readouterr().err
