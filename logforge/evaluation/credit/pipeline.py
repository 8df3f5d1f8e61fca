"""Which steps an episode owes its outcome to: values of a policy by FQE, and what the methods give every logged step, with how far
each amount can be relied on (evidence.py).

`counterfactual`, Q(s, a) − Σ_b π(b|s) Q(s, b), explains best (docs/returns.md); as a weight none makes a better policy than cloning of successes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from logforge.core import BaseReport, Lines, Tick, noted, picked, replaced_file, table
from logforge.evaluation.credit.config import CreditConfig
from logforge.evaluation.credit.evidence import spread_of, support_of
from logforge.evaluation.credit.methods import (
    METHODS,
    Credit,
    Evidence,
    Method,
    Values,
    methods_named,
)
from logforge.evaluation.credit.table import keep_credit
from logforge.learning.ope import Decisions
from logforge.learning.ope import fqe as ope
from logforge.learning.policies import load_policy, read_run, run_data
from logforge.rewards import Floats, returns, time_discounts, unusual
from logforge.schemas import Mismatch, UnknownName, UsageError
from logforge.shards import Shard
from logforge.store import Store

SHOWN: Final = 5


def fit_values(
    run: str | Path,
    split: str = "test",
    policy: str = "bc",
    *,
    dataset: str | Path | None = None,
    members: int = ope.MEMBERS,
    updates: int = ope.UPDATES,
    seed: int = 0,
    progress: Tick | None = None,
) -> tuple[Shard, Values]:
    """A split and the values of a run's policy on it, by FQE fitted on the train split.

    `bc`, drawn from its own chances, stands for whoever made the log. Raises UsageError where FQE has too few episodes.
    """
    folder = Path(run)
    record = read_run(folder)
    if policy not in record["policies"]:
        raise UnknownName("policy of the run", policy, list(record["policies"]))
    held, train = run_data(record, dataset, split)
    bundle = load_policy(folder / policy)
    bundle.check(held.manifest)
    gamma, seen = held.manifest.gamma, held.manifest.return_range
    chances = bundle.probabilities(held.observations, held.masks).astype(np.float64)
    rows, actions = held.observation_rows, held.actions
    fitted = ope.q_values(
        train,
        bundle.probabilities(train.observations, train.masks),
        held.observations,
        gamma=gamma,
        span=returns.possible_returns(train.rewards, train.terminals, train.timeouts, gamma, seen),
        decisions=Decisions(chances, rows, actions),
        members=members,
        updates=updates,
        seed=seed,
        progress=progress,
    )
    settings = [bundle.card.weights_hash, members, updates, seed]
    return held, Values(
        policy,
        states=(chances * fitted.q).sum(axis=1),
        taken=fitted.q[rows, actions],
        ratios=chances[rows, actions] / held.propensities,
        unsettled=fitted.unsettled,
        version=xxhash.xxh3_128_hexdigest(json.dumps(settings).encode()),
        members=fitted.members,
    )


@dataclass(frozen=True)
class CreditReport(BaseReport):
    """The credit of a split's steps: `frame` has a row for each (episode_id, step, action, reward, success, locator), `support`,
    whether it is `unsupported` (0), and for each method its credit, by its name (null: unknown), and NAME_spread."""

    frame: pl.DataFrame
    methods: tuple[str, ...]
    policy: str | None
    dataset: str
    split: str
    notes: tuple[str, ...]
    kept: bool
    """Whether it is in the store's table `credit`."""
    file: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For `--json`; rows only where they were not written to a file."""
        about = picked(self, "methods", "policy", "dataset", "split", "kept", "file", "notes")
        return {**about, "steps": self.frame.height, "rows": [] if self.file else self.frame.to_dicts()}

    def lines(self) -> Lines:
        """The steps that most is owed to and those most to blame; of several methods, how they compare."""
        of = f", values of {self.policy}" if self.policy else ""
        named = self.methods[0] if len(self.methods) == 1 else f"{len(self.methods)} methods"
        yield f"{self.dataset}, {self.split}: {self.frame.height:,} steps, credit by {named}{of}\n"
        yield from [self._compared()] if len(self.methods) > 1 else self._extremes(self.methods[0])
        yield from noted(self.notes)
        yield "kept in the store: SELECT * FROM credit" if self.kept else None
        yield f"wrote {self.file}" if self.file else None

    def _compared(self) -> str:
        rows = []
        for name in self.methods:
            amounts = self.frame[name]
            sums = "yes" if METHODS[name].sums else "no"
            success, failure = (amounts.filter(self.frame["success"] == won).mean() for won in (True, False))
            apart = (amounts.std(), self.frame[f"{name}_spread"].mean())
            widths = ("" if one is None else format(one, ".2g") for one in apart)
            rows.append((name, sums, *widths, _number(success), _number(failure)))
        header = (
            "method",
            "sums to the rewards",
            "over steps",
            "spread",
            "mean, successes",
            "mean, failures",
        )
        return table(header, rows)

    def _extremes(self, method: str) -> list[str]:
        lines: list[str] = []
        known = self.frame.drop_nulls(method)
        ranked = known.sort(method, "episode_id", "step", descending=[True, False, False])
        for title, rows in (
            ("most owed to", ranked.head(SHOWN)),
            ("most to blame", ranked.tail(SHOWN).reverse()),
        ):
            header = (title, "spread", "support", "action", "step", "success", "where")
            lines += [table(header, [_cells(row, method) for row in rows.to_dicts()], limit=160), ""]
        return lines[:-1]


def _cells(row: Mapping[str, Any], method: str) -> tuple[object, ...]:
    spread, support = row[f"{method}_spread"], row["support"]
    return (
        f"{row[method]:+.3g}",
        "" if spread is None else f"{spread:.2g}",
        "0 unsupported" if row["unsupported"] else support,
        row["action"],
        f"{row['episode_id'][:12]}:{row['step']}",
        row["success"],
        row["locator"],
    )


def _number(value: Any) -> str:
    return "" if value is None else f"{value:+.3g}"


def _check_clock(methods: Sequence[Method]) -> None:
    if timeless := [item.name for item in methods if not item.clock]:
        clocked = ", ".join(name for name, item in METHODS.items() if item.clock)
        raise UsageError(
            f"{timeless[0]} cannot discount by the clock",
            f"leave out --per-seconds, or take one of {clocked}",
        )


def credit_of(
    store: Store,
    run: str | Path,
    split: str = CreditConfig.split,
    method: str = CreditConfig.method,
    *,
    policy: str = CreditConfig.policy,
    n: int = CreditConfig.n,
    lam: float = CreditConfig.lam,
    per_seconds: float | None = None,
    out: str | Path | None = None,
    dataset: str | Path | None = None,
    keep: bool = CreditConfig.keep,
    progress: Tick | None = None,
    **fit: int,
) -> CreditReport:
    """The credit of every step of a split by one method, or by all, with the episodes' ids and the lines of the log.

    `keep` writes it into the store's table `credit`, in place of what the same method gave with the same options; a store
    opened for reading keeps nothing. `per_seconds` discounts by the clock, γ^(Δt / per_seconds), in the methods that can.
    `fit` are the options of `fit_values`. Raises UsageError for a method that cannot be had (of `all` it is unknown, with the
    reason), and Mismatch when the store has another build.
    """
    methods = methods_named(method)
    if per_seconds is not None:
        _check_clock(methods)
    shard, train = run_data(read_run(Path(run)), dataset, split)
    needs_values = any(item.needs == "values" for item in methods)
    refused = ope.refusal(train) if needs_values and len(methods) > 1 else ""
    values = None
    if needs_values and not refused:
        _, values = fit_values(run, split, policy, dataset=dataset, progress=progress, **fit)
    steps = _steps(store, shard)
    discounts, notes = (None, []) if per_seconds is None else _clock(steps, shard, per_seconds)
    worked = steps["worked"].fill_null(False).to_numpy()
    evidence = Evidence(shard, train, values, worked, discounts, n, lam)
    found = {item.name: _given(item, evidence, len(methods) == 1) for item in methods}
    support = support_of(shard, train)
    if refused:
        notes.append(f"no values can be fitted, so the methods that need them give none: {refused}")
    if any("lam" in item.options for item in methods) and (told := unusual("λ", lam)):
        notes.append(told)
    notes += [
        *_warnings(shard, methods, values, steps),
        *(note for item in found.values() for note in item.notes),
        *_unsupported(support),
    ]
    spread = {item.name: spread_of(item, evidence) for item in methods}
    frame = steps.drop("seconds", "worked").with_columns(_columns(found, spread, support))
    if out is not None:
        with replaced_file(Path(out)) as target:
            frame.write_parquet(target)
    options = {"n": n, "lam": lam, "per_seconds": per_seconds}
    kept = keep and keep_credit(store, shard, frame, [(item, values, options) for item in methods])
    return CreditReport(
        frame=frame,
        methods=tuple(found),
        policy=None if values is None else policy,
        dataset=shard.manifest.dataset,
        split=split,
        notes=tuple(notes),
        kept=kept,
        file=None if out is None else str(out),
    )


def _given(item: Method, evidence: Evidence, alone: bool) -> Credit:
    """A method's credit. Of several, one that cannot be had is unknown, and its note says why."""
    unknown = np.full(evidence.shard.size, np.nan)
    if item.needs == "values" and evidence.values is None:
        return Credit(unknown)
    try:
        return item.give(evidence)
    except UsageError as refused:
        if alone:
            raise
        return Credit(unknown, (f"credit by {item.name} is unknown: {refused.message}",))


def _columns(
    found: Mapping[str, Credit], spread: Mapping[str, Floats], support: NDArray[np.int64]
) -> Iterator[pl.Series]:
    """What the frame has beside the steps."""
    yield pl.Series("support", support, pl.Int32)
    yield pl.Series("unsupported", support == 0)
    for name, credit in found.items():
        yield _known(credit.amounts).alias(name)
        yield _known(spread[name]).alias(f"{name}_spread")


def _known(amounts: Floats) -> pl.Series:
    """Null where there is no number."""
    return pl.Series(np.where(np.isfinite(amounts), amounts, np.nan)).fill_nan(None)


def _unsupported(support: NDArray[np.int64]) -> Iterator[str]:
    if lacking := int((support == 0).sum()):
        yield (
            f"{lacking:,} of {len(support):,} steps are unsupported: no similar train decision took that action, so nothing else that "
            "was logged speaks for their credit"
        )


_STEPS = """
    WITH timed AS (
      SELECT s.episode_id, s.step, m.created_at, s.kind = 'tool' AND s.result_status IS NOT DISTINCT FROM 'ok' AS worked
      FROM steps AS s LEFT JOIN messages AS m ON m.episode_id = s.episode_id AND m.position = s.position
    )
    SELECT
      t.episode_id, t.step, t.action, t.reward, t.success, t.locator, timed.worked,
      epoch_us(lead(timed.created_at) OVER episode) / 1e6 - epoch_us(timed.created_at) / 1e6 AS seconds
    FROM transitions AS t LEFT JOIN timed ON timed.episode_id = t.episode_id AND timed.step = t.step
    WHERE t.dataset = ? AND t.split = ?
    WINDOW episode AS (PARTITION BY t.episode_id ORDER BY t.step)
    ORDER BY t.episode_id, t.step
"""


def _steps(store: Store, shard: Shard) -> pl.DataFrame:
    """The shard's transitions as the store knows them, in the shard's order, with the seconds to the next decision."""
    name = shard.manifest.dataset
    built = store.con.sql("SELECT hash FROM datasets WHERE dataset = ?", params=[name]).fetchall()
    if not built or built[0][0] != shard.manifest.hash:
        found = built[0][0] if built else "no build of it"
        raise Mismatch(
            f"the store's dataset {name!r}",
            shard.manifest.hash,
            found,
            "name the store it was built from: --store",
        )
    steps: pl.DataFrame = store.con.sql(_STEPS, params=[name, shard.split]).pl()
    return steps


def _clock(steps: pl.DataFrame, shard: Shard, per_seconds: float) -> tuple[Floats, list[str]]:
    seconds = steps["seconds"].fill_null(float("nan")).to_numpy().copy()
    inner = np.ones(shard.size, bool)
    inner[np.asarray(shard.episode_offsets)[1:] - 1] = False  # nothing follows a last step
    unknown, backwards = inner & np.isnan(seconds), inner & (seconds < 0)
    seconds[backwards] = np.nan
    notes = [
        f"{int(rows.sum()):,} of {int(inner.sum()):,} times between decisions {what}: they count as {per_seconds:g} s"
        for rows, what in ((unknown, "are not logged"), (backwards, "run backwards"))
        if rows.any()
    ]
    return time_discounts(shard.manifest.gamma, seconds, per_seconds), notes


def _warnings(
    shard: Shard, methods: Sequence[Method], values: Values | None, steps: pl.DataFrame
) -> Iterator[str]:
    """What weakens the credit."""
    if values is not None and values.unsettled:
        yield values.unsettled
    if values is not None and shard.split == "train":
        yield "the values were fitted on these very episodes: credit another split for values that have not seen them"
    names = {item.name for item in methods if item.needs != "values"}
    if names and (cut := int(shard.timeouts.sum())):
        yield f"{cut} of {shard.episode_count} episodes are cut off: their rewards are a part of what they would have had"
    if "shaped" in names and (unknown := steps["worked"].null_count()):
        yield f"{unknown:,} steps are augmented and have no logged result: shaped gives them no bonus"
