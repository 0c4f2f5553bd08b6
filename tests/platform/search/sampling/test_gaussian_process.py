"""A Gaussian process learns a function, which axes matter, and what it does not know."""

from __future__ import annotations

import numpy as np

from determined.platform.search.sampling.gaussian_process import Array, Axes, GaussianProcess

AXES = Axes(np.array([False, False, True, False]), trend=3)


def drawn(count: int, seed: int) -> Array:
    random = np.random.RandomState(seed)
    points = random.uniform(size=(count, 4))
    points[:, 2] = (random.randint(3, size=count) + 0.5) / 3
    points[:, 3] = random.choice([0.5, 1.0], size=count)
    return points


def truth(points: Array) -> Array:
    """The second axis does not matter, one category is better, and length helps."""
    category = points[:, 2] > 0.6
    return 3 * (points[:, 0] - 0.3) ** 2 - category - 2 * points[:, 3]


def test_it_predicts_what_it_has_not_seen() -> None:
    seen, unseen = drawn(80, 1), drawn(200, 2)
    means, deviations = GaussianProcess(AXES, seen, truth(seen)).predict(unseen)
    errors = np.abs(means - truth(unseen))
    assert errors.mean() < 0.1 * truth(unseen).std()
    assert (errors < 3 * deviations).mean() > 0.9


def test_an_axis_that_does_not_matter_gets_the_least_weight() -> None:
    seen = drawn(80, 1)
    process = GaussianProcess(AXES, seen, truth(seen))
    assert process.weights[1] < 0.3 * min(process.weights[0], process.weights[2])


def test_noise_is_told_from_structure() -> None:
    seen = drawn(80, 1)
    noise = np.random.RandomState(3).normal(size=80)
    clean, noisy = (GaussianProcess(AXES, seen, v) for v in (truth(seen), truth(seen) + noise))
    assert clean.noise < 0.1 * noisy.noise


def test_what_it_believes_leaves_means_and_lowers_doubt() -> None:
    seen, running, elsewhere = drawn(20, 1), drawn(5, 2), drawn(50, 3)
    process = GaussianProcess(AXES, seen, truth(seen))
    before, there = process.predict(elsewhere), process.predict(running)
    process.believe(running)
    after, then = process.predict(elsewhere), process.predict(running)
    np.testing.assert_allclose(after[0], before[0], atol=1e-6)
    np.testing.assert_allclose(then[0], there[0], atol=1e-6)
    assert (after[1] <= before[1] + 1e-9).all()
    assert (then[1] < 0.9 * there[1]).all()


def test_equal_results_and_repeated_points_are_no_problem() -> None:
    points = np.repeat(drawn(2, 1), 8, axis=0)
    means, deviations = GaussianProcess(AXES, points, np.zeros(16)).predict(drawn(5, 2))
    assert np.isfinite(means).all()
    assert np.isfinite(deviations).all()
