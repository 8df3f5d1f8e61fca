"""What a build does about conflicts: flag them, weigh their contradicted rows down, or set whole episodes aside.

    kind           contradicted are
    outcome        both sides: nothing says which one is right, and taking the failures alone would make a wager look safe
    contrast       the worse action's rows. They are what a policy learns to avoid: only an explicit word touches them
    label          the smaller side's episodes (both sides where they are equal)
    demonstration  the rows where the agent left the demonstrated action

`weight` multiplies a contradicted row's weight by FACTOR, once for each kind that contradicts it. `filter` sets aside every
episode with a contradicted row, never a part of one: what is left of a trajectory must stay contiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, get_args

import polars as pl

from logforge.dataset.conflicts.groups import KINDS, episodes_at, sided
from logforge.dataset.conflicts.rows import LEVELS, TRAJECTORIES
from logforge.schemas import UnknownName, UsageError

Treatment = Literal["flag", "weight", "filter"]
TREATMENTS: tuple[str, ...] = get_args(Treatment)
"""What can be done about a kind of conflict."""
Policy = Mapping[str, Treatment]
"""The treatment of each kind."""
FLAG_ALL: Policy = MappingProxyType(dict.fromkeys(KINDS, "flag"))
"""The default: conflicts are recorded and change nothing."""
FACTOR = 0.5
"""What `weight` leaves of a contradicted row's weight, for each kind that contradicts it."""

_STEP = ["episode_id", "step"]
_FACTORS = {"episode_id": pl.String, "step": pl.Int32, "factor": pl.Float64}


def read_policy(words: Iterable[str]) -> Policy:
    """The policy that words like `outcome=weight` tell; a bare `weight` is meant for every kind but contrast.

    Later words override earlier ones. Raises UnknownName for a kind or treatment that there is not.
    """
    policy: dict[str, Treatment] = {**FLAG_ALL}
    for word in words:
        kind, _, treatment = word.rpartition("=")
        if kind and kind not in KINDS:
            raise UnknownName("conflict kind", kind, KINDS)
        for named in (kind,) if kind else (name for name in KINDS if name != "contrast"):
            policy[named] = _treatment(treatment)
    return MappingProxyType(policy)


def _treatment(word: str) -> Treatment:
    for known in get_args(Treatment):
        if word == known:
            return word  # type: ignore[return-value]
    raise UnknownName("conflict policy", word, TREATMENTS)


def contradicted(rows: pl.DataFrame, conflicts: pl.DataFrame, epsilon: float) -> pl.DataFrame:
    """The rows that conflicts contradict: episode_id, step and kind, each once, sorted.

    `rows` is what `comparable` gave, `conflicts` and `epsilon` what find_conflicts gave and took.
    """
    parts = []
    for level in LEVELS:
        at = conflicts.filter(pl.col("level") == level)
        keyed = rows.drop_nulls(level).with_columns(state_key=pl.col(level))
        for kind, chosen in (
            ("outcome", keyed),
            ("contrast", keyed),
            ("demonstration", keyed.filter(~pl.col("demonstrated"))),
        ):
            losing = at.filter(pl.col("kind") == kind).select("state_key", action="action_b")
            parts.append(_hit(chosen.join(losing, on=["state_key", "action"], how="semi"), kind))
        if level in TRAJECTORIES:
            labels = at.filter(pl.col("kind") == "label")
            parts.append(_hit(_mislabelled(rows, labels, level, epsilon), "label"))
    return pl.concat(parts).unique().sort("episode_id", "step", "kind")


def _hit(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    return rows.select(*_STEP, kind=pl.lit(kind))


def _mislabelled(rows: pl.DataFrame, labels: pl.DataFrame, level: str, epsilon: float) -> pl.DataFrame:
    """All rows of the episodes on a label's smaller side."""
    sides = sided(episodes_at(rows, level), epsilon).join(
        labels, left_on="key", right_on="state_key", how="semi"
    )
    own = pl.len().over("key", "better")
    minority = sides.filter(2 * own <= pl.len().over("key"))
    return rows.join(minority, on="episode_id", how="semi")


def factors(transitions: pl.DataFrame, found: pl.DataFrame, policy: Policy) -> pl.DataFrame:
    """What `weight` multiplies rows by: episode_id, step and factor, for the rows it changes.

    `found` is what `contradicted` gave. A row that was made from a contradicted one (augmented) shares its factor.
    """
    weighed = found.filter(pl.col("kind").is_in(_kinds(policy, "weight")))
    own = weighed.group_by(_STEP).agg(factor=FACTOR ** pl.len().cast(pl.Float64))
    named = own.select("factor", parent_id=pl.format("{}/{}", *_STEP))
    copies = transitions.drop_nulls("parent_id").join(named, on="parent_id")
    both = pl.concat([part.select(list(_FACTORS)) for part in (own, copies)])
    return both.with_columns(pl.col(name).cast(kind) for name, kind in _FACTORS.items()).sort(_STEP)


def set_aside(found: pl.DataFrame, policy: Policy) -> pl.DataFrame:
    """The episodes that `filter` leaves out: episode_id, with the first step that is contradicted and the kind of conflict."""
    gone = found.filter(pl.col("kind").is_in(_kinds(policy, "filter")))
    return gone.sort("episode_id", "step", "kind").unique("episode_id", keep="first", maintain_order=True)


def _kinds(policy: Policy, treatment: Treatment) -> list[str]:
    if unknown := [kind for kind in policy if kind not in KINDS]:
        raise UsageError(f"no conflict kind {unknown[0]!r}", f"valid: {', '.join(KINDS)}")
    return [kind for kind in KINDS if policy.get(kind, "flag") == treatment]
