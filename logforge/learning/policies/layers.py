"""Multi-layer perceptrons in plain numpy, and how those of a policy lie in one safetensors file.

A part of a policy is a stack of linear layers with relu between them. In the file its tensors are w0, b0, w1, b1, …, behind the
part's own name and a dot; the part that acts has no name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import Float32Array
from logforge.schemas import Mismatch

ACTS: Final = ""
BEHAVIOUR: Final = "behaviour"
FISHER: Final = "fisher"
TEMPLATE: Final = "template"
PARTS: Final = (ACTS, BEHAVIOUR, FISHER, TEMPLATE)
"""What acts; what tells the behaviour; how sure the data made each weight of what acts; the second head, over templates."""

_AGAIN = "train again"


class Layer(NamedTuple):
    """One linear layer: `x @ weight.T + bias`."""

    weight: Float32Array
    bias: Float32Array


Layers = tuple[Layer, ...]
_LETTERS: Final = tuple(name[0] for name in Layer._fields)


def hidden(layers: Layers, inputs: NDArray[Any]) -> Float32Array:
    """What the last layer sees of inputs [rows, features]."""
    found = np.asarray(inputs, dtype=np.float32)
    for layer in layers[:-1]:
        found = np.maximum(_applied(layer, found), 0)
    return found


def outputs(layers: Layers, inputs: NDArray[Any]) -> Float32Array:
    """What the layers make of inputs [rows, features]: [rows, outputs]."""
    return np.asarray(_applied(layers[-1], hidden(layers, inputs)), dtype=np.float32)


def _applied(layer: Layer, rows: Float32Array) -> Float32Array:
    # Matrix products may raise flags of the processor that no number of theirs is to blame for; who needs finite numbers looks.
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        found: Float32Array = rows @ layer.weight.T + layer.bias
    return found


def tensors_of(parts: Mapping[str, Layers]) -> dict[str, Float32Array]:
    """The tensors of a file, by name."""
    return {
        f"{_prefix(part)}{kind}{place}": np.ascontiguousarray(array, dtype=np.float32)
        for part, layers in parts.items()
        for place, layer in enumerate(layers)
        for kind, array in zip(_LETTERS, layer, strict=True)
    }


def parts_of(tensors: Mapping[str, Float32Array]) -> dict[str, Layers]:
    """The parts that a file holds, each of at least one layer; raises Mismatch for tensors of no part."""
    counts = {part: sum(name.startswith(f"{_prefix(part)}w") for name in tensors) for part in PARTS}
    names = {
        f"{_prefix(part)}{kind}{place}"
        for part in PARTS
        for kind in _LETTERS
        for place in range(counts[part])
    }
    if names != set(tensors):
        raise Mismatch("weights", sorted(names), sorted(tensors), _AGAIN)
    return {
        part: tuple(
            Layer(tensors[f"{_prefix(part)}w{k}"], tensors[f"{_prefix(part)}b{k}"]) for k in range(count)
        )
        for part, count in counts.items()
        if count
    }


def check_layers(layers: Sequence[Layer], inputs: int, last: int, where: str) -> None:
    """Refuse (`Mismatch`) layers that do not lead from `inputs` columns to `last`, or that hold NaN or infinity."""
    width = inputs
    for place, layer in enumerate(layers):
        size = last if place == len(layers) - 1 else len(layer.bias)
        if layer.weight.shape != (size, width) or layer.bias.shape != (size,):
            raise Mismatch(f"{where}w{place}", [size, width], list(layer.weight.shape), _AGAIN)
        if not (np.isfinite(layer.weight).all() and np.isfinite(layer.bias).all()):
            remedy = "train again with another seed or a smaller learning rate"
            raise Mismatch(f"{where}w{place}, b{place}", "finite numbers", "NaN or infinity", remedy)
        width = size


def check_parts(
    parts: Mapping[str, Layers],
    sizes: tuple[int, int],
    templates: int,
    where: str,
    acting: tuple[int, int] | None = None,
) -> None:
    """Refuse (`Mismatch`) parts that do not fit an observation's and an action's size, and the number of templates. `acting` are the
    inputs and outputs of what acts, where they are others."""
    check_layers(parts[ACTS], *(acting or sizes), f"{where}: {_prefix(ACTS)}")
    for part in (name for name in (BEHAVIOUR, FISHER) if name in parts):
        check_layers(parts[part], *sizes, f"{where}: {_prefix(part)}")
    if bool(templates) != (TEMPLATE in parts):
        held = "a head over them" if TEMPLATE in parts else "no head"
        raise Mismatch(f"{where}: head over templates", f"{templates} templates", held, _AGAIN)
    if templates:
        seen = parts[ACTS][-1].weight.shape[1]
        check_layers(parts[TEMPLATE], seen, templates, f"{where}: {_prefix(TEMPLATE)}")


def _prefix(part: str) -> str:
    return f"{part}." if part else ""
