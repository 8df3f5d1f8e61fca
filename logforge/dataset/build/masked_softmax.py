"""Multinomial logistic regression over allowed actions: what is not on offer has probability 0 and teaches nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

PENALTIES: Final = (1000.0, 100.0, 30.0, 10.0)
"""Half of one times the squared weights is added to the summed loss; the inverse of scikit-learn's C."""
_STEPS = 200
_TOLERANCE = 1e-4

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class MaskedSoftmax:
    """Scores of actions that are linear in the standardised row; their softmax over the allowed ones is a probability."""

    mean: Floats
    scale: Floats
    weights: Floats
    bias: Floats

    @classmethod
    def fit(cls, rows: NDArray[Any], actions: NDArray[Any], allowed: Mask, penalty: float) -> MaskedSoftmax:
        """By L-BFGS on one thread, so that equal rows give equal weights. `rows` [N, D], `allowed` [N, A] allows every action
        taken."""
        from scipy.optimize import minimize
        from threadpoolctl import threadpool_limits

        mean, scale = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
        scale[scale == 0] = 1.0
        inputs = (rows - mean) / scale
        count, size = allowed.shape[1], rows.shape[1]
        taken = np.arange(len(actions)), actions

        def loss(flat: Floats) -> tuple[float, Floats]:
            weights, bias = flat[:-count].reshape(size, count), flat[-count:]
            chances = softmax(inputs @ weights + bias, allowed)
            value = -np.log(np.maximum(chances[taken], 1e-300)).sum() + penalty / 2 * (weights**2).sum()
            chances[taken] -= 1
            slope = inputs.T @ chances + penalty * weights
            # The mean, not the sum: the optimiser's tolerances mean the same for any number of rows.
            return value / len(rows), np.concatenate([slope.ravel(), chances.sum(axis=0)]) / len(rows)

        with threadpool_limits(1):
            options = {"maxiter": _STEPS, "gtol": _TOLERANCE}
            start = np.zeros((size + 1) * count)
            found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
        return cls(mean, scale, found[:-count].reshape(size, count), found[-count:])

    def scores(self, rows: NDArray[Any]) -> Floats:
        """Scores [N, A] before the mask and the calibration."""
        found: Floats = (rows - self.mean) / self.scale @ self.weights + self.bias
        return found


class Calibration(NamedTuple):
    """What makes probabilities of scores: they are divided by the temperature, and `even` of the chance is spread evenly over
    the allowed actions, as whoever explores does."""

    temperature: float = 1.0
    even: float = 0.0

    @classmethod
    def fit(cls, scores: Floats, actions: NDArray[Any], allowed: Mask) -> Calibration:
        """That of least log loss. Temperature: Guo et al. 2017, On calibration of modern neural networks."""
        from scipy.optimize import minimize

        taken = np.arange(len(actions)), actions

        def read(point: Floats) -> Calibration:
            return cls(float(np.exp(point[0])), float(1 / (1 + np.exp(-point[1]))))

        def loss(point: Floats) -> float:
            chances = read(point).chances(scores, allowed)[taken]
            return float(-np.log(np.maximum(chances, 1e-300)).mean())

        bounds = [(-4.0, 4.0), (-9.0, 9.0)]
        tried = [
            minimize(loss, start, method="Nelder-Mead", bounds=bounds)
            for start in ([0.0, -4.0], [-1.0, -1.0])
        ]
        return read(min(tried, key=lambda found: float(found.fun)).x)

    def chances(self, scores: Floats, allowed: Mask) -> Floats:
        """Probabilities [N, A] over the allowed actions of each row."""
        sharp = softmax(scores / self.temperature, allowed)
        found: Floats = (1 - self.even) * sharp + self.even * allowed / allowed.sum(axis=1, keepdims=True)
        return found


def softmax(scores: Floats, allowed: Mask) -> Floats:
    """The softmax over the allowed actions of each row."""
    shown = np.where(allowed, scores, -np.inf)
    powers: Floats = np.exp(shown - shown.max(axis=1, keepdims=True))
    found: Floats = powers / powers.sum(axis=1, keepdims=True)
    return found
