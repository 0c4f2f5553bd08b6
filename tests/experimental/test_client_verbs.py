"""The client's verbs, on experiments that run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from determined.errors import EnterpriseOnlyError, NotFoundError, RefusedError
from determined.experimental import client
from determined.experimental.client import (
    Determined,
    Experiment,
    ExperimentState,
    ModelSortBy,
    OrderBy,
    TrialState,
    Workspace,
)
from determined.platform.service import Service
from tests.experimental.searched import LEARNS, Searched, code_folder, searched
from tests.support.lab import Lab, lab

__all__ = ["lab", "searched"]
pytestmark = pytest.mark.multiprocess

_WAITS = """
import time
from determined import core
with core.init() as ctx:
    ctx.train.report_validation_metrics(1, {"loss": 0.5})
    time.sleep(0.3)
    ctx.train.report_progress(0.25)
    while not ctx.preempt.should_preempt():
        time.sleep(0.02)
"""
_deletes = pytest.mark.skipif(
    not hasattr(Service, "delete_checkpoints"), reason="the platform cannot delete yet"
)


def create(lab: Lab, script: str, **config: object) -> Experiment:
    values = {
        "name": "test",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss"},
        "max_restarts": 0,
        **config,
    }
    folder = code_folder(lab.folder / f"code-{len(list(lab.folder.iterdir()))}", script)
    return Determined(home=lab.home.path).create_experiment(values, folder)


def test_a_running_experiment_obeys(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = create(lab, _WAITS)
    assert (experiment.state, experiment.labels) == (ExperimentState.ACTIVE, None)
    trial = experiment.await_first_trial()
    lab.until(lambda: lab.experiment(experiment.id).progress == 0.25)
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    with pytest.raises(TimeoutError, match=r"is still ACTIVE after 0.3 s \(25.0% done\)"):
        experiment.wait(interval=0.05, timeout=0.3, progress=True)
    assert "[########......................] experiment 1 ACTIVE 25.0%  1 trial" in (
        screen.getvalue()
    )
    assert "best loss 0.5 (trial 1)\n" in screen.getvalue()
    with pytest.raises(ValueError, match="`interval` must be a positive number"):
        experiment.wait(interval=0)
    with pytest.raises(RefusedError, match="only an experiment that has ended can be archived"):
        experiment.archive()

    experiment.pause()
    assert experiment.state is ExperimentState.PAUSED
    with pytest.raises(ValueError, match="Make sure the experiment is active"):
        experiment.wait()
    with pytest.raises(TimeoutError, match="is still PAUSED"):
        experiment.wait(timeout=0.05, raise_on_pause=False)
    experiment.activate()
    assert experiment.state.name == "ACTIVE"
    experiment.cancel()
    assert experiment.wait(timeout=90) is ExperimentState.CANCELED
    trial.reload()
    assert trial.state is TrialState.CANCELED
    with pytest.raises(RefusedError, match="is CANCELED: it cannot be paused"):
        experiment.pause()
    experiment.archive()
    assert experiment.archived
    with pytest.raises(RefusedError, match="is archived already"):
        experiment.archive()
    experiment.unarchive()

    experiment.set_name("other")
    experiment.set_description("words")
    experiment.set_notes("more words")
    experiment.set_labels({"a", "b"})
    experiment.add_label("c")
    experiment.remove_label("a")
    again = Determined(home=lab.home.path).get_experiment(experiment.id)
    for found in (experiment, again):
        assert (found.name, found.description) == ("other", "words")
        assert (found.notes, found.labels) == ("more words", {"b", "c"})
    with pytest.raises(ValueError, match="`name` must not be empty"):
        experiment.set_name(" ")
    with pytest.raises(ValueError, match="`labels` must be a set of strings, got one string: 'ab'"):
        experiment.set_labels("ab")


def test_trials_and_experiments_are_killed(lab: Lab) -> None:
    ranges = {"lr": {"type": "categorical", "vals": [0.1, 0.2]}}
    searcher = {"name": "grid", "metric": "loss", "max_concurrent_trials": 2}
    experiment = create(lab, _WAITS, searcher=searcher, hyperparameters=ranges)
    lab.until(lambda: len(lab.trials(experiment.id)) == 2)
    first, second = experiment.list_trials()
    first.kill()
    lab.until(lambda: lab.trials(experiment.id)[0].state == "CANCELED")
    second.reload()
    assert second.state is TrialState.ACTIVE
    experiment.kill()
    assert experiment.wait(timeout=90) is ExperimentState.CANCELED


def test_an_experiment_without_trials_has_no_first_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = create(lab, "raise ValueError('no')")
    assert experiment.wait(timeout=90, progress=False) is ExperimentState.ERROR
    assert "raise" in "".join(experiment.list_trials()[0].iter_logs())
    monkeypatch.setattr("determined.store.Reader.trials", _no_trials)
    with pytest.raises(RuntimeError, match="is ERROR and has no trials"):
        experiment.await_first_trial()


def _no_trials(*args: object, **kwargs: object) -> object:
    from determined.store import Page

    return Page([], None)


def test_models_versions_workspaces_and_projects(searched: Searched) -> None:
    det = searched.det
    best, other = searched.experiment.list_checkpoints(max_results=2)
    net = det.create_model("net", "a net", {"a": 1}, ["x", "y"])
    assert (net.name, net.description, net.metadata) == ("net", "a net", {"a": 1})
    assert (net.labels, net.archived, net.workspace_id) == (["x", "y"], False, 1)
    assert net.get_version() is None
    version = net.register_version(best.uuid)
    assert (version.model_version, version.model_name, version.checkpoint) == (1, "net", best)
    version.set_name("first")
    version.set_notes("it works")
    net.register_version(other.uuid)
    newest, oldest = net.list_versions()
    assert (newest.checkpoint, oldest.name, oldest.notes) == (other, "first", "it works")
    assert net.list_versions(OrderBy.ASC) == [oldest, newest]
    assert (net.get_version(), net.get_version(1)) == (newest, oldest)
    with pytest.raises(NotFoundError, match="has no version 9"):
        net.get_version(9)
    with pytest.raises(NotFoundError, match="no checkpoint nothing"):
        net.register_version("nothing")
    assert list(oldest.iter_metrics()) == []
    newest.delete()
    assert net.list_versions() == [oldest]

    net.add_metadata({"b": [2]})
    net.remove_metadata(["a"])
    net.set_labels(["y", "z", "y"])
    net.set_description("new")
    research = det.create_workspace("research")
    net.move_to_workspace("research")
    net.archive()
    with pytest.raises(RefusedError, match="takes no new versions"):
        net.register_version(other.uuid)
    net.unarchive()
    found = det.get_model(net.model_id)
    assert (found.metadata, found.labels, found.description) == ({"b": [2]}, ["y", "z"], "new")
    assert found.workspace_id == research.id
    assert found.last_updated_time is not None
    assert found.creation_time is not None
    assert found.last_updated_time > found.creation_time
    assert "Model(name='net'" in repr(found)

    wide = det.create_model("wide", labels=["y"], workspace_name="research")
    small = det.create_model("Small")
    assert det.get_model_labels()[0] == "y"
    assert det.list_models() == [small, net, wide]
    for order in ModelSortBy:
        assert set(det.list_models(order, OrderBy.DESC)) == {small, net, wide}
    assert det.list_models(ModelSortBy.NUM_VERSIONS, OrderBy.DESC)[0] == net
    assert det.list_models(workspace_names=["research"], name="W") == [wide]
    assert det.list_models(workspace_ids=[1]) == [small]
    assert det.list_models(description="NEW") == det.list_models(model_id=net.model_id) == [net]
    with pytest.warns(FutureWarning, match=r"use get_model\(\)"):
        assert det.get_model_by_id(1) == net
    with pytest.warns(FutureWarning, match=r"use list_models\(\)"):
        assert len(det.get_models()) == 3
    for model in (net, wide, small):
        model.delete()
    assert det.list_models() == []

    project = research.create_project("vision", "eyes")
    assert (project.name, project.description, project.key) == ("vision", "eyes", "")
    project.set_key("VIS")
    project.set_name("seeing")
    project.set_description("more eyes")
    project.add_note("todo", "<b>data</b>")
    assert research.get_project("seeing") == project
    assert project.notes == [{"name": "todo", "contents": "<b>data</b>"}]
    project.remove_note("todo")
    project.archive()
    assert project.archived
    project.unarchive()
    assert (project.n_experiments, project.list_experiments()) == (0, [])
    assert (project.workspace_id, project.key) == (research.id, "VIS")
    assert research.list_projects() == [project]
    assert [pool.name for pool in research.list_pools()] == ["default"]
    with pytest.raises(RefusedError, match="still has projects"):
        det.delete_workspace("research")
    research.delete_project("seeing")
    assert det.list_workspaces() == [Workspace(det._session, 1), research]
    assert det.get_workspace("research") == research
    det.delete_workspace("research")
    (usual,) = det.get_workspace("Uncategorized").list_projects()
    assert usual.n_experiments == 1
    assert usual.list_experiments() == [searched.experiment]
    with pytest.raises(ValueError, match="exactly one of `workspace_id`"):
        Workspace(det._session)


def test_metrics_are_found_by_what_they_were_made_with(searched: Searched) -> None:
    best = searched.experiment.list_checkpoints(max_results=1)[0]
    version = searched.det.create_model("used").register_version(best.uuid)
    script = f"""
from determined import core
from determined.experimental import client
with core.init() as ctx:
    checkpoint = client.get_checkpoint({best.uuid!r})
    version = client.get_model("used").get_version()
    ctx.experimental.report_task_using_checkpoint(checkpoint)
    ctx.experimental.report_task_using_model_version(version)
    ctx.train.report_metrics("inference", 1, {{"accuracy": 0.75}})
    ctx.train.report_validation_metrics(2, {{"loss": 0.5}})
"""
    user = create(searched.lab, script)
    assert user.wait(timeout=90) is ExperimentState.COMPLETED, searched.lab.account()
    for found in (list(best.get_metrics()), list(version.iter_metrics())):
        assert [(m.group, m.steps_completed) for m in found] == [
            ("inference", 1),
            ("validation", 2),
        ]
    assert [m.metrics for m in best.get_metrics("inference")] == [{"accuracy": 0.75}]
    version.delete()


def test_there_is_one_user_and_no_server(
    searched: Searched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    det = searched.det
    me = det.whoami()
    assert det.list_users() == [me] == [det.get_user_by_id(1)]
    assert det.get_user_by_name(me.username) == me
    assert det.list_users(active=False) == []
    with pytest.raises(NotFoundError, match="no user 7"):
        det.get_user_by_id(7)
    for refused in (lambda: det.create_user("x"), lambda: me.rename("x"), me.deactivate):
        with pytest.raises(RefusedError, match="no server with accounts"):
            refused()
    with pytest.raises(EnterpriseOnlyError, match="OAuth is not supported"):
        det.list_oauth_clients()
    det.logout()
    home = searched.lab.home.path
    assert Determined("http://x", "me", "secret", home=home).get_experiment(1)
    monkeypatch.setenv("DET_MASTER", "http://y")
    assert Determined(home=home).get_experiment(1)
    assert Determined(home=home).get_trial(1)
    notes = [record.getMessage() for record in caplog.records]
    assert [note.split(" is not used")[0] for note in notes] == [
        "The master http://x",
        "The master http://y",
    ]


def test_functions_are_the_methods_of_one_object(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_HOME", str(searched.lab.home.path))
    monkeypatch.setattr(client, "_default", None)
    client.login(user="me", password="")
    with pytest.raises(ValueError, match=r"login\(\) may be called once, before"):
        client.login()
    assert client.get_experiment(1) == searched.experiment
    with pytest.warns(FutureWarning, match="get_models"):
        client.get_models()
    monkeypatch.setattr(client, "_default", None)
    assert searched.experiment in client.list_experiments(name="small")
    with pytest.raises(ValueError, match="before any other"):
        client.login()
    monkeypatch.setattr(client, "_default", None)


def test_a_template_and_a_parent_are_kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    det = Determined(home=lab.home.path)
    code = code_folder(lab.folder / "code", LEARNS)
    (lab.folder / "more.txt").write_text("x")
    (lab.folder / "config.yaml").write_text("name: child\nsearcher: {name: single, metric: loss}\n")
    project = det.create_workspace("research").create_project("vision")
    experiment = det.create_experiment(
        str(lab.folder / "config.yaml"),
        str(code),
        includes=[lab.folder / "more.txt"],
        project_id=project.id,
        template={"entrypoint": "python3 train.py", "hyperparameters": {"lr": 0.1}},
        paused=True,
    )
    assert (experiment.name, experiment.state) == ("child", ExperimentState.PAUSED)
    assert (experiment.project_id, experiment.workspace_id) == (project.id, project.workspace_id)
    assert experiment._record.original_config.startswith("name: child")
    grandchild = det.create_experiment(
        experiment.config, code, parent_id=experiment.id, paused=True
    )
    assert (grandchild.parent_id, grandchild.project_id) == (experiment.id, project.id)
    project.reload()
    assert (project.n_experiments, project.n_active_experiments) == (2, 2)
    for made in (experiment, grandchild):
        made.kill()
        made.wait(timeout=90)


@_deletes
def test_registered_checkpoints_are_never_deleted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DET_STORAGE")
    policy = {"save_trial_best": 3, "save_trial_latest": 3}
    experiment = create(lab, LEARNS, hyperparameters={"lr": 0.1}, checkpoint_storage=policy)
    experiment.wait(timeout=90)
    best, second, third = experiment.list_checkpoints()
    det = Determined(home=lab.home.path)
    version = det.create_model("net").register_version(best.uuid)
    with pytest.raises(RefusedError, match="version 1 of the model 'net'"):
        best.delete()
    with pytest.raises(RefusedError, match="version 1 of the model 'net'"):
        best.remove_files(["state"])
    with pytest.raises(RefusedError, match="net"):
        experiment.delete()
    assert Path(lab.home.checkpoints, best.uuid, "state").exists()
    second.delete()
    assert second.state.name == "DELETED"
    assert not Path(lab.home.checkpoints, second.uuid).exists()
    third.remove_files(["state"])
    assert third.state.name == "PARTIALLY_DELETED"
    with pytest.raises(RefusedError, match=r"points outside the checkpoint"):
        third.remove_files(["../*"])
    experiment.reload()
    experiment.delete_tensorboard_files()

    det.create_workspace("research").create_project("vision")
    experiment.move_to_project("research", "vision")
    assert det.get_workspace("research").get_project("vision").list_experiments() == [experiment]
    with pytest.raises(NotFoundError, match="no project 'x'"):
        experiment.move_to_project("research", "x")
    version.delete()
    experiment.delete()
    assert experiment.state is ExperimentState.DELETED
    with pytest.raises(NotFoundError):
        det.get_experiment(experiment.id)
