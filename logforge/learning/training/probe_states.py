"""Fixed states in which policies are compared: chosen by what they hold, so that the same data always gives the same ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from logforge.core import Float32Array
from logforge.schemas import UsageError
from logforge.shards import Shard

PROBES: Final = 256
_CHUNK = 1 << 14
_DIGEST = 16


@dataclass(frozen=True, eq=False)
class Probes:
    """States of a split in which at least two actions were on offer: observations [P, D], masks [P, A], and the action that was
    logged in each [P]."""

    observations: Float32Array
    masks: NDArray[np.bool_]
    logged: NDArray[np.int32]

    @property
    def size(self) -> int:
        """How many."""
        return len(self.logged)

    @cached_property
    def hash(self) -> str:
        """Of the states and what was on offer in them, in their order."""
        found = hashlib.blake2b(digest_size=_DIGEST)
        found.update(str(self.masks.shape).encode())
        found.update(np.ascontiguousarray(self.observations, "<f4").tobytes() + self.masks.tobytes())
        return found.hexdigest()


def choose_probes(shard: Shard, count: int = PROBES) -> Probes:
    """`count` distinct states of a split, or all where it holds fewer, spread over the actions logged in them and, for each
    action, over what was on offer (which tells formats and tool lists apart).

    Within that the smallest hashes of a state's bytes come first, so the choice depends on no order and no seed. Raises UsageError
    where no state offers two actions.
    """
    if count < 1:
        raise UsageError(f"{count} probes", "give a number from 1 up")
    states, masks, rows, actions = _distinct(shard)
    if not len(rows):
        raise UsageError(
            f"no state of {shard.split!r} in {shard.path} offers two actions", "name another split"
        )
    within = _ranks(states, [actions, masks])
    chosen = np.lexsort((states, _ranks(states, [actions], within)))[:count]
    chosen = chosen[np.argsort(states[chosen])]
    places = np.sort(rows[chosen])
    back = np.searchsorted(places, rows[chosen])
    return Probes(
        np.array(shard.observations[places], np.float32)[back],
        _playable(shard, rows[chosen]),
        actions[chosen].astype(np.int32),
    )


def _playable(shard: Shard, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The masks of these rows, without what no policy can act by."""
    masks = np.array(shard.masks[rows], np.bool_)
    masks[:, shard.manifest.vocabulary.unplayable] = False
    return masks


def _distinct(
    shard: Shard,
) -> tuple[NDArray[np.bytes_], NDArray[np.bytes_], NDArray[np.int64], NDArray[np.int32]]:
    """Of each distinct state that offers a choice: its hash, that of its mask, a row that holds it, and an action logged there (the
    one with the smallest id)."""
    found: dict[bytes, tuple[int, bytes, int]] = {}
    for start in range(0, shard.size, _CHUNK):
        rows = shard.observation_rows[start : start + _CHUNK]
        actions = np.asarray(shard.actions[start : start + _CHUNK])
        masks = _playable(shard, rows)
        observations = np.ascontiguousarray(shard.observations[rows], "<f4")
        for place in np.flatnonzero(np.count_nonzero(masks, axis=1) > 1):
            mask = masks[place].tobytes()
            state = _hash(observations[place].tobytes() + mask)
            seen = int(actions[place]), _hash(mask), int(rows[place])
            found[state] = min(found.get(state, seen), seen)
    order = sorted(found)
    parts = [found[state] for state in order]
    # Behind each digest a byte that is not 0: numpy drops zeros at the end of bytes.
    kind = f"S{_DIGEST + 1}"
    return (
        np.array([state + b"." for state in order], kind),
        np.array([mask + b"." for _, mask, _ in parts], kind),
        np.array([row for _, _, row in parts], np.int64),
        np.array([action for action, _, _ in parts], np.int32),
    )


def _ranks(
    states: NDArray[np.bytes_], groups: list[NDArray[np.generic]], first: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The place of each state within its group, by `first` and then by hash, from 0 on."""
    keys = [np.unique(group, return_inverse=True)[1] for group in groups]
    order = np.lexsort((states, *([] if first is None else [first]), *keys))
    starts = np.ones(len(order), np.bool_)
    starts[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    places = np.arange(len(order))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = places - np.maximum.accumulate(np.where(starts, places, 0))
    return ranks


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()
