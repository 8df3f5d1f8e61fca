"""What changed between two datasets: what made them, what they hold, and how their distributions drifted.

Two builds of the same inputs differ in nothing. side.py says what can be compared where rows or folders are gone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from logforge.core import Tick, silent
from logforge.dataset.diff.changes import (
    Vocabularies,
    described,
    lone_episodes,
    settings,
    sources,
    step_changes,
    vocabularies,
)
from logforge.dataset.diff.drift import drifts_between
from logforge.dataset.diff.report import PARTS, DatasetDiff
from logforge.dataset.diff.side import Side, side_of
from logforge.rewards.lint import kendall, movers, term_means
from logforge.shards import SAMPLE
from logforge.splits import balance, moves
from logforge.store import open_store

_NOTHING = Vocabularies((), (), (), ())


def diff_datasets(
    a: str,
    b: str,
    store: str | Path | None = None,
    *,
    sample: int = SAMPLE,
    seed: int = 0,
    progress: Tick = silent,
) -> DatasetDiff:
    """Compare two datasets: names in a store, or dataset folders, which need none.

    `sample` is how many decisions of a split at most the drift of features looks at, drawn by `seed`. Raises UnknownName
    for what is neither a name nor a folder, and what reading a damaged folder raises.
    """
    if store is None or not Path(store).exists():
        return _compared(side_of(a, None), side_of(b, None), sample, seed, progress)
    with open_store(store, read_only=True) as opened:
        return _compared(side_of(a, opened), side_of(b, opened), sample, seed, progress)


def _compared(a: Side, b: Side, sample: int, seed: int, progress: Tick) -> DatasetDiff:
    found: dict[str, Any] = {
        "shared_episodes": None, "shared_steps": None, "vocabulary": _NOTHING, "sources": [], "files": [], "episodes": [],
        "steps": [], "tau": None, "terms": [], "movers": [], "splits": [], "balance": [], "conflicts": [], "left_out": [],
    }  # fmt: skip
    progress(0, 3, "settings")
    found |= _made_from(a, b)
    progress(1, 3, "rows")
    if a.name is not None and b.name is not None:
        found |= _of_rows(a, b)
    else:
        found["balance"] = _changed_counts(_counts_of_folder(a), _counts_of_folder(b))
    progress(2, 3, "distributions")
    drifts, notes = drifts_between(a, b, sample, seed)
    progress(3, 3, "")
    parts = tuple(name for name in PARTS if any(found[name]))
    notes = (*dict.fromkeys((*a.notes, *b.notes)), *notes)
    return DatasetDiff(a.given, b.given, a.hash, b.hash, parts, **found, drifts=drifts, notes=notes)


def _made_from(a: Side, b: Side) -> dict[str, Any]:
    """Settings, vocabulary, sources and files."""
    first, second = {"build": a.settings}, {"build": b.settings}
    if a.manifest is None or b.manifest is None:
        hashes = ({"reward": {"spec_hash": side.spec_hash}} for side in (a, b))
        return {
            "settings": settings(*(side | more for side, more in zip((first, second), hashes, strict=True)))
        }
    sums_a, sums_b = a.manifest.checksums, b.manifest.checksums
    return {
        "settings": settings(first | described(a.manifest), second | described(b.manifest)),
        "vocabulary": vocabularies(a.manifest.actions, b.manifest.actions),
        "sources": sources(a.manifest, b.manifest, a.store or b.store),
        "files": sorted(name for name in {*sums_a, *sums_b} if sums_a.get(name) != sums_b.get(name)),
    }  # fmt: skip


def _of_rows(a: Side, b: Side) -> dict[str, Any]:
    """What only rows tell."""
    actions = [() if side.manifest is None else side.manifest.actions for side in (a, b)]
    if not all(actions):
        actions = [(), ()]
    changes = step_changes(a.rows, b.rows, *actions)
    shared = a.rows.join(b.rows, on=["episode_id", "step"], how="semi")
    gone = [side.table("quarantine").filter(level="transition").sort("episode_id", "rule") for side in (a, b)]
    return {
        "shared_episodes": shared["episode_id"].n_unique(),
        "shared_steps": shared.height,
        "episodes": lone_episodes(a.rows, b.rows, *gone),
        "steps": changes,
        **(_ranking(a.rows, b.rows) if {"reward", "return_to_go"} & {change.column for change in changes} else {}),
        "splits": moves(a.table("splits"), b.table("splits"), _same_split_settings(a, b)).to_dicts(),
        "balance": _changed_counts(_counts_of_rows(a), _counts_of_rows(b)),
        "conflicts": _numbers(a.table("conflicts"), b.table("conflicts"), ["kind", "level"]),
        "left_out": _numbers(gone[0].unique("episode_id"), gone[1].unique("episode_id"), ["rule", "reason"]),
    }  # fmt: skip


def _same_split_settings(a: Side, b: Side) -> bool:
    return all(a.settings.get(key) == b.settings.get(key) for key in ("seed", "fractions", "split_by"))


def _ranking(a: pl.DataFrame, b: pl.DataFrame) -> dict[str, Any]:
    """How the returns of shared episodes rank, and what each reward term gives on average."""
    first = a.filter(step=0).select("episode_id", "success", "locator", total="return_to_go")
    both = first.join(b.filter(step=0).select("episode_id", total_b="return_to_go"), on="episode_id").sort(
        "episode_id"
    )
    shared = both.select("episode_id")
    terms = term_means(
        *(side.join(shared, on="episode_id", how="semi", maintain_order="left") for side in (a, b))
    )
    return {
        "tau": kendall(both["total"].to_numpy(), both["total_b"].to_numpy()),
        "terms": [term for term in terms if term.mean_a != term.mean_b],
        "movers": list(movers(both)),
    }  # fmt: skip


def _counts_of_rows(side: Side) -> pl.DataFrame:
    return balance(side.rows)


def _counts_of_folder(side: Side) -> pl.DataFrame:
    """As far as a manifest counts; where there is none, from the rows."""
    if side.manifest is None:
        kept = ["split", "episodes", "transitions", "success"]
        return (
            balance(side.rows)
            .group_by("split")
            .agg(pl.col(kept[1:]).sum())
            .cast(dict.fromkeys(kept[1:], pl.Int64))
        )
    rows = [
        (name, part.episodes, part.transitions, part.successes) for name, part in side.manifest.splits.items()
    ]
    return pl.DataFrame(rows, schema={"split": pl.String, "episodes": pl.Int64, "transitions": pl.Int64, "success": pl.Int64}, orient="row")  # fmt: skip


def _changed_counts(a: pl.DataFrame, b: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of two tables of counts that differ, each count as [a, b]."""
    key = [name for name in a.columns if a.schema[name] == pl.String]
    both = a.join(b, on=key, how="full", suffix="_b", coalesce=True).sort(key)
    counts = [name for name in a.columns if name not in key]
    rows = [
        {name: row[name] for name in key} | {name: [row[name] or 0, row[f"{name}_b"] or 0] for name in counts}
        for row in both.to_dicts()
    ]
    return [row for row in rows if any(row[name][0] != row[name][1] for name in counts)]


def _numbers(a: pl.DataFrame, b: pl.DataFrame, key: list[str]) -> list[dict[str, Any]]:
    """How many rows of each kind there are, where that differs."""
    return _changed_counts(*(side.group_by(key).agg(count=pl.len()) for side in (a, b)))
