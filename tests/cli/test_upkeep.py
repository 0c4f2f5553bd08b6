"""Compare, download, verify, delete, move: on one real search, in the order of these tests."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.det import Answer, call_det, det_on_a_terminal
from tests.cli.scripts import ENDLESS, STEPS
from tests.support.lab import Lab
from tests.support.messages import documented
from tests.support.saving import collected

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_SECRET = "AKIA0123456789"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Experiments 1 (three trials, six checkpoints, over), 2 (over) and 3 (waits for ever)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "120")
        patch.setenv("DET_SLOTS", "2")
        lab = Lab(tmp_path_factory.mktemp("upkeep"))
        storage = {"type": "shared_fs", "host_path": str(lab.home.checkpoints)}
        lab.create(
            STEPS,
            name="a search",
            searcher={"name": "grid", "metric": "loss"},
            hyperparameters={
                "lr": {"type": "categorical", "vals": [0.3, 0.1, 0.2]},
                "net": {"width": 8},
            },
            checkpoint_storage=storage | {"save_trial_latest": 9},
            labels=["mine"],
            data={"secrets": {"password": _SECRET}},
        )
        lab.create(STEPS, name="other", workspace="ours", project="vision")
        collected(lab, [1, 2])
        lab.create(ENDLESS, name="waits", paused=True)
        yield lab
        with contextlib.suppress(Exception):
            lab.service.kill(3)
        lab.close()


@pytest.fixture
def lab(shared: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return shared


def _det(lab: Lab, *words: str, code: int = 0, stdin: str = "") -> str:
    answer: Answer = call_det(*words, home=lab.home.path, stdin=stdin)
    assert answer.code == code, answer
    assert "Traceback" not in answer.errors
    return answer.errors if code else answer.output


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_trials_stand_side_by_side_best_first(lab: Lab) -> None:
    rows = _rows(_det(lab, "e", "compare", "1", "--csv"))
    assert [row["lr"] for row in rows] == ["0.1", "0.2", "0.3"]
    assert "net.width" not in rows[0]
    assert float(rows[0]["Best loss"]) == pytest.approx(0.15)
    assert (rows[0]["At Batch"], rows[0]["# of Batches"]) == ("20", "20")
    (best,) = json.loads(_det(lab, "e", "compare", "1", "--top", "1", "--json"))
    assert best["hparams"] == {"lr": 0.1, "net.width": 8}
    worst = _rows(_det(lab, "e", "compare", "1", "--smaller-is-better", "false", "--csv"))
    assert [row["lr"] for row in worst] == ["0.3", "0.2", "0.1"]
    assert "net.width" in _det(lab, "e", "compare", "1,2", "--all")
    zero = _rows(_det(lab, "e", "compare", "1", "--metric", "nothing", "--csv"))
    assert [row["Best nothing"] for row in zero] == ["0.0"] * 3
    told = _det(lab, "e", "compare", "1", "--metric", "nope", code=1)
    documented("`compare --metric` names a metric that was not reported", told)
    assert "does not belong to these" in _det(lab, "e", "compare", "1", "--trials", "99", code=2)


def test_lists_can_be_filtered_and_sorted(lab: Lab) -> None:
    def names(*options: str) -> list[str]:
        return [row["name"] for row in json.loads(_det(lab, "e", "list", "--json", *options))]

    assert names() == ["waits", "other", "a search"]
    assert names("--sort-by", "name", "--order-by", "asc") == ["a search", "other", "waits"]
    assert names("--state", "completed", "--name", "SEARCH") == ["a search"]
    assert names("--label", "mine") == ["a search"]
    assert names("--label", "theirs") == []
    assert names("--limit", "1", "--offset", "1", "--pages", "1") == ["other"]


def test_the_queue_shows_what_is_not_over(lab: Lab) -> None:
    (row,) = _rows(_det(lab, "job", "list", "--csv"))
    assert (row["Experiment ID"], row["State"], row["Running"]) == ("3", "PAUSED", "0")
    assert "waits" in _det(lab, "j")


def test_the_best_checkpoints_are_downloaded(lab: Lab, tmp_path: Path) -> None:
    (path,) = _det(lab, "e", "download", "1", "-q").split()
    ranked = json.loads(_det(lab, "e", "lc", "1", "--best", "2", "--json"))
    assert Path(path) == Path("checkpoints") / ranked[0]["uuid"]
    assert (Path(path) / "state").read_text() == "20"
    (data,) = json.loads(_det(lab, "e", "download", "1", "--json"))
    assert (data["uuid"], data["path"]) == (ranked[0]["uuid"], path)
    target = tmp_path / "there"
    told = _det(lab, "e", "download", "1", "--top-n", "2", "-o", str(target))
    assert {folder.name for folder in target.iterdir()} == {row["uuid"] for row in ranked}
    assert ranked[1]["uuid"] in told
    words = ("--sort-by", "loss", "--smaller-is-better", "false")
    (path,) = _det(lab, "e", "download", "1", "-q", *words).split()
    worst = max(json.loads(_det(lab, "c", "ls", "--experiment", "1", "--json")), key=_metric)
    assert Path(path).name == worst["uuid"]
    assert "'accuracy'" in _det(lab, "e", "download", "1", "--sort-by", "accuracy", code=1)
    assert "needs --sort-by" in _det(lab, "e", "download", "1", *words[2:], code=2)


def _metric(row: dict[str, float]) -> float:
    return row["validation_metric"]


def test_one_checkpoint_of_a_trial_is_downloaded(lab: Lab, tmp_path: Path) -> None:
    first, last = sorted(
        json.loads(_det(lab, "c", "ls", "--trial", "1", "--json")),
        key=lambda row: row["steps_completed"],
    )
    for words, wanted in (
        (["--best"], last),
        (["--latest"], last),
        (["--uuid", first["uuid"]], first),
        (["--best", "--sort-by", "loss", "--smaller-is-better", "false"], first),
    ):
        (path,) = _det(lab, "t", "download", "1", *words, "-q").split()
        assert Path(path).name == wanted["uuid"]
    assert "Steps Completed" in _det(lab, "t", "download", "1", "--best", "-o", "to")
    assert (tmp_path / "to" / "state").read_text() == "20"
    for words in (["t", "download", "1", "--latest"], ["c", "download", last["uuid"]]):
        assert json.loads(_det(lab, *words, "--json"))["path"].endswith(last["uuid"])
    assert "one of --best" in _det(lab, "t", "download", "1", code=2)
    assert "one of --best" in _det(lab, "t", "download", "1", "--best", "--latest", code=2)
    assert "for --best" in _det(lab, "t", "download", "1", "--latest", "--sort-by", "x", code=2)
    assert "not belong to trial 2" in _det(
        lab, "t", "download", "2", "--uuid", first["uuid"], code=2
    )
    paused = str(lab.trials(3)[0].id)
    assert "has no complete checkpoint" in _det(lab, "t", "download", paused, "--latest", code=1)


def test_a_bundle_holds_what_is_known_and_no_secret(lab: Lab, tmp_path: Path) -> None:
    told = _det(lab, "t", "support-bundle", "1", "-o", "bundles")
    (path,) = (tmp_path / "bundles").iterdir()
    assert told == f"Wrote {path.relative_to(tmp_path)}\n"
    assert path.name.startswith("det-bundle-trial-1-")
    with tarfile.open(path) as archive:
        content = {
            Path(entry.name).name: file.read().decode()
            for entry in archive
            if (file := archive.extractfile(entry)) is not None
        }
    assert set(content) >= {"trial_logs.txt", "master_logs.txt", "exit.json"}
    assert "ends at 20" in content["trial_logs.txt"]
    assert json.loads(content["api_experiment_call.json"])["name"] == "a search"
    assert json.loads(content["api_trial_call.json"])["trial"]["hparams"]["net"] == {"width": 8}
    assert _SECRET not in "".join(content.values())


def test_the_beginning_of_a_uuid_is_enough(lab: Lab, tmp_path: Path) -> None:
    found = lab.checkpoints(1)[0]
    assert found.uuid in _det(lab, "c", "describe", found.uuid[:8])
    assert found.uuid in _det(lab, "c", "verify", found.uuid[:8])
    told = _det(lab, "c", "download", found.uuid[:8], "-q")
    assert told == f"checkpoints/{found.uuid}\n"
    assert found.uuid in _det(lab, "t", "download", str(found.trial_id), "--uuid", found.uuid[:8])
    assert "no checkpoint abc" in _det(lab, "c", "describe", "abc", code=1)


def test_running_experiments_are_listed_by_what_the_list_calls_them(lab: Lab) -> None:
    numbers = [row["ID"] for row in _rows(_det(lab, "e", "list", "--state", "active", "--csv"))]
    for word in ("running", "RUNNING", "Queued"):
        rows = _rows(_det(lab, "e", "list", "--state", word, "--csv"))
        assert [row["ID"] for row in rows] == numbers


def test_damage_is_found(lab: Lab) -> None:
    uuid = lab.checkpoints(2)[-1].uuid
    (row,) = _rows(_det(lab, "c", "verify", uuid, "--csv"))
    assert (row["Result"], row["Compared"]) == ("whole", "hashes")
    file = lab.home.checkpoints / uuid / "state"
    before = file.read_bytes()
    for change in (b"21", b"2", None):
        file.unlink()
        if change is not None:
            file.write_bytes(change)
        answer = call_det("c", "verify", uuid, "--json", home=lab.home.path)
        assert answer.code == 1
        assert "state" in json.loads(answer.output)[0]["Problem"]
        assert answer.errors == "det: 1 of 1 checkpoint cannot be used\n"
        file.write_bytes(before)
    assert "whole" in _det(lab, "c", "verify", f"{uuid},{lab.checkpoints(1)[0].uuid}")


def test_experiments_move_between_projects(lab: Lab) -> None:
    assert "There is no project 'audio'" in _det(lab, "e", "move", "1", "ours", "audio", code=1)
    told = _det(lab, "e", "move", "1", "ours", "vision")
    assert told == "Moved experiment 1 to project 'vision' of workspace 'ours'\n"
    rows = _rows(_det(lab, "e", "list", "--show-project", "--csv"))
    assert [row["Project"] for row in rows] == ["Uncategorized", "vision", "vision"]
    assert "project: vision" in _det(lab, "e", "config", "1")


def test_several_experiments_are_archived_at_once(lab: Lab) -> None:
    told = _det(lab, "e", "archive", "1,2")
    assert told == "Archived experiment 1\nArchived experiment 2\n"
    assert "archived already" in _det(lab, "e", "archive", "2", code=1)
    assert "There is no experiment 99" in _det(lab, "e", "unarchive", "1,99", code=1)
    assert lab.experiment(1).archived
    _det(lab, "e", "unarchive", "2,1,1")
    assert not lab.experiment(1).archived


def test_files_go_by_pattern_and_only_when_asked(lab: Lab) -> None:
    uuid = lab.checkpoints(2)[-1].uuid
    for pattern in ("", "../*", "/*", "a/../../b"):
        assert "--glob: " in _det(lab, "c", "rm", uuid, "--glob", pattern, code=2)
    assert "nothing was changed" in _det(lab, "c", "rm", uuid, "--glob", "s*", code=1, stdin="n\n")
    assert "is COMPLETED: 2 files" in _det(lab, "c", "rm", uuid)
    told = _det(lab, "c", "rm", uuid, "--glob", "s*", stdin="yes\n")
    assert "| state | 2 B" in told
    assert f"{uuid} is PARTIALLY_DELETED: 1 file" in told
    assert not (lab.home.checkpoints / uuid / "state").exists()


def test_a_new_policy_shows_what_goes_and_asks(lab: Lab) -> None:
    words = ["e", "set", "gc-policy", "1", "--save-experiment-best", "0"]
    words += ["--save-trial-best", "0", "--save-trial-latest", "1"]
    assert "nothing was changed" in _det(lab, *words, code=1, stdin="no\n")
    assert {row.state for row in lab.checkpoints(1)} == {"COMPLETED"}
    answer = call_det(*words, home=lab.home.path)  # nobody answers
    assert answer.code == 3
    told = _det(lab, *words, "--yes")
    gone = [row for row in lab.checkpoints(1) if row.state == "DELETED"]
    assert sorted(row.steps_completed for row in gone) == [10, 10, 10]
    assert all(row.uuid in told for row in gone)
    assert told.endswith("Set the policy of experiment 1\n")
    assert "No checkpoint will be deleted" in _det(lab, *words, "--yes")
    assert "Nothing to delete" in _det(lab, "c", "gc", "--dry-run")
    assert "Missing option" in _det(lab, *words[:6], code=2)


def test_checkpoints_are_deleted_all_or_none(lab: Lab) -> None:
    first, *others = [row.uuid for row in lab.checkpoints(1) if row.state == "COMPLETED"]
    unknown = f"{first},no-such"
    assert "There is no checkpoint no-such" in _det(lab, "c", "delete", unknown, "--yes", code=1)
    assert "nothing was changed" in _det(lab, "c", "delete", first, code=1, stdin="\n")
    told = _det(lab, "c", "delete", f"{first},{first}", "-y")
    assert told.startswith("Deleted 1 checkpoint (")
    shown = json.loads(_det(lab, "c", "ls", "--experiment", "1", "--json"))
    assert {row["uuid"] for row in shown} == set(others)
    assert "DELETED" in _det(lab, "c", "describe", first)
    assert "cannot be downloaded" in _det(lab, "c", "download", first, code=1)
    assert "it is DELETED" in call_det("c", "verify", first, home=lab.home.path).output


def test_event_files_are_deleted_alone(lab: Lab) -> None:
    assert (lab.home.tensorboard / "1").exists()
    assert "Deleted the TensorBoard files" in _det(lab, "e", "delete-tb-files", "1")
    assert not (lab.home.tensorboard / "1").exists()


def test_deleting_an_experiment_asks_first(lab: Lab) -> None:
    assert "is PAUSED" in _det(lab, "e", "delete", "3", "--yes", code=1)
    with det_on_a_terminal(
        "e", "delete", "1,2", environment={"DET_HOME": str(lab.home.path)}
    ) as terminal:
        terminal.until("[y/N]")
        terminal.type("no\r")
        assert terminal.end() == 1
    assert lab.experiment(1).state == "COMPLETED"
    assert _det(lab, "e", "delete", "1,2", stdin="y\n").endswith("Deleted experiments 1, 2\n")
    assert "There is no experiment 1" in _det(lab, "e", "describe", "1", code=1)
    assert [row["ID"] for row in _rows(_det(lab, "e", "list", "--csv"))] == ["3"]
