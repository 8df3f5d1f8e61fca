"""A million synthetic steps on one core: each example spec's query and the returns, against a plain Python loop that gives
the same (`benchmarks.reward_loops`), and the bare loop of numbers beside. Rewards, terms, reasons and returns are held against
each other first: they are equal to the last bit. Scores of texts are made up and given to both sides.

The loops are given their tuples in order and for nothing; the query starts from the store's tables.
"""

from __future__ import annotations

import itertools
import math
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import logforge
from benchmarks.measure import Result, alternating
from benchmarks.reward_loops import LOOPS, Bare, Row, Scored, layered, named, returns
from logforge.core.frames import Tables, arrow_schema
from logforge.rewards.pipeline import Scale, collected, fit_scales, load_spec
from logforge.rewards.returns import returns_to_go
from logforge.rewards.sql.query import compile_query
from logforge.schemas.reward import RewardSpec
from logforge.schemas.tables import EPISODES, MESSAGES, STEPS, Table

STEPS_MADE = 1_000_000
SPECS = (*LOOPS, "layers_40_60")
EXAMPLES = Path(logforge.__file__).parent / "templates" / "rewards"


def run(count: int = STEPS_MADE) -> list[Result]:
    """Every example spec, and the memory that all of it took."""
    tables = made(count)
    results = [_compared(name, tables) for name in SPECS]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    results.append(
        Result("  peak memory, the loops' tuples included", f"{peak:.1f} GB", "", None, "< 4 GB", peak < 4)
    )
    return results


class Sides(NamedTuple):
    """What is compared for a spec: its query, the loop that gives the same, and the loop's bare numbers."""

    query: Callable[[], pl.DataFrame]
    same: Callable[[], tuple[list[Scored], list[float]]]
    bare: Callable[[], tuple[Bare, list[float]]]

    def assert_equal(self) -> None:
        """To the last bit: every term with its name, the reward, why it is null, and the return."""
        frame, (scored, after) = self.query(), self.same()
        terms = frame["reward_terms"].explode().struct.unnest()
        assert terms["key"].to_list() == [name for item in scored for name in item.terms]
        assert terms["value"].to_list() == [value for item in scored for value in item.terms.values()]
        assert frame["reward"].to_list() == [item.reward for item in scored]
        assert frame["null_reason"].to_list() == [item.null_reason for item in scored]
        assert np.array_equal(frame["return_to_go"].to_numpy(), np.array(after), equal_nan=True)


def sides(name: str, tables: Tables) -> Sides:
    """The sides of an example spec."""
    spec = load_spec(EXAMPLES / f"{name}.yaml")
    scored = _scores(spec, tables)
    scales = fit_scales(spec, tables, scored)
    loop = LOOPS[name] if name in LOOPS else layered(scales)
    rows = list(_rows(tables, spec, scored))

    def bare() -> tuple[Bare, list[float]]:
        found = loop.run(rows)
        return found, returns(found, rows, spec.gamma)

    def same() -> tuple[list[Scored], list[float]]:
        found, after = bare()
        return named(loop, found), after

    return Sides(_query(spec, tables, scales, scored), same, bare)


def _compared(name: str, tables: Tables) -> Result:
    both = sides(name, tables)
    both.assert_equal()
    query, same, bare = alternating(*both, repeats=3)
    steps = tables.steps.num_rows
    return Result(
        f"rewards and returns, {name}, one core",
        f"{steps / query:,.0f} steps/s ({steps:,} in {query:.2f} CPU s)",
        f"loop {steps / same:,.0f} steps/s; bare numbers {steps / bare:,.0f}",
        same / query,
        "≥ 1",
        same >= query,
    )


def _query(
    spec: RewardSpec, tables: Tables, scales: dict[str, Scale], scored: pl.DataFrame | None
) -> Callable[[], pl.DataFrame]:
    """`logforge.rewards.pipeline.score` on one thread, and the returns."""

    def call() -> pl.DataFrame:
        with duckdb.connect() as con:
            con.execute("SET threads = 1")
            for name, table in tables._asdict().items():
                con.register(name, table)
            if scored is not None:
                con.register("scored", scored.to_arrow())
            frame = collected(spec, con.sql(compile_query(spec, scales)).pl())
        rewards = frame["reward"].fill_null(math.nan).to_numpy()
        after = returns_to_go(rewards, _offsets(frame["step"].to_numpy()), spec.gamma)
        return frame.with_columns(return_to_go=pl.Series(after))

    return call


def _offsets(step: np.ndarray) -> np.ndarray:
    return np.append(np.flatnonzero(step == 0), len(step)).astype(np.int64)


def _scores(spec: RewardSpec, tables: Tables, seed: int = 1) -> pl.DataFrame | None:
    """A score for the last step of each episode and scorer; one in twenty has none."""
    if not spec.scored:
        return None
    rng = np.random.default_rng(seed)
    steps = pl.DataFrame(tables.steps.select(["episode_id", "step"]))
    ends = steps.group_by("episode_id").agg(pl.col("step").max()).sort("episode_id")
    frames = []
    for term in spec.scored:
        value = pl.Series(rng.random(ends.height)).set(pl.Series(rng.random(ends.height) < 0.05), None)
        reason = pl.when(pl.col("value").is_null()).then(pl.lit("missing reference"))
        frame = ends.with_columns(pl.lit(term).alias("term"), value.alias("value")).with_columns(
            reason=reason
        )
        frames.append(frame.select("term", "episode_id", "step", "value", "reason"))
    return pl.concat(frames)


def made(count: int, seed: int = 0) -> Tables:
    """Episodes of 4 to 20 steps with 12 tools, five argument values, forty results; a third of the calls fail."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, 21, size=count // 4)
    lengths = lengths[: np.searchsorted(np.cumsum(lengths), count) + 1]
    lengths[-1] -= lengths.sum() - count
    episode = np.repeat(np.arange(len(lengths)), lengths)
    step = np.arange(count) - (np.cumsum(lengths) - lengths)[episode]
    # ids as they are in a store: random, and in no order
    names = np.array([f"{number:032x}" for number in rng.permutation(len(lengths)) * 7919])
    action = rng.integers(0, 14, size=count)
    tool = action >= 2
    status = np.array(["ok", "ok", "ok", "error", "timeout", "empty"])[rng.integers(0, 6, size=count)]
    result = np.array([f"result {number}: " + "x" * 60 for number in range(40)])[
        rng.integers(0, 40, size=count)
    ]
    steps = {
        "episode_id": names[episode],
        "step": step,
        "position": step * 2 + 1,
        "kind": np.array(["respond", "clarify", "tool"])[np.minimum(action, 2)],
        "action": np.array(
            ["respond", "clarify", "get_user_details", *(f"tool_{number}" for number in range(11))]
        )[action],
        "action_valid": rng.random(count) > 0.03,
        "arguments": np.where(
            tool,
            np.array([f'{{"id":{number}}}' for number in range(5)])[rng.integers(0, 5, size=count)],
            "{}",
        ),
        "result": pa.array(result, mask=~tool),
        "result_status": np.where(tool, status, "missing"),
        "error_class": pa.array(
            np.full(count, "other"), mask=~(tool & np.isin(status, ("error", "timeout")))
        ),
    }
    episodes = {
        "episode_id": names,
        "ending": np.where(rng.random(len(lengths)) < 0.9, "terminal", "truncated"),
        "success": pa.array(rng.random(len(lengths)) < 0.4, mask=rng.random(len(lengths)) < 0.02),
    }
    return Tables(_table(EPISODES, episodes), arrow_schema(MESSAGES).empty_table(), _table(STEPS, steps))


def _table(table: Table, columns: dict[str, object]) -> pa.Table:
    schema = arrow_schema(table)
    count = len(columns["episode_id"])  # type: ignore[arg-type]
    made = [
        pa.array(columns[f.name]).cast(f.type) if f.name in columns else pa.nulls(count, f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(made, schema=schema)


def _rows(tables: Tables, spec: RewardSpec, scored: pl.DataFrame | None) -> Iterator[Row]:
    """The steps in order of episode and step, with what the loop must know of their episode and their scores."""
    ends = pl.DataFrame(tables.episodes.select(["episode_id", "ending", "success"]))
    steps = pl.DataFrame(tables.steps).join(ends, on="episode_id").sort("episode_id", "step")
    scores = []
    for term in spec.scored if scored is not None else []:
        given = scored.filter(term=term).select("episode_id", "step", pl.col("value").alias(f"scored {term}"))  # type: ignore[union-attr]
        steps = steps.join(given, on=("episode_id", "step"), how="left", maintain_order="left")
        scores.append(f"scored {term}")
    tool = pl.col("kind") == "tool"
    frame = steps.select(
        "step", "kind", "action", "arguments", "action_valid", "result",
        pl.when(tool).then("result_status").otherwise(pl.lit("none")),
        (pl.col("episode_id") != pl.col("episode_id").shift(-1)).fill_null(True).alias("last"),
        pl.col("ending") == "terminal", "success",
    )  # fmt: skip
    numbers = steps.select(scores).iter_rows() if scores else itertools.repeat(())
    for row, given in zip(frame.iter_rows(), numbers, strict=False):
        yield (*row, given)  # type: ignore[misc]
