"""Q of a state and an action's text, and of the policy that goes on: one network scores any action by its vector, seen in the log or not.

State, action and policy stand side by side as inputs of an MLP with one output: actions in words as in DRRN (He et al. 2016), policies
as in universal value functions of a policy's embedding (Harb et al. 2020, Faccio et al. 2021). Every action on offer is scored by
the same network, and an action that was not on offer takes no part.

A network that knows several policies has Q of each. It acts by the largest of them (generalised policy improvement, Barreto et al.
2017): what is best in a state, if any of the policies went on behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from logforge.learning.policies import SideInputs

if TYPE_CHECKING:
    import torch

    from logforge.learning.policies import Network


class SideTensors(NamedTuple):
    """The same in training. `places` tells for each policy of the manifest its row of `policies`, whose last is of zeros and stands for
    those that nobody knows; `inputs` is what the trained policy is told, and `names` are its policies'."""

    inputs: SideInputs
    names: tuple[str, ...]
    vectors: torch.Tensor
    policies: torch.Tensor
    places: torch.Tensor

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

        from logforge.learning.policies import forward

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
