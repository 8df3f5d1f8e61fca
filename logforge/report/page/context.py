"""What every section reads from: the store, the dataset's folder, and seeded samples of its arrays for the probes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from logforge.core import text_literal
from logforge.report.page.clusters import Clusters, cluster
from logforge.report.page.section import Query, plain
from logforge.schemas import Detectors, LogforgeError, Manifest, RewardSpec
from logforge.shards import SAMPLE, Sample, draw, read_manifest
from logforge.store import Store, dataset_named

_COMMON = {
    ":logged": "logged AS (SELECT * FROM transitions WHERE dataset = :dataset AND parent_id IS NULL)",
}
"""Common table expressions that many queries begin with."""


class Context:
    """A dataset that is being reported on. `reference` names another dataset of the store (for SACo)."""

    def __init__(
        self, store: Store, dataset: str, *, seed: int = 0, sample: int = SAMPLE, reference: str | None = None
    ) -> None:
        dataset = dataset_named(store, dataset)
        reference = dataset_named(store, reference) if reference else None
        self.store, self.con = store, store.con
        self.dataset, self.reference, self.seed, self.cap = dataset, reference, seed, sample
        ((label, self.hash),) = self.con.execute(
            "SELECT path, hash FROM datasets WHERE dataset = ?", [dataset]
        ).fetchall()
        self.folder: Path = store.path.parent / label

    def ask(self, key: str, sql: str) -> Query:
        """Run a query. In it `:dataset` and `:reference` stand for the names as SQL texts, `:logged` for a common table
        expression with the dataset's rows but the augmented ones."""
        for mark, text in _COMMON.items():
            sql = sql.replace(mark, text)
        sql = sql.replace(":dataset", text_literal(self.dataset))
        sql = sql.replace(":reference", text_literal(self.reference or self.dataset)).strip()
        cursor = self.con.execute(sql)
        columns = tuple(item[0] for item in cursor.description or ())
        rows = tuple(tuple(plain(value) for value in row) for row in cursor.fetchall())
        return Query(key, sql, columns, rows)

    @cached_property
    def missing(self) -> str:
        """Why the dataset's folder cannot be read; empty when it can."""
        try:
            manifest = read_manifest(self.folder)
        except LogforgeError as error:
            return f"{error.message}: {error.remedy}"
        if manifest.hash != self.hash:
            return f"{self.folder} holds another build than the store: build the dataset again"
        return ""

    @cached_property
    def manifest(self) -> Manifest:
        """The dataset's manifest."""
        return read_manifest(self.folder)

    @cached_property
    def spec(self) -> RewardSpec:
        """The reward spec the dataset was built with."""
        return RewardSpec.model_validate(self.manifest.reward["spec"])

    @property
    def detectors(self) -> Detectors:
        """The detectors as the spec sets them; as they are by default where the dataset's folder is gone."""
        return Detectors() if self.missing else self.spec.detectors

    @cached_property
    def train(self) -> Sample:
        """Decisions of the train split."""
        return draw(self.folder, ("train",), self.cap, self.seed)

    @cached_property
    def seen(self) -> Sample:
        """Decisions of train and validation; what is said of them says nothing of test."""
        return draw(self.folder, ("train", "validation"), self.cap, self.seed)

    @cached_property
    def clusters(self) -> Clusters:
        """The train split's states, those that are alike together."""
        return cluster(self.train, self.seed)
