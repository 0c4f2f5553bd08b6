from __future__ import annotations

import importlib.util
import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from determined.pytorch import Batch
from determined.pytorch.callbacks import WandbTracker
from tests.pytorch.callbacks.trials import MakeCallbacks, fit
from tests.support.trials import LineTrial, the_checkpoint

needs_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None,
    reason='W&B is not installed: pip install "determined-pytorch[wandb]"',
)


class Line(LineTrial):
    num_batches = 20


def _tracker(directory: Path, **options: Any) -> MakeCallbacks:
    return lambda context: {
        "wandb": WandbTracker(context, "line", directory=directory, name="one", **options)
    }


def _records(directory: Path) -> list[Any]:
    """Read what W&B wrote for `wandb sync`: a log in blocks, here with whole records only."""
    from wandb.proto import wandb_internal_pb2

    new_record: Any = vars(wandb_internal_pb2)["Record"]
    records = []
    for file in sorted(directory.glob("wandb/offline-run-*/*.wandb")):
        data, position = file.read_bytes(), 7
        while position < len(data):
            _, length, kind = struct.unpack_from("<IHB", data, position)
            assert kind == 1
            record = new_record()
            record.ParseFromString(data[position + 7 : position + 7 + length])
            records.append(record)
            position += 7 + length
    return records


def _history(directory: Path) -> list[dict[str, Any]]:
    rows = [record.history for record in _records(directory) if record.HasField("history")]
    return [
        {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in row.item}
        for row in rows
    ]


@needs_wandb
def test_run_is_written_for_a_later_sync(tmp_path: Path) -> None:
    init = {"hparams": {"rate": 0.1}}
    trial = fit(_tracker(tmp_path), 4, Line, init, validation_period=Batch(4))
    tracker = trial.callbacks["wandb"]
    assert isinstance(tracker, WandbTracker)
    assert tracker.num_lost == 0
    (run,) = [record.run for record in _records(tmp_path) if record.HasField("run")]
    assert (run.run_id, run.project, run.display_name) == (tracker.run_key, "line", "one")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["rate"] == 0.1
    history = _history(tmp_path)
    assert [row["_step"] for row in history] == [2, 4]
    assert {"loss", "batches", "epochs"} < history[0].keys()
    assert "validation_loss" in history[1]


@needs_wandb
def test_resumed_run_has_the_same_id(tmp_path: Path) -> None:
    fit(_tracker(tmp_path / "a"), 4, Line)
    fit(_tracker(tmp_path / "b"), 6, Line, latest_checkpoint=the_checkpoint(4))
    ids = {
        record.run.run_id
        for part in ("a", "b")
        for record in _records(tmp_path / part)
        if record.HasField("run")
    }
    assert len(ids) == 1
    assert [row["_step"] for row in _history(tmp_path / "b")] == [6]


def test_unknown_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mode"):
        fit(_tracker(tmp_path, mode="disabled"), 1, Line)


def test_missing_package_is_an_error_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"determined-pytorch\[wandb\]"):
        fit(_tracker(tmp_path), 1, Line)
