"""Bad cases: failed episodes of the train split by topic and kind of failure, the costliest first.

A cluster is a topic (topics.py, by the text of the task or the first message of the user) and a label of the failure taxonomy
(logforge/report/sections/failures.py). It ranks by count × regret: how much return its episodes left on the table together. The regret is the
mean return of the best alternative that the log knows, less that of the cluster's episodes:

    topic       the successes of the same topic
    elsewhere   where the topic has none: all successes of the train split
    nothing     where there is no success at all: the best return of the topic
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from logforge.core import BaseReport, Lines, cut, noted, picked, table
from logforge.report.page import Context
from logforge.report.sections import labelled
from logforge.report.topics import topics, words_of
from logforge.schemas import CheckFailed, UsageError
from logforge.store import Store
from logforge.texts import embed, make_encoder

EXAMPLES: Final = 3
OPENINGS: Final = 3
_TEXT = 100
_EPISODES = """
WITH {stages}
SELECT
  t.episode_id, t.success, t.return_to_go AS value, e.locator, l.label, o.action AS opening,
  coalesce(e.task, (SELECT arg_min(m.content, m.position) FROM messages m WHERE m.episode_id = e.episode_id AND m.role = 'user'), '') AS text
FROM transitions AS t JOIN episodes AS e USING (episode_id) LEFT JOIN labelled AS l USING (episode_id)
LEFT JOIN (SELECT episode_id, arg_min(action, step) AS action FROM steps WHERE kind = 'tool' GROUP BY 1) AS o USING (episode_id)
WHERE t.dataset = :dataset AND t.split = 'train' AND t.parent_id IS NULL AND t.step = 0 AND t.success IS NOT NULL
ORDER BY t.episode_id
"""


class Example(NamedTuple):
    """One episode of a cluster."""

    episode_id: str
    locator: str
    text: str


@dataclass(frozen=True)
class BadCase:
    """A cluster of failures. `openings` are the first tools of the failed episodes and `better` those of the topic's
    successes, each with a count; `episodes` are the failed ones and `alternatives` the topic's successes."""

    rank: int
    topic: tuple[str, ...]
    failure: str
    count: int
    mean_return: float
    alternative: float
    alternative_from: str
    openings: tuple[tuple[str, int], ...]
    better: tuple[tuple[str, int], ...]
    examples: tuple[Example, ...]
    episodes: tuple[str, ...]
    alternatives: tuple[str, ...]

    @property
    def regret(self) -> float:
        """What an episode of the cluster left on the table; at least 0."""
        return max(0.0, self.alternative - self.mean_return)

    @property
    def cost(self) -> float:
        """count × regret."""
        return self.count * self.regret


@dataclass(frozen=True)
class BadCases(BaseReport):
    """All clusters of a dataset's failures, the costliest first. `limit` is how many are told."""

    dataset: str
    failures: int
    cases: tuple[BadCase, ...]
    limit: int
    written: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: the costliest clusters, and how many there are."""
        cases = [{**asdict(case), **picked(case, "regret", "cost")} for case in self.cases[: self.limit]]
        return {
            **picked(self, "dataset", "failures"), "clusters": len(self.cases), "cases": cases,
            **picked(self, "written"),
        }  # fmt: skip

    def lines(self) -> Lines:
        """A table of the costliest clusters, and what each begins with."""
        if not self.cases:
            yield f"{self.dataset}: no failed episode in train"
            return
        shown = self.cases[: self.limit]
        header = ("", "topic", "failure", "episodes", "regret", "cost", "against")
        yield f"{self.dataset}: {self.failures} failed train episodes in {len(self.cases)} clusters\n"
        yield table(header, [_cells(case) for case in shown])
        for case in shown:
            yield f"\n{case.rank}  {_named(case)}: failures begin with {_listed(case.openings)}"
            yield f"   successes of the topic begin with {_listed(case.better)}"
            yield from (f"   {item.episode_id[:12]}  {item.locator}  {item.text}" for item in case.examples)
        yield from noted(self.written, "wrote ")


def bad_cases(store: Store, dataset: str, *, limit: int = 10, seed: int = 0) -> BadCases:
    """The clusters of a dataset's failures. Raises UnknownName for a dataset that is not in the store, and CheckFailed where
    its folder cannot be read or is not the one that the store tells of."""
    context = Context(store, dataset)
    if context.missing:
        raise CheckFailed("bad cases need the dataset's folder", (), context.missing)
    query = context.ask("episodes", _EPISODES.format(stages=labelled(context)))
    failures = query.column("success").count(False)
    if not failures:
        return BadCases(context.dataset, 0, (), limit)
    rows = pl.DataFrame(query.dicts(), infer_schema_length=None)
    texts = rows["text"].to_list()
    vectors = embed(store.con, make_encoder(str(context.manifest.config["encoder"])), texts)
    topic = topics(texts, vectors, seed)
    words = words_of(texts, topic)
    rows = rows.with_columns(topic=pl.Series(topic))
    groups = rows.filter(~pl.col("success")).partition_by("topic", "label", as_dict=True)
    found = [_case(rows, group, words[int(key[0])]) for key, group in groups.items()]
    found.sort(key=lambda case: (-case.cost, -case.count, case.topic, case.failure, case.episodes))
    ranked = tuple(_with_rank(case, rank) for rank, case in enumerate(found, 1))
    return BadCases(context.dataset, failures, ranked, limit)


def _case(rows: pl.DataFrame, group: pl.DataFrame, words: tuple[str, ...]) -> BadCase:
    wins = rows.filter(pl.col("success"))
    near = wins.filter(pl.col("topic") == group["topic"][0])
    of_topic = rows.filter(pl.col("topic") == group["topic"][0])
    if near.height:
        alternative, source = _mean(near), "topic"
    elif wins.height:
        alternative, source = _mean(wins), "elsewhere"
    else:
        alternative, source = float(of_topic["value"].to_numpy().max()), "nothing"
    return BadCase(
        rank=0,
        topic=words,
        failure=group["label"][0],
        count=group.height,
        mean_return=_mean(group),
        alternative=alternative,
        alternative_from=source,
        openings=_openings(group),
        better=_openings(near),
        examples=tuple(
            Example(row["episode_id"], row["locator"], _line(row["text"]))
            for row in group.head(EXAMPLES).to_dicts()
        ),
        episodes=tuple(group["episode_id"]),
        alternatives=tuple(near["episode_id"]),
    )


def _with_rank(case: BadCase, rank: int) -> BadCase:
    return BadCase(**{**case.__dict__, "rank": rank})


def chosen(found: BadCases, ranks: Sequence[int]) -> tuple[BadCase, ...]:
    """The clusters of these ranks. Raises UsageError for one that there is not."""
    for rank in ranks:
        if not 1 <= rank <= len(found.cases):
            raise UsageError(f"there is no cluster {rank}", f"give a number from 1 to {len(found.cases)}")
    return tuple(found.cases[rank - 1] for rank in sorted(set(ranks)))


def _mean(rows: pl.DataFrame) -> float:
    return float(np.mean(rows["value"].to_numpy()))


def _openings(rows: pl.DataFrame) -> tuple[tuple[str, int], ...]:
    counts = Counter(action or "no call" for action in rows["opening"].to_list())
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:OPENINGS])


def _line(text: str) -> str:
    """One line, cut."""
    plain = " ".join(text.split())
    return cut(plain, _TEXT)


def _cells(case: BadCase) -> list[str]:
    numbers = (f"{case.regret:.2f}", f"{case.cost:.1f}", case.alternative_from)
    return [str(case.rank), " ".join(case.topic), case.failure, str(case.count), *numbers]


def _named(case: BadCase) -> str:
    return f"{' '.join(case.topic)} ({case.failure})"


def _listed(openings: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{action} × {count}" for action, count in openings) or "nothing: there is none"
