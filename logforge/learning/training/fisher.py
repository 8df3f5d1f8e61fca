"""How sure its data made each weight of a policy: the diagonal of the Fisher information (Kirkpatrick et al. 2017, EWC).

The likelihood is that of what the scores are: logits give a softmax over the allowed actions, Q is taken as the mean of a normal
of unit variance for each allowed action. The expectation over actions is exact; states are rows of the data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logforge.core import Float32Array
from logforge.learning.policies import FISHER, Layer, Layers, PolicyBundle, ScoreKind
from logforge.shards import Shard, SplitArrays

ROWS: Final = 512
"""Of the data's states, evenly spaced; more of them change the mean little."""


def with_fisher(bundle: PolicyBundle, shard: Shard) -> PolicyBundle:
    """The policy with what its data made sure, so that one that goes on from it may be held to that; a network over texts as it is, for
    none goes on from it."""
    if bundle.side is not None:
        return bundle
    found = fisher_of(bundle.layers, shard, shard.manifest.vocabulary.invalid, bundle.card.kind)
    return replace(bundle, extras={**bundle.extras, FISHER: found})


def fisher_of(layers: Layers, arrays: SplitArrays, invalid: int, kind: ScoreKind) -> Layers:
    """The mean over states of the expected squared gradient of the log-likelihood, one number for each weight and bias."""
    rows = arrays.observation_rows
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), ROWS)).astype(int))]
    masks = np.array(arrays.masks[rows], dtype=np.bool_)
    masks[:, invalid] = False
    masks[~masks.any(axis=1)] = True
    return fisher(layers, np.asarray(arrays.observations[rows], np.float32), masks, kind)


def fisher(layers: Layers, observations: Float32Array, masks: NDArray[np.bool_], kind: ScoreKind) -> Layers:
    """The same for observations [rows, features] and masks [rows, actions] that each allow something."""
    seen = [np.asarray(observations, np.float32)]
    for layer in layers[:-1]:
        seen.append(np.maximum(seen[-1] @ layer.weight.T + layer.bias, 0))
    scores = seen[-1] @ layers[-1].weight.T + layers[-1].bias
    chances = _chances(scores, masks)
    squares = [np.zeros((len(seen[0]), len(layer.bias)), np.float64) for layer in layers]
    for action in np.flatnonzero(masks.any(axis=0)):
        slope, weight = _slope(chances, masks, int(action), kind)
        for place in reversed(range(len(layers))):
            squares[place] += weight[:, None] * slope**2
            if place:
                slope = (slope @ layers[place].weight) * (seen[place] > 0)
    count = len(seen[0])
    return tuple(
        Layer(
            (square.T @ np.square(inputs, dtype=np.float64) / count).astype(np.float32),
            square.mean(axis=0).astype(np.float32),
        )
        for square, inputs in zip(squares, seen, strict=True)
    )


def _chances(scores: NDArray[Any], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    masked = np.where(masks, scores, -np.inf).astype(np.float64)
    powers = np.exp(masked - masked.max(axis=1, keepdims=True))
    found: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return found


def _slope(
    chances: NDArray[np.float64], masks: NDArray[np.bool_], action: int, kind: ScoreKind
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The log-likelihood's derivative by the scores where this action is drawn, and how often it is, both by row."""
    drawn = np.zeros(chances.shape)
    drawn[:, action] = 1
    if kind == "q":
        return drawn, masks[:, action].astype(np.float64)
    return drawn - chances, chances[:, action]
