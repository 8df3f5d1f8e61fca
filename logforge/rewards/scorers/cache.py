"""What scorers gave, kept in the store's table `scorer_results`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from logforge.core import rows_table
from logforge.rewards.scorers.base import Score, Texts
from logforge.schemas import SCORER_RESULTS
from logforge.store import checkpoint_when_due
from logforge.texts import is_read_only, text_hash


def key_of(texts: Texts) -> str:
    """What the score of some texts is cached under; no two tuples of texts share one."""
    return text_hash("".join(f"{len(text)}:{text}" for text in texts))


class ScorerCache:
    """The scores of one scorer in one version. Of a store opened for reading, new ones are not kept."""

    def __init__(self, con: duckdb.DuckDBPyConnection, scorer: str, version: str) -> None:
        self.con, self.scorer, self.version = con, scorer, version
        self.read_only = is_read_only(con)

    def find(self, keys: Sequence[str]) -> dict[str, Score]:
        """The scores that are there."""
        wanted = pa.table({"text_hash": pa.array(keys, pa.string())})  # noqa: F841  DuckDB finds it by its name
        rows = self.con.sql(
            "SELECT text_hash, any_value(value), any_value(spread), any_value(reason), any_value(source) "
            "FROM scorer_results SEMI JOIN wanted USING (text_hash) WHERE scorer = ? AND version = ? GROUP BY 1",
            params=[self.scorer, self.version],
        ).fetchall()
        return {key: Score(*row) for key, *row in rows}

    def keep(self, scores: Mapping[str, tuple[Texts, Score]]) -> None:
        """Write some scores, committed at once."""
        if self.read_only or not scores:
            return
        rows = [
            {
                "scorer": self.scorer,
                "version": self.version,
                "text_hash": key,
                "texts": [text_hash(text) for text in texts],
                **score._asdict(),
            }
            for key, (texts, score) in scores.items()
        ]
        fresh = rows_table(SCORER_RESULTS, rows)  # noqa: F841  DuckDB finds it by its name
        self.con.execute("INSERT INTO scorer_results BY NAME SELECT * FROM fresh")
        checkpoint_when_due(self.con)

    def sources(self) -> list[str]:
        """The models that an endpoint said had answered."""
        query = "SELECT DISTINCT source FROM scorer_results WHERE scorer = ? AND version = ? AND source IS NOT NULL ORDER BY 1"
        return [row[0] for row in self.con.sql(query, params=[self.scorer, self.version]).fetchall()]
