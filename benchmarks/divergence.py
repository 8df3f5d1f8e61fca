"""Does training run away? CQL on structured features of `it-ops`, at three times the preset's updates, with and without clipped targets.

python -m benchmarks.divergence                   # ten seeds; writes docs/benchmarks/divergence.md
python -m benchmarks.divergence --seeds 2 --updates 600 --out /tmp/page.md

All seeds of a setting are members of one run. Success is that of the kept checkpoints, played in the simulator.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.measure import write_page
from logforge.learning.training.alarms import Limits
from logforge.learning.training.config import TrainConfig

WORLD, EPISODES, SEED, GAMMA = "it-ops", 2_000, 1_000, 0.99
SEEDS, TIMES, PLAYED = 10, 3, 500
RUNS = (
    ("CQL, α 0.1", {"alpha": 0.1}),
    ("CQL, α 0.3", {"alpha": 0.3}),
    ("CQL, α 1", {"alpha": 1.0}),
    ("CQL, α 0.1, not clipped", {"alpha": 0.1, "clip_targets": False}),
    ("double DQN, not clipped", {"algo": "dqn", "clip_targets": False}),
)


class Outcome(NamedTuple):
    """One setting: how many members were stopped, the update at which (median), that of the kept checkpoint (median), the largest
    max Q of all epochs and members, the limit of the alarm, success by member, and CPU seconds."""

    name: str
    members: int
    stopped: int
    at: float
    kept: float
    max_q: float
    limit: float
    success: list[float]
    seconds: float


def dataset(folder: Path) -> Path:
    """Structured features of logged episodes as a dataset: one episode in ten is held out."""
    from logforge.envs.behaviour import behaviour
    from logforge.envs.catalogue import make
    from logforge.envs.learnt import feature_arrays
    from logforge.envs.simulation import logged
    from logforge.schemas.manifest import INVALID, FeatureSlice, Manifest
    from logforge.shards.reader import write_dataset

    run, _, _ = logged(make(WORLD), behaviour("mix"), EPISODES, SEED)
    arrays = feature_arrays(run, GAMMA)
    part = np.arange(EPISODES) % 10 == 0
    splits = {"train": arrays.only(~part), "validation": arrays.only(part), "test": arrays.only(part & ~part)}
    size = arrays.observation_size
    layout = (FeatureSlice("features", 0, size, "what the world shows"),)
    about = Manifest(
        dataset=WORLD,
        actions=(*run.world.actions, INVALID),
        layout=layout,
        observation_size=size,
        gamma=GAMMA,
        spec_hash="",
        config={},
    )
    write_dataset(folder, splits, about)
    return folder


def outcome(name: str, at: Path, folder: Path, seeds: int, updates: int, settings: dict) -> Outcome:
    """Train one setting and play what it kept."""
    from logforge.core.intervals import Span
    from logforge.learning.training.pipeline import train
    from logforge.shards.reader import load_shards

    started = time.process_time()
    report = train(at, out=folder / "run", members=seeds, updates=updates, **settings)
    seconds = time.process_time() - started
    algo, shard = report.config["algo"], load_shards(at)
    names = [name for name in report.policies if name.split("-")[0] == algo]
    stopped = [report.stopped[name] for name in names if name in report.stopped]
    rows = _rows(folder / "run" / "metrics.jsonl", algo)
    alpha = report.config["alpha"] if algo == "cql" else 0.0
    limits = Limits.of(
        Span(-1.0, 1.0), alpha, shard.returns, shard.actions, clipped=report.config["clip_targets"]
    )
    return Outcome(
        name,
        seeds,
        len(stopped),
        float(np.median([found["update"] for found in stopped])) if stopped else np.nan,
        float(np.median([found["kept_update"] for found in stopped])) if stopped else np.nan,
        max(row["validation_max_q"] for row in rows if row["finite"]),
        limits.high,
        [_success(folder / "run" / name) for name in names],
        seconds,
    )


def _rows(file: Path, algo: str) -> list[dict]:
    import json

    found = map(json.loads, file.read_text().splitlines())
    return [row for row in found if row["policy"].split("-")[0] == algo]


def _success(bundle: Path) -> float:
    from logforge.envs.evaluating import evaluate_policy
    from logforge.envs.rollout import on_features
    from logforge.learning.policies.bundle import load_policy

    policy = load_policy(bundle)

    def chances(features: np.ndarray) -> np.ndarray:
        scores = policy.scores(features.astype(np.float32))[:, :-1]  # the last is <invalid>
        return np.eye(scores.shape[1])[scores.argmax(axis=1)]

    return float(evaluate_policy(WORLD, on_features(chances), PLAYED, 10_000).success.value)


def main() -> None:
    """Run all settings and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--updates", type=int, default=TIMES * TrainConfig().updates)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/divergence.md"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        at = dataset(home / "data")
        found = [outcome(name, at, home, given.seeds, given.updates, settings) for name, settings in RUNS]
    write_page(given.out, _page(found, given.updates))


def _page(found: list[Outcome], updates: int):
    yield "# Runs that run away, measured"
    yield ""
    yield (
        f"`python -m benchmarks.divergence`: `{WORLD}`, structured features, {EPISODES:,} logged episodes of `mix`, rewards of ±1 at the end, "
        f"γ {GAMMA}; {updates:,} updates ({updates / TrainConfig().updates:g} × the preset's). No return lies outside ±1; the alarm's limit is "
        f"1 + α + the range's width (half of it without clipping). Success: {PLAYED} episodes of each seed's kept checkpoint."
    )
    yield ""
    yield "| setting | seeds | stopped | at update (median) | kept update (median) | largest Q | limit | success, mean (worst seed) | CPU s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in found:
        at, kept = ("—" if np.isnan(value) else f"{value:,.0f}" for value in (one.at, one.kept))
        success = f"{100 * np.mean(one.success):.1f} ({100 * min(one.success):.1f})"
        yield (
            f"| {one.name} | {one.members} | {one.stopped} | {at} | {kept} | {one.max_q:.2f} | {one.limit:.1f} | {success} | "
            f"{one.seconds:.0f} |"
        )
    clipped = [one for one in found if "not clipped" not in one.name]
    yield ""
    yield (
        f"With clipped targets {sum(one.stopped for one in clipped)} of {sum(one.members for one in clipped)} runs were stopped; without, "
        + ", ".join(f"{one.stopped} of {one.members} ({one.name})" for one in found if one not in clipped)
        + "."
    )


if __name__ == "__main__":
    main()
