"""How far probabilities can be trusted: expected calibration error and log loss."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BINS: Final = 15


def calibration_error(chances: NDArray[np.float64], actions: NDArray[Any], bins: int = BINS) -> float:
    """Expected calibration error (Guo et al. 2017): rows [N, A] fall into `bins` of equal width by the probability of their
    likeliest action; the mean gap between that probability and how often it was taken, weighted by the bins' sizes."""
    likeliest = chances.argmax(axis=1)
    confidence = chances[np.arange(len(chances)), likeliest]
    right = (likeliest == actions).astype(np.float64)
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(place, right - confidence, bins)
    return float(np.abs(gaps).sum() / max(1, len(chances)))


def log_loss(chances: NDArray[np.float64], actions: NDArray[Any]) -> float:
    """Mean negative logarithm of the probabilities [N, A] of what was taken."""
    taken = np.maximum(chances[np.arange(len(actions)), actions], np.finfo(np.float64).tiny)
    return float(-np.log(taken).mean()) if len(actions) else 0.0
