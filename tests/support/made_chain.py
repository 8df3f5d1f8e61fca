"""The chain MDP of the docs: six cells; one action goes forward, three stay; +10 at the far end, −0.1 a step.

Always forward is optimal. An agent that picks evenly goes forward 25 % of the time.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from logforge.schemas.manifest import FeatureSlice, Manifest, Vocabulary
from logforge.shards.arrays import SplitArrays
from logforge.shards.reader import write_dataset
from logforge.shards.sides import plain_sides

VOCABULARY = Vocabulary.build(["wait", "forward", "offline"])
FORWARD, OFFLINE = VOCABULARY.id("forward"), VOCABULARY.id("offline")
IDLE = [VOCABULARY.id(name) for name in ("respond", "clarify", "wait")]
ALLOWED = [*IDLE, FORWARD]
CELLS, GAMMA = 6, 0.99
STEP, GOAL = -0.1, 10.0


def walk(episodes: int, forward: float, seed: int = 0, *, limit: int = 60, start: int = 0) -> SplitArrays:
    """Episodes of an agent that goes forward with this chance and else idles evenly; after `limit` steps the log is cut off.
    They begin in the cell `start`."""
    rng = np.random.default_rng(seed)
    cells, actions, lengths, successes = [], [], [], []
    for _ in range(episodes):
        cell, steps = start, 0
        while cell < CELLS - 1 and steps < limit:
            cells.append(cell)
            ahead = rng.random() < forward
            actions.append(FORWARD if ahead else rng.choice(IDLE))
            cell, steps = (cell + 1 if ahead else cell), steps + 1
        cells.append(cell)
        lengths.append(steps)
        successes.append(cell == CELLS - 1)
    return _arrays(cells, actions, lengths, successes)


EMPTY = SplitArrays.empty(CELLS, VOCABULARY.size)


def _arrays(cells, actions, lengths, successes) -> SplitArrays:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    steps, count = len(actions), len(lengths)
    last = np.zeros(steps, bool)
    last[offsets[1:] - 1] = True
    reached = np.repeat(successes, lengths)
    rewards = np.where(last & reached, STEP + GOAL, STEP).astype(np.float32)
    masks = np.zeros((steps + count, VOCABULARY.size), bool)
    masks[:, ALLOWED] = True
    truly = last & reached
    actions, propensities = np.array(actions, np.int32), np.full(steps, np.nan, np.float32)
    return SplitArrays(
        **plain_sides(actions, propensities),
        actions=actions,
        rewards=rewards,
        terminals=truly,
        timeouts=last & ~truly,
        returns=returns_to_go(rewards, offsets),
        propensities=propensities,
        weights=np.ones(steps, np.float32),
        success=np.array(successes, np.int8),
        groups=np.arange(count, dtype=np.int32),
        augmented=np.zeros(count, bool),
        episode_offsets=offsets,
        observations=np.eye(CELLS, dtype=np.float32)[cells],
        masks=masks,
        observation_offsets=offsets + np.arange(count + 1),
    )


def returns_to_go(rewards, offsets) -> np.ndarray:
    """Plain loops: the test's own arithmetic."""
    returns = np.zeros(len(rewards))
    for start, stop in pairwise(offsets):
        total = 0.0
        for step in range(stop - 1, start - 1, -1):
            total = returns[step] = rewards[step] + GAMMA * total
    return returns.astype(np.float32)


def true_value(forward: float, gamma: float = GAMMA) -> float:
    """The value of the first cell under a policy that goes forward with this chance: the linear equations, solved."""
    stay = 1 - forward
    system, rewards = np.eye(CELLS - 1), np.full(CELLS - 1, STEP)
    rewards[-1] += forward * GOAL
    for cell in range(CELLS - 1):
        system[cell, cell] -= gamma * stay
        if cell + 1 < CELLS - 1:
            system[cell, cell + 1] -= gamma * forward
    return float(np.linalg.solve(system, rewards)[0])


def manifest(**changes) -> Manifest:
    """The manifest of a chain dataset, before it is sealed."""
    fields = {
        "dataset": "chain",
        "actions": VOCABULARY.actions,
        "layout": (FeatureSlice("cell", 0, CELLS, "where the agent is"),),
        "observation_size": CELLS,
        "gamma": GAMMA,
        "spec_hash": "5bec",
        "config": {"window": 10},
    }
    return Manifest(**{**fields, **changes})


def write_chain(
    folder: Path, train: SplitArrays, validation: SplitArrays, test: SplitArrays, **changes
) -> Path:
    """A chain dataset on disk."""
    splits = {"train": train, "validation": validation, "test": test}
    write_dataset(folder, splits, manifest(**changes))
    return folder
