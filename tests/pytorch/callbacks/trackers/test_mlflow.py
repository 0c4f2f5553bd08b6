from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from determined.pytorch import Batch
from determined.pytorch.callbacks import MLflowTracker
from tests.pytorch.callbacks.trials import MakeCallbacks, fit
from tests.support.trials import LineTrial, the_checkpoint

needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None,
    reason='MLflow is not installed: pip install "determined-pytorch[mlflow]"',
)


class Line(LineTrial):
    num_batches = 20

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"top@1": 0.5}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in a folder, which MLflow wants to be asked for."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")
    return f"file://{tmp_path / 'mlruns'}"


def _tracker(store: str) -> MakeCallbacks:
    return lambda context: {
        "mlflow": MLflowTracker(
            context, "line", tracking_uri=store, run_name="one", tags={"kind": "test"}
        )
    }


def _runs(store: str) -> tuple[Any, list[Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("line")
    assert experiment is not None
    return client, list(client.search_runs([experiment.experiment_id]))


@needs_mlflow
def test_run_has_metrics_parameters_and_status(store: str) -> None:
    init = {"hparams": {"rate": 0.1, "net": {"depth": 2}}}
    trial = fit(_tracker(store), 4, Line, init, validation_period=Batch(4))
    client, (run,) = _runs(store)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "one"
    assert run.data.tags["kind"] == "test"
    assert run.data.params == {"rate": "0.1", "net.depth": "2"}
    assert set(run.data.metrics) == {"loss", "batches", "epochs", "val_top_1"}
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [metric.step for metric in history] == [2, 4]
    assert client.get_metric_history(run.info.run_id, "val_top_1")[0].step == 4
    tracker = trial.callbacks["mlflow"]
    assert isinstance(tracker, MLflowTracker)
    assert tracker.num_lost == 0


@needs_mlflow
def test_resumed_run_continues_its_run(store: str) -> None:
    fit(_tracker(store), 4, Line)
    fit(_tracker(store), 6, Line, latest_checkpoint=the_checkpoint(4))
    client, (run,) = _runs(store)
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [metric.step for metric in history] == [2, 4, 6]
    assert run.info.status == "FINISHED"


@needs_mlflow
def test_failed_training_is_a_failed_run(store: str) -> None:
    class Failing(Line):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            raise KeyError("broken")

    with pytest.raises(KeyError):
        fit(_tracker(store), 4, Failing)
    _, (run,) = _runs(store)
    assert run.info.status == "FAILED"


@needs_mlflow
def test_store_that_does_not_work_does_not_end_training(
    tmp_path: Path, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mlruns").write_text("not a directory")
    assert fit(_tracker(store), 4, Line).batches == [0, 1, 2, 3]
    assert "MLflowTracker is disconnected" in caplog.text


def test_missing_package_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"determined-pytorch\[mlflow\]"):
        fit(_tracker("file:///nowhere"), 1, Line)
