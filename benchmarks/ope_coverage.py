"""Off-policy estimates against the truth: how often 95 % intervals hold the exact value, how wide they are, what is refused.

python -m benchmarks.ope_coverage                 # writes docs/benchmarks/ope.md
python -m benchmarks.ope_coverage --datasets 100 --fits 0 --out /tmp/page.md

Each dataset is a log of its own; values are exact (logforge/envs/solving.py), propensities those of the simulator.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.measure import write_page
from logforge.core import intervals
from logforge.core.intervals import Estimate, Span
from logforge.envs.behaviour import part
from logforge.envs.catalogue import make
from logforge.envs.episodes import draws
from logforge.envs.learnt import feature_arrays
from logforge.envs.rollout import roll, seeing
from logforge.envs.solving import solve
from logforge.learning.ope import fqe as ope
from logforge.learning.ope.importance_sampling import ROBUST, importance
from logforge.shards.arrays import SplitArrays

SPAN = Span(-1.0, 1.0)
FIRST_SEED = 50_000


class Setting(NamedTuple):
    """Who made the log of a world, which policy is judged, and of how many episodes."""

    world: str
    log: str
    policy: str
    episodes: int


PAIRS = (
    ("it-ops", "rule-10", "rule"),
    ("it-ops", "rule-40", "rule-10"),
    ("it-ops", "random", "rule-40"),
    ("support-escalation", "rule-10", "rule"),
    ("support-escalation", "random", "rule"),
)
SIZES = (50, 200, 600)
FITTED = (("it-ops", "rule-10", "rule"), ("support-escalation", "rule-10", "rule"))
FITTED_SIZES = (50, 200)


@cache
def truth(world: str, policy: str) -> float:
    """The exact value: the expected reward of an episode."""
    return solve(make(world)).value(part(policy))


def dataset(setting: Setting, seed: int) -> tuple[SplitArrays, np.ndarray]:
    """A log, and the policy's chances at its observations."""
    place = make(setting.world)
    run = roll(place, seeing(part(setting.log)), draws(setting.episodes, seed))
    held = feature_arrays(run, 1.0)
    shown = np.arange(run.states.shape[1]) < run.lengths[:, None] + 1
    chances = np.zeros(held.masks.shape)
    chances[:, :-1] = part(setting.policy)(place, run.states[shown])
    return held, chances


def weighed(setting: Setting, seed: int) -> dict[str, Estimate]:
    """What the estimators without a model say of one log."""
    held, chances = dataset(setting, seed)
    found = importance(held, [chances], None, gamma=1.0, span=SPAN, seed=seed)
    return {name: one.estimate for name, one in found.estimates.items() if name not in ROBUST}


def fitted(setting: Setting, seed: int) -> dict[str, Estimate]:
    """FQE of one log, and what corrects it."""
    held, chances = dataset(setting, seed)
    fit = ope.fitted_q(held, chances.argmax(axis=1), gamma=1.0, span=SPAN, seed=seed)
    q = fit.out_of_bag.q(held)
    found = importance(held, [chances], q, gamma=1.0, span=SPAN, seed=seed)
    return {
        "fqe": intervals.within(fit.estimate(), SPAN),
        **{name: found.estimates[name].estimate for name in ROBUST},
    }


class Cell(NamedTuple):
    """One estimator in one setting: the share of datasets that it answered on, and of those how often the interval held the truth, its
    mean width, the mean error and the root mean squared one."""

    answered: float
    held: float
    width: float
    bias: float
    error: float

    @classmethod
    def of(cls, found: list[Estimate], value: float) -> Cell:
        """From the answers and the truth."""
        known = [one for one in found if one.value is not None]
        if not known:
            return cls(0.0, *[float("nan")] * 4)
        values, low, high = (np.array([one[k] for one in known]) for k in range(3))
        inside = float(((low <= value) & (value <= high)).mean())
        error = values - value
        rms = float(np.sqrt((error**2).mean()))
        return cls(len(known) / len(found), inside, float((high - low).mean()), float(error.mean()), rms)


def measured(how, setting: Setting, datasets: int, pool) -> dict[str, Cell]:
    """All estimators of one kind over some logs."""
    seeds = range(FIRST_SEED, FIRST_SEED + datasets)
    answers = list(pool.map(how, [setting] * datasets, seeds, chunksize=4))
    value = truth(setting.world, setting.policy)
    return {name: Cell.of([one[name] for one in answers], value) for name in answers[0]}


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=200)
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/ope.md"))
    given = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        plan = [(weighed, (*pair, size), given.datasets) for pair in PAIRS for size in SIZES]
        plan += [(fitted, (*pair, size), given.fits) for pair in FITTED for size in FITTED_SIZES]
        for how, setting, datasets in plan:
            if datasets:
                one = Setting(*setting)
                rows.append((one, datasets, measured(how, one, datasets, pool)))
                write_page(given.out, _page(rows))  # each time: the fits take hours


def _page(rows: list):
    yield "# Off-policy estimates, measured"
    yield ""
    yield (
        "`python -m benchmarks.ope_coverage`: the simulators' logs with their own propensities, the exact value of the policy that is judged (±1 at the "
        "end, γ 1), one dataset a seed. *answered*: the share of datasets on which an estimate was given; *held*: of those, how often the "
        f"95 % interval held the exact value; *width*: its mean; *bias* and *error* (root mean squared) of the value.{_of_fits(rows)} What "
        "the estimators are: [evaluation.md](../evaluation.md)."
    )
    pairs = dict.fromkeys((one.world, one.log, one.policy) for one, _, _ in rows)
    for world, log, policy in pairs:
        yield from (
            "",
            f"## {world}: `{policy}` judged on logs of `{log}` (exact value {truth(world, policy):.3f})",
            "",
        )
        yield "| episodes | estimator | datasets | answered | held | width | bias | error |"
        yield "|---|---|---|---|---|---|---|---|"
        for one, datasets, cells in rows:
            if (one.world, one.log, one.policy) == (world, log, policy):
                for name, cell in cells.items():
                    yield f"| {one.episodes} | {name} | {datasets} | {cell.answered:.0%} | {_told(cell)} |"
    yield from ("", _summary(rows))


def _of_fits(rows: list) -> str:
    if not any("fqe" in cells for _, _, cells in rows):
        return ""
    return " FQE, `dr` and `wdr` need a fit of 20 networks for each dataset, so they are measured on fewer."


def _told(cell: Cell) -> str:
    if not cell.answered:
        return "— | — | — | —"
    return f"{cell.held:.1%} | {cell.width:.3f} | {cell.bias:+.3f} | {cell.error:.3f}"


def _summary(rows: list) -> str:
    cells = [
        (one, name, cell) for one, _, found in rows for name, cell in found.items() if cell.answered >= 0.9
    ]
    inside = sum(0.9 <= cell.held <= 0.98 for _, _, cell in cells)
    low, high = min(cell.held for *_, cell in cells), max(cell.held for *_, cell in cells)
    return (
        f"Of the {len(cells)} rows that answered on nine datasets of ten or more, {inside} hold the truth in 90–98 % of the datasets "
        f"(least {low:.1%}, most {high:.1%})."
    )


if __name__ == "__main__":
    main()
