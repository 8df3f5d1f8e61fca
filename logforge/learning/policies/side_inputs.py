"""What a policy reads beside a state: vectors of action texts, and who decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from logforge.core import Float32Array
from logforge.learning.policies.layers import Layers, outputs
from logforge.schemas import Mismatch

_TENSORS: Final = ("vectors", "policies")


_NUMBERS: Final = 1 << 23
"""So many numbers of a hidden layer are held at once."""


@dataclass(frozen=True, eq=False)
class SideInputs:
    """What the network sees beside a state: `vectors` [A, K] of the actions and `policies` [P, Z] of the policies; one of no columns
    where it knows of none."""

    vectors: Float32Array
    policies: Float32Array

    @property
    def columns(self) -> int:
        """Of an action and a policy together."""
        return int(self.vectors.shape[1] + self.policies.shape[1])

    @property
    def tensors(self) -> dict[str, Float32Array]:
        """As a policy's file holds them, by name."""
        return {name: np.ascontiguousarray(getattr(self, name), np.float32) for name in _TENSORS}

    @classmethod
    def taken(cls, tensors: dict[str, Float32Array], actions: int, where: str) -> SideInputs | None:
        """Those in a policy's file, taken out of its tensors; None where it has none. Raises Mismatch where they are not of its
        actions."""
        found = {name: tensors.pop(name) for name in _TENSORS if name in tensors}
        if not found:
            return None
        shapes = {name: list(array.shape) for name, array in found.items()}
        if set(found) != set(_TENSORS) or len(found["vectors"]) != actions:
            raise Mismatch(f"{where}: vectors", f"one for each of {actions} actions", shapes, "train again")
        return cls(**found)

    def first_sums(self, layers: Layers) -> Float32Array:
        """What each policy and action add to the first layer [P, A, hidden], whatever the state."""
        weight = layers[0].weight
        acts, goes_on = np.split(weight[:, -self.columns :], [self.vectors.shape[1]], axis=1)
        return np.asarray((self.policies @ goes_on.T)[:, None] + self.vectors @ acts.T, np.float32)

    def scores(self, layers: Layers, observations: Float32Array) -> Float32Array:
        """Q [B, A] of observations [B, D], the largest over policies."""
        found = [self._scores(layers, observations, beside) for beside in self.first_sums(layers)]
        return np.asarray(np.max(found, axis=0), np.float32)

    def scores_under(self, layers: Layers, observations: Float32Array, policy: int) -> Float32Array:
        """Q [B, A] where the policy of this place goes on."""
        return self._scores(layers, observations, self.first_sums(layers)[policy])

    def _scores(self, layers: Layers, observations: Float32Array, beside: Float32Array) -> Float32Array:
        first, size = layers[0], observations.shape[1]
        step = max(1, _NUMBERS // beside.size)
        found = np.empty((len(observations), len(beside)), np.float32)
        for start in range(0, len(observations), step):
            seen = observations[start : start + step] @ first.weight[:, :size].T + first.bias
            both = np.maximum(seen[:, None] + beside, 0).reshape(-1, beside.shape[1])
            found[start : start + step] = outputs(layers[1:], both).reshape(len(seen), -1)
        return found


def check_vectors(vectors: NDArray[Any], columns: int) -> Float32Array:
    """Vectors [actions, columns] of actions as floats. Raises Mismatch for others."""
    found = np.asarray(vectors, np.float32)
    if found.ndim != 2 or found.shape[1] != columns or not np.isfinite(found).all():
        what = list(found.shape) if found.shape[1:] != (columns,) else "NaN or infinity"
        remedy = "encode the actions' texts with the policy's own StateServer"
        raise Mismatch("vectors of actions", f"[actions, {columns}] finite numbers", what, remedy)
    return found
