"""Going on from an earlier policy when the world changes: how much of what it could do is left.

python -m benchmarks.forgetting                   # writes docs/benchmarks/forgetting.md
python -m benchmarks.forgetting --seeds 1 --out /tmp/page.md

it-ops in two months: the first has cases of the causes 0, 1 and 2, the second those of 3, 4 and 5. CQL learns the first month
and goes on with the second's log alone, in each of the ways of logforge/learning/training/continual.py; then it plays cases of both.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.measure import write_page

EPISODES, PLAYED, UPDATES, GAMMA = 3_000, 1_000, 2_000, 0.99
WAYS: dict[str, dict[str, object]] = {
    "the second month alone": {},
    "EWC 1": {"ewc": 1.0},
    "EWC 10": {"ewc": 10.0},
    "EWC 100": {"ewc": 100.0},
    "KL 1": {"kl": 1.0},
    "KL 10": {"kl": 10.0},
    "replay 10 %": {"replay_share": 0.1},
    "replay 20 %": {"replay_share": 0.2},
    "replay 50 %": {"replay_share": 0.5},
    "replay 20 % and EWC 1": {"replay_share": 0.2, "ewc": 1.0},
}
BEFORE, TOGETHER = "the first month's policy", "both months at once"


class Played(NamedTuple):
    """The share of cases solved whose cause is of the first month, and of the second."""

    first: float
    second: float


def one_seed(seed: int, home: Path, updates: int, played: int) -> dict[str, Played]:
    """Every way's policy, played."""
    from logforge.learning.training.pipeline import train

    months = {name: home / name for name in ("first", "second", "both")}
    _write_months(months, seed)
    settings = {"alpha": 0.3, "updates": updates, "seed": seed, "epochs": 1}
    train(months["first"], out=home / "before", **settings)
    train(months["both"], out=home / "together", **settings)
    found = {
        BEFORE: _play(home / "before", seed, played),
        TOGETHER: _play(home / "together", seed, played),
    }
    for way, extra in WAYS.items():
        replay = {"replay": str(months["first"])} if "replay_share" in extra else {}
        train(
            months["second"], out=home / "on", warm_start=str(home / "before"), **settings, **extra, **replay
        )
        found[way] = _play(home / "on", seed, played)
    return found


def _write_months(months: dict[str, Path], seed: int) -> None:
    from logforge.envs.behaviour import behaviour
    from logforge.envs.catalogue import make
    from logforge.envs.it_ops import CAUSE
    from logforge.envs.learnt import feature_arrays
    from logforge.envs.simulation import logged
    from logforge.schemas.manifest import INVALID, FeatureSlice, Manifest
    from logforge.shards.reader import write_dataset

    world = make("it-ops")
    run, _, _ = logged(world, behaviour("mix"), EPISODES, seed)
    arrays = feature_arrays(run, GAMMA)
    early = run.states[:, 0, CAUSE] < 3
    size = arrays.observations.shape[1]
    manifest = Manifest(
        dataset="it-ops",
        actions=(*world.actions, INVALID),
        layout=(FeatureSlice("features", 0, size, "the structured observation"),),
        observation_size=size,
        gamma=GAMMA,
        spec_hash="it-ops",
        config={"seed": seed},
    )
    held = np.arange(arrays.episode_count) % 10 == 0
    for name, chosen in (("first", early), ("second", ~early), ("both", early | True)):
        splits = {"train": arrays.only(chosen & ~held), "validation": arrays.only(chosen & held)}
        write_dataset(months[name], splits, manifest)


def _play(run: Path, seed: int, played: int) -> Played:
    from logforge.envs.evaluating import evaluate_policy
    from logforge.envs.it_ops import CAUSE
    from logforge.envs.rollout import on_features
    from logforge.learning.policies.bundle import load_policy

    bundle = load_policy(run / "cql")
    count = len(bundle.card.actions) - 1

    def chances(features: np.ndarray) -> np.ndarray:
        masks = np.ones((len(features), count + 1), bool)
        return np.eye(count)[bundle.choose(features, masks)]

    found = evaluate_policy("it-ops", on_features(chances), played, 10_000 + seed)
    early = found.rollout.states[:, 0, CAUSE] < 3
    return Played(float(found.successes[early].mean()), float(found.successes[~early].mean()))


def _page(found: list[dict[str, Played]], seconds: float, updates: int, played: int) -> Iterator[str]:
    yield "# Forgetting, measured"
    yield ""
    yield (
        f"`python -m benchmarks.forgetting`: it-ops in two months, {EPISODES:,} logged episodes of `mix` in all, structured features, CQL "
        f"(α 0.3), {updates:,} updates each; {len(found)} seeds, {played:,} cases played of each policy, all of the same; "
        f"{seconds / 60:.0f} minutes. Percent of cases solved, mean over seeds (lowest to highest)."
    )
    yield ""
    yield "| went on with | cases of the first month | cases of the second | mean of both |"
    yield "|---|---|---|---|"
    for way in found[0]:
        columns = [[100 * one[way][place] for one in found] for place in range(2)]
        cells = [f"{np.mean(part):.0f} ({min(part):.0f}–{max(part):.0f})" for part in columns]
        yield f"| {way} | {' | '.join(cells)} | {np.mean(columns):.0f} |"


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--played", type=int, default=PLAYED)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/forgetting.md"))
    given = parser.parse_args()
    started, found = time.monotonic(), []
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            found.append(one_seed(seed, Path(folder), given.updates, given.played))
    page = _page(found, time.monotonic() - started, given.updates, given.played)
    write_page(given.out, page)


if __name__ == "__main__":
    main()
