"""Multi-layer perceptrons of several members side by side: each parameter has the member as its first axis.

Members share nothing: a gradient step on the sum of their losses is a step of each on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Network = list[torch.Tensor]


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


def forward(network: Network, inputs: torch.Tensor) -> torch.Tensor:
    """Scores [members, rows, outputs] of inputs that all members share [rows, features], or that each has for itself
    [members, rows, features]."""
    import torch

    weight, bias = network[:2]
    if inputs.dim() == 2:
        hidden = torch.einsum("nd,bdh->bnh", inputs, weight) + bias
    else:
        hidden = torch.baddbmm(bias, inputs, weight)
    for weight, bias in zip(network[2::2], network[3::2], strict=True):
        hidden = torch.baddbmm(bias, torch.relu(hidden), weight)
    return hidden
