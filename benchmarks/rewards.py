"""A million synthetic steps on one core: a spec's query and the returns, against a plain Python loop over tuples that
computes the same. The results are held against each other: rewards, each term and returns are equal to the last bit.

The loop is given its tuples in order and for nothing; the query starts from the store's tables.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Iterator
from typing import NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.measure import Result, alternating
from logforge.frames import Tables, arrow_schema
from logforge.returns import returns_to_go
from logforge.rewards import collected, parse_spec
from logforge.rewardsql import compile_query
from logforge.schemas.reward import RewardSpec
from logforge.schemas.tables import EPISODES, MESSAGES, STEPS, Table

STEPS_MADE = 1_000_000
GAMMA = 0.99
SIMPLE = """
gamma: 0.99
terms:
  success: {at: terminal, when: success, value: 10}
  step_cost: {value: -0.1}
  tool_error: {when: "result_status IN ('error', 'timeout')", value: -0.2}
  repeat: {when: "kind = 'tool' AND repeats > 0 AND prev_result_status NOT IN ('error', 'timeout')", value: -0.2}
  found: {when: "action = 'tool_3' AND result_status = 'ok'", value: 0.5, once: true}
"""
DETECTORS = """
gamma: 0.99
terms:
  success: {at: terminal, when: success, value: 10}
  invalid: {when: invalid_tool, value: -0.5}
  error: {when: runtime_error, value: -0.2}
  looping: {when: loop, value: -0.3}
  stuck: {when: no_progress, value: -0.2}
  asked: {when: clarify, value: 0.1, max_per_episode: 2}
  closed: {when: premature_close, value: -1}
"""


class Row(NamedTuple):
    """A step as the loop sees it."""

    episode: str
    step: int
    kind: str
    action: str
    arguments: str
    valid: bool
    result: str | None
    status: str
    last: bool
    ended: bool
    success: bool | None


class Scored(NamedTuple):
    """What both give for a step: its terms, its reward (None where an input is missing), why, and its return to go."""

    terms: dict[str, float | None]
    reward: float | None
    null_reason: str | None


def run() -> list[Result]:
    """Simple terms and detectors."""
    tables = made(STEPS_MADE)
    rows = list(_rows(tables))
    results = []
    for name, text, loop in (("simple terms", SIMPLE, simple), ("detectors", DETECTORS, detectors)):
        spec = parse_spec(text)
        _assert_equal(_query(spec, tables)(), *loop(rows))
        query, plain = alternating(_query(spec, tables), lambda loop=loop: loop(rows), repeats=3)  # type: ignore[misc]
        results.append(
            Result(
                f"rewards and returns, {name}, one core",
                f"{len(rows) / query:,.0f} steps/s ({len(rows):,} in {query:.2f} CPU s)",
                f"plain loop {len(rows) / plain:,.0f} steps/s",
                plain / query,
                "≥ 1",
                plain >= query,
            )
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    results.append(
        Result("  peak memory, the loop's tuples included", f"{peak:.1f} GB", "", None, "< 4 GB", peak < 4)
    )
    return results


def simple(rows: list[Row]) -> tuple[list[Scored], list[float]]:
    """The reference for SIMPLE. Only `success` may be missing."""
    scored = []
    seen: set[tuple[str, str]] = set()
    found, before = False, "none"
    for _, step, kind, action, arguments, _, _, status, last, ended, success in rows:
        if step == 0:
            seen, found, before = set(), False, "none"
        call = (action, arguments)
        paid = 0.0
        if not found and action == "tool_3" and status == "ok":
            found, paid = True, 0.5
        repeat = -0.2 if kind == "tool" and call in seen and before not in ("error", "timeout") else 0.0
        solved = _solved(last, ended, success)
        failed = -0.2 if status in ("error", "timeout") else 0.0
        terms = {"found": paid, "repeat": repeat, "step_cost": -0.1, "success": solved, "tool_error": failed}
        scored.append(_summed(terms))
        seen.add(call)
        before = status
    return scored, _returns(scored, rows)


def detectors(rows: list[Row]) -> tuple[list[Scored], list[float]]:
    """The reference for DETECTORS. Only `success` may be missing."""
    scored = []
    seen: dict[tuple[str, str], int] = {}
    results: set[str | None] = set()
    calls = news = worked = asked = 0
    latest = "none"
    for _, step, kind, action, arguments, valid, result, status, last, ended, success in rows:
        if step == 0:
            seen, results = {}, set()
            calls = news = worked = asked = 0
            latest = "none"
        call, tool = (action, arguments), kind == "tool"
        if tool:
            calls += 1
            latest = status
            worked += status in ("ok", "empty")
            if status == "ok" and result not in results:
                results.add(result)
                news = calls
        asks = 0.0
        if kind == "clarify":
            asks = 0.1 if asked < 2 else 0.0
            asked += 1
        closing = (
            last and ended and (latest in ("error", "timeout", "refused") or (calls > 0 and worked == 0))
        )
        terms = {
            "asked": asks,
            "closed": -1.0 if closing else 0.0,
            "error": -0.2 if status in ("error", "timeout") else 0.0,
            "invalid": -0.5 if tool and not valid else 0.0,
            "looping": -0.3 if tool and step - seen.get(call, -9) <= 3 else 0.0,
            "stuck": -0.2 if tool and calls - news >= 3 else 0.0,
            "success": _solved(last, ended, success),
        }
        scored.append(_summed(terms))
        seen[call] = step
    return scored, _returns(scored, rows)


def _solved(last: bool, ended: bool, success: bool | None) -> float | None:
    if not last or not ended:
        return 0.0
    return None if success is None else 10.0 if success else 0.0


def _summed(terms: dict[str, float | None]) -> Scored:
    if None in terms.values():
        return Scored(terms, None, "success: missing success")
    total = 0.0
    for value in terms.values():
        total += value  # type: ignore[operator]
    return Scored(terms, total, None)


def _returns(scored: list[Scored], rows: list[Row]) -> list[float]:
    """The returns to go, backwards; nan where a later reward of the episode is missing."""
    returns = [0.0] * len(rows)
    after = 0.0
    for number in range(len(rows) - 1, -1, -1):
        if rows[number][8]:
            after = 0.0
        reward = scored[number][1]
        after = returns[number] = (math.nan if reward is None else reward) + GAMMA * after
    return returns


def _query(spec: RewardSpec, tables: Tables) -> Callable[[], pl.DataFrame]:
    """`logforge.rewards.score` on one thread, and the returns."""

    def call() -> pl.DataFrame:
        with duckdb.connect() as con:
            con.execute("SET threads = 1")
            for name, table in tables._asdict().items():
                con.register(name, table)
            frame = collected(spec, con.sql(compile_query(spec)).pl())
        rewards = frame["reward"].fill_null(math.nan).to_numpy()
        returns = returns_to_go(rewards, _offsets(frame["step"].to_numpy()), GAMMA)
        return frame.with_columns(return_to_go=pl.Series(returns))

    return call


def _offsets(step: np.ndarray) -> np.ndarray:
    return np.append(np.flatnonzero(step == 0), len(step)).astype(np.int64)


def _assert_equal(frame: pl.DataFrame, scored: list[Scored], returns: list[float]) -> None:
    """To the last bit: every term with its name, the reward, why it is null, and the return."""
    terms = frame["reward_terms"].explode().struct.unnest()
    assert terms["key"].to_list() == [name for item in scored for name in item.terms]
    assert terms["value"].to_list() == [value for item in scored for value in item.terms.values()]
    assert frame["reward"].to_list() == [item.reward for item in scored]
    assert frame["null_reason"].to_list() == [item.null_reason for item in scored]
    assert np.array_equal(frame["return_to_go"].to_numpy(), np.array(returns), equal_nan=True)


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
        "action": np.array(["respond", "clarify", *(f"tool_{number}" for number in range(12))])[action],
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


def _rows(tables: Tables) -> Iterator[Row]:
    """The steps in order of episode and step, with what the loop must know of their episode."""
    ends = pl.DataFrame(tables.episodes.select(["episode_id", "ending", "success"]))
    steps = pl.DataFrame(tables.steps).join(ends, on="episode_id").sort("episode_id", "step")
    tool = pl.col("kind") == "tool"
    frame = steps.select(
        "episode_id", "step", "kind", "action", "arguments", "action_valid", "result",
        pl.when(tool).then("result_status").otherwise(pl.lit("none")),
        (pl.col("episode_id") != pl.col("episode_id").shift(-1)).fill_null(True).alias("last"),
        pl.col("ending") == "terminal", "success",
    )  # fmt: skip
    yield from frame.iter_rows()  # type: ignore[misc]
