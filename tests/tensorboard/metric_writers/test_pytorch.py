from __future__ import annotations

from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from determined.tensorboard import MetricWriter, get_base_path
from determined.tensorboard.metric_writers.pytorch import TorchWriter, _TorchWriter
from tests.tensorboard.read_events import read_points


@pytest.fixture(autouse=True)
def _own_temporary_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_points_land_in_the_base_path_and_a_reset_starts_a_new_file() -> None:
    writer = _TorchWriter()
    assert isinstance(writer, MetricWriter)
    assert isinstance(writer.writer, SummaryWriter)
    for step in range(2):
        writer.add_scalar("x", step, step)
        writer.flush()
        writer.reset()
    assert read_points(get_base_path({})) == {"x": [(0, 0.0), (1, 1.0)]}
    assert len(list(get_base_path({}).iterdir())) == 2


def test_the_public_class_is_deprecated() -> None:
    with pytest.warns(FutureWarning, match="get_tensorboard_writer"):
        writer = TorchWriter()
    writer.reset()
