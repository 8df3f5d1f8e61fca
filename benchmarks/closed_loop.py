"""The closed loop: logs of a simulator are learnt from, and what was learnt is played in it, beside cloning and the rule.

python -m benchmarks.closed_loop                  # ten fresh seeds; writes docs/benchmarks/closed-loop.md
python -m benchmarks.closed_loop --seeds 2 --text-seeds 0 --out /tmp/page.md

A seed is a log of its own, a training of its own and evaluation episodes of its own; within a seed all policies meet the same
problems and the same luck. Two processes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.measure import write_page

EPISODES, UPDATES, PLAYED = 2_000, 2_000, 1_000
REWORDED = 300
"""Played of each policy that reads text, in wordings that no log has."""
GAMMA, ALPHA = 0.99, 0.3
"""Of sparse rewards of ±1 at the end."""
FIRST_SEED = 1_000
"""Seeds below were looked at while simulators and presets were chosen."""
WORLDS = ("it-ops", "support-escalation")
LEARNT = ("cql", "bc", "bc_success")
BLOCKS = ("memory", "group", "meta", "mask")
"""Of the states built from raw logs. The openings of these worlds tell nothing of the cause, so the task and the window are
learnt by heart, and what matters is older than the last calls."""
PRESET = "sparse-text"
LOGS_WHY = (
    "what each tool last answered and what the user said, as MiniLM vectors and word for word, however long ago; chosen on "
    "seeds below 1,000, where the other blocks cost CQL 2 to 5 points: what they add of a log is learnt by heart)."
)
SPEC = """
gamma: 0.99
terms:
  success: {when: success, value: 1, at: end}
  failure: {when: NOT success, value: -1, at: end}
"""


class Played(NamedTuple):
    """One seed: the share of successes of each policy, CQL's difference to the clones with its 95 % interval (paired), how often
    CQL's and cloning's restarts had looked first, and, of those that read text, the share of successes of the first episodes in the log's
    wordings and in ones that no log has."""

    world: str
    mix: str
    seed: int
    success: dict[str, float]
    against: dict[str, tuple[float, float, float]]
    checked: dict[str, float]
    reworded: dict[str, tuple[float, float]]


def from_features(world: str, mix: str, seed: int) -> Played:
    """Learn from the structured observation of rollouts."""
    from logforge.core.extras import one_thread
    from logforge.core.intervals import Span
    from logforge.envs.behaviour import behaviour
    from logforge.envs.catalogue import make
    from logforge.envs.learnt import feature_arrays
    from logforge.envs.rollout import on_features
    from logforge.envs.simulation import logged
    from logforge.learning.training.experience import Replay
    from logforge.learning.training.learners import LEARNERS, Fit, Rules

    place = make(world)
    run, _, _ = logged(place, behaviour(mix), EPISODES, seed)
    arrays = feature_arrays(run, GAMMA)
    actions, policies = arrays.action_size, {}
    for name in LEARNT:
        data = arrays.only(arrays.success == 1) if name == "bc_success" else arrays
        with one_thread():
            learner = LEARNERS["cql" if name == "cql" else "bc"]
            sizes = (arrays.observation_size, 64, 64, actions)
            fit = Fit(learner, Rules(GAMMA, Span(-1, 1), alpha=ALPHA), (seed,), sizes, 1e-3, 0.005)
            for _, batch in zip(
                range(UPDATES), Replay(data, actions - 1).batches((seed,), 128), strict=False
            ):
                fit.update(batch)

        def chances(features: np.ndarray, fit: Fit = fit) -> np.ndarray:
            scores = fit.scores(features.astype(np.float32), 0)[:, : actions - 1]
            return np.eye(actions - 1)[scores.argmax(axis=1)]

        policies[name] = on_features(chances)
    return _played(world, mix, seed, policies, float(run.successes.mean()))


def from_logs(world: str, mix: str, seed: int) -> Played:
    """Learn from raw logs: simulate, ingest, build (MiniLM and structured blocks), train by the preset, serve."""
    from logforge.dataset.build.pipeline import BuildConfig, build_dataset
    from logforge.dataset.states.config import StateConfig
    from logforge.envs.catalogue import make
    from logforge.envs.learnt import served
    from logforge.envs.simulation import simulate
    from logforge.ingestion.pipeline import ingest
    from logforge.learning.policies.bundle import load_policy
    from logforge.learning.training.pipeline import train
    from logforge.serving.server import StateServer
    from logforge.store.store import Store

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        made = simulate(make(world), mix, EPISODES, seed, home / "logs")
        (home / "reward.yaml").write_text(SPEC)
        with Store(home / "store.duckdb") as store:
            ingest(store, [home / "logs"])
            config = BuildConfig(fractions=(0.9, 0.05, 0.05), state=StateConfig(blocks=BLOCKS))
            build_dataset(store, home / "reward.yaml", out=home, config=config)
        train(home / "default", out=home / "run", preset=PRESET, seed=seed)
        server = StateServer(home / "default")
        policies = {name: served(server, load_policy(home / "run" / name)) for name in LEARNT}
        return _played(world, mix, seed, policies, made.successes / made.episodes, REWORDED)


def _played(world: str, mix: str, seed: int, policies: dict, logged: float, reworded: int = 0) -> Played:
    from logforge.envs.evaluating import checked_restarts, evaluate_policy

    found = {name: evaluate_policy(world, policy, PLAYED, 10_000 + seed) for name, policy in policies.items()}
    found["rule"] = evaluate_policy(world, "rule", PLAYED, 10_000 + seed)
    cql = found["cql"]
    return Played(
        world,
        mix,
        seed,
        {"log": logged} | {name: one.success.value for name, one in found.items()},
        {name: cql.minus(found[name])[:3] for name in ("bc", "bc_success")},
        {name: checked_restarts(found[name].rollout).value for name in ("cql", "bc") if world == "it-ops"},
        {
            name: (
                float(found[name].successes[:reworded].mean()),
                evaluate_policy(world, policy, reworded, 10_000 + seed, held_out=True).success.value,
            )
            for name, policy in policies.items()
            if reworded
        },
    )


def main() -> None:
    """Play the loop and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--text-seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/closed-loop.md"))
    given = parser.parse_args()
    started = time.monotonic()
    jobs = [(from_features, world, "mix", s) for world in WORLDS for s in range(given.seeds)]
    jobs += [(from_features, "it-ops", "no-expert", s) for s in range(min(2, given.seeds))]
    jobs += [(from_logs, "it-ops", "mix", s) for s in range(given.text_seeds)]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        waiting = [(job[0], pool.submit(job[0], job[1], job[2], FIRST_SEED + job[3])) for job in jobs]
        found = [(how, future.result()) for how, future in waiting]
    write_page(given.out, _page(found, time.monotonic() - started))


def _page(found: list, seconds: float):
    yield "# The closed loop, measured"
    yield ""
    yield (
        f"`make closed-loop`: {EPISODES:,} logged episodes, {UPDATES:,} updates and {PLAYED:,} played episodes a seed; fresh seeds from "
        f"{FIRST_SEED:,} on; {seconds / 60:.0f} minutes on {os.cpu_count()} cores. Success in percent; differences are CQL's, episode by episode, with "
        "95 % intervals. Cloning takes its likeliest action. CQL: α 0.3, ±1 at the end. From raw logs: `logforge train --preset "
        f"{PRESET}` on states of the blocks {', '.join(BLOCKS)} ({LOGS_WHY}"
    )
    titles = {"from_features": "structured features", "from_logs": "raw logs, MiniLM and structured blocks"}
    for how in (from_features, from_logs):
        for world in WORLDS:
            for mix in ("mix", "no-expert"):
                rows = [one for kind, one in found if kind is how and (one.world, one.mix) == (world, mix)]
                if rows:
                    yield from _part(f"{world}, logs of `{mix}`, {titles[how.__name__]}", rows)
    yield from _compared(found)


def _compared(found: list):
    """What raw logs cost against the simulator's own features, on the seeds that both were played on."""
    cql = {
        how: {
            one.seed: one for kind, one in found if kind is how and (one.world, one.mix) == ("it-ops", "mix")
        }
        for how in (from_features, from_logs)
    }
    seeds = sorted(set(cql[from_features]) & set(cql[from_logs]))
    if seeds:
        shares = [
            100 * np.mean([cql[how][s].success["cql"] for s in seeds]) for how in (from_features, from_logs)
        ]
        looked = [cql[from_logs][s].checked["cql"] for s in seeds]
        yield ""
        yield (
            f"Raw logs against structured features, it-ops, {len(seeds)} seeds: CQL {shares[1]:.1f} against {shares[0]:.1f} "
            f"({shares[1] - shares[0]:+.1f} points); looks before a restart {min(looked):.2f} to {max(looked):.2f}, at least 0.9 in "
            f"{sum(look >= 0.9 for look in looked)} of {len(looked)}."
        )


def _part(title: str, rows: list[Played]):
    names = ("log", "rule", "bc", "bc_success", "cql")
    yield from ("", f"## {title}", "")
    yield (
        "| seed | log | rule | bc | bc on successes | CQL | CQL − bc | CQL − bc on successes | looks before a restart: CQL | bc |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for one in rows:
        cells = [f"{100 * one.success[name]:.1f}" for name in names]
        gaps = ["{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * x for x in one.against[n])) for n in one.against]
        looked = [_share(one.checked.get(name, np.nan)) for name in ("cql", "bc")]
        yield f"| {one.seed} | {' | '.join(cells + gaps + looked)} |"
    mean = {name: 100 * np.mean([one.success[name] for one in rows]) for name in names}
    gaps = [100 * one.against["bc"][0] for one in rows]
    yield f"| mean | {' | '.join(f'{mean[name]:.1f}' for name in names)} | {np.mean(gaps):+.1f} | {mean['cql'] - mean['bc_success']:+.1f} | {' | '.join(_looked(rows))} |"
    yield ""
    yield (
        f"CQL beats cloning by 15 points or more in {sum(gap >= 15 for gap in gaps)} of {len(gaps)} seeds, by 12 or more in "
        f"{sum(gap >= 12 for gap in gaps)}, and is more than 2 points below it in {sum(gap < -2 for gap in gaps)}. "
        + _verdict(mean)
    )
    yield from _reworded(rows)


def _looked(rows: list[Played]) -> list[str]:
    """The mean over seeds in which anything was restarted."""
    every = [[one.checked.get(name, np.nan) for one in rows] for name in ("cql", "bc")]
    return [_share(np.nan if np.isnan(shares).all() else np.nanmean(shares)) for shares in every]


def _share(value: float) -> str:
    return "—" if np.isnan(value) else f"{value:.2f}"


def _reworded(rows: list[Played]):
    """What wordings that no log has cost those that read text."""
    if not all(one.reworded for one in rows):
        return
    names = {"bc": "bc", "bc_success": "bc on successes", "cql": "CQL"}
    told = []
    for name, called in names.items():
        known, new = 100 * np.array([one.reworded[name] for one in rows]).T
        told.append(
            f"{called} {new.mean():.1f} ({(new - known).mean():+.1f}, {(new - known).min():+.1f} to {(new - known).max():+.1f})"
        )
    yield ""
    yield (
        f"In wordings that no log has, the first {REWORDED:,} episodes of each seed; in brackets against the same episodes in the log's "
        f"wordings, mean and range over seeds: {'; '.join(told)}."
    )


def _verdict(mean: dict[str, float]) -> str:
    best = max(("bc", "bc_success", "cql"), key=lambda name: mean[name])
    if mean[best] <= mean["rule"] + 1:
        return "Nothing that was learnt beats the rule: no win is to be expected here."
    return f"The best is {best}, {mean[best] - mean['rule']:+.1f} points against the rule that wrote the best logs."


if __name__ == "__main__":
    main()
