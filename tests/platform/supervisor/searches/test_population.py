"""Population-based training on real processes: the same to the bit, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import signal
import time
from functools import partial
from random import Random
from typing import Any

import psutil
import pytest

from determined.platform.queries.lineage import lineage_of
from determined.platform.search.canonical_json import dump
from determined.store import Fork
from tests.support.faults import draw_seed, factor
from tests.support.forked import script
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

SEARCH = {
    "name": "pbt",
    "metric": "loss",
    "population": 4,
    "interval": 6,
    "max_time": 24,
    "quantile": 0.25,
}
SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.5},
    "global_batch_size": 6,
}


def create(lab: Lab, before_batch: str = "pass", **config: Any) -> int:
    usual: dict[str, Any] = {
        "hyperparameters": SPACE,
        "searcher": SEARCH,
        "reproducibility": {"experiment_seed": 11},
        "max_restarts": 5,
    }
    return lab.create(script(before_batch), **{**usual, **config})


def forks(lab: Lab, experiment_id: int) -> list[Fork]:
    found = [lab.service.reader.forks.fork(trial.id) for trial in lab.trials(experiment_id)]
    return [fork for fork in found if fork is not None]


def outcome(lab: Lab, experiment_id: int) -> list[Any]:
    """What each trial was, came to, and reported, without ids; the same in every repetition.

    Weights are those that its last run printed at its end: none if that run was killed.
    """
    trials = sorted(lab.trials(experiment_id), key=lambda trial: trial.id)
    first, found = trials[0].id, []
    for trial in trials:
        fork = lab.service.reader.forks.fork(trial.id)
        origin = None if fork is None else (fork.parent_trial_id - first, fork.at, fork.changed)
        validations = {
            report.steps_completed: report.metrics["loss"]
            for report in lab.service.reader.metrics.reports(trial.id, "validation")
        }
        last = weights(lab, trial.id)[-1:]
        found.append((trial.hparams, trial.seed, origin, trial.state, dump(validations), last))
    return found


def weights(lab: Lab, trial_id: int) -> list[str]:
    """The weights that the runs of a trial printed at their end; killed ones printed none."""
    logs = "".join(lab.log(run) for run in lab.service.reader.runs(trial_id))
    return [line.split()[-1] for line in logs.splitlines() if "weights" in line.split()]


def last_weights(lab: Lab, trial_id: int) -> list[str]:
    """The weights of a trial that trained the last batch, printed at the end of that run."""
    logs = [lab.log(run) for run in lab.service.reader.runs(trial_id)]
    ends = [log for log in logs if "\nbatch 23 " in log]
    return [line.split()[1] for log in ends for line in log.splitlines() if "weights " in line]


def done(lab: Lab, experiment_id: int) -> list[Any]:
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    return outcome(lab, experiment_id)


def test_a_population_repeats_to_the_bit_on_any_number_of_slots(lab: Lab) -> None:
    results = []
    for slots in (1, 2):
        experiment = create(lab, resources={"max_slots": slots})
        results.append(done(lab, experiment))
        found = forks(lab, experiment)
        assert [fork.at for fork in found] == [6, 12, 18]
        assert len(lab.trials(experiment)) == 7
        # Every member stopped where the generation ended, so that nothing was trained twice.
        batches = [
            line.split()
            for run in lab.runs(experiment)
            for line in lab.log(run).splitlines()
            if "dropout" in line
        ]
        assert len(batches) == 4 * 24
        saved = {c.steps_completed for c in lab.checkpoints(experiment)}
        assert {6, 12, 18, 24} <= saved
    assert results[0] == results[1]


def test_kills_of_supervisor_and_trials_change_nothing(lab: Lab) -> None:
    expected = done(lab, create(lab))
    random = Random(draw_seed())
    for _ in range(2 * factor()):
        experiment = create(lab, "time.sleep(0.02)")
        killed = 0
        while lab.experiment(experiment).state not in ("COMPLETED", "ERROR"):
            time.sleep(random.uniform(0.1, 0.8))
            if killed < 12 and random.random() < 0.5:
                lab.kill_supervisor()
            elif killed < 12:
                training = [p for p in lab.processes() if _trains(p)]
                if training:
                    with contextlib.suppress(psutil.Error):
                        random.choice(training).send_signal(signal.SIGKILL)
            killed += 1
            lab.service.wake_if_needed()
        assert done(lab, experiment) == expected


def _has_runs(lab: Lab, experiment_id: int, count: int) -> bool:
    return len(lab.runs(experiment_id)) >= count


def _trains(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "script.py" in " ".join(process.cmdline())
    return False


@pytest.mark.parametrize("moment", ["validated", "saved"])
def test_members_killed_at_the_end_of_an_interval_change_nothing(lab: Lab, moment: str) -> None:
    """Between the validation that the search decides by and the checkpoint, and right after it."""
    whole = create(lab)
    expected = done(lab, whole)
    stop = f"""
        if not hasattr(pytorch, "patched"):
            pytorch.patched = True
            from determined.pytorch._checkpoint.checkpoints import Checkpoints
            kept = Checkpoints.save_unless_current
            def save(self, *args, **kwargs):
                trained = self._run.state.batches_trained
                mark = {str(lab.folder)!r} + f"/killed-{{context_id}}-{{trained}}"
                is_first = trained % 6 == 0 and not os.path.exists(mark)
                if is_first and {moment == "saved"}:
                    kept(self, *args, **kwargs)
                    self.finish()
                if is_first:
                    open(mark, "w").close()
                    time.sleep(0.3)
                    os.kill(os.getpid(), signal.SIGKILL)
                kept(self, *args, **kwargs)
            context_id = self.context.get_trial_id()
            Checkpoints.save_unless_current = save
    """
    experiment = create(lab, stop, max_restarts=20)
    for found, wanted in zip(done(lab, experiment), expected, strict=True):
        assert found[:-1] == wanted[:-1]
    # Some were killed after their last batch, and have no more to do.
    for found, wanted in zip(lab.trials(experiment), lab.trials(whole), strict=True):
        assert last_weights(lab, found.id) in (last_weights(lab, wanted.id), [])
    assert len(list(lab.folder.glob("killed-*"))) >= 12


def test_a_paused_population_goes_on_as_if_it_had_not_been(lab: Lab) -> None:
    expected = done(lab, create(lab))
    experiment = create(lab, "time.sleep(0.05)")
    for count in (2, 5, 9):
        lab.until(partial(_has_runs, lab, experiment, count))
        lab.service.pause(experiment)
        lab.until(lambda: all(run.ended is not None for run in lab.runs(experiment)))
        lab.kill_supervisor()
        lab.service.activate(experiment)
    assert done(lab, experiment) == expected


def test_a_longer_population_is_the_one_that_was_longer_from_the_start(lab: Lab) -> None:
    expected = done(lab, create(lab))
    experiment = create(lab, searcher=SEARCH | {"max_time": 12})
    done(lab, experiment)
    lab.service.continue_experiment(experiment, max_time=24)
    assert done(lab, experiment) == expected


def test_members_that_fail_are_replaced(lab: Lab) -> None:
    fails = """
        if batch_idx == 3 and self.context.get_trial_id() == 2:
            raise RuntimeError("this one is broken")
    """
    experiment = create(lab, fails, max_restarts=0)
    assert lab.wait(experiment).state == "COMPLETED", lab.account()
    trials = lab.trials(experiment)
    assert [trial.state for trial in trials if trial.id == 2] == ["ERROR"]
    assert sum(trial.state == "COMPLETED" for trial in trials) == len(trials) - 1
    assert max(trial.total_batches for trial in trials) == 24
    survivors = [trial for trial in trials if trial.total_batches == 24]
    assert len(survivors) == 4


def test_what_a_fork_cannot_change_is_said_where_it_fails(lab: Lab) -> None:
    space = SPACE | {"hidden": {"type": "int", "minval": 4, "maxval": 32}}
    experiment = create(lab, hyperparameters=space, max_restarts=0)
    lab.until(lambda: any(t.state == "ERROR" for t in lab.trials(experiment)))
    (failed, *_) = [t for t in lab.trials(experiment) if t.state == "ERROR"]
    assert "searcher.inherit" in failed.reason, failed.reason
    lab.until(lambda: lab.experiment(experiment).state in ("COMPLETED", "PAUSED"))
    lab.service.kill(experiment)
    # Inherited, it is the parent's, and nothing fails.
    experiment = create(lab, hyperparameters=space, searcher=SEARCH | {"inherit": ["hidden"]})
    done(lab, experiment)
    trials = {trial.id: trial for trial in lab.trials(experiment)}
    for fork in forks(lab, experiment):
        assert (
            trials[fork.trial_id].hparams["hidden"]
            == trials[fork.parent_trial_id].hparams["hidden"]
        )


def test_lineage_checkpoints_and_deletion(lab: Lab) -> None:
    experiment = create(lab)
    done(lab, experiment)
    lab.until(lambda: not lab.service.reader.has_chores())
    last = forks(lab, experiment)[-1]
    words = lineage_of(lab.service.reader, last.trial_id)
    assert words.lines[-1].startswith(f"fork of trial {last.parent_trial_id} (experiment")
    # Each trial keeps its best and its latest; what forks began with goes once they have their own.
    kept = [c for c in lab.checkpoints(experiment) if c.state == "COMPLETED"]
    assert len(kept) <= 2 * len(lab.trials(experiment))
    for fork in forks(lab, experiment):
        own = [c for c in kept if c.trial_id == fork.trial_id]
        assert own
    lab.service.delete_experiments([experiment])
    lab.until(lambda: lab.service.reader.experiment(experiment) is None)
