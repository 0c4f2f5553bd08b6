"""A Gaussian process with a Matern 5/2 kernel and one length scale per axis, on numpy alone.

An axis is a column of numbers from 0 to 1, or of categories, whose distance is 0 or 1. The fit
takes a fixed number of smooth steps and compares nothing on its way: rounding that differs between
machines or numbers of threads stays rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

_STEPS = 30
_RATE = 0.15
_NOISE_PRIOR = (math.log(0.1), 1.0)  # of the noise's share of the variance: mean and deviation
_SCALE_DEVIATION = 0.9
_TREND = 4.0  # how much of the variance a trend along the trend axis may add
_JITTER = 1e-6
_LEAST_SQUARES = 0.01


@dataclass(frozen=True, slots=True)
class Axes:
    """What the columns are: which hold categories, and which one has a trend of its own."""

    categorical: Array  # of booleans
    trend: int

    def gaps(self, one: Array, other: Array) -> Array:
        """Return squared distances per axis, in one matrix per axis."""
        gaps: Array = (one.T[:, :, None] - other.T[:, None, :]) ** 2
        gaps[self.categorical] = gaps[self.categorical] > 0
        return gaps

    def drift(self, one: Array, other: Array) -> Array:
        """Return the covariance of the trend, and of a constant."""
        return 1.0 + _TREND * np.outer(one[:, self.trend] - 1.0, other[:, self.trend] - 1.0)


class GaussianProcess:
    """A posterior over functions, given values at points."""

    def __init__(self, axes: Axes, points: Array, values: Array) -> None:
        self._axes = axes
        self.weights, self.noise = self._fit(points, values)
        self._condition(points, values)
        self._amplitude = _amplitude(values, self._solved)

    def _fit(self, points: Array, values: Array) -> tuple[Array, float]:
        """Return the most plausible weights of the axes and noise, given priors on both.

        A weight is the inverse square of a length scale. The climb is Adam's, on logarithms.
        """
        count, num_axes = points.shape
        drift = self._axes.drift(points, points)
        flat = self._axes.gaps(points, points).reshape(num_axes, -1)
        # The more axes, the farther apart are points: usual length scales grow with their number.
        middle = -2.0 * (math.log(0.5) + math.log(num_axes) / 4)
        prior = np.append(np.full(num_axes, middle), _NOISE_PRIOR[0])
        spread = np.append(np.full(num_axes, 2 * _SCALE_DEVIATION), _NOISE_PRIOR[1])
        at, mean, square = prior.copy(), np.zeros_like(prior), np.zeros_like(prior)
        for step in range(1, _STEPS + 1):
            weights, noise = np.exp(at[:-1]), math.exp(at[-1])
            kernel, slope = _matern((weights @ flat).reshape(count, count))
            whole = kernel + drift
            whole[np.diag_indices(count)] += noise + _JITTER
            inverse = np.linalg.inv(whole)
            solved = inverse @ values
            amplitude = _amplitude(values, solved)
            pull = np.outer(solved, solved) / amplitude - inverse
            gradient = np.append(
                0.5 * weights * (flat @ (pull * slope).ravel()), 0.5 * noise * np.trace(pull)
            )
            gradient -= (at - prior) / spread**2
            mean = 0.8 * mean + 0.2 * gradient
            square = 0.95 * square + 0.05 * gradient**2
            size = np.sqrt(square / (1 - 0.95**step)) + 1e-3
            rate = _RATE * min(1.0, 2 * (1 - step / (_STEPS + 1)))
            at = at + rate * (mean / (1 - 0.8**step)) / size
        return np.exp(at[:-1]), math.exp(at[-1])

    def _condition(self, points: Array, values: Array) -> None:
        self._points, self._values = points, values
        whole = self._covariance(points, points)
        whole[np.diag_indices(len(values))] += self.noise + _JITTER
        self._inverse = np.linalg.inv(whole)
        self._solved = self._inverse @ values

    def _covariance(self, one: Array, other: Array) -> Array:
        gaps = self._axes.gaps(one, other)
        weighted = (self.weights @ gaps.reshape(len(gaps), -1)).reshape(len(one), len(other))
        return _matern(weighted)[0] + self._axes.drift(one, other)

    def believe(self, points: Array) -> None:
        """Take the predictions at these points for results: they are not tried a second time."""
        imagined, _ = self.predict(points)
        self._condition(
            np.concatenate([self._points, points]), np.concatenate([self._values, imagined])
        )

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Return means and standard deviations."""
        between = self._covariance(points, self._points)
        own = 2.0 + _TREND * (points[:, self._axes.trend] - 1.0) ** 2
        left = own - np.einsum("ij,ij->i", between @ self._inverse, between)
        return between @ self._solved, np.sqrt(self._amplitude * np.maximum(left, 1e-9))


def _amplitude(values: Array, solved: Array) -> float:
    """Return the most plausible variance; not 0, even if all values are equal."""
    return (float(values @ solved) + _LEAST_SQUARES) / len(values)


def _matern(squares: Array) -> tuple[Array, Array]:
    """Return the kernel for squared distances, and its derivative by them."""
    root = np.sqrt(5.0 * squares)
    decay = np.exp(-root)
    return (1.0 + root + root**2 / 3.0) * decay, -(5.0 / 6.0) * (1.0 + root) * decay
