"""A spec tried out on every short sequence of the small world: what is best there, and by how much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from logforge.rewards.lint.world import STOP, TALK, WORK, World, balanced_scales, judged
from logforge.rewards.sql import Scale
from logforge.schemas import Manifest, RewardSpec

LENGTH = 4
"""Every sequence of so many steps is tried."""
_LONGEST = 1024


@dataclass(frozen=True)
class Trial:
    """The spec's rewards of every sequence of LENGTH steps.

    Potentials count 0 here: they change no policy's rank (Ng, Harada, Russell 1999), but their sum over a sequence that is cut
    off does not cancel.
    """

    spec: RewardSpec
    scales: dict[str, Scale]
    world: World
    steps: pl.DataFrame

    @classmethod
    def of(cls, spec: RewardSpec, scales: Mapping[str, Scale] | None = None) -> Trial:
        """Try the spec; without `scales` those of its layers are fitted on the world's own episodes."""
        world, silent = World.of(spec), without_potentials(spec)
        fitted = balanced_scales(world, silent) if scales is None else dict(scales)
        return cls(silent, fitted, world, judged(world, silent, world.every(LENGTH), fitted))

    @cached_property
    def returns(self) -> dict[str, float]:
        """The return of each sequence."""
        return _returns(self.steps)

    @property
    def solve(self) -> str:
        """The shortest success."""
        return "/".join(self.world.solved())

    @cached_property
    def optimum(self) -> str:
        """The sequence of the highest return; of equal ones the shortest."""
        return max(self.returns, key=lambda walk: (round(self.returns[walk], 9), -walk.count("/"), walk))

    @cached_property
    def terms(self) -> pl.DataFrame:
        """What each term pays at each step: walk, step, habit, success, term, value."""
        return paid_terms(self.steps).with_columns(
            success=pl.col("walk").str.ends_with(STOP)
            & (pl.col("walk").str.count_matches(WORK) >= len(self.world.tools))
        )

    def judged(self, walks: Iterable[tuple[str, ...]], honest: bool = False) -> pl.DataFrame:
        """Other sequences' steps."""
        return judged(self.world, self.spec, walks, self.scales, honest)

    def returns_of(self, walks: Iterable[tuple[str, ...]]) -> dict[str, float]:
        """The returns of other sequences."""
        return _returns(self.judged(walks))

    @property
    def outcome(self) -> float:
        """What success itself adds to the last step, against giving up."""
        last = dict(self.steps.filter(pl.col("habit") == STOP).select("walk", "reward").iter_rows())
        return float(last[self.solve] - last[STOP])

    def break_even(self, gamma: float, honest: bool = False) -> int | None:
        """How many steps a success may take and be worth more than stopping at once, at this discount; None when any number
        may, 0 when none does. The steps that are too many are neutral: the agent talks. With `honest`, scorers tell
        success from failure."""
        frame = self.judged([self.world.solved([TALK] * _LONGEST), (STOP,)], honest)
        rewards = frame.filter(pl.col("walk") != STOP)["reward"].to_numpy()
        stop = float(frame.filter(walk=STOP)["reward"][0])
        discounts = gamma ** np.arange(len(rewards))
        needed = len(rewards) - _LONGEST
        spent = np.concatenate([[0.0], np.cumsum(discounts[:_LONGEST] * rewards[:_LONGEST])])
        solved = float(np.sum(discounts[:needed] * rewards[_LONGEST:]))
        worth = spent + gamma ** np.arange(_LONGEST + 1) * solved
        worse = np.flatnonzero(worth <= stop + 1e-9)
        if not len(worse):
            return None
        return int(worse[0]) - 1 + needed if worse[0] else 0


def without_potentials(spec: RewardSpec) -> RewardSpec:
    """The spec with every potential worth 0."""
    silent = {"potential": False, "value": 0.0, "when": "TRUE"}
    terms = {
        name: term.model_copy(update=silent) if term.potential else term for name, term in spec.terms.items()
    }
    layers = {}
    for name, layer in spec.layers.items():
        inner = {n: t.model_copy(update=silent) if t.potential else t for n, t in layer.terms.items()}
        layers[name] = layer.model_copy(update={"terms": inner})
    return spec.model_copy(update={"terms": terms, "layers": layers})


def paid_terms(steps: pl.DataFrame) -> pl.DataFrame:
    """One row for each term of each step: the frame's other columns, `term` and `value` (null: missing)."""
    rest = steps.drop("reward_terms", "reward", "null_reason", "return_to_go", strict=False)
    listed = rest.with_columns(item=steps["reward_terms"]).explode("item")
    return listed.with_columns(
        term=pl.col("item").struct.field("key"), value=pl.col("item").struct.field("value")
    ).drop("item")


def _returns(steps: pl.DataFrame) -> dict[str, float]:
    return dict(steps.filter(step=0).select("walk", "return_to_go").iter_rows())


def recorded_trial(manifest: Manifest) -> Trial | None:
    """None where the manifest records no spec, or one with scorers, which the small world cannot run."""
    record = manifest.reward
    if "spec" not in record:
        return None
    spec = RewardSpec.model_validate(record["spec"])
    scales = {name: Scale(**values) for name, values in record.get("scales", {}).items()}
    return None if spec.scored else Trial.of(spec, scales)
