"""The rows that conflicts are found among, each under the keys of the state and of the trajectory it belongs to.

Only logged rows with whole returns count: augmented rows and truncated episodes say nothing of outcomes.

Two trajectories are equal when they have the same states and the same decisions, step by step. A decision is the
action's name and what was said with it: a tool's arguments, or the text of an answer. At level `canonical` numbers, ids,
dates and names are masked in the states and in what was said (logforge/canonical.py).
"""

from __future__ import annotations

import duckdb
import polars as pl
import xxhash

from logforge.canonical import mask_volatile

LEVELS: tuple[str, ...] = ("exact", "canonical", "near")
"""How alike two states are: one state_key, one state_key_canonical, or vectors near each other (conflict_near.py)."""
TRAJECTORIES: dict[str, str] = {"exact": "trajectory_exact", "canonical": "trajectory_canonical"}
"""The levels at which trajectories are compared, each with the column that holds its key."""
DEMONSTRATION = "human_demo"
"""The source kind of a demonstration."""

_STEP = ["episode_id", "step"]


def decisions_of(con: duckdb.DuckDBPyConnection) -> pl.DataFrame:
    """What was said with each decision of a store, and the logged score of its episode: episode_id, step, said, score."""
    found: pl.DataFrame = con.sql(_DECISIONS).pl()
    return found


_DECISIONS = """
SELECT s.episode_id, s.step, concat_ws(' ', s.arguments, CASE WHEN s.kind <> 'tool' THEN m.content END) AS said, e.score
FROM steps s JOIN episodes e USING (episode_id)
LEFT JOIN messages m ON m.episode_id = s.episode_id AND m.position = s.position
ORDER BY s.episode_id, s.step
"""


def comparable(
    transitions: pl.DataFrame, decisions: pl.DataFrame, near: pl.DataFrame | None = None
) -> pl.DataFrame:
    """The rows of a dataset that can be compared, ordered by episode and step.

    `decisions` is what `decisions_of` gives (at least of these episodes), `near` what conflict_near.near_states gives.
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
    rows = rows.join(
        decisions.with_columns(pl.col("step").cast(pl.Int32)), on=_STEP, how="left", validate="1:1"
    ).sort(_STEP)
    groups = near if near is not None else pl.DataFrame(schema={"exact": pl.String, "near": pl.String})
    rows = rows.join(groups.select("exact", "near"), on="exact", how="left", maintain_order="left")
    for level, column in TRAJECTORIES.items():
        keys = _trajectories(rows, level).rename({"trajectory": column})
        rows = rows.join(keys, on="episode_id", how="left", maintain_order="left")
    return rows.drop("said")


def _trajectories(rows: pl.DataFrame, level: str) -> pl.DataFrame:
    """The key of each episode's trajectory, for the episodes that share it with another: episode_id, trajectory.

    Masking texts is dear, so only episodes whose states and actions are alike are compared by what was said.
    """
    visited = _repeated(_joined(rows, pl.concat_str(level, pl.lit("/"), "action")))
    alike = rows.join(visited.select("episode_id"), on="episode_id", how="semi", maintain_order="left")
    # a decision that the store holds no more is like no other
    said = pl.coalesce("said", "episode_id")
    if level == "canonical":
        said = said.map_elements(mask_volatile, return_dtype=pl.String)
    spoken = said.map_elements(_hash, return_dtype=pl.String)
    same = _repeated(_joined(alike, pl.concat_str(level, pl.lit("/"), "action", pl.lit("/"), spoken)))
    return same.with_columns(pl.col("trajectory").map_elements(_hash, return_dtype=pl.String))


def _joined(rows: pl.DataFrame, parts: pl.Expr) -> pl.DataFrame:
    """Rows come ordered by step."""
    return rows.group_by("episode_id").agg(trajectory=parts.str.join("\n"))


def _repeated(keys: pl.DataFrame) -> pl.DataFrame:
    return keys.filter(pl.len().over("trajectory") > 1)


def _hash(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))
