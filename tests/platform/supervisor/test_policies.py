"""What a configuration asks of the platform: calls, log policies, hooks, variables, slots."""

from __future__ import annotations

import http.server
import importlib.util
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def texts(lab: Lab, experiment_id: int, kind: str) -> list[str]:
    found = lab.service.reader.events(experiment_id=experiment_id)
    return [event.text for event in found if event.kind == kind]


def test_a_command_and_a_url_hear_of_the_end(lab: Lab, tmp_path: Path) -> None:
    posted: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    note = tmp_path / "note"
    calls = {
        "on_end": f"cat > '{note}'; echo $DET_EXPERIMENT_STATE >> '{note}'",
        "on_failure": f"http://127.0.0.1:{server.server_port}/hook",
    }
    try:
        fine = lab.wait(lab.create("pass", integrations=calls))
        lab.until(lambda: texts(lab, fine.id, "called"))
        body, state = note.read_text().rsplit("}", 1)
        assert json.loads(body + "}")["experiment_id"] == fine.id
        assert state.strip() == "COMPLETED"
        assert posted == []
        bad = lab.wait(lab.create("raise SystemExit(3)", integrations=calls))
        lab.until(lambda: len(texts(lab, bad.id, "called")) == 2)
    finally:
        server.shutdown()
        server.server_close()
    (heard,) = posted
    assert (heard["event"], heard["state"]) == ("on_failure", "ERROR")


def test_a_call_is_made_though_the_supervisor_dies(lab: Lab, tmp_path: Path) -> None:
    note, gate = tmp_path / "note", tmp_path / "gate"
    command = f"echo called >> '{note}'; while [ ! -e '{gate}' ]; do sleep 0.05; done"
    ended = lab.wait(lab.create("pass", integrations={"on_end": command}))
    lab.until(note.exists)
    lab.kill_supervisor()
    gate.touch()
    lab.until(lambda: texts(lab, ended.id, "called"))
    assert note.read_text().count("called") == 2  # at least once
    assert not lab.service.reader.has_chores()


def test_a_call_that_fails_is_an_event_and_no_more(lab: Lab) -> None:
    ended = lab.wait(lab.create("pass", integrations={"on_end": "echo no way; exit 3"}))
    lab.until(lambda: texts(lab, ended.id, "called"))
    assert texts(lab, ended.id, "called") == ["integrations.on_end: failed: status 3: no way"]
    assert lab.experiment(ended.id).state == "COMPLETED"


def test_a_log_policy_rules_out_another_try(lab: Lab) -> None:
    policies = [{"name": "hopeless", "pattern": "no such .ata", "action": "cancel_retries"}]
    script = "import os\nprint('no such data')\nraise ValueError(os.environ['DET_TRIAL_RUN_ID'])"
    ended = lab.wait(lab.create(script, log_policies=policies, max_restarts=5))
    assert len(lab.runs(ended.id)) == 1
    assert "a log policy forbids a restart" in lab.trials(ended.id)[0].reason
    assert any("'hopeless'" in text for text in texts(lab, ended.id, "log_policy"))


def test_a_log_policy_moves_a_trial_to_another_slot(lab: Lab) -> None:
    policies = [{"name": "bad slot", "pattern": "it is hot", "action": "exclude_node"}]
    script = (
        "import os\nif os.environ['DET_TRIAL_RUN_ID'] == '1':\n    raise ValueError('it is hot')"
    )
    ended = lab.wait(lab.create(script, log_policies=policies, max_restarts=5))
    first, second = lab.runs(ended.id)
    assert ended.state == "COMPLETED"
    assert first.slots != second.slots


def test_a_startup_hook_prepares_and_may_refuse(lab: Lab) -> None:
    script = "import os; print('hook says', os.environ['SAID'])"
    good = lab.wait(lab.create(script, files={"startup-hook.sh": "export SAID=hello\n"}))
    assert "hook says hello" in lab.log(lab.runs(good.id)[0])
    bad = lab.wait(lab.create(script, files={"startup-hook.sh": "false\n"}))
    assert bad.state == "ERROR"
    assert "hook says" not in lab.log(lab.runs(bad.id)[0])


_INSTALLED = """
import sys, extra_of_the_hook, determined, torch
print("found", extra_of_the_hook.__file__, sys.prefix)
"""


def test_what_a_startup_hook_installs_stays_in_the_experiment(lab: Lab) -> None:
    package = lab.folder / "package"
    (package / "src").mkdir(parents=True)
    (package / "src" / "extra_of_the_hook.py").write_text("")
    (package / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"
        "[project]\nname = 'extra-of-the-hook'\nversion = '1'\n"
        "[tool.setuptools]\npackage-dir = {'' = 'src'}\npy-modules = ['extra_of_the_hook']\n"
    )
    flags = "--quiet --no-index --no-build-isolation --disable-pip-version-check"
    hook = f"pip install {flags} '{package}'\npython3 -m pip --version\n"
    settings = {"name": "grid", "metric": "loss"}
    ended = lab.wait(
        lab.create(
            _INSTALLED,
            files={"startup-hook.sh": hook},
            searcher=settings,
            hyperparameters={"x": {"type": "int", "minval": 0, "maxval": 1, "count": 2}},
        )
    )
    assert ended.state == "COMPLETED", lab.account()
    logs = [lab.log(run) for run in lab.runs(ended.id)]
    own = lab.home.path / "experiments" / str(ended.id) / "hook_venv"
    assert all(f"found {own}" in log and log.rstrip().endswith(str(own)) for log in logs)
    assert importlib.util.find_spec("extra_of_the_hook") is None


def test_variables_and_interpreter_are_those_of_the_configuration(lab: Lab) -> None:
    environment = {
        "environment_variables": {
            "cpu": ["WHERE=cpu", "API_TOKEN=t0p-s3cret"],
            "cuda": ["WHERE=gpu"],
        },
        "python": sys.executable,
    }
    script = (
        "import os, sys; print(os.environ['WHERE'], len(os.environ['API_TOKEN']), sys.executable)"
    )
    ended = lab.wait(lab.create(script, environment=environment))
    log = lab.log(lab.runs(ended.id)[0])
    assert "t0p-s3cret" not in log
    assert log.startswith("cpu 10 "), "the log begins with the script's own words"


def test_a_trial_writes_its_event_files_to_one_place_in_all_runs(lab: Lab) -> None:
    script = """
import os
from determined import core
with core.init() as ctx:
    print("files in", ctx.train.get_tensorboard_path())
    if os.environ["DET_TRIAL_RUN_ID"] == "1":
        raise ValueError("again")
"""
    ended = lab.wait(lab.create(script, max_restarts=1))
    (trial,) = lab.trials(ended.id)
    place = f"files in {lab.home.tensorboard / str(trial.id)}"
    assert [place in lab.log(run) for run in lab.runs(ended.id)] == [True, True]


# Works until it is told to stop, then saves and leaves; a file releases it.
PATIENT = """
import pathlib, time
from determined import core
with core.init(distributed=core.DummyDistributedContext()) as ctx:
    step = 0
    while not pathlib.Path({release!r}).exists():
        step += 1
        ctx.train.report_training_metrics(step, {{"x": 1.0}})
        time.sleep(0.02)
        if ctx.preempt.should_preempt():
            break
"""


def test_a_more_urgent_experiment_preempts_and_gives_back(lab: Lab, tmp_path: Path) -> None:
    release = tmp_path / "release"
    script = PATIENT.format(release=str(release))
    two = {"slots_per_trial": 2}
    low = lab.create(script, resources={**two, "priority": 60})
    lab.until(lambda: lab.trials(low)[0].total_batches > 0)
    same = lab.create("pass", resources={**two, "priority": 60})
    high = lab.wait(lab.create("pass", resources={**two, "priority": 10}))
    assert high.state == "COMPLETED"
    assert lab.experiment(same).state == "ACTIVE"  # equals wait for each other
    first = lab.service.reader.runs(lab.trials(low)[0].id)[0]
    assert "higher priority" in first.preempted
    lab.until(lambda: len(lab.runs(low)) == 2)
    release.touch()
    assert lab.wait(low).state == lab.wait(same).state == "COMPLETED"
    assert lab.trials(low)[0].restarts == 0


# Says how many of its kind ran at the same time.
COUNTED = """
import os, pathlib, time
folder = pathlib.Path({folder!r})
mine = folder / os.environ["DET_TRIAL_ID"]
mine.touch()
time.sleep(0.4)
print("together", len(list(folder.iterdir())))
mine.unlink()
"""


@pytest.mark.parametrize(
    ("resources", "most"),
    [({"max_slots": 1}, 1), ({"slots_per_trial": 1}, 2), ({"trials_per_slot": 2}, 4)],
)
def test_slots_and_their_limits_decide_how_many_run_at_once(
    lab: Lab, tmp_path: Path, resources: dict[str, int], most: int
) -> None:
    folder = tmp_path / "now"
    folder.mkdir()
    search = {"name": "random", "metric": "loss", "max_trials": 6, "max_concurrent_trials": 6}
    script = COUNTED.format(folder=str(folder))
    ended = lab.wait(lab.create(script, searcher=search, resources=resources))
    assert ended.state == "COMPLETED"
    assert [trial.state for trial in lab.trials(ended.id)] == ["COMPLETED"] * 6, lab.account()
    logs = [lab.log(run) for run in lab.runs(ended.id)]
    together = [int(log.rpartition("together ")[2]) for log in logs]
    assert max(together) <= most
    assert most == 1 or max(together) > 1


def test_the_best_of_all_trials_decides_what_the_best_checkpoint_is(lab: Lab) -> None:
    script = """
import time
import determined as det
from determined import core
with core.init() as ctx:
    value = det.get_cluster_info().trial.hparams["value"]
    for _ in range(200 if value else 1):
        if ctx.train.get_experiment_best_validation() is not None:
            break
        time.sleep(0.05)
    print("best so far", ctx.train.get_experiment_best_validation())
    ctx.train.report_validation_metrics(1, {"loss": value})
    print("best now", ctx.train.get_experiment_best_validation())
"""
    search = {"name": "grid", "metric": "loss", "max_concurrent_trials": 2}
    values = {"value": {"type": "categorical", "vals": [0.0, 5.0]}}
    ended = lab.wait(lab.create(script, searcher=search, hyperparameters=values))
    assert ended.state == "COMPLETED"
    logs = {t.hparams["value"]: lab.log(lab.service.reader.runs(t.id)[0]) for t in lab.trials(1)}
    assert "best now 0.0" in logs[0.0]
    assert "best so far 0.0" in logs[5.0]
    assert "best now 0.0" in logs[5.0]


def test_invalid_hyperparameters_of_any_rank_end_the_trial_as_such(lab: Lab) -> None:
    script = """
import determined as det
from determined import core
with core.init(distributed=core.DistributedContext.from_torch_distributed()) as ctx:
    if ctx.distributed.rank == 1:
        raise det.InvalidHP("too large")
    ctx.distributed.gather(1)
"""
    ended = lab.wait(
        lab.create(
            script,
            entrypoint="python3 -m determined.launch.torch_distributed python3 script.py",
            resources={"slots_per_trial": 2},
            max_restarts=3,
        )
    )
    (trial,) = lab.trials(ended.id)
    assert (trial.state, trial.reason) == ("COMPLETED", "invalid hyperparameters")
    assert len(lab.runs(ended.id)) == 1
