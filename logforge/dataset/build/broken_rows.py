"""Stage `validate_rows`, and what becomes of rows that break a rule: their episodes are set aside, or they stop the build; the
quarantine names them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import polars as pl
import pyarrow as pa

from logforge.core import Episodes, from_summary, per_episode, rows_table, stage
from logforge.dataset.build.known_states import FoundStates, look_for_states
from logforge.dataset.build.plan import Plan
from logforge.dataset.build.report import LeftOut
from logforge.dataset.build.rows import Rows
from logforge.dataset.build.splitting import Cohort
from logforge.dataset.build.transitions import Origin, lengths_of
from logforge.dataset.quality import Allowance, validate, validate_arrays
from logforge.schemas import BROKEN, QUARANTINE, RULES, CheckFailed, Problem
from logforge.shards import SplitArrays, episode_pieces
from logforge.store import Store


@dataclass(frozen=True, slots=True)
class Validated:
    """Transitions that keep every rule. `failures` are those of the rows that did not, whose episodes are left out."""

    rows: Rows
    failures: pl.DataFrame
    states: FoundStates
    cohort: Cohort
    transitions: pl.DataFrame


@stage(
    per_episode("every rule on every row, a copy with what it was made from"),
    from_summary(
        "whether what is broken may be set aside", "failures: a row for each; the number of episodes"
    ),
)
def validate_rows(rows: Rows, plan: Plan) -> Validated:
    """Set episodes with broken rows aside whole. Raises CheckFailed where they are more than is allowed."""
    space, found = rows.actions.space, rows.transitions
    vocabulary = space.vocabulary
    failures = validate(found, plan.spec.gamma, vocabulary.size, vocabulary.invalid, vocabulary.other)
    broken = set_aside(plan.store, plan.name, failures, rows.cohort.kept, rows.cohort.origins, plan.allowance)
    if not broken:
        return Validated(rows, failures, rows.states, rows.cohort, found)
    cohort = rows.cohort.without(broken)
    left = found.filter(~pl.col("episode_id").is_in(list(broken)))
    return Validated(rows, failures, look_for_states(plan, cohort, space), cohort, left)


def set_aside(
    store: Store,
    name: str,
    failures: pl.DataFrame,
    episodes: Episodes,
    origins: Mapping[str, Origin],
    allowance: Allowance,
) -> dict[str, LeftOut]:
    """The episodes with rows that break a rule, and the copies made of them: whole, for half an episode has no return.

    Where they are more than allowed, the failures go to the quarantine, all at once, and the build stops.
    """
    broken = failures.drop_nulls("episode_id").unique("episode_id", keep="first", maintain_order=True)
    if failures["episode_id"].null_count() or not allowance.allows(broken.height, len(episodes)):
        _stop(store, name, failures)
    found = {
        row["episode_id"]: LeftOut(row["rule"], f"breaks the rule {row['rule']}", row["step"], row["locator"])
        for row in broken.to_dicts()
    }
    for identifier in episodes.ids if found else ():
        if identifier in origins and origins[identifier].parent_episode_id in found:
            reason, locator = "what it was made from is set aside", episodes.spool[identifier].locator
            found.setdefault(identifier, LeftOut("parent_known", reason, None, locator))
    if episodes and len(found) == len(episodes):
        _stop(store, name, failures)
    return found


def check_arrays(store: Store, name: str, rows: pl.DataFrame, arrays: Mapping[str, SplitArrays]) -> None:
    """Every array against the rows. Arrays are logforge's own work: whatever is wrong there stops the build."""
    found = [failures for split, part in arrays.items() for failures in _compared(rows, split, part)]
    failures = pl.concat(found)
    if len(failures):
        _stop(store, name, failures)


def _compared(rows: pl.DataFrame, split: str, arrays: SplitArrays) -> Iterator[pl.DataFrame]:
    """What is wrong with the arrays of a split, some episodes at a time; all at once where even their lengths are wrong."""
    own = rows.filter(pl.col("split") == split)
    if lengths_of(own) != np.diff(arrays.episode_offsets).tolist():
        yield validate_arrays(own, arrays)
        return
    start = 0
    for piece in episode_pieces(arrays):
        yield validate_arrays(own[start : start + piece.size], piece)
        start += piece.size


def _stop(store: Store, name: str, failures: pl.DataFrame) -> NoReturn:
    """Put the failures into the quarantine, in place of those of earlier builds, and raise CheckFailed."""
    with store.transaction():
        store.con.execute(
            "DELETE FROM quarantine WHERE dataset = ? AND rule IN (SELECT unnest(?))", [name, list(RULES)]
        )
        store.insert("quarantine", quarantine_rows(name, failures))
    problems = [
        Problem(row["reason"], row["locator"] or row["episode_id"] or "", rule=row["rule"])
        for row in failures.head(20).to_dicts()
    ]
    found, episodes = failures.height, failures["episode_id"].drop_nulls().n_unique()
    what = f"{found} rows of {episodes} episodes break a rule (all are in `quarantine`)"
    raise CheckFailed(what, problems, BROKEN)


def quarantine_rows(name: str, failures: pl.DataFrame) -> pa.Table:
    """Failures (logforge.dataset.quality.transitions.FAILURES) as rows of the quarantine of a dataset."""
    return rows_table(
        QUARANTINE, [{**row, "level": "transition", "dataset": name} for row in failures.to_dicts()]
    )
