"""The rules for metrics: merging, conflicts, roll-back, summaries, best validation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import journal
from determined.store import Report, Summary
from tests.store.homes import Home, a_home, report


def rows(home: Home, trial_id: int, group: str | None = None) -> list[tuple[str, int, int]]:
    return [
        (r.group, r.steps_completed, r.run_id) for r in home.reader.metrics.reports(trial_id, group)
    ]


def test_reports_come_back_as_made(home: Home) -> None:
    trial = home.new_trial()
    batches = [{"loss": 1.0, "n": 3}, {"loss": math.inf}]
    home.ingest(home.new_run(trial), report(2, batches=batches, loss=0.5, note="ok", nothing=None))
    (read,) = home.reader.metrics.reports(trial.id, "training")
    assert read == Report(
        read.id, trial.id, 1, "training", 2, 1002.0,
        {"loss": 0.5, "note": "ok", "nothing": None}, batches, False,
    )  # fmt: skip


@pytest.mark.parametrize("group", ["training", None])
def test_who_has_read_half_of_the_reports_sees_what_is_new(home: Home, group: str | None) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    count = 2500  # more than one page
    home.ingest(run, *(report(steps, loss=0.5) for steps in range(1, count + 1)))
    reports = home.reader.metrics.reports(trial.id, group)
    assert next(reports).steps_completed == 1
    with home.writer.transaction() as tx:
        tx.update_experiment(home.experiment_id, name="new")
    found = home.reader.experiment(home.experiment_id)
    assert found is not None
    assert found.name == "new"
    assert [r.steps_completed for r in reports] == list(range(2, count + 1))


def test_nan_and_infinities_survive(home: Home) -> None:
    trial = home.new_trial()
    home.ingest(home.new_run(trial), report(1, a=math.nan, b=math.inf, c=-math.inf))
    (read,) = home.reader.metrics.reports(trial.id)
    assert math.isnan(read.metrics["a"])
    assert (read.metrics["b"], read.metrics["c"]) == (math.inf, -math.inf)
    summary = home.reader.metrics.summaries(trial.id)["avg_metrics"]
    assert summary["b"] == Summary("number", math.inf, 1, math.inf, math.inf, math.inf)
    assert summary["a"].type == "number"
    numbers: tuple[Any, ...] = (summary["a"].last, summary["a"].sum, summary["a"].min)
    assert all(map(math.isnan, numbers))


def test_a_second_report_adds_new_names(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    home.ingest(run, report(1, a=1.0), report(1, b=2.0, a=1.0))
    (read,) = home.reader.metrics.reports(trial.id)
    assert read.metrics == {"a": 1.0, "b": 2.0}
    assert home.reader.metrics.summaries(trial.id)["avg_metrics"]["a"].count == 1
    assert home.reader.events(trial_id=trial.id) == []


def test_a_conflict_keeps_the_first_value_and_is_recorded(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    home.ingest(run, report(1, batches=[{"a": 1.0}], a=1.0), report(1, batches=[{"a": 9.0}], a=2.0))
    (read,) = home.reader.metrics.reports(trial.id)
    assert (read.metrics, read.batch_metrics) == ({"a": 1.0}, [{"a": 1.0}])
    first, second = home.reader.events(trial_id=trial.id)
    assert (first.kind, second.kind) == ("conflict", "conflict")
    assert first.details == {
        "group": "training", "steps_completed": 1, "name": "a", "kept": 1.0, "refused": 2.0,
    }  # fmt: skip


def test_the_same_report_twice_is_no_conflict(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    same = report(1, batches=[{"a": math.nan}], a=math.nan, b=[1, math.nan])
    home.ingest(run, same, same)
    assert len(rows(home, trial.id)) == 1
    assert home.reader.events(trial_id=trial.id) == []


@pytest.mark.parametrize(
    ("group", "left"),
    [
        ("training", [("training", 10, 1), ("validation", 10, 1), ("validation", 20, 1),
                      ("mine", 20, 1), ("other", 20, 1), ("training", 20, 2)]),
        ("validation", [("training", 10, 1), ("training", 20, 1), ("validation", 10, 1),
                        ("mine", 20, 1), ("other", 20, 1), ("validation", 20, 2)]),
        ("mine", [("training", 10, 1), ("training", 20, 1), ("validation", 10, 1),
                  ("validation", 20, 1), ("mine", 20, 2)]),
    ],
)  # fmt: skip
def test_a_newer_run_hides_what_older_ones_reported_beyond(
    home: Home, group: str, left: list[tuple[str, int, int]]
) -> None:
    trial = home.new_trial()
    home.ingest(
        home.new_run(trial),
        *(report(s, g, a=1.0) for g in ("training", "validation") for s in (10, 20, 30)),
        *(report(s, g, a=1.0) for g in ("mine", "other") for s in (20, 30)),
    )
    home.ingest(home.new_run(trial, 25), report(20, group, a=2.0))
    assert sorted(rows(home, trial.id)) == sorted(left)
    everything = list(home.reader.metrics.reports(trial.id, archived=True))
    assert len(everything) == 11
    assert sum(r.archived for r in everything) == 11 - len(left)


def test_a_run_that_begins_hides_what_is_beyond(home: Home) -> None:
    trial = home.new_trial()
    home.ingest(home.new_run(trial), *(report(s, a=float(s)) for s in (10, 20, 30)))
    assert home.trial(trial.id).total_batches == 30
    home.new_run(trial, 20)
    assert rows(home, trial.id) == [("training", 10, 1), ("training", 20, 1)]
    assert home.trial(trial.id).total_batches == 20
    summary = home.reader.metrics.summaries(trial.id)["avg_metrics"]["a"]
    assert summary == Summary("number", 20.0, 2, 30.0, 10.0, 20.0)
    assert summary.mean == 15.0


def test_best_validation_is_found_again_after_a_roll_back(home: Home) -> None:
    trial, other = home.new_trial(), home.new_trial()
    home.ingest(home.new_run(other), report(5, "validation", loss=0.7))
    steps = (report(s, "validation", loss=v) for s, v in ((1, 0.9), (2, 0.8), (3, 0.1)))
    home.ingest(home.new_run(trial), *steps)
    experiment = home.reader.experiment(home.experiment_id)
    assert experiment is not None
    assert (experiment.best_validation, experiment.best_trial_id) == (0.1, trial.id)
    run = home.new_run(trial, 2)
    read = home.trial(trial.id)
    assert (read.best_validation, read.best_validation_steps) == (0.8, 2)
    experiment = home.reader.experiment(home.experiment_id)
    assert experiment is not None
    assert (experiment.best_validation, experiment.best_trial_id) == (0.7, other.id)
    (accepted,) = home.ingest(run, report(3, "validation", loss=0.1))
    assert accepted.is_repeat, "the searcher has seen this step"
    assert home.trial(trial.id).best_validation == 0.1


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_nan_is_never_the_best(tmp_path: Path, smaller_is_better: bool) -> None:
    with a_home(tmp_path / "home", smaller_is_better=smaller_is_better) as home:
        trial = home.new_trial()
        run = home.new_run(trial)
        home.ingest(run, report(1, "validation", loss=math.nan), report(2, "validation", loss=0.1))
        home.ingest(run, report(3, "validation", loss=None), report(4, "validation", loss=math.nan))
        read = home.trial(trial.id)
        assert (read.best_validation, read.best_validation_steps) == (0.1, 2)
        assert (read.latest_validation, read.latest_validation_steps) == (None, 4)


def test_a_validation_counts_once_with_the_metric(home: Home) -> None:
    run = home.new_run(home.new_trial())
    accepted = home.ingest(
        run, report(1, "validation", other=1.0), report(1, "validation", loss=1.0)
    )
    assert [h.is_repeat for h in accepted] == [False, False]
    (again,) = home.ingest(run, report(1, "validation", third=1.0))
    assert again.is_repeat


def test_last_stays_for_names_missing_from_the_newest_report(home: Home) -> None:
    trial = home.new_trial()
    home.ingest(home.new_run(trial), report(1, a=1.0, b=2.0), report(2, a=3.0))
    summary = home.reader.metrics.summaries(trial.id)["avg_metrics"]
    assert (summary["a"].last, summary["b"].last) == (3.0, 2.0)


def test_groups_have_the_names_of_the_api(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    home.ingest(run, *(report(1, group, a=1.0) for group in ("training", "validation", "mine")))
    assert home.reader.metrics.summaries(trial.id).keys() == {
        "avg_metrics", "validation_metrics", "mine",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5], "number"),
        ([True, False], "boolean"),
        (["a"], "string"),
        (["2026-11-16T10:00:00Z"], "date"),
        ([{"a": 1}], "object"),
        ([[1, 2]], "array"),
        ([None], "null"),
        ([1.0, "a", 2.0], "string"),
        ([10**30], "string"),
    ],
)
def test_types_of_summaries(home: Home, values: list[Any], kind: str) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    home.ingest(run, *(report(step, a=value) for step, value in enumerate(values)))
    summary = home.reader.metrics.summaries(trial.id)["avg_metrics"]["a"]
    assert (summary.type, summary.last) == (kind, values[-1])
    assert (summary.count is not None) == (kind == "number")


def test_profiler_groups_have_neither_step_nor_summary(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    home.ingest(run, journal.SystemSamples("cpu", {"host": {"cpu_util_simple": 3.0}}, time=5.0))
    home.ingest(run, journal.Metrics("gpu", 7, {"host": {}}))
    assert home.trial(trial.id).total_batches == 0
    assert home.reader.metrics.summaries(trial.id) == {}
    (sample,) = home.reader.metrics.samples(trial.id, "cpu")
    assert (sample.time, sample.samples) == (5.0, {"host": {"cpu_util_simple": 3.0}})


def test_reports_of_an_older_run_come_too_late(home: Home) -> None:
    trial = home.new_trial()
    old = home.new_run(trial)
    home.new_run(trial)
    assert home.ingest(old, report(5, "validation", loss=0.1)) == []
    assert rows(home, trial.id) == []
    assert [event.kind for event in home.reader.events(trial_id=trial.id)] == ["late"]


_steps = st.lists(st.tuples(st.integers(0, 8), st.floats(-9, 9)), max_size=8)


@settings(max_examples=25)
@given(runs=st.lists(st.tuples(st.integers(0, 6), _steps), min_size=1, max_size=4))
def test_totals_are_those_of_the_visible_rows(
    runs: list[tuple[int, list[tuple[int, float]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with a_home(tmp_path_factory.mktemp("store") / "home") as home:
        trial = home.new_trial()
        for start, values in runs:
            run = home.new_run(trial, start)
            home.ingest(run, *(report(step, "validation", loss=value) for step, value in values))
        visible = list(home.reader.metrics.reports(trial.id, "validation"))
        losses = [r.metrics["loss"] for r in visible]
        steps = [r.steps_completed for r in visible]
        assert steps == sorted(set(steps))
        read = home.trial(trial.id)
        assert read.total_batches == max(steps, default=0)
        assert read.best_validation == min(losses, default=None)
        assert read.latest_validation == (losses[-1] if losses else None)
        summary = home.reader.metrics.summaries(trial.id).get("validation_metrics", {}).get("loss")
        if losses:
            assert summary is not None
            assert (summary.count, summary.min, summary.max) == (
                len(losses), min(losses), max(losses),
            )  # fmt: skip
            assert summary.sum == pytest.approx(sum(losses))
        else:
            assert summary is None
        own = {r.steps_completed: r.metrics["loss"] for r in visible if r.run_id == len(runs)}
        assert own == dict(reversed(runs[-1][1])), "the first value of each step is kept"
