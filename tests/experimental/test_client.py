"""The client's questions: everything that can be read of a search that is over."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import sys
import tarfile
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from determined.common.api.errors import APIException, NotFoundException
from determined.errors import (
    CheckpointStateException,
    ConfigurationError,
    NotFoundError,
    RefusedError,
)
from determined.experimental import client
from determined.experimental.client import (
    Checkpoint,
    CheckpointSortBy,
    CheckpointState,
    Determined,
    ExperimentSortBy,
    ExperimentState,
    LogLevel,
    OrderBy,
    Trial,
    TrialSortBy,
    TrialState,
)
from tests.experimental.searched import CONFIG, Searched, searched
from tests.support.messages import documented

__all__ = ["searched"]
pytestmark = pytest.mark.multiprocess


def best(searched: Searched) -> Trial:
    (found,) = searched.experiment.iter_trials(TrialSortBy.BEST_VALIDATION_METRIC, limit=1)
    return found


def test_an_experiment_shows_what_it_is(searched: Searched) -> None:
    experiment = searched.det.get_experiment(searched.experiment.id)
    assert experiment == searched.experiment
    assert experiment.state is ExperimentState.COMPLETED
    assert experiment.state.is_terminal
    assert (experiment.name, experiment.description) == ("<i>small</i>", "three rates")
    assert (experiment.labels, experiment.archived) == ({"tiny", "test"}, False)
    assert (experiment.progress, experiment.num_trials) == (1.0, 3)
    assert (experiment.project_id, experiment.workspace_id) == (1, 1)
    assert experiment.config["searcher"]["name"] == "grid"
    assert experiment.start_time is not None
    assert experiment.end_time is not None
    assert experiment.start_time.tzinfo is timezone.utc
    assert experiment.end_time > experiment.start_time
    assert experiment.best_validation == pytest.approx(0.1 + 1 / 6)
    assert repr(experiment).startswith("Experiment(id=1, name='<i>small</i>', state=COMPLETED")
    assert "&lt;i&gt;small&lt;/i&gt;" in experiment._repr_html_()
    assert experiment.get_pachyderm_config() == {}


def test_trials_come_in_any_order(searched: Searched) -> None:
    experiment = searched.experiment
    trials = experiment.list_trials()
    assert [trial.id for trial in trials] == [1, 2, 3]
    assert sorted(trial.hparams["lr"] for trial in trials) == [0.1, 0.2, 0.3]
    for order in TrialSortBy:
        both = [experiment.list_trials(order, by) for by in (OrderBy.ASC, OrderBy.DESC)]
        assert [{trial.id for trial in found} for found in both] == [{1, 2, 3}] * 2
    falling = experiment.list_trials(TrialSortBy.BEST_VALIDATION_METRIC, OrderBy.DESCENDING)
    assert [trial.hparams["lr"] for trial in falling] == [0.3, 0.2, 0.1]
    assert len(list(experiment.iter_trials(limit=2))) == 2
    assert list(experiment.iter_trials(limit=0)) == []
    assert experiment.await_first_trial() == trials[0]
    with pytest.raises(ValueError, match="`sort_by` must be a TrialSortBy, got 'id'"):
        experiment.list_trials("id")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`order_by` must be an OrderBy"):
        experiment.list_trials(order_by="asc")  # type: ignore[arg-type]


def test_a_trial_shows_what_it_is(searched: Searched) -> None:
    trial = searched.det.get_trial(best(searched).id)
    assert (trial.state, trial.experiment_id) == (TrialState.COMPLETED, 1)
    assert trial.hparams == {"lr": 0.1, "net": {"depth": 2, "kind": "<script>"}}
    assert trial.metadata == {"seen": {"lr": 0.1}}
    assert (trial.steps_completed, trial.restarts) == (6, 0)
    assert trial.get_experiment() == searched.experiment
    summary = trial.summary_metrics
    assert set(summary) == {"avg_metrics", "validation_metrics"}
    assert summary["avg_metrics"]["loss"]["count"] == 6
    assert summary["validation_metrics"]["loss"]["min"] == pytest.approx(0.1 + 1 / 6)
    assert "<script>" not in trial._repr_html_()


def test_metrics_come_back_as_they_were_reported(searched: Searched) -> None:
    trial = best(searched)
    training = list(trial.iter_metrics("training"))
    assert [m.steps_completed for m in training] == [1, 2, 3, 4, 5, 6]
    assert training[1].metrics == {"loss": 0.05}
    assert training[1].batch_metrics == [{"loss": 0.1}, {"loss": 0.1}]
    assert (training[1].trial_id, training[1].trial_run_id) == (trial.id, 1)
    assert training[1].end_time.tzinfo is timezone.utc
    assert training[1].total_batches == 2
    validations = list(trial.iter_metrics("validation"))
    assert math.isnan(validations[1].metrics["accuracy"])
    everything = list(trial.iter_metrics())
    assert {m.group for m in everything} == {"training", "validation"}
    assert len(everything) == 9
    with pytest.warns(UserWarning, match="groups are training, validation") as warned:
        assert list(trial.iter_metrics("val")) == []
    documented('`iter_metrics("val")`', str(warned[0].message))
    of_all = list(searched.det.iter_trials_metrics([3, 1, 1], "validation"))
    assert [m.trial_id for m in of_all] == [1, 1, 1, 3, 3, 3]
    with pytest.raises(NotFoundError):
        searched.det.iter_trials_metrics([99])
    for _ in zip(trial.iter_metrics("training"), range(2), strict=False):
        searched.experiment.set_notes("read half of it")  # a verb, while reports are read
    frame = searched.experiment.to_dataframe()
    index = frame["best"].idxmin()  # a number of numpy's
    assert searched.det.get_trial(index) == trial
    assert len(list(searched.det.iter_trials_metrics(frame.index, "validation"))) == 9


def test_checkpoints_come_best_first(searched: Searched) -> None:
    experiment = searched.experiment
    found = experiment.list_checkpoints()
    assert len(found) == 9
    assert found[0].training is not None
    assert found[0].training.hparams is not None
    assert (found[0].training.hparams["lr"], found[0].steps_completed) == (0.1, 6)
    assert experiment.list_checkpoints(max_results=2) == found[:2]
    assert experiment.list_checkpoints(max_results=0) == []
    worst = experiment.list_checkpoints("loss", OrderBy.DESCENDING, 1)[0]
    assert worst.training is not None
    assert worst.training.validation_metrics["avgMetrics"]["loss"] == pytest.approx(0.3 + 1 / 2)
    accurate = experiment.list_checkpoints("accuracy", OrderBy.DESC)
    assert accurate[0].steps_completed == 6
    assert [c.steps_completed for c in accurate[-3:]] == [4, 4, 4]  # NaN ranks last
    for order in CheckpointSortBy:
        assert set(experiment.list_checkpoints(order, OrderBy.ASC)) == set(found)
    steps = experiment.list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.ASC)
    assert [c.steps_completed for c in steps] == [2, 2, 2, 4, 4, 4, 6, 6, 6]
    assert len(best(searched).list_checkpoints()) == 3
    with pytest.raises(AssertionError, match="both `sort_by` and `order_by`"):
        experiment.list_checkpoints("loss")
    with pytest.raises(ValueError, match="name of a metric or a CheckpointSortBy, got 3"):
        experiment.list_checkpoints(3, OrderBy.ASC)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be negative"):
        experiment.list_checkpoints(max_results=-1)


def test_a_checkpoint_shows_what_it_is_and_can_be_downloaded(
    searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = searched.experiment.list_checkpoints(max_results=1)[0].uuid
    checkpoint = searched.det.get_checkpoint(uuid)
    assert checkpoint.state is CheckpointState.COMPLETED
    assert checkpoint.metadata["tag"] == "x"
    assert checkpoint.resources["state"] == 1
    assert checkpoint.task_id.startswith("1.")
    assert checkpoint.allocation_id == f"{checkpoint.task_id}.1"
    assert checkpoint.report_time is not None
    assert checkpoint.trial_config()["hyperparameters"]["lr"] == 0.1
    assert checkpoint.get_pachyderm_commit() is None  # type: ignore[func-returns-value]
    assert list(checkpoint.get_metrics()) == []

    checkpoint.add_metadata({"note": "good", "tag": "y"})
    checkpoint.remove_metadata(["unknown"])
    assert searched.det.get_checkpoint(uuid).metadata["note"] == "good"
    monkeypatch.chdir(tmp_path)
    path = Path(checkpoint.download())
    assert path == Path("checkpoints", uuid)
    assert (path / "state").read_text() == "6"
    assert json.loads((path / "metadata.json").read_text()) == checkpoint.metadata
    (path / "state").write_text("cut short, of another size")
    assert checkpoint.download(path, mode="direct") == str(path)
    assert (path / "state").read_text() == "6"  # what a broken download left is completed
    checkpoint.remove_metadata(["note", "tag"])
    checkpoint.write_metadata_file(tmp_path / "written.json")
    assert json.loads((tmp_path / "written.json").read_text()) == {"steps_completed": 6}
    with pytest.raises(ValueError, match="'pigeon' is not a valid DownloadMode"):
        checkpoint.download(mode="pigeon")
    with pytest.raises(ValueError, match="list of strings, got one string: 'tag'"):
        checkpoint.remove_metadata("tag")
    with pytest.raises(ValueError, match="`metadata` must be JSON-serializable"):
        checkpoint.add_metadata({"x": object()})


def test_deprecated_names_work_and_name_their_replacement(searched: Searched) -> None:
    experiment, trial = searched.experiment, best(searched)
    with pytest.warns(FutureWarning, match=r"use Experiment.list_checkpoints\(max_results=1\)"):
        top = experiment.top_checkpoint()
    assert top == experiment.list_checkpoints(max_results=1)[0]
    with pytest.warns(FutureWarning, match="list_checkpoints"):
        three = experiment.top_n_checkpoints(5)
    assert [c._record.trial_id for c in three] == [
        t.id for t in experiment.list_trials(TrialSortBy.BEST_VALIDATION_METRIC)
    ]
    with pytest.warns(FutureWarning):  # what is better follows the configuration
        assert experiment.top_checkpoint(sort_by="loss") == top
    with pytest.warns(FutureWarning):  # those without the metric come last, they are not left out
        assert experiment.top_checkpoint(sort_by="nothing") in experiment.list_checkpoints()
    with pytest.warns(FutureWarning, match=r"use Experiment.list_trials\(\)"):
        assert experiment.get_trials() == experiment.list_trials()
    with pytest.warns(FutureWarning, match=r"use Trial.list_checkpoints\(\)"):
        assert trial.get_checkpoints() == trial.list_checkpoints()
    with pytest.warns(FutureWarning):
        assert trial.top_checkpoint("accuracy", smaller_is_better=False).steps_completed == 6
    with pytest.warns(FutureWarning):
        assert trial.select_checkpoint(latest=True).steps_completed == 6
    with pytest.warns(FutureWarning):
        assert trial.select_checkpoint(uuid=top.uuid) == top
    with pytest.warns(FutureWarning):
        assert trial.select_checkpoint(best=True) == top
    with pytest.warns(FutureWarning), pytest.raises(AssertionError, match="exactly one"):
        trial.select_checkpoint(latest=True, best=True)
    with pytest.warns(FutureWarning, match=r'use Trial.iter_metrics\("training"\)'):
        assert len(list(trial.stream_training_metrics())) == 6
    with pytest.warns(FutureWarning):
        assert len(list(trial.stream_validation_metrics())) == 3
    with pytest.warns(FutureWarning):
        assert len(list(trial.stream_metrics())) == 9
    with pytest.warns(FutureWarning, match=r"use Trial.iter_logs\(\)"):
        assert list(trial.logs(head=0)) == []
    with pytest.warns(FutureWarning, match="TrialOrderBy is deprecated: use OrderBy"):
        found = experiment.list_trials(order_by=client.TrialOrderBy.DESC)
    assert [t.id for t in found] == [3, 2, 1]
    with pytest.warns(FutureWarning, match="ExperimentReference is deprecated: use Experiment"):
        assert client.ExperimentReference(1, searched.det._session).id == 1
    with pytest.warns(FutureWarning, match="TrialReference is deprecated: use Trial"):
        assert client.TrialReference(1, searched.det._session).id == 1
    with pytest.warns(FutureWarning, match=r"use list_experiments\(\)"):
        assert searched.det.get_experiments() == [experiment]


def test_logs_can_be_filtered(searched: Searched) -> None:
    trial = best(searched)
    lines = list(trial.iter_logs())
    assert any(line.startswith("INFO: starts with {'lr': 0.1") for line in lines)
    assert all(line.endswith("\n") for line in lines)
    ends = ["WARNING: <b>ends</b>\n"]
    assert list(trial.iter_logs(min_level=LogLevel.WARNING)) == ends
    assert list(trial.iter_logs(search_text="<b>")) == ends
    assert list(trial.iter_logs(tail=1)) == lines[-1:]
    assert list(trial.iter_logs(head=1)) == lines[:1]
    assert list(trial.iter_logs(tail=0)) == list(trial.iter_logs(head=0)) == []
    assert list(trial.iter_logs(follow=True)) == lines
    assert trial.start_time is not None
    began = int(trial.start_time.timestamp())
    assert list(trial.iter_logs(timestamp_after=began - 1)) == lines
    assert list(trial.iter_logs(timestamp_before=began - 1)) == []
    assert list(trial.iter_logs(timestamp_before="2020-01-01T00:00:00Z")) == []
    with pytest.raises(ValueError, match="at most one of `follow`, `head` and `tail`"):
        trial.iter_logs(follow=True, tail=3)
    with pytest.raises(ValueError, match="`tail` must not be negative"):
        trial.iter_logs(tail=-1)
    with pytest.raises(ValueError, match="`timestamp_after` must be a time such as"):
        trial.iter_logs(timestamp_after="yesterday")
    with pytest.raises(ValueError, match="`min_level` must be a LogLevel"):
        trial.iter_logs(min_level="INFO")  # type: ignore[arg-type]


def test_experiments_are_found_by_every_filter(searched: Searched) -> None:
    det, one = searched.det, [searched.experiment]
    for order in ExperimentSortBy:
        assert det.list_experiments(order, OrderBy.DESC) == one
    assert det.list_experiments(labels=["tiny", "other"], name="SMALL", project_id=1) == one
    assert det.list_experiments(states=[ExperimentState.COMPLETED], experiment_ids=[1, 9]) == one
    assert det.list_experiments(users=[det.get_session_username()]) == one
    assert det.list_experiments(labels=["other"]) == []
    assert det.list_experiments(users=["nobody"]) == []
    assert det.list_experiments(states=[ExperimentState.RUNNING]) == []
    assert det.list_experiments(experiment_ids=[]) == []
    with pytest.raises(ValueError, match="`states` must hold ExperimentStates"):
        det.list_experiments(states=["COMPLETED"])  # type: ignore[list-item]


def test_the_code_comes_back(searched: Searched, tmp_path: Path) -> None:
    path = searched.experiment.download_code(str(tmp_path / "new"))
    assert path == str(tmp_path / "new" / "exp-1_model_def.tar.gz")
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["train.py"]
    assert searched.experiment.download_code(str(tmp_path / "new")) == path


def test_tables_have_a_row_for_each_trial_and_report(searched: Searched) -> None:
    frame = searched.experiment.to_dataframe()
    assert list(frame.index) == [1, 2, 3]
    assert frame.attrs == {"experiment_id": 1, "metric": "loss"}
    assert frame["best"].min() == pytest.approx(0.1 + 1 / 6)
    assert sorted(frame["hparams.lr"]) == [0.1, 0.2, 0.3]
    assert set(frame["hparams.net.depth"]) == {2}
    assert (frame["state"] == "COMPLETED").all()
    assert (frame["seconds"] > 0).all()
    reports = best(searched).to_dataframe()
    assert list(reports.columns[:3]) == ["group", "trial_run_id", "end_time"]
    assert len(reports) == 9
    validations = best(searched).to_dataframe("validation")
    assert list(validations.index) == [2, 4, 6]
    assert validations["accuracy"].isna().sum() == 1
    with pytest.warns(UserWarning, match="No metrics of group 'nothing' were reported"):
        assert len(best(searched).to_dataframe("nothing")) == 0


def test_figures_show_every_trial(searched: Searched) -> None:
    figure = searched.experiment.plot()
    assert [trace.type for trace in figure.data] == ["scatter"] * 3 + ["parcoords"]
    assert {trace.name for trace in figure.data[:3]} == {"trial 1", "trial 2", "trial 3"}
    assert list(figure.data[0].x) == [2, 4, 6]
    labels = [dimension.label for dimension in figure.data[3].dimensions]
    assert labels == ["lr", "loss"]
    assert "<i>" not in figure.to_json()
    training = searched.experiment.plot("loss", group="training")
    assert list(training.data[0].x) == [1, 2, 3, 4, 5, 6]
    assert [t.type for t in searched.experiment.plot(kind="parallel").data] == ["parcoords"]
    with pytest.raises(ValueError, match="no metric 'nothing' of the group 'validation'. It has"):
        searched.experiment.plot("nothing")
    with pytest.raises(ValueError, match="`kind` must be one of curves, parallel, got 'pie'"):
        searched.experiment.plot(kind="pie")


@pytest.mark.parametrize(("module", "method"), [("pandas", "to_dataframe"), ("plotly", "plot")])
def test_what_is_not_installed_is_named(
    searched: Searched, monkeypatch: pytest.MonkeyPatch, module: str, method: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{method}\(\) needs {module}: pip install"):
        getattr(searched.experiment, method)()


def test_objects_can_be_pickled(searched: Searched) -> None:
    for thing in (searched.experiment, best(searched), searched.experiment.list_checkpoints()[0]):
        again = pickle.loads(pickle.dumps(thing))
        assert again == thing
        again.reload()
        assert again != searched.det
    assert len({searched.experiment, pickle.loads(pickle.dumps(searched.experiment))}) == 1


def test_what_there_is_not_is_said(searched: Searched, tmp_path: Path) -> None:
    det = searched.det
    for ask in (det.get_experiment, det.get_trial):
        for number in (99, 0, -1, 2**70):
            with pytest.raises(NotFoundException, match="There is no"):
                ask(number)
        for word in ("1", True, None):
            with pytest.raises(ValueError, match="must be an integer"):
                ask(word)  # type: ignore[arg-type]
    with pytest.raises(APIException, match="There is no checkpoint nothing"):
        det.get_checkpoint("nothing")
    with pytest.raises(NotFoundError, match="no model 'nothing'"):
        det.get_model("nothing")
    with pytest.raises(NotFoundError, match="no workspace 'nothing'"):
        det.get_workspace("nothing")
    empty = Determined(home=tmp_path / "empty")
    assert empty.list_experiments() == empty.list_models() == empty.list_workspaces() == []
    with pytest.raises(NotFoundError, match="no experiment 1"):
        empty.get_experiment(1)
    assert not (tmp_path / "empty").exists()  # looking creates nothing


def test_a_wrong_configuration_is_told_with_all_its_problems(
    searched: Searched, tmp_path: Path
) -> None:
    wrong = CONFIG.replace("name: grid", "name: gird") + "\nunknown: 1\n"
    with pytest.raises(ConfigurationError, match="gird(.|\n)*unknown"):
        searched.det.create_experiment(wrong)
    with pytest.raises(ConfigurationError, match=r"missing.yaml: cannot be read"):
        searched.det.create_experiment(tmp_path / "missing.yaml")
    with pytest.raises(ValueError, match="`config` must be a dict or the path"):
        searched.det.create_experiment(3)  # type: ignore[arg-type]
    with pytest.raises(RefusedError):
        searched.det.create_experiment(CONFIG, tmp_path / "no-folder")
    with pytest.raises(NotFoundError, match="no project 9"):
        searched.det.create_experiment(CONFIG, tmp_path, project_id=9)
    with pytest.raises(NotFoundError, match="no experiment 9"):
        searched.det.create_experiment(CONFIG, tmp_path, parent_id=9)
    assert len(searched.det.list_experiments()) == 1


def test_files_that_are_gone_are_a_missing_file(searched: Searched, tmp_path: Path) -> None:
    checkpoint = searched.experiment.list_checkpoints()[-1]
    folder = Path(searched.lab.home.checkpoints, checkpoint.uuid)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match=checkpoint.uuid):
        checkpoint.download(tmp_path / "copy")
    (tmp_path / "elsewhere").rename(folder)
    record = dataclasses.replace(checkpoint._record, state="DELETED")
    deleted = Checkpoint._of(record, searched.det._session)
    with pytest.raises(CheckpointStateException, match="is DELETED: it cannot be downloaded"):
        deleted.download(tmp_path / "copy")


_ANYTHING = (
    st.none()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary(max_size=5)
    | st.sampled_from(["\ud800", "../..", "1; DROP TABLE model", "\0", [], {}])
)


@given(value=_ANYTHING)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_asked_for_is_found_or_said_in_one_line(searched: Searched, value: Any) -> None:
    det = searched.det
    for ask in (
        det.get_experiment,
        det.get_trial,
        det.get_checkpoint,
        det.get_model,
        det.get_workspace,
        det.get_user_by_name,
    ):
        message = "found"
        try:
            ask(value)
        except (NotFoundError, ValueError) as error:
            message = str(error)
        assert len(message.splitlines()) == 1
