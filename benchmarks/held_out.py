"""A kind of problem that no log holds: what cloning and offline RL lose on it, in simulators where the truth is known.

python -m benchmarks.held_out                        # six fresh logs a world; writes docs/benchmarks/held-out.md
python -m benchmarks.held_out --logs 2 --out /tmp/page.md

Logs of a world without its last kind of problem are learnt from, and all kinds are played. Success is counted apart on the kinds
that the logs hold (`iid`) and on the one they do not (`ood_family`). The same learners on logs of all kinds show what the kind costs
anyone. Within a log all policies meet the same problems and the same luck; its members are trained at once, in one network.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.measure import write_page

if TYPE_CHECKING:
    from logforge.envs.rollout import Policy
    from logforge.envs.world import World
    from logforge.shards.arrays import SplitArrays

LOGS, MEMBERS = 6, 3
EPISODES, UPDATES, PLAYED = 2_000, 2_000, 4_000
GAMMA, ALPHA = 0.99, 0.3
FIRST_SEED = 2_000
"""Seeds below were looked at while simulators and presets were chosen, or are other benchmarks'."""
KINDS = {
    "it-ops": ("hang", "release", "disk", "database", "certificate", "hardware"),
    "support-escalation": ("login", "refund due", "refund not due", "known answer", "no answer", "fraud"),
}
"""The hidden kinds by number. The last one is left out of the logs."""
LEARNT = ("bc", "bc_success", "cql")


class Sizes(NamedTuple):
    """How much of everything."""

    episodes: int = EPISODES
    updates: int = UPDATES
    played: int = PLAYED
    members: int = MEMBERS


class Found(NamedTuple):
    """One log: the share of successes on each hidden kind, by policy; of policies that learnt from a log with the kind, and
    without it. A member's shares are averaged. The rule has learnt nothing and stands in both."""

    world: str
    seed: int
    without: dict[str, list[float]]
    with_it: dict[str, list[float]]
    counts: list[int]


def play(world: str, seed: int, sizes: Sizes) -> Found:
    """Learn from a log without the last kind, and from one with all, and play all kinds."""
    from logforge.envs.catalogue import make

    whole = make(world)
    shares = {}
    for kinds in (len(whole.kinds) - 1, len(whole.kinds)):
        logged = make(world, kinds=kinds)
        found, counts = {}, []
        for name in LEARNT:
            scores = [_played(whole, one, seed, sizes) for one in _learnt(logged, name, seed, sizes)]
            found[name] = np.mean([share for share, _ in scores], axis=0).tolist()
        rule, counts = _played(whole, "rule", seed, sizes)
        shares[kinds] = found | {"rule": rule.tolist()}
    return Found(world, seed, shares[len(whole.kinds) - 1], shares[len(whole.kinds)], counts)


def _learnt(world: World, name: str, seed: int, sizes: Sizes) -> Iterator[Policy]:
    """The members of one learner, trained at once on the structured observation of a log of `mix`."""
    from logforge.core.extras import one_thread
    from logforge.core.intervals import Span
    from logforge.envs.behaviour import behaviour
    from logforge.envs.learnt import feature_arrays
    from logforge.envs.rollout import on_features
    from logforge.envs.simulation import logged
    from logforge.learning.training.experience import Replay
    from logforge.learning.training.learners import LEARNERS, Fit, Rules

    run, _, _ = logged(world, behaviour("mix"), sizes.episodes, seed)
    arrays = feature_arrays(run, GAMMA)
    data: SplitArrays = arrays.only(arrays.success == 1) if name == "bc_success" else arrays
    last = arrays.action_size - 1
    seeds = tuple(seed * 100 + member for member in range(sizes.members))
    with one_thread():
        learner = LEARNERS["cql" if name == "cql" else "bc"]
        shape = (arrays.observation_size, 64, 64, last + 1)
        fit = Fit(learner, Rules(GAMMA, Span(-1, 1), alpha=ALPHA), seeds, shape, 1e-3, 0.005)
        for _, batch in zip(range(sizes.updates), Replay(data, last).batches(seeds, 128), strict=False):
            fit.update(batch)
    for member in range(sizes.members):

        def chances(features: np.ndarray, member: int = member) -> np.ndarray:
            scores = fit.scores(features.astype(np.float32), member)[:, :last]
            return np.eye(last)[scores.argmax(axis=1)]

        yield on_features(chances)


def _played(world: World, policy: Policy | str, seed: int, sizes: Sizes) -> tuple[np.ndarray, list[int]]:
    """The share of successes on each hidden kind, and how many problems of it there were."""
    from logforge.envs.evaluating import evaluate_policy

    found = evaluate_policy(world, policy, sizes.played, 10_000 + seed)
    hidden = world.at["cause" if world.name == "it-ops" else "kind"]
    kinds = found.rollout.states[:, 0, hidden]
    counts = np.bincount(kinds, minlength=len(KINDS[world.name]))
    return np.bincount(kinds, found.successes, len(counts)) / np.maximum(counts, 1), counts.tolist()


def over_logs(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean in percent with its 95 % interval by Student's t: a log is one draw."""
    from scipy.stats import t

    found = 100 * np.asarray(values, dtype=np.float64)
    half = t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    return float(found.mean()), float(found.mean() - half), float(found.mean() + half)


def iid(found: Found, shares: list[float]) -> float:
    """Success on the kinds of the log, as often as they come."""
    return float(np.average(shares[:-1], weights=found.counts[:-1]))


def losses(rows: Sequence[Found], name: str) -> list[float]:
    """What a policy loses on the kind that the log does not hold, log by log."""
    return [iid(one, one.without[name]) - one.without[name][-1] for one in rows]


def costs(rows: Sequence[Found], name: str) -> list[float]:
    """What learning from a log without the kind costs on it, against learning from one with it, log by log."""
    return [one.with_it[name][-1] - one.without[name][-1] for one in rows]


def main() -> None:
    """Play and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=LOGS)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/held-out.md"))
    given = parser.parse_args()
    started, sizes = time.monotonic(), Sizes(members=given.members)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        jobs = [
            pool.submit(play, world, FIRST_SEED + log, sizes) for world in KINDS for log in range(given.logs)
        ]
        found = [job.result() for job in jobs]
    write_page(given.out, page(found, sizes, time.monotonic() - started))


def page(found: Sequence[Found], sizes: Sizes, seconds: float) -> Iterator[str]:
    """The lines of the page."""
    logs = len({one.seed for one in found})
    yield from ("# A held-out task family, measured", "")
    yield (
        f"`python -m benchmarks.held_out`: {logs} fresh logs a world of {sizes.episodes:,} episodes of `mix`, structured features, "
        f"{sizes.members} members a log, {sizes.updates:,} updates, {sizes.played:,} episodes played of each policy, the same for all; "
        f"CQL with α {ALPHA}; {seconds / 60:.0f} minutes. Percent of problems solved, means over logs with 95 % intervals (Student's t "
        "over logs; differences within a log). The logs lack the world's last kind of problem: `iid` are the kinds they hold, "
        "`ood_family` is the one they do not, *in the log* is success on it after learning from logs of all kinds, and *cost of its "
        "lack* the difference of the two. Who solves little in distribution has little to lose: look at the cost beside the loss."
    )
    for world in KINDS:
        yield from part(world, [one for one in found if one.world == world])


def part(world: str, rows: Sequence[Found]) -> Iterator[str]:
    """The lines of one world."""
    yield from ("", f"## {world}, without `{KINDS[world][-1]}`", "", *_table(rows))
    yield from ("", *_verdict(rows), "", *_by_kind(rows))


def _table(rows: Sequence[Found]) -> Iterator[str]:
    yield "| policy | iid | ood_family | loss | ood_family, in the log | cost of its lack |"
    yield "|---|---|---|---|---|---|"
    for name in (*LEARNT, "rule"):
        parts = (
            [iid(one, one.without[name]) for one in rows],
            [one.without[name][-1] for one in rows],
            losses(rows, name),
            [one.with_it[name][-1] for one in rows],
            costs(rows, name),
        )
        yield f"| {name} | {' | '.join(map(_told, parts))} |"


def _verdict(rows: Sequence[Found]) -> Iterator[str]:
    """CQL against each clone, and what is left of the best."""
    yield "| CQL against | it loses less by | the lack costs it less by | it solves of the kind more by |"
    yield "|---|---|---|---|"
    for clone in ("bc", "bc_success"):
        less = (
            [a - b for a, b in zip(of(rows, clone), of(rows, "cql"), strict=True)] for of in (losses, costs)
        )
        more = [one.without["cql"][-1] - one.without[clone][-1] for one in rows]
        yield f"| {clone} | {' | '.join(_told(part, '{:+.1f}') for part in (*less, more))} |"
    yield ""
    left = {name: over_logs([one.without[name][-1] for one in rows]) for name in LEARNT}
    best = max(left, key=lambda name: left[name][0])
    had = over_logs([one.with_it[best][-1] for one in rows])[0]
    yield (
        f"Of the kind that no log holds, the best of what was learnt ({best}) solves {left[best][0]:.0f} percent, after learning from "
        f"logs of it {had:.0f}. {_better(rows, 'bc')} {_better(rows, 'bc_success')}"
    )


def _better(rows: Sequence[Found], clone: str) -> str:
    mean, low, high = over_logs([one.without["cql"][-1] - one.without[clone][-1] for one in rows])
    if low <= 0 <= high:
        return f"CQL cannot be told from {clone} there."
    return f"CQL solves {abs(mean):.0f} points {'more' if mean > 0 else 'less'} of it than {clone}."


def _by_kind(rows: Sequence[Found]) -> Iterator[str]:
    names = KINDS[rows[0].world]
    yield f"| after learning without `{names[-1]}` | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for name in (*LEARNT, "rule"):
        means = 100 * np.mean([one.without[name] for one in rows], axis=0)
        yield f"| {name} | {' | '.join(f'{mean:.0f}' for mean in means)} |"


def _told(values: Sequence[float], shape: str = "{:.1f}") -> str:
    mean, low, high = (shape.format(part) for part in over_logs(values))
    return f"{mean} [{low}, {high}]"


if __name__ == "__main__":
    main()
