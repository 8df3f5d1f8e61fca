"""Methods of credit against the exact credit of the simulators, and as weights of the policies that learn from a log.

python -m benchmarks.credit_methods                          # five fresh logs a world; writes docs/benchmarks/credit.md
python -m benchmarks.credit_methods --logs 2 --updates 100 --played 100 --out /tmp/page.md

The first episodes of a log are learnt from, as many as each size says; the last ones are credited by every method, with values of
a clone of the log, and held against that clone's exact credit. Within a log all policies see the same rows in the same order, start
from the same weights, and meet the same problems and luck. Two processes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.measure import write_page
from logforge.evaluation.credit.agreement import consistency, spearman
from logforge.evaluation.credit.methods import METHODS, Evidence, Values
from logforge.evaluation.sample_efficiency import curve_area, interactions_to

if TYPE_CHECKING:
    from logforge.envs.episodes import Rollout
    from logforge.envs.rollout import Policy
    from logforge.envs.solving import Solved
    from logforge.envs.world import World
    from logforge.shards.arrays import SplitArrays
    from logforge.shards.reader import Shard

WORLDS = ("it-ops", "support-escalation")
FIRST_SEED = 3_000
"""Seeds below were looked at while simulators and presets were chosen, or are other benchmarks'."""
GAMMA, ALPHA, TARGET_RATE = 0.99, 0.3, 0.005
SHARPNESS, MOST = 1.0, 20.0
"""A row weighs exp(credit in units of its spread), cut at MOST (Peng et al. 2019, advantage-weighted regression)."""
GOAL = 0.6
EXACT, PLAIN, SUCCESSES, CQL = "exact", "plain cloning", "cloning of successes", "CQL"
ABLATED = 500
"""Episodes that CQL's variants learn from."""
ARTICLE = {"counterfactual": 88, "shaped": 75, "uniform": 60, "gae": 45}
"""Percent of success that the article has for its own method, shaping, rules, and PPO with GAE: its order, best first."""


class Sizes(NamedTuple):
    """How much of everything."""

    episodes: tuple[int, ...] = (125, 250, 500, 1_000)
    held: int = 500
    updates: int = 1_600
    played: int = 1_000
    members: int = 5


class Found(NamedTuple):
    """One log: each method's rank correlation with the exact credit over all held-out steps and within episodes, then success
    and mean steps of successes by policy and size of data, and success of CQL's variants."""

    world: str
    seed: int
    overall: dict[str, float]
    within: dict[str, float]
    success: dict[str, list[float]]
    steps: dict[str, list[float]]
    variants: dict[str, float]


def play(world: str, seed: int, sizes: Sizes) -> Found:
    """Credit, learn and play, from one log of `mix`."""
    from logforge.envs.behaviour import behaviour
    from logforge.envs.catalogue import make
    from logforge.envs.simulation import logged
    from logforge.envs.solving import solve

    place = make(world)
    truth, most = solve(place), max(sizes.episodes)
    run, _, _ = logged(place, behaviour("mix"), most + sizes.held, seed)
    overall, within, variants = {}, {}, {}
    success: dict[str, list[float]] = {}
    steps: dict[str, list[float]] = {}
    for count in sizes.episodes:
        train = _shard(_part(run, slice(0, count)), "train")
        held = _part(run, slice(most, None))
        credits, left_out = _credits(truth, _part(run, slice(0, count)), train, held, seed, sizes)
        if count == most:
            overall, within = _compared(left_out, _shard(held, "test"))
        for name, policy in _learnt(train, credits, seed, sizes):
            share, length = _played(world, policy, seed, sizes)
            success.setdefault(name, []).append(share)
            steps.setdefault(name, []).append(length)
        if count == ABLATED:
            variants = {
                name: _played(world, one, seed, sizes)[0] for name, one in _varied(train, seed, sizes)
            }
    return Found(world, seed, overall, within, success, steps, variants)


def _part(run: Rollout, rows: slice) -> Rollout:
    return replace(run, **{f.name: getattr(run, f.name)[rows] for f in fields(run) if f.name != "world"})


def _shard(run: Rollout, split: str) -> Shard:
    """Episodes as a split of a dataset with the structured observation."""
    from logforge.envs.learnt import feature_arrays
    from logforge.schemas.manifest import INVALID, FeatureSlice, Manifest
    from logforge.shards.reader import Shard

    arrays = feature_arrays(run, GAMMA)
    size = arrays.observation_size
    manifest = Manifest(
        dataset=run.world.name,
        actions=(*run.world.actions, INVALID),
        layout=(FeatureSlice("features", 0, size, "what is visible"),),
        observation_size=size,
        gamma=GAMMA,
        spec_hash="",
        config={},
    )
    held = {field.name: getattr(arrays, field.name) for field in fields(arrays)}
    return Shard(**held, manifest=manifest, path=Path(), split=split)


def _credits(
    truth: Solved, logged: Rollout, train: Shard, held_run: Rollout, seed: int, sizes: Sizes
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The credit of the steps that are learnt from, and of those held out: by every method and exactly, of a clone of the log."""
    from logforge.core.intervals import Span
    from logforge.learning.ope.fqe import q_values

    clone = _softmax(_fits("bc", train, np.ones((1, train.size)), seed, sizes)[0])
    held = _shard(held_run, "test")
    chances = clone(train.observations)
    seen = np.concatenate([train.observations, held.observations])
    q = q_values(train, chances, seen, gamma=GAMMA, span=Span(-1, 1), members=sizes.members, seed=seed).q

    def exact(world: World, states: np.ndarray) -> np.ndarray:
        return clone(world.features(states))[:, :-1]

    found = []
    for run, shard, of in (
        (logged, train, q[: len(train.observations)]),
        (held_run, held, q[len(train.observations) :]),
    ):
        values = _values(shard, clone(shard.observations), of)
        evidence = Evidence(shard, train, values, _worked(run))
        given = {name: method.give(evidence).amounts for name, method in METHODS.items()}
        found.append(given | {EXACT: truth.credit(exact, run)[run.taken]})
    return found[0], found[1]


def _values(shard: SplitArrays, chances: np.ndarray, q: np.ndarray) -> Values:
    rows, actions = shard.observation_rows, shard.actions
    return Values(
        "clone",
        (chances * q).sum(axis=1),
        q[rows, actions],
        chances[rows, actions] / shard.propensities,
        "",
    )


def _worked(run: Rollout) -> np.ndarray:
    """Which steps were a tool's that answered."""
    world, taken = run.world, run.taken
    fine = np.array([world.status(code) == "ok" for code in range(len(world.replies))])
    tools = np.array([name in world.tools for name in world.actions])
    return fine[run.codes[taken][:, 0]] & tools[run.actions[taken]]


def _compared(credits: dict[str, np.ndarray], held: Shard) -> tuple[dict[str, float], dict[str, float]]:
    """ρ with the exact credit over all steps (0 for a constant), and the mean of ρ within episodes."""
    cuts, exact = held.episode_offsets[1:-1], credits[EXACT]
    told = np.split(exact, cuts)
    names = [name for name in credits if name != EXACT]
    overall = {name: float(np.nan_to_num(spearman(credits[name], exact))) for name in names}
    within = {name: float(np.nanmean(consistency(np.split(credits[name], cuts), told))) for name in names}
    return overall, within


def _weights(credit: np.ndarray) -> np.ndarray:
    """Of mean 1; all alike where the credit is constant."""
    spread = credit.std()
    scaled = (credit - credit.mean()) / spread if spread > 1e-9 else np.zeros(len(credit))
    found = np.minimum(np.exp(SHARPNESS * scaled), MOST)
    return found / found.mean()


def _learnt(
    train: Shard, credits: dict[str, np.ndarray], seed: int, sizes: Sizes
) -> Iterator[tuple[str, Policy]]:
    """Cloning as it is, of successes, and weighted by each credit, side by side in one network; and CQL."""
    won = (train.success == 1)[train.episode_index].astype(np.float64)
    weights = {PLAIN: np.ones(train.size), SUCCESSES: won / max(won.mean(), 1e-9)}
    weights |= {name: _weights(credit) for name, credit in credits.items()}
    fits = _fits("bc", train, np.stack(list(weights.values())), seed, sizes)
    yield from ((name, _greedy(scores)) for name, scores in zip(weights, fits, strict=True))
    yield CQL, _greedy(_fits("cql", train, np.ones((1, train.size)), seed, sizes)[0])


def _varied(train: Shard, seed: int, sizes: Sizes) -> Iterator[tuple[str, Policy]]:
    """CQL as it is, with a faster target network, with none, and with recent episodes weighing more."""
    even = np.ones((1, train.size))
    recent = 0.5 ** ((train.episode_count - 1 - train.episode_index) / (train.episode_count / 4))
    for name, rate, weights in (
        (f"target network follows at {TARGET_RATE}", TARGET_RATE, even),
        ("target network follows at 0.1", 0.1, even),
        ("no target network (1.0)", 1.0, even),
        ("recency weights, half-life a quarter of the log", TARGET_RATE, (recent / recent.mean())[None]),
    ):
        yield name, _greedy(_fits("cql", train, weights, seed, sizes, rate)[0])


Scores = Callable[[np.ndarray], np.ndarray]


def _fits(
    name: str, data: SplitArrays, weights: np.ndarray, seed: int, sizes: Sizes, rate: float = TARGET_RATE
) -> list[Scores]:
    """A member for each row of weights [members, N], all on the same draws from the same start: what scores actions."""
    import torch

    from logforge.core.extras import one_thread
    from logforge.core.intervals import Span
    from logforge.learning.training.experience import Replay
    from logforge.learning.training.learners import LEARNERS, Fit, Rules

    members, last = len(weights), data.action_size - 1
    rng, replay = np.random.default_rng(seed), Replay(data, last)
    known = torch.from_numpy(weights.astype(np.float32))
    with one_thread():
        shape = (data.observation_size, 64, 64, last + 1)
        rules = Rules(GAMMA, Span(-1, 1), alpha=ALPHA)
        fit = Fit(LEARNERS[name], rules, (seed,) * members, shape, 1e-3, rate)
        for _ in range(sizes.updates):
            drawn = torch.from_numpy(rng.integers(data.size, size=128))
            batch = replay.batch(drawn.expand(members, -1))
            fit.update(batch._replace(weights=known[:, drawn]))

    def of(member: int) -> Scores:
        return lambda features: fit.scores(np.asarray(features, np.float32), member)[:, :last]

    return [of(member) for member in range(members)]


def _softmax(scores: Scores) -> Scores:
    """The chances of every action of the vocabulary; <invalid>, the last one, has none."""

    def chances(features: np.ndarray) -> np.ndarray:
        found = scores(features).astype(np.float64)
        found = np.exp(found - found.max(axis=1, keepdims=True))
        return np.pad(found / found.sum(axis=1, keepdims=True), ((0, 0), (0, 1)))

    return chances


def _greedy(scores: Scores) -> Policy:
    from logforge.envs.rollout import on_features

    def chances(features: np.ndarray) -> np.ndarray:
        found = scores(features)
        return np.eye(found.shape[1])[found.argmax(axis=1)]

    return on_features(chances)


def _played(world: str, policy: Policy, seed: int, sizes: Sizes) -> tuple[float, float]:
    from logforge.envs.evaluating import evaluate_policy

    found = evaluate_policy(world, policy, sizes.played, 10_000 + seed)
    return found.success.value, found.mean_steps


def over_logs(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean with its 95 % interval by Student's t: a log is one draw."""
    from scipy.stats import t

    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if len(known) < 2:
        return (float(known.mean()) if len(known) else float("nan"), float("nan"), float("nan"))
    half = float(t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
    return float(known.mean()), float(known.mean() - half), float(known.mean() + half)


def main() -> None:
    """Play and write the page."""
    usual = Sizes()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=5)
    parser.add_argument("--updates", type=int, default=usual.updates)
    parser.add_argument("--played", type=int, default=usual.played)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/credit.md"))
    given = parser.parse_args()
    sizes, started = Sizes(updates=given.updates, played=given.played), time.monotonic()
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        jobs = [
            pool.submit(play, world, FIRST_SEED + log, sizes) for log in range(given.logs) for world in WORLDS
        ]
        found = [job.result() for job in jobs]
    write_page(given.out, page(found, sizes, time.monotonic() - started))


def page(found: Sequence[Found], sizes: Sizes, seconds: float) -> Iterator[str]:
    """The lines of the page."""
    logs = len({one.seed for one in found})
    yield from ("# Methods of credit, measured", "")
    yield (
        f"`python -m benchmarks.credit_methods`: {logs} fresh log{'s' if logs > 1 else ''} a world of `mix`, structured features, ±1 at the end, γ {GAMMA}; values by FQE "
        f"({sizes.members} members) of a clone of the log; {sizes.updates:,} updates, batches of 128; {sizes.played:,} episodes played of each "
        f"policy, the same for all; {seconds / 60:.1f} minutes. {_means(logs)}"
    )
    yield from ("", "## Against the exact credit", "")
    yield (
        f"Spearman's ρ with the exact credit of the clone (`envs/solving.py`: what branching from the very state gives, without sampling) on "
        f"{sizes.held:,} held-out episodes; values fitted on {max(sizes.episodes):,}. *All steps* ranks the steps of all episodes at once, *within* those of one "
        "episode, averaged over episodes: what tells a good episode from a bad one counts in the first alone. A method that gives all steps of "
        "an episode alike has 0 within."
    )
    yield ""
    yield f"| method | {' | '.join(f'{world}, all steps | {world}, within' for world in WORLDS)} |"
    yield f"|---|{'---|' * 4}"
    for name in METHODS:
        cells = [
            _told([of(one)[name] for one in found if one.world == world], "{:+.2f}")
            for world in WORLDS
            for of in (lambda one: one.overall, lambda one: one.within)
        ]
        yield f"| `{name}` | {' | '.join(cells)} |"
    yield from ("", "## As a weight", "")
    yield (
        f"Cloning whose rows weigh exp(credit / its spread), at most {MOST:.0f}, and acts by its likeliest action; CQL with α {ALPHA}. Success in percent "
        f"after {', '.join(f'{n:,}' for n in sizes.episodes)} episodes. *Area*: the mean success on the way from the fewest to the most. *To {100 * GOAL:.0f} %*: the median "
        "of the episodes that it takes, and in how many logs it was reached. `exact` weighs by the exact credit, which no log tells."
    )
    for world in WORLDS:
        yield from _world(world, [one for one in found if one.world == world], sizes)


def _means(logs: int) -> str:
    if logs > 1:
        return "Means over logs with 95 % intervals (Student's t)."
    return (
        "One log is no evidence: there are no intervals, and no order is told apart; run the command in full."
    )


def _world(world: str, rows: Sequence[Found], sizes: Sizes) -> Iterator[str]:
    yield from ("", f"### {world}", "")
    yield f"| weight | {' | '.join(f'{n:,}' for n in sizes.episodes)} | steps of successes | area | to {100 * GOAL:.0f} % |"
    yield f"|---|{'---|' * (len(sizes.episodes) + 3)}"
    for name in rows[0].success:
        shares = [_told([100 * one.success[name][i] for one in rows]) for i in range(len(sizes.episodes))]
        length = _told([one.steps[name][-1] for one in rows])
        area = _told([100 * curve_area(sizes.episodes, one.success[name]) for one in rows])
        yield f"| {name} | {' | '.join(shares)} | {length} | {area} | {_reached(rows, name, sizes)} |"
    yield from ("", *_order(rows))
    if rows[0].variants:
        yield from (
            "",
            f"CQL's variants on {ABLATED} episodes:",
            "",
            "| variant | success | against the first |",
            "|---|---|---|",
        )
        first = next(iter(rows[0].variants))
        for name in rows[0].variants:
            gaps = [100 * (one.variants[name] - one.variants[first]) for one in rows]
            told = "" if name == first else _told(gaps, "{:+.1f}")
            yield f"| {name} | {_told([100 * one.variants[name] for one in rows])} | {told} |"


def _reached(rows: Sequence[Found], name: str, sizes: Sizes) -> str:
    took = [interactions_to(GOAL, sizes.episodes, one.success[name]) for one in rows]
    known = [one.interactions for one in took if one.interactions is not None]
    middle = float(np.median([np.inf if one.interactions is None else one.interactions for one in took]))
    told = f"never reached (by {max(sizes.episodes):,})" if np.isinf(middle) else f"{middle:,.0f}"
    return f"{told}; {len(known)} of {len(rows)}"


def _order(rows: Sequence[Found]) -> Iterator[str]:
    """The article's order, pair by pair, at the most data."""
    names = list(ARTICLE)
    means = {name: 100 * np.mean([one.success[name][-1] for one in rows]) for name in names}
    here = sorted(names, key=lambda name: -means[name])
    yield (
        f"The article's order is {' > '.join(f'{name} ({ARTICLE[name]} %)' for name in names)}; here it is "
        f"{' > '.join(f'{name} ({means[name]:.1f} %)' for name in here)}."
    )
    yield from ("", "| the article has | by | here by | |", "|---|---|---|---|")
    for better, worse in pairwise(names):
        gaps = [100 * (one.success[better][-1] - one.success[worse][-1]) for one in rows]
        _, low, high = over_logs(gaps)
        verdict = (
            "as in the article" if low > 0 else "the other way round" if high < 0 else "cannot be told apart"
        )
        yield f"| {better} above {worse} | {ARTICLE[better] - ARTICLE[worse]:+d} | {_told(gaps, '{:+.1f}')} | {verdict} |"
    beaten = []
    for name in (*METHODS, EXACT, CQL):
        low, high = over_logs([100 * (one.success[name][-1] - one.success[PLAIN][-1]) for one in rows])[1:]
        if low > 0 or high < 0:
            beaten.append(f"{name} is {'above' if low > 0 else 'below'} it")
    if len(rows) > 1:
        told = (
            f"{'; '.join(beaten)}. The others cannot be told from it"
            if beaten
            else "nothing can be told from it"
        )
        yield from ("", f"Against plain cloning, log by log: {told}.")


def _told(values: Sequence[float], shape: str = "{:.1f}") -> str:
    """The mean with its interval, where there are two values or more."""
    mean, low, high = over_logs(values)
    told = "—" if np.isnan(mean) else shape.format(mean)
    return told if np.isnan(low) else f"{told} [{shape.format(low)}, {shape.format(high)}]"


if __name__ == "__main__":
    main()
