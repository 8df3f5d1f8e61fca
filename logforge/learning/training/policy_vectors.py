"""Vectors of the policies of a log, by which a network may know them: their fingerprints in as few columns as tell them apart.

A fingerprint (fingerprints.py) has a number for each action in each probe state. Of P of them, P − 1 principal coordinates keep all
distances; the first ones keep most.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import Float32Array
from logforge.learning.policies import PolicyBundle, SideInputs, check_vectors
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.fingerprints import CLONES, Fingerprint, behaviour_fingerprint
from logforge.learning.training.learners import Learner
from logforge.learning.training.probe_states import choose_probes
from logforge.learning.training.text_q import SideTensors
from logforge.schemas import UsageError
from logforge.shards import Shard

COLUMNS: Final = 16
QUICK: Final = replace(CLONES, updates=200, members=3, batch_size=64)
"""How each policy is cloned: enough to tell policies apart, and not the time of a training run of its own."""
_NOTHING = 1e-6


class PolicyVectors(NamedTuple):
    """The policies that decided something in a split: their places in the manifest, and their vectors [P, Z]."""

    places: tuple[int, ...]
    vectors: Float32Array


def deciders(shard: Shard) -> tuple[int, ...]:
    """The places of the manifest's policies that decided steps of this split.

    Raises UsageError for fewer than two: the vector would be the same everywhere, and nothing would be learnt of it.
    """
    found = np.unique(np.asarray(shard.behaviour_policies))
    places = tuple(int(place) for place in found if place >= 0)
    if len(places) < 2:
        names = [shard.manifest.behaviour_policies[place] for place in places]
        raise UsageError(
            f"a network conditioned on policies needs two or more, and the logs of {shard.split!r} in {shard.path} "
            f"name {len(places)}{': ' if names else ''}{', '.join(names)}",
            "leave out --policy-conditioned, or add logs of other agents and models",
        )
    return places


def policy_vectors(shard: Shard, clones: TrainConfig = QUICK, columns: int = COLUMNS) -> PolicyVectors:
    """The vectors of a split's policies, from clones of the steps that each decided. Raises UsageError for fewer than two."""
    places, probes = deciders(shard), choose_probes(shard)
    names = (shard.manifest.behaviour_policies[place] for place in places)
    prints = [behaviour_fingerprint(shard, name, probes, clones) for name in names]
    return PolicyVectors(places, coordinates(prints, columns))


def side_of(learner: Learner, shard: Shard, config: TrainConfig, device: str) -> SideTensors | None:
    """What a network over texts sees beside a state, of a dataset; None for a learner without one. Raises UsageError where the
    dataset has no vectors, or too few policies to tell apart."""
    import torch

    if learner.networks[learner.acts] != "text":
        return None
    known, names = shard.manifest.behaviour_policies, tuple[str, ...]()
    places, policies = np.full(len(known) + 1, -1), np.zeros((1, 0), np.float32)
    if config.policy_conditioned:
        told, policies = policy_vectors(shard)
        places[list(told)], names = np.arange(len(told)), tuple(known[place] for place in told)
    inputs = SideInputs(shard.action_vectors, policies)
    unknown = np.zeros((1, policies.shape[1]), np.float32)
    tensors = (inputs.vectors, np.concatenate([policies, unknown]), places)
    return SideTensors(inputs, names, *(torch.from_numpy(item).to(device) for item in tensors))


def check_texts(config: TrainConfig, shard: Shard) -> None:
    """Refuse, before anything is trained, a dataset without vectors of its actions, or too few policies (UsageError)."""
    if config.algo == "text_q":
        check_vectors(shard.action_vectors, shard.action_vectors.shape[1])
    if config.policy_conditioned:
        deciders(shard)


def coordinates(prints: list[Fingerprint], columns: int = COLUMNS) -> Float32Array:
    """Principal coordinates [P, Z] of fingerprints, Z = min(P − 1, columns), scaled so that their mean square is 1; zeros for
    what does not differ (classical scaling: Torgerson 1952, Gower 1966)."""
    centred = np.array([item.vector for item in prints], np.float64)
    centred -= centred.mean(axis=0)
    kept = min(len(prints) - 1, columns)
    values, axes = np.linalg.eigh(centred @ centred.T)
    order = np.argsort(-values)[:kept]
    found = axes[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    found *= _signs(found)
    scale = float(np.sqrt((found**2).mean()))
    return np.asarray(found / scale if scale > _NOTHING else np.zeros_like(found), np.float32)


def _signs(found: NDArray[np.float64]) -> NDArray[np.float64]:
    """An axis may point either way: its largest number is above 0."""
    largest = found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])]
    return np.where(largest < 0, -1.0, 1.0)


class PolicyFit(NamedTuple):
    """How far Q goes with realised returns (Pearson's r over `decisions`): under the vector of the policy that decided, and under
    those of the others, in the mean."""

    decisions: int
    own: float
    others: float


def policy_fit(bundle: PolicyBundle, held: Shard) -> PolicyFit | None:
    """The fit of a network that tells policies apart on a split's complete episodes; None where nothing can be compared.

    `others` gives every decision another policy's vector, in each of the P − 1 ways to shift them all.
    """
    names, side = bundle.card.policies, bundle.side
    whole = np.asarray(held.terminals)[held.episode_offsets[1:] - 1][held.episode_index]
    places = np.array([*(_place(names, name) for name in held.manifest.behaviour_policies), -1])
    owners = places[np.asarray(held.behaviour_policies)]
    rows = np.flatnonzero(whole & (owners >= 0))
    returns = np.asarray(held.returns)[rows]
    if side is None or len(names) < 2 or len(rows) < 2 or np.ptp(returns) == 0:
        return None
    observations = np.asarray(held.observations[held.observation_rows[rows]], np.float32)
    taken = np.asarray(held.actions)[rows]
    under = np.stack(
        [
            side.scores_under(bundle.layers, observations, place)[np.arange(len(rows)), taken]
            for place in range(len(names))
        ]
    )
    fits = [
        _correlation(under[(owners[rows] + shift) % len(names), np.arange(len(rows))], returns)
        for shift in range(len(names))
    ]
    return PolicyFit(len(rows), fits[0], float(np.mean(fits[1:])))


def _place(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else -1


def _correlation(one: Float32Array, other: Float32Array) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) > 0 else 0.0
