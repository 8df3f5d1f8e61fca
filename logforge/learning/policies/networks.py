"""Multi-layer perceptrons of several members side by side: each parameter has the member as its first axis.

Members share nothing: a gradient step on the sum of their losses is a step of each on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from logforge.learning.policies.layers import Layer, Layers

if TYPE_CHECKING:
    import torch


Network: TypeAlias = "list[torch.Tensor]"
"""Weight and bias of each layer, for all members at once."""


def make_network(sizes: Sequence[int], generators: Sequence[torch.Generator]) -> Network:
    """Weights [members, inputs, outputs] and biases [members, 1, outputs] by turns, one generator per member, drawn as
    torch's Linear does."""
    import torch

    def drawn(inputs: int, *shape: int) -> torch.Tensor:
        parts = [torch.rand(shape, generator=generator) for generator in generators]
        return (torch.stack(parts) * 2 - 1) * inputs**-0.5

    return [
        part
        for inputs, outputs in pairwise(sizes)
        for part in (drawn(inputs, inputs, outputs), drawn(inputs, 1, outputs))
    ]


def stacked(members: Sequence[Layers], device: str = "cpu") -> Network:
    """The network whose members are these layers in numpy."""
    import torch

    parts = []
    for layers in zip(*members, strict=True):
        parts.append(torch.from_numpy(np.stack([layer.weight.T for layer in layers])).to(device))
        parts.append(torch.from_numpy(np.stack([layer.bias[None] for layer in layers])).to(device))
    return parts


def member_layers(network: Network, member: int) -> Layers:
    """One member of a network in numpy."""
    parts = [part[member].detach().cpu().numpy() for part in network]
    return tuple(
        Layer(weight.T.copy(), bias[0].copy()) for weight, bias in zip(parts[::2], parts[1::2], strict=True)
    )


def linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """One layer of every member, of inputs that all share [rows, inputs], or that each has for itself [members, rows, inputs]."""
    import torch

    if inputs.dim() == 2:
        return torch.einsum("nd,bdh->bnh", inputs, weight) + bias
    return torch.baddbmm(bias, inputs, weight)


def trunk(network: Network, inputs: torch.Tensor) -> torch.Tensor:
    """What the last layer sees: [members, rows, hidden]; of a network of one layer, the inputs."""
    import torch

    for weight, bias in zip(network[:-2:2], network[1:-2:2], strict=True):
        inputs = torch.relu(linear(inputs, weight, bias))
    return inputs


def forward(network: Network, inputs: torch.Tensor) -> torch.Tensor:
    """Scores [members, rows, outputs] of inputs that all members share [rows, features], or that each has for itself
    [members, rows, features]."""
    return linear(trunk(network, inputs), *network[-2:])
