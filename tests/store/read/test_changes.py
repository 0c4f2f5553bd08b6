"""Open pages hear of every change once, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import journal
from determined.store import Changed, CurveKey, Position, Run, send_command
from tests.store.homes import Home, a_home, report


def test_what_nobody_touched_is_not_told(home: Home) -> None:
    home.new_run(home.new_trial())
    watch = home.reader.watch()
    assert not watch.look()
    home.new_trial()
    assert watch.look()
    assert not watch.look()


def _progress(home: Home, run: Run) -> None:
    home.ingest(run, journal.Progress(0.5))


def _report(home: Home, run: Run) -> None:
    home.ingest(run, report(3, loss=1.0))


def _end(home: Home, run: Run) -> None:
    with home.writer.transaction() as tx:
        tx.end_run(run.trial_id, run.run_id, 0)
        tx.update_trial(run.trial_id, state="COMPLETED")


def _restart(home: Home, run: Run) -> None:
    home.new_run(home.trial(run.trial_id))


def _note(home: Home, run: Run) -> None:
    with home.writer.transaction() as tx:
        tx.note("alert", "x", experiment_id=home.experiment_id, trial_id=run.trial_id)


@pytest.mark.parametrize("change", [_progress, _report, _end, _restart, _note])
def test_a_change_of_a_trial_is_told_with_its_experiment(
    home: Home, change: Callable[[Home, Run], None]
) -> None:
    run = home.new_run(home.new_trial())
    watch = home.reader.watch()
    change(home, run)
    assert watch.look() == Changed({home.experiment_id}, {run.trial_id})


def test_a_change_of_a_finished_experiment_is_told_by_its_command(home: Home) -> None:
    with home.writer.transaction() as tx:
        tx.update_experiment(home.experiment_id, state="COMPLETED")
    watch = home.reader.watch()
    uuid = send_command(home.path, "set", {"experiment_id": home.experiment_id})
    watch.look()
    with home.writer.transaction() as tx:
        tx.update_experiment(home.experiment_id, name="new")
        tx.answer(uuid, True, {})
    assert watch.look().experiments == {home.experiment_id}
    assert not watch.look()


def test_a_command_that_waits_is_told_when_it_is_answered(home: Home) -> None:
    with home.writer.transaction() as tx:
        tx.update_experiment(home.experiment_id, state="COMPLETED")
    watch = home.reader.watch()
    first = send_command(home.path, "set", {"experiment_id": 77})
    second = send_command(home.path, "set", {"experiment_id": home.experiment_id})
    with home.writer.transaction() as tx:
        tx.answer(second, True, {})
    assert watch.look().experiments == {home.experiment_id}
    with home.writer.transaction() as tx:
        tx.answer(first, False, {"error": "x"})
    assert 77 in watch.look().experiments


def test_who_was_away_hears_what_it_missed(home: Home) -> None:
    run = home.new_run(home.new_trial())
    before = home.reader.watch().position
    home.ingest(run, report(1, loss=1.0))
    assert home.reader.changed_since(before).trials == {run.trial_id}
    assert not home.reader.changed_since(home.reader.watch().position)
    assert home.reader.changed_since(Position()).trials == {run.trial_id}


_numbers = st.floats(allow_nan=False, width=32)


@settings(max_examples=30)
@given(
    reports=st.lists(st.lists(_numbers, max_size=4), max_size=8),
    cuts=st.lists(st.integers(0, 8), max_size=4),
    limit=st.integers(1, 5),
)
def test_new_points_are_those_reported_each_once(
    tmp_path_factory: pytest.TempPathFactory,
    reports: list[list[float]],
    cuts: list[int],
    limit: int,
) -> None:
    with a_home(tmp_path_factory.mktemp("home")) as home:
        run, other = home.new_run(home.new_trial()), home.new_run(home.new_trial())
        mean = CurveKey(run.trial_id, "training", "loss")
        batch = CurveKey(run.trial_id, "training", "loss", per_batch=True)
        expected: dict[CurveKey, list[tuple[int, float]]] = {mean: [], batch: []}
        found: dict[CurveKey, list[tuple[int, float]]] = {mean: [], batch: []}
        position, steps = 0, 0

        def read() -> int:
            after = position
            while True:
                points, last = home.reader.metrics.new_points([mean, batch], after, limit)
                for key, new in points.items():
                    found[key] += zip(new.steps, new.values, strict=True)
                if last == after:
                    return after
                after = last

        for number, values in enumerate(reports):
            steps += max(1, len(values))
            batches = [{"loss": value} for value in values]
            home.ingest(run, report(steps, batches=batches, loss=float(number)))
            home.ingest(other, report(steps, loss=-1.0))
            expected[mean].append((steps, float(number)))
            first = steps - len(values) + 1
            expected[batch] += [(first + i, value) for i, value in enumerate(values)]
            if number in cuts:
                position = read()
        position = read()
        assert found == expected
