"""What differs between two datasets, part by part: settings, vocabulary, sources, episodes, steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import polars as pl

from logforge.schemas import FeatureSlice, Manifest
from logforge.store import Store

EXAMPLES = 3


class Setting(NamedTuple):
    """A setting that differs; None where one side has none."""

    setting: str
    a: Any
    b: Any


class Vocabularies(NamedTuple):
    """Actions of one side alone, actions that took another's id, and shared ones whose id differs (name, id in A, id in B)."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    moved: tuple[tuple[str, int, int], ...]


class Source(NamedTuple):
    """A source that only one side was made from; its path where the store knows it."""

    only_in: str
    format: str
    sha256: str
    path: str | None


class Lone(NamedTuple):
    """Episodes that only one side holds, by what became of them on the other side, with an example."""

    only_in: str
    split: str
    other_side: str
    episodes: int
    example: str


class Example(NamedTuple):
    """Where a value changed, and from what to what."""

    locator: str
    a: str
    b: str


class StepChange(NamedTuple):
    """A column of shared steps that differs: in how many steps and episodes, by how much where it is a number, and the largest
    (else the first) changes."""

    column: str
    steps: int
    episodes: int
    mean_difference: float | None
    largest: tuple[Example, ...]


def settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Setting]:
    """The entries that differ, nested ones under dotted names."""
    first, second = dict(_flat(a)), dict(_flat(b))
    names = dict.fromkeys([*first, *second])
    return [
        Setting(name, first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    ]


def described(manifest: Manifest) -> dict[str, Any]:
    """What decides a dataset besides its config and its logs, as a manifest says it."""
    reward, encoder = manifest.reward, manifest.encoder
    return {
        "reward": {"spec_hash": manifest.spec_hash, **reward.get("spec", {})},
        "reward_scales": reward.get("scales", {}),
        "reward_scorers": reward.get("scorers", {}),
        "encoder": {} if encoder is None else msgspec.to_builtins(encoder),
        "packages": manifest.packages,
        "features": {part.name: _width(part, manifest.vocabulary.size) for part in manifest.layout},
    }


def _width(part: FeatureSlice, actions: int) -> int | str:
    """The columns of a block; those of one column per action follow from the vocabulary."""
    return "actions" if part.stop - part.start == actions else part.stop - part.start


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{key}.")
        else:
            plain = isinstance(item, str | int | float | None)
            yield f"{prefix}{key}", item if plain else json.dumps(item, sort_keys=True, ensure_ascii=False)


def vocabularies(a: tuple[str, ...], b: tuple[str, ...]) -> Vocabularies:
    """What became of the actions. An action is renamed when its id bears a name that A lacks, and B lacks the old one."""
    known_a, known_b = set(a), set(b)
    renamed = tuple(
        (old, new)
        for old, new in zip(a, b, strict=False)
        if old != new and old not in known_b and new not in known_a
    )
    olds, news = {old for old, _ in renamed}, {new for _, new in renamed}
    ids = {name: place for place, name in enumerate(b)}
    return Vocabularies(
        tuple(name for name in b if name not in known_a and name not in news),
        tuple(name for name in a if name not in known_b and name not in olds),
        renamed,
        tuple((name, place, ids[name]) for place, name in enumerate(a) if ids.get(name, place) != place),
    )


def sources(a: Manifest, b: Manifest, store: Store | None) -> list[Source]:
    """The sources of one side alone, by their bytes and format."""
    first, second = set(a.sources), set(b.sources)
    rows = [] if store is None else store.con.sql("SELECT sha256, path FROM sources ORDER BY path").fetchall()
    paths = dict(reversed(rows))
    only = [("A", item) for item in first - second] + [("B", item) for item in second - first]
    found = [Source(side, item.format, item.sha256, paths.get(item.sha256)) for side, item in only]
    return sorted(found, key=lambda item: (item.only_in, item.format, item.path or "", item.sha256))


def lone_episodes(
    a: pl.DataFrame, b: pl.DataFrame, left_out_a: pl.DataFrame, left_out_b: pl.DataFrame
) -> list[Lone]:
    """The episodes of one side alone, counted by why the other side lacks them.

    `a` and `b` are rows of transitions, `left_out_*` those of quarantine (level transition).
    """
    parts = [_lone("A", a, b, left_out_b), _lone("B", b, a, left_out_a)]
    return [Lone(*row) for part in parts for row in part.iter_rows()]


def _lone(side: str, own: pl.DataFrame, other: pl.DataFrame, left_out: pl.DataFrame) -> pl.DataFrame:
    gone = left_out.drop_nulls("episode_id").unique("episode_id", keep="first", maintain_order=True)
    why = pl.format("left out ({}): {}", "rule", "reason")
    unknown = (
        pl.when(pl.col("parent_id").is_null())
        .then(pl.lit("not read, or forgotten"))
        .otherwise(pl.lit("not made"))
    )
    return (
        own.sort("episode_id", "step")
        .unique("episode_id", keep="first", maintain_order=True)
        .join(other.select("episode_id").unique(), on="episode_id", how="anti", maintain_order="left")
        .join(gone.select("episode_id", other_side=why), on="episode_id", how="left", maintain_order="left")
        .with_columns(pl.col("other_side").fill_null(unknown))
        .group_by(pl.lit(side).alias("only_in"), "split", "other_side")
        .agg(episodes=pl.len(), example=pl.col("locator").first())
        .sort("only_in", "split", "other_side")
    )


COMPARED = (
    "action", "action_valid", "reward", "return_to_go", "weight", "mask", "terminal", "timeout", "success", "state_key",
    "state_key_canonical", "source_kind", "policy_id", "propensity", "propensity_kind", "mask_kind", "locator",
)  # fmt: skip
"""The columns of `transitions` that are compared step by step. Ids of actions and splits have parts of their own."""


def step_changes(
    a: pl.DataFrame, b: pl.DataFrame, actions_a: tuple[str, ...], actions_b: tuple[str, ...]
) -> list[StepChange]:
    """What differs in the steps of episodes that both sides hold; masks go by the names of the actions."""
    key = ["episode_id", "step"]
    first, second = (
        side.with_columns(mask=_named(side["mask"], actions))
        for side, actions in ((a, actions_a), (b, actions_b))
    )
    both = first.select(*key, *COMPARED).join(second.select(*key, *COMPARED), on=key, suffix="_b").sort(key)
    found = [_lengths(first, second, both), *(_change(both, column) for column in COMPARED)]
    return [change for change in found if change is not None]


def _named(masks: pl.Series, actions: tuple[str, ...]) -> pl.Series:
    """Masks as texts: the allowed actions by name, or places where no vocabulary is known."""
    bits = masks.list.eval(pl.element().cast(pl.Int8).cast(pl.String)).list.join("")
    names = {
        text: ", ".join(sorted(actions[i] if i < len(actions) else str(i) for i, bit in enumerate(text) if bit == "1"))
        for text in bits.unique().drop_nulls()
    }  # fmt: skip
    return bits.replace_strict(names, return_dtype=pl.String) if names else bits


def _lengths(a: pl.DataFrame, b: pl.DataFrame, both: pl.DataFrame) -> StepChange | None:
    """Steps that a shared episode has on one side alone."""
    shared = both.select("episode_id").unique()
    apart = [
        side.join(shared, on="episode_id", how="semi").join(both, on=["episode_id", "step"], how="anti")
        for side in (a, b)
    ]
    named = [
        part.select("episode_id", "step", "locator", side=pl.lit(side))
        for part, side in zip(apart, "AB", strict=True)
    ]
    alone = pl.concat(named).sort("episode_id", "step")
    if alone.is_empty():
        return None
    there = tuple(
        Example(place, *(("there", "—") if side == "A" else ("—", "there")))
        for place, side in alone.head(EXAMPLES).select("locator", "side").iter_rows()
    )
    return StepChange("steps of one side alone", alone.height, alone["episode_id"].n_unique(), None, there)


def _change(both: pl.DataFrame, column: str) -> StepChange | None:
    before, after = pl.col(column), pl.col(f"{column}_b")
    changed = both.filter(~before.eq_missing(after))
    if changed.is_empty():
        return None
    mean = None
    if both.schema[column].is_float():
        changed = changed.with_columns(by=(after - before).abs())
        mean = changed["by"].drop_nulls().drop_nans().mean()
        changed = changed.sort("by", "episode_id", "step", descending=[True, False, False], nulls_last=True)
    rows = changed.head(EXAMPLES).select("locator", before=before, after=after).iter_rows()
    largest = tuple(Example(place, _shown(old), _shown(new)) for place, old, new in rows)
    return StepChange(
        column,
        changed.height,
        changed["episode_id"].n_unique(),
        mean if isinstance(mean, float) else None,
        largest,
    )


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "—" if value is None else str(value)
