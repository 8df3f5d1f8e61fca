"""The rows that conflicts are found among, each under the keys of the state and of the trajectory it belongs to.

Only logged rows with whole returns count: augmented rows and truncated episodes say nothing of outcomes.

Two trajectories are equal when they have the same states and the same decisions, step by step. A decision is the
action's name and what was said with it: a tool's arguments, or the text of an answer. At level `canonical` numbers, ids,
dates and names are masked in the states and in what was said (logforge/texts/placeholders.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import duckdb
import polars as pl
import xxhash

from logforge.core import EpisodeSpool, batches
from logforge.schemas import Episode, Step
from logforge.texts import mask_volatile

LEVELS: tuple[str, ...] = ("exact", "canonical", "near")
"""How alike two states are: one state_key, one state_key_canonical, or vectors near each other (near.py)."""
TRAJECTORIES: dict[str, str] = {"exact": "trajectory_exact", "canonical": "trajectory_canonical"}
"""The levels at which trajectories are compared, each with the column that holds its key."""
DEMONSTRATION = "human_demo"
"""The source kind of a demonstration."""

_STEP = ["episode_id", "step"]
_KEYS = {"episode_id": pl.String, "trajectory": pl.String}


class Decisions(NamedTuple):
    """What was said with decisions, asked for some episodes at a time, since their texts may be more than memory holds.

    `scores` (episode_id, score) are the logged ones of episodes, and `said` gives episode_id, step and said of those named.
    """

    scores: pl.DataFrame
    said: Callable[[list[str]], pl.DataFrame]

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Decisions:
        """From rows with episode_id, step, said and score."""
        scores = frame.select("episode_id", "score").unique("episode_id")
        return cls(scores, lambda names: frame.filter(pl.col("episode_id").is_in(names)).select(list(_SAID)))


def decisions_of(con: duckdb.DuckDBPyConnection) -> Decisions:
    """The decisions of a store."""
    scores: pl.DataFrame = con.sql("SELECT episode_id, score FROM episodes").pl()
    return Decisions(scores, lambda names: con.sql(_STORED, params=[names]).pl())


def decisions_in(con: duckdb.DuckDBPyConnection, spool: EpisodeSpool) -> Decisions:
    """The same, with what was said read from spooled episodes."""

    def said(names: list[str]) -> pl.DataFrame:
        rows = [
            (e.episode_id, step.step, _said(e, step))
            for e in map(spool.__getitem__, names)
            for step in e.steps
        ]
        return pl.DataFrame(rows, schema=_SAID, orient="row")

    return decisions_of(con)._replace(said=said)


def _said(episode: Episode, step: Step) -> str:
    """A call's arguments, or the arguments of what is no call with the text of its turn."""
    place = bisect_left(episode.messages, step.position, key=lambda message: message.position)
    found = episode.messages[place : place + 1] if step.kind != "tool" else []
    texts = (m.content for m in found if m.position == step.position and m.content is not None)
    return " ".join([step.arguments, *texts])


_SAID = {"episode_id": pl.String, "step": pl.Int32, "said": pl.String}
_STORED = """
SELECT s.episode_id, s.step, concat_ws(' ', s.arguments, CASE WHEN s.kind <> 'tool' THEN m.content END) AS said
FROM steps s LEFT JOIN messages m ON m.episode_id = s.episode_id AND m.position = s.position
WHERE s.episode_id IN (SELECT unnest($1))
"""


def comparable(
    transitions: pl.DataFrame, decisions: Decisions, near: pl.DataFrame | None = None
) -> pl.DataFrame:
    """The rows of a dataset that can be compared, ordered by episode and step.

    `decisions` is what `decisions_of` gives (at least of these episodes), `near` what near.near_states gives.
    Columns: episode_id, step, action, success, value (the return to go), merit (1 success, 0 unknown, -1 failure),
    demonstrated, score, a key per level (`near` is null where no other state is near) and the trajectories' keys (null
    where no other episode has the same).
    """
    whole = (
        pl.col("parent_id").is_null() & ~pl.col("return_is_partial") & pl.col("return_to_go").is_not_null()
    )
    merit = pl.when("success").then(1).when(~pl.col("success")).then(-1).otherwise(0).cast(pl.Int8)
    rows = transitions.filter(whole).select(
        *_STEP,
        "action",
        "success",
        value="return_to_go",
        merit=merit,
        demonstrated=pl.col("source_kind") == DEMONSTRATION,
        exact="state_key",
        canonical="state_key_canonical",
    )
    rows = rows.join(decisions.scores, on="episode_id", how="left", validate="m:1").sort(_STEP)
    groups = near if near is not None else pl.DataFrame(schema={"exact": pl.String, "near": pl.String})
    rows = rows.join(groups.select("exact", "near"), on="exact", how="left", maintain_order="left")
    for level, column in TRAJECTORIES.items():
        keys = _trajectories(rows, level, decisions).rename({"trajectory": column})
        rows = rows.join(keys, on="episode_id", how="left", maintain_order="left")
    return rows


def _trajectories(rows: pl.DataFrame, level: str, decisions: Decisions) -> pl.DataFrame:
    """The key of each episode's trajectory, for the episodes that share it with another: episode_id, trajectory.

    Masking texts is dear, so only episodes whose states and actions are alike are compared by what was said.
    """
    visited = _repeated(_joined(rows, pl.concat_str(level, pl.lit("/"), "action")))
    names = visited["episode_id"].sort()
    alike = rows.filter(pl.col("episode_id").is_in(names.implode()))
    ends = alike.group_by("episode_id", maintain_order=True).len()["len"].cum_sum().to_list()
    pieces, start = [], 0
    for batch in batches(zip(names, ends, strict=True)):
        stop = batch[-1][1]
        pieces.append(_spoken(alike[start:stop], level, decisions.said([name for name, _ in batch])))
        start = stop
    return _repeated(pl.concat([pl.DataFrame(schema=_KEYS), *pieces]))


def _spoken(rows: pl.DataFrame, level: str, said: pl.DataFrame) -> pl.DataFrame:
    """The key of each episode's trajectory: its states, its actions, and what was said with them."""
    rows = rows.join(
        said.cast({"step": pl.Int32}), on=_STEP, how="left", maintain_order="left", validate="1:1"
    )
    # a decision that the store holds no more is like no other
    words = pl.coalesce("said", "episode_id")
    if level == "canonical":
        words = words.map_elements(mask_volatile, return_dtype=pl.String)
    spoken = words.map_elements(_hash, return_dtype=pl.String)
    keys = _joined(rows, pl.concat_str(level, pl.lit("/"), "action", pl.lit("/"), spoken))
    return keys.with_columns(pl.col("trajectory").map_elements(_hash, return_dtype=pl.String))


def _joined(rows: pl.DataFrame, parts: pl.Expr) -> pl.DataFrame:
    """Rows come ordered by step."""
    return rows.group_by("episode_id").agg(trajectory=parts.str.join("\n"))


def _repeated(keys: pl.DataFrame) -> pl.DataFrame:
    return keys.filter(pl.len().over("trajectory") > 1)


def _hash(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))
