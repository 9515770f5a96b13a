"""A Gaussian process over gene features: Matérn 5/2, one length scale per feature group.

Rasmussen & Williams 2006, eq. 2.25 and 2.26 (prediction), 5.8 and 5.9 (evidence and gradient).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ROOT5 = 5.0**0.5
_STEPS = 30
_JITTER = 1e-8
_MEAN_LOG_WEIGHT = -1.0  # prior over log(1 / length scale²)
_SPREAD_LOG_WEIGHT = 1.5
_MEAN_LOG_NOISE = -6.0
_SPREAD_LOG_NOISE = 1.5
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Scales:
    """What the evidence decides.

    Attributes:
        weights: 1 / length scale² of each feature group, shape (groups,).
        noise: Variance of the noise as a share of the signal's.
    """

    weights: Array
    noise: float


def _matern(squared: Array) -> Array:
    scaled = _ROOT5 * np.sqrt(np.maximum(squared, 0.0))
    result: Array = (1.0 + scaled + scaled * scaled / 3.0) * np.exp(-scaled)
    return result


def _matern_slope(squared: Array) -> Array:
    """Derivative of the kernel by the squared distance."""
    scaled = _ROOT5 * np.sqrt(np.maximum(squared, 0.0))
    result: Array = (-5.0 / 6.0) * (1.0 + scaled) * np.exp(-scaled)
    return result


def planes_of(rows: Array, groups: tuple[slice, ...]) -> Array:
    """Return squared distances by feature group, shape (groups, n, n)."""
    planes = np.empty((len(groups), len(rows), len(rows)))
    for plane, group in zip(planes, groups, strict=True):
        block = rows[:, group]
        norms = np.einsum("ij,ij->i", block, block)
        np.maximum(norms[:, None] + norms[None, :] - 2.0 * block @ block.T, 0.0, out=plane)
    return planes


def fit_scales(rows: Array, y: Array, groups: tuple[slice, ...]) -> Scales:
    """Climb the evidence times a log-normal prior, by steps whose size adapts to the sign.

    Args:
        rows: Features, shape (n, width).
        y: Standardised targets, shape (n,).
        groups: Columns that share a weight.
    """
    planes, n = planes_of(rows, groups), len(groups)
    mean = np.append(np.full(n, _MEAN_LOG_WEIGHT), _MEAN_LOG_NOISE)
    spread = np.append(np.full(n, _SPREAD_LOG_WEIGHT), _SPREAD_LOG_NOISE)
    theta, pace, last = mean.copy(), np.full(n + 1, 0.3), np.zeros(n + 1)
    best, best_value = theta, -np.inf
    for _ in range(_STEPS):
        value, slope = _evidence(theta, planes, y)
        value -= 0.5 * float((((theta - mean) / spread) ** 2).sum())
        slope -= (theta - mean) / spread**2
        if value > best_value:
            best, best_value = theta, value
        turned = np.sign(slope * last)
        pace = np.clip(pace * np.where(turned > 0, 1.3, np.where(turned < 0, 0.5, 1.0)), 1e-2, 1.0)
        last = slope
        theta = theta + np.sign(slope) * pace
    best = np.round(best, _DIGITS)
    return Scales(np.exp(best[:-1]), float(np.exp(best[-1])))


def _evidence(theta: Array, planes: Array, y: Array) -> tuple[float, Array]:
    """Return the log evidence, the signal's variance at its optimum, and the gradient by theta."""
    n, groups = len(y), len(planes)
    weights, noise = np.exp(theta[:-1]), float(np.exp(theta[-1]))
    flat = planes.reshape(groups, n * n)
    squared = (weights @ flat).reshape(n, n)
    kernel = _matern(squared)
    kernel[np.diag_indices(n)] += noise + _JITTER
    inverse = np.linalg.inv(kernel)
    solved = inverse @ y
    scale = _signal(y, solved)
    value = -0.5 * n * float(np.log(scale)) - 0.5 * float(np.linalg.slogdet(kernel)[1])
    pull = np.outer(solved, solved) / scale - inverse
    slope = 0.5 * weights * (flat @ (pull * _matern_slope(squared)).ravel())
    return value, np.append(slope, 0.5 * noise * float(np.trace(pull)))


def _signal(y: Array, solved: Array) -> float:
    """Return the signal's variance at its optimum; a trace of it where all targets are equal."""
    return max(float(y @ solved) / len(y), _JITTER)


class Posterior:
    """Beliefs after some evaluations.

    Args:
        rows: Features, shape (n, width).
        y: Standardised targets, shape (n,); lower is better.
        groups: Columns that share a weight.
        scales: From ``fit_scales``.
    """

    def __init__(self, rows: Array, y: Array, groups: tuple[slice, ...], scales: Scales) -> None:
        self._stretch = np.empty(rows.shape[1])
        for weight, group in zip(scales.weights, groups, strict=True):
            self._stretch[group] = weight**0.5
        self._rows = rows * self._stretch
        self._norms = np.einsum("ij,ij->i", self._rows, self._rows)
        kernel = self._cross(self._rows)
        kernel[np.diag_indices(len(y))] += scales.noise + _JITTER
        self._inverse = np.linalg.inv(kernel)
        self._solved = self._inverse @ y
        self._scale = _signal(y, self._solved)

    def _cross(self, stretched: Array) -> Array:
        norms = np.einsum("ij,ij->i", stretched, stretched)
        return _matern(norms[:, None] + self._norms[None, :] - 2.0 * stretched @ self._rows.T)

    def likeness(self, rows: Array) -> Array:
        """Return the prior correlations among features, shape (rows, rows)."""
        stretched = rows * self._stretch
        norms = np.einsum("ij,ij->i", stretched, stretched)
        return _matern(norms[:, None] + norms[None, :] - 2.0 * stretched @ stretched.T)

    def at(self, rows: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation at features, each of shape (rows,)."""
        cross = self._cross(rows * self._stretch)
        mean = cross @ self._solved
        spent = np.einsum("ij,ij->i", cross @ self._inverse, cross)
        variance = np.maximum(1.0 - spent, 1e-9) * self._scale
        return mean, np.sqrt(variance)
