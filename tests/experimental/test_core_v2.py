"""Detached mode: scripts that ask for their ids, on real processes and a real supervisor."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from determined.experimental import core_v2
from determined.experimental._exit_status import ExitStatus
from determined.journal import item_names
from tests.support import tracked
from tests.support.lab import Lab
from tests.support.waiting import eventually

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(300)]

_SCRIPT = """
import json, logging, os, sys, time
logging.basicConfig()
from determined.experimental import core_v2

config = json.loads(sys.argv[1])
mode = sys.argv[2]
core_v2.init(config=core_v2.Config(**config))
info = core_v2.info
start = info.trial._steps_completed
print(json.dumps({
    "experiment": info.trial.experiment_id, "trial": info.trial.trial_id,
    "run": info.trial._trial_run_id, "latest": info.latest_checkpoint, "start": start,
    "hparams": info.trial.hparams, "data": info.user_data,
    "best": core_v2.train.get_experiment_best_validation(),
    "last": core_v2.train._get_last_validation(), "metadata": core_v2.train.get_metadata(),
    "url": core_v2.url_reverse_webui_exp_view(),
}), flush=True)
logging.warning("logged")
print("to stderr", file=sys.stderr)
for step in range(start + 1, start + 11):
    core_v2.train.report_training_metrics(step, {"loss": 1.0 / step})
    if mode != "no_checkpoint" and step == start + 5:
        core_v2.train.report_validation_metrics(step, {"loss": 1.0 / step})
        core_v2.train.set_metadata({"step": step})
        with core_v2.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
            (path / "weights").write_text("w")
if mode == "wait":
    print("ready", flush=True)
    time.sleep(600)
elif mode == "raise":
    raise ValueError("bad luck")
elif mode == "exit":
    sys.exit(7)
elif mode == "close":
    core_v2.close()
    print("not logged")
"""

RESUMABLE: dict[str, Any] = {
    "name": "mine",
    "hparams": {"lr": 0.1},
    "data": {"a": 1},
    "labels": ["x"],
    "description": "some words",
    "workspace": "home",
    "project": "garden",
    "searcher": {"name": "single", "metric": "loss"},
    "external_experiment_id": "exp",
    "external_trial_id": "trial",
}


def run(lab: Lab, config: dict[str, Any], mode: str = "go") -> tuple[int, dict[str, Any], str]:
    """Run the script: its status, what it was told, and all of its output."""
    script = tracked.write(lab.folder, _SCRIPT)
    status, output, errors = tracked.run(lab.home.path, script, json.dumps(config), mode)
    told = json.loads(output.splitlines()[0]) if output else {}
    return status, told, output + errors


def steps(lab: Lab, trial_id: int) -> list[int]:
    return [r.steps_completed for r in lab.service.reader.metrics.reports(trial_id, "training")]


def test_a_script_knows_its_ids_and_is_an_experiment_like_any_other(lab: Lab) -> None:
    status, told, _ = run(lab, RESUMABLE, "close")
    assert (status, told["experiment"], told["trial"], told["run"]) == (0, 1, 1, 1)
    assert (told["latest"], told["start"]) == (None, 0)
    assert (told["hparams"], told["data"]) == ({"lr": 0.1}, {"a": 1})
    assert told["url"].endswith("/experiments/1")
    experiment = lab.wait(1)
    assert (experiment.state, experiment.name, experiment.labels) == ("COMPLETED", "mine", ["x"])
    assert (experiment.unmanaged, experiment.external_id) == (True, "exp")
    assert lab.service.projects()[experiment.project_id] == ("home", "garden")
    assert experiment.best_validation == 1 / 5
    assert steps(lab, 1) == list(range(1, 11))
    (checkpoint,) = lab.checkpoints(1)
    assert (lab.home.checkpoints / checkpoint.uuid / "weights").exists()
    (one,) = lab.runs(1)
    log = lab.log(one)
    assert '"experiment": 1' in log
    assert "WARNING:root:logged\n" in log
    assert "to stderr\n" in log
    assert "not logged" not in log
    eventually(lambda: item_names(lab.home.path) == [])


def test_external_ids_resume_whatever_ended_the_last_run(lab: Lab) -> None:
    status, first, _ = run(lab, RESUMABLE, "raise")
    assert (status, first["run"]) == (1, 1)
    assert lab.wait(1).reason == "ValueError: bad luck"
    assert lab.log(lab.runs(1)[0]).count("ValueError: bad luck") == 1
    status, second, _ = run(lab, RESUMABLE, "exit")
    assert (status, second["trial"], second["run"], second["start"]) == (7, 1, 2, 5)
    assert (second["best"], second["last"], second["metadata"]) == (0.2, 5, {"step": 5})
    assert second["latest"] == lab.checkpoints(1)[0].uuid
    assert lab.wait(1).reason == "left with status 7"
    process = tracked.start(
        lab.home.path, lab.folder / "scripts" / "train.py", json.dumps(RESUMABLE), "wait"
    )
    _wait_for(process, "ready")
    refused, _, output = run(lab, RESUMABLE)
    assert refused == 1
    assert "trial 1 (external_trial_id 'trial') is running: another process on" in output
    process.send_signal(signal.SIGKILL)
    process.communicate()
    status, last, _ = run(lab, RESUMABLE, "go")
    assert (status, last["run"], last["start"]) == (0, 4, 15)
    assert lab.wait(1).state == "COMPLETED"
    assert steps(lab, 1) == list(range(1, 26))
    assert len(lab.trials(1)) == 1
    assert "killed" in lab.runs(1)[2].reason


def test_an_experiment_can_have_many_trials_and_no_ids_make_new_ones(lab: Lab) -> None:
    shared = {"external_experiment_id": "sweep"}
    assert run(lab, shared)[1]["trial"] == 1
    assert run(lab, {**shared, "external_trial_id": "b"}, "raise")[1]["trial"] == 2
    assert (lab.wait(1).state, lab.experiment(1).num_trials) == ("ERROR", 2)
    told = run(lab, {})[1]
    assert (told["experiment"], told["trial"]) == (2, 3)
    assert lab.wait(2).name.startswith("unmanaged-")
    assert run(lab, {**shared, "external_trial_id": "b"})[1]["run"] == 2
    assert lab.wait(1).state == "COMPLETED"


def test_without_checkpoints_older_reports_stay_until_they_are_repeated(lab: Lab) -> None:
    for expected_run in (1, 2):
        told = run(lab, RESUMABLE, "no_checkpoint")[1]
        assert (told["run"], told["start"], told["latest"]) == (expected_run, 0, None)
    lab.wait(1)
    assert steps(lab, 1) == list(range(1, 11))
    hidden = lab.service.reader.metrics.reports(1, "training", archived=True)
    assert len(list(hidden)) == 20


def test_bad_values_name_themselves_and_leave_nothing_behind(lab: Lab) -> None:
    status, _, output = run(lab, {"searcher": {"name": "nonsense"}})
    assert status == 1
    assert "searcher" in output
    assert item_names(lab.home.path) == []


_RANKS = """
import json, sys
from determined import core
from determined.experimental import core_v2

distributed = core.DistributedContext.from_torch_distributed()
with core_v2.init_context(distributed=distributed) as context:
    print(f"rank {distributed.rank} has trial {context.info.trial.trial_id}")
    context.train.report_training_metrics(1, {"loss": float(distributed.rank)})
    context.distributed.allgather(None)
"""


def test_the_chief_asks_and_all_ranks_are_in_the_log(lab: Lab) -> None:
    script = tracked.write(lab.folder, _RANKS)
    environment = tracked.environment(lab.home.path, OMP_NUM_THREADS="1")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert lab.wait(1).state == "COMPLETED"
    (report,) = lab.service.reader.metrics.reports(1, "training")
    assert report.metrics == {"loss": 0.0}
    log = lab.log(lab.runs(1)[0])
    assert "rank 0 has trial 1\n" in log
    assert "[rank=1] rank 1 has trial 1\n" in log


def test_in_a_managed_trial_the_config_has_no_effect(lab: Lab) -> None:
    experiment = lab.create(
        "from determined.experimental import core_v2\n"
        "config = core_v2.Config(name='ignored', external_experiment_id='x')\n"
        "with core_v2.init_context(config=config) as context:\n"
        "    context.train.report_validation_metrics(1, {'loss': context.info.trial.trial_id})\n"
    )
    assert lab.wait(experiment).state == "COMPLETED"
    assert lab.experiment(experiment).best_validation == 1.0
    assert lab.service.reader.experiments().rows[0].name == "test"


def test_parts_before_init_say_what_to_do() -> None:
    for name in ("train", "checkpoint", "distributed", "preempt", "searcher", "info"):
        with pytest.raises(RuntimeError, match=rf"core_v2.{name}: call core_v2.init\(\) first"):
            getattr(core_v2, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        core_v2.nonsense  # noqa: B018
    core_v2.close()


def test_older_arguments_still_count_and_say_so() -> None:
    with pytest.warns(DeprecationWarning, match="`unmanaged` is deprecated"):
        merged = core_v2._merged(
            core_v2.Config(name="a"),
            unmanaged=core_v2.UnmanagedConfig(name="b", external_trial_id="t"),
        )
    assert merged == core_v2.Config(name="a", external_trial_id="t")


def test_sys_exit_is_remembered_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    before = sys.exit
    status = ExitStatus()
    assert status.error() is None
    with pytest.raises(SystemExit):
        sys.exit(4)
    error = status.error()
    assert isinstance(error, SystemExit)
    assert error.code == 4
    status.close()
    assert sys.exit is before


def _wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    while (said := process.stdout.readline()) != f"{line}\n":
        assert said, "it ended before it was ready"
