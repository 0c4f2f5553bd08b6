"""Curves: buckets tell the truth about the points in them, at every zoom and after roll-backs."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import journal
from determined.store.series.curves import Curve, CurveKey
from determined.store.series.points import Points, merge, pyramid, singles
from tests.store.homes import Home, a_home, report


def batch_report(first: int, values: list[float]) -> journal.Metrics:
    columns = journal.BatchColumns.of([{"loss": value} for value in values])
    last = first + len(values) - 1
    return journal.Metrics("training", last, {}, columns, time=1000.0 + last)


def curve(home: Home, trial_id: int, *, pixels: int = 2000, x: str = "steps",
          low: float | None = None, high: float | None = None) -> Curve:  # fmt: skip
    key = CurveKey(trial_id, "training", "loss", per_batch=True)
    (found,) = home.reader.metrics.curves([key], x, low, high, pixels)
    return found


def a_long_curve(home: Home, count: int) -> tuple[int, np.ndarray]:
    trial = home.new_trial()
    run = home.new_run(trial)
    draw = random.Random(0)
    values = [draw.random() for _ in range(count)]
    values[count // 3] = 1000.0
    for start in range(0, count, 1000):
        home.ingest(run, batch_report(start + 1, values[start : start + 1000]))
    return trial.id, np.array(values)


def test_few_points_are_exact(home: Home) -> None:
    trial_id, values = a_long_curve(home, 1500)
    found = curve(home, trial_id)
    assert found.is_exact
    assert found.num_points == 1500
    assert found.x.tolist() == list(range(1, 1501))
    assert (found.mins == values).all()
    assert (found.lasts == values).all()


@pytest.mark.parametrize("pixels", [10, 100, 1000])
def test_many_points_keep_extremes_count_and_mean(home: Home, pixels: int) -> None:
    trial_id, values = a_long_curve(home, 30_000)
    found = curve(home, trial_id, pixels=pixels)
    assert len(found.x) <= pixels
    assert not found.is_exact
    assert found.counts.sum() == found.num_points == 30_000
    assert found.maxs.max() == 1000.0
    for first, last, low, high, mean in zip(
        found.x, found.x_last, found.mins, found.maxs, found.means, strict=True
    ):
        inside = values[int(first) - 1 : int(last)]
        assert (low, high) == (inside.min(), inside.max())
        assert mean == pytest.approx(inside.mean())


def test_a_zoom_shows_exact_points(home: Home) -> None:
    trial_id, values = a_long_curve(home, 30_000)
    found = curve(home, trial_id, low=9_990, high=10_010)
    assert found.is_exact
    assert found.x.tolist() == list(range(9_990, 10_011))
    assert (found.lasts == values[9_989:10_010]).all()


@pytest.mark.parametrize("width", [400, 3_000, 9_000])
def test_a_zoom_is_as_fine_as_the_pixels(home: Home, width: int) -> None:
    trial_id, _ = a_long_curve(home, 30_000)
    found = curve(home, trial_id, low=10_000, high=10_000 + width, pixels=200)
    assert found.num_points == width + 1
    assert 150 <= len(found.x) <= 200


def test_a_zoom_into_much_is_bounded_exactly(home: Home) -> None:
    trial_id, _ = a_long_curve(home, 50_000)
    found = curve(home, trial_id, low=5_000, high=45_000, pixels=50)
    assert (found.x[0], found.x_last[-1], found.num_points) == (5_000, 45_000, 40_001)


def test_time_and_relative_time(home: Home) -> None:
    trial_id, _ = a_long_curve(home, 6_000)
    found = curve(home, trial_id, x="time", low=2500, high=4500)
    assert (found.x.min(), found.x_last.max(), found.num_points) == (3000.0, 4000.0, 2000)
    started = home.trial(trial_id).started
    assert started is not None
    relative = curve(home, trial_id, x="relative", high=3000.0 - started)
    assert relative.x.max() == pytest.approx(3000.0 - started)


def test_another_metric_can_be_x(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    home.ingest(run, *(report(s, epochs=s / 10, loss=float(s)) for s in range(0, 101, 10)))
    key = CurveKey(trial.id, "training", "loss")
    (found,) = home.reader.metrics.curves([key], "epochs", low=2, high=4)
    assert found.x.tolist() == [2.0, 3.0, 4.0]
    assert found.lasts.tolist() == [20.0, 30.0, 40.0]
    (nothing,) = home.reader.metrics.curves([key], "missing")
    assert len(nothing.x) == 0


def test_an_unknown_curve_is_empty(home: Home) -> None:
    (found,) = home.reader.metrics.curves([CurveKey(7, "training", "loss")])
    assert (len(found.x), found.num_points, found.is_exact) == (0, 0, True)


def test_nan_counts_but_hides_nothing(home: Home) -> None:
    trial = home.new_trial()
    values = [1.0, math.nan, 5.0, math.inf] * 2500 + [math.nan] * 2500
    home.ingest(home.new_run(trial), batch_report(1, values))
    found = curve(home, trial.id, pixels=5)
    assert found.counts.sum() == 12_500
    assert found.nans.sum() == 5_000
    assert (found.mins[0], found.maxs[0]) == (1.0, math.inf)
    assert math.isnan(found.maxs[-1])


@pytest.mark.parametrize("pixels", [20, 100_000])
def test_rolled_back_points_are_gone(home: Home, pixels: int) -> None:
    trial = home.new_trial()
    home.ingest(home.new_run(trial), batch_report(1, [1.0] * 10_000))
    home.ingest(home.new_run(trial, 6_000), batch_report(6_001, [2.0] * 8_000))
    found = curve(home, trial.id, pixels=pixels)
    assert found.num_points == 14_000
    assert (found.x[0], found.x_last[-1]) == (1, 14_000)
    old = found.x_last <= 6_000
    assert (found.maxs[old] == 1.0).all()
    assert (found.mins[found.x > 6_000] == 2.0).all()
    assert found.counts[old].sum() <= 6_000


def test_batches_that_a_new_run_reports_again_stand_once(home: Home) -> None:
    trial = home.new_trial()
    home.ingest(home.new_run(trial), batch_report(1, [1.0] * 100))
    home.ingest(home.new_run(trial, 100), batch_report(51, [2.0] * 100))
    found = curve(home, trial.id)
    assert found.x.tolist() == list(range(1, 151))
    assert found.lasts.tolist() == [1.0] * 50 + [2.0] * 100


def test_single_points_pile_up_to_chunks(home: Home) -> None:
    trial = home.new_trial()
    run = home.new_run(trial)
    for start in range(0, 9000, 90):
        home.ingest(run, *(report(step, loss=float(step)) for step in range(start, start + 90)))
    (found,) = home.reader.metrics.curves([CurveKey(trial.id, "training", "loss")], pixels=10_000)
    assert found.lasts.tolist() == [float(step) for step in range(9000)]


@settings(max_examples=20)
@given(
    runs=st.lists(
        st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    )
)
def test_visible_batches_are_those_of_the_newest_run(
    runs: list[list[tuple[int, int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each run trains from some step on; a batch belongs to the run that trained it last."""
    with a_home(tmp_path_factory.mktemp("store") / "home") as home:
        trial = home.new_trial()
        expected: dict[int, float] = {}
        for number, reports in enumerate(runs, start=1):
            start = min(reports[0][0], max(expected, default=0))
            expected = {step: run for step, run in expected.items() if step <= start}
            run = home.new_run(trial, start)
            position = start
            for _, count in reports:
                home.ingest(run, batch_report(position + 1, [float(number)] * count))
                expected |= dict.fromkeys(range(position + 1, position + count + 1), float(number))
                position += count
        found = curve(home, trial.id)
        assert dict(zip(found.x.tolist(), found.lasts.tolist(), strict=True)) == expected


@given(
    values=st.lists(st.floats(-1e9, 1e9) | st.just(math.nan), min_size=1, max_size=300),
    cuts=st.sets(st.integers(1, 299)),
)
def test_merging_in_steps_equals_merging_at_once(values: list[float], cuts: set[int]) -> None:
    points = Points(np.arange(len(values)), np.arange(len(values)) / 2, np.array(values))
    starts = np.array(sorted({0, *(cut for cut in cuts if cut < len(values))}))
    at_once = merge(singles(points), np.array([0]))
    in_steps = merge(merge(singles(points), starts), np.array([0]))
    for a, b in zip(at_once, in_steps, strict=True):
        assert a == pytest.approx(b, rel=1e-6, abs=1e-3, nan_ok=True)


def test_a_pyramid_has_a_bucket_for_16_256_and_4096_points() -> None:
    points = Points(np.arange(4096), np.arange(4096.0), np.arange(4096.0))
    assert [len(level.counts) for level in pyramid(points).values()] == [256, 16, 1]
