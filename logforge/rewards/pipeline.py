"""Rewards of stored steps: a spec's query run over their tables, and the scales that normalise its layers.

The query runs in an in-memory engine of its own, locked down, over registered Arrow tables. It is written from parsed
expressions (logforge.core.sql), never from the spec's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import duckdb

from logforge.core import first_line, sandbox
from logforge.rewards.spec import load_spec, parse_spec
from logforge.rewards.sql import Scale, compile_query, input_stages, used_columns
from logforge.schemas import LogforgeError, Mismatch, RewardSpec, SpecError, Term, UsageError

__all__ = ["Scale", "compile_query", "fit_scales", "load_spec", "parse_spec", "read_inputs", "score"]

if TYPE_CHECKING:
    import polars as pl

    from logforge.core import Tables


def score(
    spec: RewardSpec,
    tables: Tables,
    scales: Mapping[str, Scale] | None = None,
    scored: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Each step's reward, its terms by name, and why it is null where it is; ordered by episode and step.

    `scales` are those of `fit_scales`, needed when the spec has normalised layers; `scored` is what the scorers gave
    (term, episode_id, step, value, reason), needed when it has scorers. Each term's value is its part of the reward,
    normalised and weighted. Raises SpecError when a term's expression fails on the data (a cast, an overflow), naming the
    term and its line.
    """
    if spec.normalised and scales is None:
        raise UsageError(
            f"the layers of the spec are normalised ({', '.join(spec.normalised)})",
            "fit their scales on the train split first: fit_scales(spec, tables)",
        )
    if scored is None and any(term.scorer for _, term, _ in spec.entries()):
        raise UsageError(
            "the spec has scorers", "score the texts first: logforge.rewards.scorers.run.run_scorers"
        )
    try:
        frame = _run(spec, tables, scales, scored)
    except duckdb.Error as error:
        raise _blamed(spec, tables, error, scored) from None
    if frame.height != tables.steps.num_rows:
        remedy = "give the episodes of all steps"
        raise Mismatch("steps with an episode in the tables", tables.steps.num_rows, frame.height, remedy)
    return frame


def read_inputs(spec: RewardSpec, tables: Tables) -> pl.DataFrame:
    """What the spec's expressions read: episode_id, step and each column that one of them names."""
    used = sorted(used_columns(spec) - {"step"})
    stages, last = input_stages(used, spec.detectors, False)
    listed = ", ".join(["episode_id", "step", *used])
    with sandbox() as con:
        for name, table in tables._asdict().items():
            con.register(name, table)
        query = f"WITH {', '.join(stages)} SELECT {listed} FROM {last} ORDER BY episode_id, step"
        frame: pl.DataFrame = con.sql(query).pl()
        return frame


def fit_scales(spec: RewardSpec, tables: Tables, scored: pl.DataFrame | None = None) -> dict[str, Scale]:
    """What normalises each term of the spec's layers, from the steps of the train split.

    The spread is the standard deviation, over episodes, of the sum of what the term pays in one; a term that pays at the
    end alone is centred at its mean as well. A shift of what is paid at every step would pay for time, so there is none.
    Where all episodes have the same sum, the spread is its size, or 1 when that is 0.
    """
    return scales_of(spec, term_sums(spec, tables, scored)) if spec.normalised else {}


def term_sums(spec: RewardSpec, tables: Tables, scored: pl.DataFrame | None = None) -> pl.DataFrame:
    """What each term pays in each episode before it is normalised: term, episode_id, is_terminal (a true end), value."""
    import polars as pl

    frame = _run(spec, tables, {}, scored)
    values = frame.select("episode_id", pl.col("reward_terms").alias("term")).explode("term").unnest("term")
    sums = values.drop_nulls("value").group_by(term="key", episode_id="episode_id").agg(pl.col("value").sum())
    endings = pl.DataFrame(tables.episodes.select(["episode_id", "ending"]))
    return sums.join(endings, on="episode_id", how="left").select(
        "term", "episode_id", "value", is_terminal=pl.col("ending") == "terminal"
    )


def scales_of(spec: RewardSpec, sums: pl.DataFrame) -> dict[str, Scale]:
    """The scales of `fit_scales` from what `term_sums` gave of all train episodes."""
    fitted = {}
    for name in spec.normalised:
        term, layer = spec.term(name), spec.layers[spec.layer_of(name) or ""]
        chosen = sums.filter(term=name).sort("episode_id")
        if term.at == "terminal":
            chosen = chosen.filter("is_terminal")
        fitted[name] = _scale(chosen["value"] / layer.share(name), centred=term.at != "step")
    return fitted


def _scale(sums: pl.Series, *, centred: bool) -> Scale:
    mean, spread = sums.mean(), sums.std(ddof=0)
    mean = float(mean) if isinstance(mean, float) else 0.0
    spread = float(spread) if isinstance(spread, float) else 0.0
    if spread <= 1e-9 * abs(mean):
        spread = abs(mean)
    return Scale(mean if centred else 0.0, spread or 1.0)


def _run(
    spec: RewardSpec, tables: Tables, scales: Mapping[str, Scale] | None, scored: pl.DataFrame | None
) -> pl.DataFrame:
    with sandbox() as con:
        con.register("episodes", tables.episodes)
        con.register("messages", tables.messages)
        con.register("steps", tables.steps)
        if scored is not None:
            con.register("scored", scored.to_arrow())
        frame: pl.DataFrame = con.sql(compile_query(spec, scales)).pl()
    return collected(spec, frame)


def collected(spec: RewardSpec, frame: pl.DataFrame) -> pl.DataFrame:
    """The query's result with the values of all terms in one list, `reward_terms`; without those that may be missing and are."""
    import numpy as np
    import polars as pl
    import pyarrow as pa

    columns = [f"value_{name}" for name in spec.names]
    optional = [spec.term(name).optional for name in spec.names]
    values = frame.select(columns).to_numpy()  # null becomes NaN, which no value is
    missing = np.isnan(values)
    kept = ~(missing & np.array(optional))
    names = pa.DictionaryArray.from_arrays(np.nonzero(kept)[1].astype(np.int32), spec.names).cast(pa.string())
    pairs = pa.StructArray.from_arrays(
        [names, pa.array(values[kept], mask=missing[kept])], names=["key", "value"]
    )
    ends = np.concatenate([[0], kept.sum(axis=1).cumsum()])
    listed = pl.Series("reward_terms", pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs))
    return frame.with_columns(listed).select("episode_id", "step", "reward", "reward_terms", "null_reason")


def _blamed(
    spec: RewardSpec, tables: Tables, error: duckdb.Error, scored: pl.DataFrame | None
) -> LogforgeError:
    """The engine does not say which term failed: run each condition, then each value, alone."""
    nothing = RewardSpec(gamma=spec.gamma, terms={"nothing": Term(value=0.0)})
    if _failure(nothing, tables, scored):
        remedy = "ingest the logs again into a new store"
        return Mismatch("tables to score", "the columns of schemas.tables", first_line(error), remedy)
    for name in spec.names:
        term = spec.term(name)
        plain = Term(when=term.when) if not term.potential else Term(when=term.when, potential=True)
        for word, alone in (("when", plain), ("value", term)):
            single = RewardSpec(gamma=spec.gamma, terms={name: alone}, detectors=spec.detectors)
            found = _failure(single, tables, scored)
            if found is not None:
                what = f"fails on the data: {first_line(found)}"
                return SpecError([spec.problem(what, f"{spec.field_of(name)}.{word}")])
    raise error


def _failure(spec: RewardSpec, tables: Tables, scored: pl.DataFrame | None) -> duckdb.Error | None:
    try:
        _run(spec, tables, None, scored)
    except duckdb.Error as error:
        return error
    return None
