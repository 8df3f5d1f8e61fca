"""Q of a state and an action's text, and of the policy that goes on: one network scores any action by its vector, seen in the log or not.

State, action and policy stand side by side as inputs of an MLP with one output: actions in words as in DRRN (He et al. 2016), policies
as in universal value functions of a policy's embedding (Harb et al. 2020, Faccio et al. 2021). Every action on offer is scored by
the same network, and an action that was not on offer takes no part.

A network that knows several policies has Q of each. It acts by the largest of them (generalised policy improvement, Barreto et al.
2017): what is best in a state, if any of the policies went on behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.learning.policies.layers import FloatArray, Layers, outputs
from logforge.schemas.errors import Mismatch

if TYPE_CHECKING:
    import torch

    from logforge.learning.policies.networks import Network
    from logforge.learning.training.config import TrainConfig
    from logforge.shards.reader import Shard

_TENSORS: Final = ("vectors", "policies")
_NUMBERS: Final = 1 << 23
"""So many numbers of a hidden layer are held at once."""


@dataclass(frozen=True, eq=False)
class SideInputs:
    """What the network sees beside a state: `vectors` [A, K] of the actions and `policies` [P, Z] of the policies; one of no columns
    where it knows of none."""

    vectors: FloatArray
    policies: FloatArray

    @property
    def columns(self) -> int:
        """Of an action and a policy together."""
        return int(self.vectors.shape[1] + self.policies.shape[1])

    @property
    def tensors(self) -> dict[str, FloatArray]:
        """As a policy's file holds them, by name."""
        return {name: np.ascontiguousarray(getattr(self, name), np.float32) for name in _TENSORS}

    @classmethod
    def taken(cls, tensors: dict[str, FloatArray], actions: int, where: str) -> SideInputs | None:
        """Those in a policy's file, taken out of its tensors; None where it has none. Raises Mismatch where they are not of its
        actions."""
        found = {name: tensors.pop(name) for name in _TENSORS if name in tensors}
        if not found:
            return None
        shapes = {name: list(array.shape) for name, array in found.items()}
        if set(found) != set(_TENSORS) or len(found["vectors"]) != actions:
            raise Mismatch(f"{where}: vectors", f"one for each of {actions} actions", shapes, "train again")
        return cls(**found)

    def first_sums(self, layers: Layers) -> FloatArray:
        """What each policy and action add to the first layer [P, A, hidden], whatever the state."""
        weight = layers[0].weight
        acts, goes_on = np.split(weight[:, -self.columns :], [self.vectors.shape[1]], axis=1)
        return np.asarray((self.policies @ goes_on.T)[:, None] + self.vectors @ acts.T, np.float32)

    def scores(self, layers: Layers, observations: FloatArray) -> FloatArray:
        """Q [B, A] of observations [B, D], the largest over policies."""
        found = [self._scores(layers, observations, beside) for beside in self.first_sums(layers)]
        return np.asarray(np.max(found, axis=0), np.float32)

    def scores_under(self, layers: Layers, observations: FloatArray, policy: int) -> FloatArray:
        """Q [B, A] where the policy of this place goes on."""
        return self._scores(layers, observations, self.first_sums(layers)[policy])

    def _scores(self, layers: Layers, observations: FloatArray, beside: FloatArray) -> FloatArray:
        first, size = layers[0], observations.shape[1]
        step = max(1, _NUMBERS // beside.size)
        found = np.empty((len(observations), len(beside)), np.float32)
        for start in range(0, len(observations), step):
            seen = observations[start : start + step] @ first.weight[:, :size].T + first.bias
            both = np.maximum(seen[:, None] + beside, 0).reshape(-1, beside.shape[1])
            found[start : start + step] = outputs(layers[1:], both).reshape(len(seen), -1)
        return found


class SideTensors(NamedTuple):
    """The same in training. `places` tells for each policy of the manifest its row of `policies`, whose last is of zeros and stands for
    those that nobody knows; `inputs` is what the trained policy is told, and `names` are its policies'."""

    inputs: SideInputs
    names: tuple[str, ...]
    vectors: torch.Tensor
    policies: torch.Tensor
    places: torch.Tensor

    @classmethod
    def of(cls, shard: Shard, config: TrainConfig, device: str) -> SideTensors:
        """Those of a dataset. Raises UsageError where it has no vectors, or too few policies to tell apart."""
        import torch

        from logforge.learning.training.policy_vectors import policy_vectors

        known, names = shard.manifest.behaviour_policies, tuple[str, ...]()
        places, policies = np.full(len(known) + 1, -1), np.zeros((1, 0), np.float32)
        if config.policy_conditioned:
            told, policies = policy_vectors(shard)
            places[list(told)], names = np.arange(len(told)), tuple(known[place] for place in told)
        inputs = SideInputs(shard.action_vectors, policies)
        unknown = np.zeros((1, policies.shape[1]), np.float32)
        tensors = (inputs.vectors, np.concatenate([policies, unknown]), places)
        return cls(inputs, names, *(torch.from_numpy(item).to(device) for item in tensors))

    @property
    def conditioned(self) -> bool:
        """Whether the network tells policies apart."""
        return bool(self.policies.shape[1])

    def scores(self, network: Network, observations: torch.Tensor, policies: torch.Tensor) -> torch.Tensor:
        """[members, rows, actions] of observations [members, rows, D] and the policies [members, rows] that decided there, by their
        places in the manifest; −1 is unknown."""
        return self._scores(network, observations, self.policies[self.places[policies]])

    def best(self, network: Network, observations: torch.Tensor) -> torch.Tensor:
        """The same, the largest over policies, of observations [rows, D] that all members share."""
        import torch

        members, rows = len(network[0]), len(observations)
        given = observations.expand(members, *observations.shape)
        found = [
            self._scores(network, given, vector.expand(members, rows, -1))
            for vector in self.policies[: len(self.inputs.policies)]
        ]
        return torch.stack(found).amax(dim=0)

    def _scores(self, network: Network, observations: torch.Tensor, policies: torch.Tensor) -> torch.Tensor:
        """The first layer is applied to states, actions and policies apart, and the sum is that of all side by side."""
        import torch

        from logforge.learning.policies.networks import forward

        weight, bias, size = network[0], network[1], observations.shape[2]
        of_state, of_action, of_policy = weight.split((size, *self._columns), dim=1)
        seen = torch.baddbmm(bias, observations, of_state) + policies @ of_policy
        both = torch.relu(seen[:, :, None] + (self.vectors @ of_action)[:, None])
        members, rows, actions, hidden = both.shape
        found = forward(network[2:], both.reshape(members, rows * actions, hidden))
        return found.reshape(members, rows, actions)

    @property
    def _columns(self) -> tuple[int, int]:
        return self.vectors.shape[1], self.policies.shape[1]


def check_texts(config: TrainConfig, shard: Shard) -> None:
    """Refuse, before anything is trained, a dataset without vectors of its actions, or too few policies (UsageError)."""
    from logforge.learning.training.policy_vectors import deciders

    if config.algo == "text_q":
        check_vectors(shard.action_vectors, shard.action_vectors.shape[1])
    if config.policy_conditioned:
        deciders(shard)


def check_vectors(vectors: NDArray[Any], columns: int) -> FloatArray:
    """Vectors [actions, columns] of actions as floats. Raises Mismatch for others."""
    found = np.asarray(vectors, np.float32)
    if found.ndim != 2 or found.shape[1] != columns or not np.isfinite(found).all():
        what = list(found.shape) if found.shape[1:] != (columns,) else "NaN or infinity"
        remedy = "encode the actions' texts with the policy's own StateServer"
        raise Mismatch("vectors of actions", f"[actions, {columns}] finite numbers", what, remedy)
    return found
