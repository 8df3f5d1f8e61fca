"""Returns to go of 3 million rows in episodes of about 12 steps, on one core, against a plain Python loop."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Result, alternating
from logforge.evaluation.credit.targets import gae
from logforge.rewards.returns import returns_to_go

ROWS = 3_000_000
GAMMA = 0.99


def run() -> list[Result]:
    """Returns, and GAE beside them; the loop is timed on a tenth of the rows."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 21, size=ROWS // 12)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows, part = int(offsets[-1]), len(lengths) // 10
    rewards, values = rng.normal(size=rows), rng.normal(size=rows + len(lengths))
    ended = rng.random(len(lengths)) < 0.9
    few, cuts = rewards[: offsets[part]].tolist(), offsets[: part + 1].tolist()
    assert np.array_equal(returns_to_go(rewards, offsets, GAMMA)[: offsets[part]], np.array(_loop(few, cuts)))
    returns, advantages, plain = alternating(
        lambda: returns_to_go(rewards, offsets, GAMMA),
        lambda: gae(rewards, values, offsets, ended, GAMMA, 0.95),
        lambda: _loop(few, cuts),
    )
    reference = f"plain loop {len(few) / plain:,.0f} rows/s"
    return [
        Result(
            f"{name}, one core",
            f"{rows / taken:,.0f} rows/s ({rows:,} in {taken:.2f} CPU s)",
            reference,
            (rows / taken) / (len(few) / plain),
            target,
            (rows / taken) / (len(few) / plain) >= 1 if target else None,
        )
        for name, taken, target in (("returns to go", returns, "≥ 1"), ("GAE(0.95)", advantages, ""))
    ]


def _loop(rewards: list[float], offsets: list[int]) -> list[float]:
    returns = [0.0] * len(rewards)
    for episode in range(len(offsets) - 1):
        after = 0.0
        for row in range(offsets[episode + 1] - 1, offsets[episode] - 1, -1):
            after = returns[row] = rewards[row] + GAMMA * after
    return returns
