"""Two made tasks that share a network: in each context another tool is right for the same features. One decision an episode."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from logforge.schemas.manifest import FeatureSlice, Manifest, Vocabulary
from logforge.shards.arrays import SplitArrays
from logforge.shards.reader import load_shards, write_dataset
from logforge.shards.sides import plain_sides

TOOLS = ("a", "b", "c", "d")
FEATURES = 6
_RIGHT = np.random.default_rng(11).normal(size=(2, len(TOOLS), FEATURES))


def vocabulary(more=()) -> Vocabulary:
    """The tools; with `more`, those behind them, as a later build has it."""
    return Vocabulary.build([*TOOLS, *more], Vocabulary.build(TOOLS) if more else None)


def manifest(words: Vocabulary, **changes) -> Manifest:
    """Blocks: the context, the features, and one column per action, as a mask block has."""
    edges = np.cumsum([0, 2, FEATURES, words.size])
    names = ("context", "features", "mask")
    layout = tuple(
        FeatureSlice(name, int(a), int(b)) for name, a, b in zip(names, edges, edges[1:], strict=False)
    )
    fields = {
        "dataset": "tasks",
        "actions": words.actions,
        "layout": layout,
        "gamma": 0.9,
        "spec_hash": "5bec",
        "config": {"window": 10},
    }
    return Manifest(**{**fields, "observation_size": int(edges[-1]), **changes})


def right_tool(context: int, features: np.ndarray) -> np.ndarray:
    """The place of the right tool among TOOLS for each row."""
    return (features @ _RIGHT[context].T).argmax(axis=1)


def task(context: int, episodes: int, seed: int, words: Vocabulary, sure: float = 1.0) -> SplitArrays:
    """Episodes of one decision, by an agent that is right with this chance; a right one pays 1."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(episodes, FEATURES)).astype(np.float32)
    right = right_tool(context, features)
    chosen = np.where(rng.random(episodes) < sure, right, rng.integers(len(TOOLS), size=episodes))
    masks = np.zeros((2 * episodes, words.size), bool)
    masks[:, [words.id(name) for name in words.actions if name not in ("<invalid>", "clarify")]] = True
    observations = np.zeros((2 * episodes, 2 + FEATURES + words.size), np.float32)
    observations[:, context] = 1
    observations[::2, 2 : 2 + FEATURES] = features
    observations[:, 2 + FEATURES :] = masks
    ends, offsets = np.ones(episodes, bool), np.arange(episodes + 1)
    rewards = (chosen == right).astype(np.float32)
    actions = np.array([words.id(TOOLS[place]) for place in chosen], np.int32)
    propensities = np.full(episodes, np.nan, np.float32)
    return SplitArrays(
        actions=actions,
        rewards=rewards,
        terminals=ends,
        timeouts=~ends,
        returns=rewards,
        propensities=propensities,
        weights=np.ones(episodes, np.float32),
        success=rewards.astype(np.int8),
        groups=np.arange(episodes, dtype=np.int32),
        augmented=np.zeros(episodes, bool),
        episode_offsets=offsets.astype(np.int64),
        observations=observations,
        masks=masks,
        observation_offsets=(2 * offsets).astype(np.int64),
        **plain_sides(actions, propensities),
    )


def write_task(folder: Path, context: int, words: Vocabulary, episodes=600, sure=1.0, **changes) -> Path:
    """The dataset of one context."""
    splits = {
        name: task(context, count, seed, words, sure)
        for seed, (name, count) in enumerate(
            {"train": episodes, "validation": 60, "test": 300}.items(), 10 * context
        )
    }
    write_dataset(folder, splits, manifest(words, **changes))
    return folder


def agreement(bundle, folder: Path) -> float:
    """The share of a dataset's test decisions in which a policy takes the right tool."""
    held = load_shards(folder, "test")
    rows = np.asarray(held.observations)[held.observation_rows]
    context = int(rows[0, 1])
    right = right_tool(context, rows[:, 2 : 2 + FEATURES])
    wanted = np.array([held.manifest.vocabulary.id(TOOLS[place]) for place in right])
    return float((bundle.choose(rows, np.asarray(held.masks)[held.observation_rows]) == wanted).mean())
