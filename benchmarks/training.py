"""Ten members of CQL at once, in one network with a member axis, against ten runs of d3rlpy's CQL of the same size.

Same data, layers, batch size and number of updates; CPU seconds of the updates alone, one thread.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.measure import Result
from logforge.shards.arrays import SplitArrays
from logforge.shards.sides import plain_sides

EPISODES, LENGTH, COLUMNS, ACTIONS = 2_000, 10, 64, 14
MEMBERS, UPDATES, BATCH = 10, 300, 128
HIDDEN = (64, 64)


def run() -> list[Result]:
    """CPU seconds of both."""
    arrays = made()
    ours, theirs = _members(arrays), sum(_d3rlpy(arrays, seed) for seed in range(MEMBERS))
    updates = MEMBERS * UPDATES
    return [
        Result(
            f"CQL, {MEMBERS} members at once, {COLUMNS} columns, batches of {BATCH}",
            f"{updates / ours:,.0f} updates/s ({updates:,} in {ours:.1f} CPU s)",
            f"d3rlpy {updates / theirs:,.0f} updates/s",
            theirs / ours,
            "≥ 4",
            theirs >= 4 * ours,
        )
    ]


def made() -> SplitArrays:
    """Episodes of one length with random observations: what is learnt costs the same whatever it is."""
    rng = np.random.default_rng(0)
    steps, lasts = EPISODES * LENGTH, np.zeros((EPISODES, LENGTH), bool)
    lasts[:, -1] = True
    masks = np.ones((steps + EPISODES, ACTIONS), bool)
    masks[:, -1] = False
    actions, propensities = (
        rng.integers(0, ACTIONS - 1, steps).astype(np.int32),
        np.full(steps, np.nan, np.float32),
    )
    return SplitArrays(
        **plain_sides(actions, propensities),
        actions=actions,
        rewards=rng.normal(size=steps).astype(np.float32),
        terminals=lasts.ravel(),
        timeouts=np.zeros(steps, bool),
        returns=rng.normal(size=steps).astype(np.float32),
        propensities=propensities,
        weights=np.ones(steps, np.float32),
        success=np.ones(EPISODES, np.int8),
        groups=np.arange(EPISODES, dtype=np.int32),
        augmented=np.zeros(EPISODES, bool),
        episode_offsets=np.arange(EPISODES + 1) * LENGTH,
        observations=rng.normal(size=(steps + EPISODES, COLUMNS)).astype(np.float32),
        masks=masks,
        observation_offsets=np.arange(EPISODES + 1) * (LENGTH + 1),
    )


def _members(arrays: SplitArrays) -> float:
    from logforge.core.extras import one_thread
    from logforge.core.intervals import Span
    from logforge.learning.training.experience import Replay
    from logforge.learning.training.learners import LEARNERS, Fit, Rules

    seeds = tuple(range(MEMBERS))
    with one_thread():
        fit = Fit(
            LEARNERS["cql"], Rules(0.99, Span(-10, 10)), seeds, (COLUMNS, *HIDDEN, ACTIONS), 1e-3, 0.005
        )
        batches = Replay(arrays, ACTIONS - 1).batches(seeds, BATCH)
        fit.update(next(batches))
        start = time.process_time()
        for _ in range(UPDATES):
            fit.update(next(batches))
        return time.process_time() - start


def _d3rlpy(arrays: SplitArrays, seed: int) -> float:
    from logforge.core.extras import import_d3rlpy, one_thread
    from logforge.learning.training.config import TrainConfig
    from logforge.learning.training.d3rlpy_backend import LEARNERS

    d3rlpy = import_d3rlpy()
    buffer = d3rlpy.dataset.MDPDataset(
        arrays.observations[arrays.observation_rows],
        arrays.actions,
        arrays.rewards,
        arrays.terminals.astype(np.float32),
        action_space=d3rlpy.ActionSpace.DISCRETE,
        action_size=ACTIONS,
    )
    with one_thread():
        d3rlpy.seed(seed)
        algo = LEARNERS["cql"].make(d3rlpy, TrainConfig(backend="d3rlpy", hidden=HIDDEN), 0.99)
        algo.build_with_dataset(buffer)
        algo.update(buffer.sample_transition_batch(BATCH))
        start = time.process_time()
        for _ in range(UPDATES):
            algo.update(buffer.sample_transition_batch(BATCH))
        return time.process_time() - start
