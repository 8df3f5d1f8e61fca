"""Behavioural fingerprints: what a policy would do in fixed states, as one vector, and how alike two policies are by it.

A policy without weights to look at is known by its actions. The fingerprint is its chances over the actions in each probe state
(probe_states.py), which stay the same for all policies that are compared; one prompt, or states drawn anew each time, would add noise
of their own. A policy of a log is represented by clones of the steps it decided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from logforge.core import BaseReport, Float32Array, Lines, table
from logforge.learning.policies import PolicyBundle, load_policy
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.probe_states import PROBES, Probes, choose_probes
from logforge.schemas import Mismatch, UnknownName, UsageError
from logforge.shards import Shard, load_shards

CLONES: Final = TrainConfig(algo="bc", updates=1000, members=5, anneal=True)
"""How a policy of a log is cloned. The learning rate falls to 0, so that the last batches hardly show."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """A policy's chances over the actions in the probe states [P, A]: 0 for what was not on offer."""

    policy: str
    probes: str
    actions: tuple[str, ...]
    chances: Float32Array

    @property
    def vector(self) -> Float32Array:
        """The fingerprint itself: float32 [P · A], state by state."""
        return self.chances.reshape(-1)

    @property
    def hash(self) -> str:
        """Of the vector's bytes, the probes and the actions."""
        about = "\n".join((self.probes, *self.actions)).encode()
        data = np.ascontiguousarray(self.vector, "<f4").tobytes()
        return hashlib.blake2b(about + b"\0" + data, digest_size=16).hexdigest()

    def similarity(self, other: Fingerprint) -> float:
        """The cosine of the two vectors, from 0 (never the same action) to 1 (the same chances everywhere). Of two greedy policies it
        is the share of probes in which they take the same action."""
        self._check(other)
        a, b = self.vector.astype(np.float64), other.vector.astype(np.float64)
        return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), 0.0, 1.0))

    def agreement(self, other: Fingerprint) -> float:
        """The share of probes in which both hold the same action for the likeliest."""
        self._check(other)
        return float((self.chances.argmax(axis=1) == other.chances.argmax(axis=1)).mean())

    def _check(self, other: Fingerprint) -> None:
        for what, mine, theirs in (
            ("action vocabulary", self.actions, other.actions),
            ("probe states", self.probes, other.probes),
        ):
            if mine != theirs:
                remedy = "take both fingerprints on the same probes of one dataset"
                raise Mismatch(f"fingerprint of {other.policy}, {what}", mine, theirs, remedy)


@dataclass(frozen=True)
class Likeness:
    """Another policy beside the one in question."""

    policy: str
    fingerprint: str
    cosine: float
    agreement: float


@dataclass(frozen=True)
class FingerprintReport(BaseReport):
    """A policy's fingerprint by its hash, the probes it was taken on, and how alike others are."""

    policy: str
    fingerprint: str
    dataset: str
    split: str
    probes: int
    probes_hash: str
    temperature: float | None
    logged: dict[str, int]
    likeness: tuple[Likeness, ...]

    def lines(self) -> Lines:
        """What it was taken on, and a row for each other policy."""
        logged = ", ".join(f"{name} {count}" for name, count in self.logged.items())
        probes = f"{self.probes:,} probe states of {self.split} in {self.dataset} ({self.probes_hash})"
        yield f"{self.policy}: fingerprint {self.fingerprint}"
        yield f"{probes}; logged there: {logged}"
        if self.likeness:
            rows = [(item.policy, item.cosine, item.agreement, item.fingerprint) for item in self.likeness]
            yield table(("against", "cosine", "same choice", "fingerprint"), rows)


def fingerprint(
    bundle: PolicyBundle, probes: Probes, name: str = "policy", temperature: float | None = None
) -> Fingerprint:
    """What a policy would do in the probe states; `temperature` as `PolicyBundle.probabilities` takes it.

    Raises Mismatch where the probes have other columns or actions than the policy.
    """
    chances = bundle.probabilities(probes.observations, probes.masks, temperature)
    return Fingerprint(name, probes.hash, bundle.card.actions, chances)


def behaviour_fingerprint(
    shard: Shard, policy_id: str, probes: Probes, config: TrainConfig = CLONES
) -> Fingerprint:
    """What one policy of the log would do in the probe states: the mean over its clones.

    Where the policy never came, a clone guesses, each seed in its own way; the mean of several hardly depends on seeds.
    """
    prints = [fingerprint(clone, probes) for clone in behaviour_clones(shard, policy_id, config)]
    chances = np.asarray(np.mean([item.chances for item in prints], axis=0, dtype=np.float64), np.float32)
    return Fingerprint(f"log: {policy_id}", probes.hash, prints[0].actions, chances)


def behaviour_clones(shard: Shard, policy_id: str, config: TrainConfig = CLONES) -> tuple[PolicyBundle, ...]:
    """Behaviour cloning of the steps that one policy of the log decided, once for each seed of `config`. Logs hold the chance of what
    was done and not of what else might have been, so a policy's chances over all actions must be learnt.

    Raises UnknownName for a policy that decided none of the split's steps.
    """
    import torch

    from logforge.core import one_thread
    from logforge.learning.training.experience import Replay
    from logforge.learning.training.fitting import bundle_of, rules_of
    from logforge.learning.training.learners import LEARNERS, Fit

    places, learner = _steps_of(shard, policy_id), LEARNERS["bc"]
    config = replace(config, algo="bc").sized(len(places))
    sizes = (shard.observation_size, *config.hidden, shard.action_size)
    draws = [np.random.default_rng(seed) for seed in config.seeds]
    with one_thread():
        replay = Replay(shard, shard.manifest.vocabulary.invalid)
        rules = rules_of(config, shard)
        fit = Fit(learner, rules, config.seeds, sizes, config.learning_rate, config.target_rate)
        for update in range(config.updates):
            fit.anneal(update / config.updates)
            rows = np.stack([one.choice(places, config.batch_size) for one in draws])
            fit.update(replay.batch(torch.from_numpy(rows)))
        return tuple(bundle_of(fit, learner, "bc", shard, config, member) for member in range(config.members))


def _steps_of(shard: Shard, policy_id: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    known = shard.manifest.behaviour_policies
    if not known:
        raise UsageError(
            f"the logs of {shard.path} do not say who decided", "give a policy's folder with --against"
        )
    deciders = np.asarray(shard.behaviour_policies)
    if policy_id not in known or not (places := np.flatnonzero(deciders == known.index(policy_id))).size:
        here = [name for place, name in enumerate(known) if (deciders == place).any()]
        raise UnknownName(f"policy among the deciders of {shard.split!r}", policy_id, here)
    return places


def compare(
    folder: str | Path,
    dataset: str | Path,
    *,
    against: Sequence[str | Path] = (),
    behaviours: Sequence[str] = (),
    split: str = "train",
    probes: int = PROBES,
    temperature: float | None = None,
    clones: TrainConfig = CLONES,
) -> FingerprintReport:
    """A policy's fingerprint on a dataset's split, and how alike it is to other policies' folders and to policies of the log.

    A policy of the log is cloned from the dataset's train split. Raises Mismatch for a policy that was made for other actions,
    columns or encoder than the dataset's.
    """
    shard = load_shards(dataset, split)
    policies = [(str(path), load_policy(path)) for path in (folder, *against)]
    for _, bundle in policies:
        bundle.check(shard.manifest)
    states = choose_probes(shard, probes)
    prints = [fingerprint(bundle, states, name, temperature) for name, bundle in policies]
    if behaviours:
        train = load_shards(dataset)
        prints += [behaviour_fingerprint(train, name, states, clones) for name in behaviours]
    # A tool may have been renamed since a policy was trained: ids are the dataset's, and so are the names here.
    prints = [replace(item, actions=shard.manifest.actions) for item in prints]
    mine, *others = prints
    actions, counts = np.unique(states.logged, return_counts=True)
    return FingerprintReport(
        policy=str(folder),
        fingerprint=mine.hash,
        dataset=str(dataset),
        split=split,
        probes=states.size,
        probes_hash=states.hash,
        temperature=temperature,
        logged={
            shard.manifest.actions[place]: int(count) for place, count in zip(actions, counts, strict=True)
        },
        likeness=tuple(
            Likeness(other.policy, other.hash, mine.similarity(other), mine.agreement(other))
            for other in others
        ),
    )
