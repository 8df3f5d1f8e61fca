"""Which stored episode and step a row of outcomes is about: exactly one, or none is labelled."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

from logforge.ingestion.hygiene import redact
from logforge.outcomes.rows import ANY_ID, IDS, LabelRow
from logforge.schemas import Reject
from logforge.store import Store, short_hash, store_key

_PSEUDONYM = re.compile(r"<[^:<>]+:(\w+)>")
_EPISODES = "SELECT episode_id, native_id, session_id, task_id, trial, parent_episode_id FROM episodes"
_STEPS = "SELECT episode_id, step, decision_key FROM steps WHERE episode_id IN (SELECT unnest(?))"


class Matcher:
    """The ids of a store's episodes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = store_key(store.path)
        self._found: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._children = set[str]()
        for *ids, trial, parent in store.con.sql(_EPISODES).fetchall():
            for column, value in zip((*IDS, "trial"), (*ids, trial), strict=True):
                if value is not None:
                    self._found[column, self._plain(value)].add(ids[0])
            if parent is not None:
                self._children.add(ids[0])
        self._steps: dict[str, dict[int, str | None]] = {}

    def labels(
        self, rows: list[LabelRow], file: str, common: dict[str, Any]
    ) -> tuple[list[dict[str, Any]], list[Reject]]:
        """Rows of `labels` out of a file, and the rows that are about no one episode or step."""
        matched: list[tuple[LabelRow, str]] = []
        aside: list[Reject] = []
        for row in rows:
            found = self._episodes(row.ids)
            if len(found) == 1:
                matched.append((row, found.pop()))
            else:
                aside.append(_unmatched(row, len(found)))
        self._read_steps({episode for row, episode in matched if row.step is not None})
        labels = []
        for row, episode in matched:
            if row.step is None or row.step in self._steps[episode]:
                labels.append({**common, **self._label(row, episode, file)})
            else:
                reason = f"the episode has no step {row.step}"
                aside.append(Reject(locator=row.where, reason=reason, rule="unmatched_label"))
        return labels, aside

    def _episodes(self, ids: dict[str, str]) -> set[str]:
        """The episodes that all ids fit. Of a run and its sub-agents it is the run."""
        fitting: set[str] | None = None
        for column, value in ids.items():
            found = self._named(column, value)
            fitting = found if fitting is None else fitting & found
        chosen = fitting or set()
        first = chosen - self._children
        return set(first if len(chosen) > 1 and len(first) == 1 else chosen)

    def _named(self, column: str, value: str) -> set[str]:
        columns = IDS if column == ANY_ID else (column,)
        for name in columns:
            for form in (value, f"<:{short_hash(value, self._key)}>"):
                if found := self._found.get((name, form)):
                    return found
        return set()

    @staticmethod
    def _plain(value: str) -> str:
        """A pseudonym that stands for an id, whatever its kind."""
        hidden = _PSEUDONYM.fullmatch(value)
        return f"<:{hidden[1]}>" if hidden else value

    def _read_steps(self, episodes: set[str]) -> None:
        rows = self._store.con.sql(_STEPS, params=[sorted(episodes)]).fetchall() if episodes else []
        often = Counter((episode, key) for episode, _, key in rows)
        self._steps = {episode: {} for episode in episodes}
        for episode, step, key in rows:
            self._steps[episode][step] = key if often[episode, key] == 1 else None

    def _label(self, row: LabelRow, episode: str, file: str) -> dict[str, Any]:
        said = row.outcome.source or ("reward" if row.reward is not None else "comment")
        return {
            "episode_id": episode,
            "step": row.step,
            "decision_key": None if row.step is None else self._steps[episode][row.step],
            "success": row.outcome.success,
            "score": row.outcome.score,
            "reward": row.reward,
            "comment": None if row.comment is None else redact(row.comment).text,
            "outcome_from": f"{file}#{said}",
            "locator": row.where,
        }


def _unmatched(row: LabelRow, found: int) -> Reject:
    """The ids stay in the file, and are not told: they may be those of episodes that were forgotten."""
    names = ", ".join(sorted(row.ids))
    if found:
        reason = f"{found} episodes have this {names}"
        return Reject(locator=row.where, reason=reason, rule="ambiguous_label")
    return Reject(locator=row.where, reason=f"no stored episode has this {names}", rule="unmatched_label")
