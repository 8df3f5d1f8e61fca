"""Batches of transitions, and shuffled passes over a split as torch tensors: in pinned memory, on the device where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from logforge.core import need
from logforge.schemas import UsageError
from logforge.shards.array_pool import Spare

if TYPE_CHECKING:
    import torch


Array = NDArray[Any]


class Batch(NamedTuple):
    """Some transitions, as numpy arrays or as torch tensors. `indices` says which, `intervals` how many steps later the
    next observation was made."""

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    terminals: Any
    masks: Any
    next_masks: Any
    returns: Any
    weights: Any
    proposed_actions: Any
    argument_templates: Any
    argument_numbers: Any
    argument_numbers_known: Any
    intervals: Any
    indices: Any


class Batched(Protocol):
    """Transitions of which some can be taken as a batch."""

    @property
    def size(self) -> int:
        """How many there are."""

    @property
    def batch(self) -> Callable[..., Batch]:
        """Those of some indices, with the options of `SplitArrays.batch`."""


def torch_batches(
    arrays: Batched,
    batch_size: int,
    seed: int,
    device: str | torch.device | None = None,
    *,
    pin: bool | None = None,
    n_step: int = 1,
    gamma: float | None = None,
) -> Iterator[Batch]:
    """Every transition once, in an order set by the seed; the last batch may be smaller.

    `device` is CUDA's where there is one, else the CPU; batches for CUDA come from pinned memory (`pin`) and move while
    the caller goes on. Within a batch transitions stand in the order of their places on the disk. A CPU tensor that
    nobody holds any more is used again, so keep what you need, not a pointer to it. `n_step` and `gamma` are those of
    `SplitArrays.batch`.
    """
    torch = need("torch", "train")
    if batch_size < 1:
        raise UsageError(f"batches of {batch_size}", "give a size from 1 up")
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    pinned = target.type == "cuda" if pin is None else pin
    if pinned and not torch.cuda.is_available():
        raise UsageError("pinned memory needs CUDA, and there is none", "leave `pin` out")
    return _batches(arrays, batch_size, seed, target, _maker(torch, pinned), n_step, gamma)


def _batches(
    arrays: Batched,
    batch_size: int,
    seed: int,
    device: torch.device,
    empty: Callable[[tuple[int, ...], Any], Array],
    n_step: int,
    gamma: float | None,
) -> Iterator[Batch]:
    import torch

    order = np.random.default_rng(seed).permutation(arrays.size)
    for start in range(0, arrays.size, batch_size):
        indices = np.sort(order[start : start + batch_size])
        batch = arrays.batch(indices, n_step=n_step, gamma=gamma, empty=empty)
        yield Batch(*(torch.from_numpy(part).to(device, non_blocking=True) for part in batch))


def _maker(torch: Any, pinned: bool) -> Callable[[tuple[int, ...], Any], Array]:
    """What makes the arrays that are copied into. Torch itself knows when a pinned block has been read and is free."""
    if not pinned:
        return Spare().empty

    def empty(shape: tuple[int, ...], dtype: Any) -> Array:
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        return cast(Array, torch.empty(shape, dtype=kind, pin_memory=True).numpy())

    return empty
