"""What becomes of rows that break a rule: their episodes are set aside, or they stop the build; the quarantine names them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import polars as pl
import pyarrow as pa

from logforge.array_quality import validate_arrays
from logforge.arrays import SplitArrays
from logforge.build_report import LeftOut
from logforge.frames import rows_table
from logforge.quality import Allowance
from logforge.schemas.errors import CheckFailed, Problem
from logforge.schemas.rules import BROKEN
from logforge.schemas.tables import QUARANTINE
from logforge.schemas.transition import RULES
from logforge.store import Store
from logforge.transitions import Member


def set_aside(
    store: Store, name: str, failures: pl.DataFrame, members: list[Member], allowance: Allowance
) -> dict[str, LeftOut]:
    """The episodes with rows that break a rule, and the copies made of them: whole, for half an episode has no return.

    Where they are more than allowed, the failures go to the quarantine, all at once, and the build stops.
    """
    broken = failures.drop_nulls("episode_id").unique("episode_id", keep="first", maintain_order=True)
    if failures["episode_id"].null_count() or not allowance.allows(broken.height, len(members)):
        _stop(store, name, failures)
    found = {
        row["episode_id"]: LeftOut(row["rule"], f"breaks the rule {row['rule']}", row["step"], row["locator"])
        for row in broken.to_dicts()
    }
    for member in members:
        if member.origin is not None and member.origin.parent_episode_id in found:
            reason = "what it was made from is set aside"
            own = LeftOut("parent_known", reason, None, member.episode.locator)
            found.setdefault(member.episode.episode_id, own)
    if members and len(found) == len(members):
        _stop(store, name, failures)
    return found


def check_arrays(store: Store, name: str, rows: pl.DataFrame, arrays: Mapping[str, SplitArrays]) -> None:
    """Every array against the rows. Arrays are logforge's own work: whatever is wrong there stops the build."""
    failures = pl.concat(
        [validate_arrays(rows.filter(pl.col("split") == split), part) for split, part in arrays.items()]
    )
    if len(failures):
        _stop(store, name, failures)


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
    """Failures (see quality.FAILURES) as rows of the quarantine of a dataset."""
    return rows_table(
        QUARANTINE, [{**row, "level": "transition", "dataset": name} for row in failures.to_dicts()]
    )
