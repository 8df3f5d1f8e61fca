"""Conflicts as a person reads them: both sides with what was known, done and earned, and where that is logged."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb

from logforge.dataset.conflicts.groups import KINDS
from logforge.dataset.conflicts.rows import LEVELS
from logforge.schemas import SPLIT_NAMES, UnknownName


class Said(NamedTuple):
    """A message before a decision, cut to what a reader can take in."""

    role: str
    text: str


@dataclass(frozen=True)
class Side:
    """One side of a conflict: how many rows and their mean return, and its example with what the agent had seen.

    `answer` is the text of a decision that calls no tool. `said` holds the last two messages before the decision.
    """

    count: int
    mean_return: float
    action: str
    arguments: str
    answer: str | None
    return_to_go: float
    success: bool | None
    said: tuple[Said, ...]
    episode_id: str
    step: int
    locator: str


@dataclass(frozen=True)
class ConflictView:
    """A conflict with an example on each side; `a` is the better one."""

    kind: str
    level: str
    state_key: str
    detail: str
    a: Side
    b: Side


@dataclass(frozen=True)
class Narrowed:
    """Which conflicts are asked for; None asks for all. A split is that of the examples, a tool either side's action."""

    kind: str | None = None
    level: str | None = None
    split: str | None = None
    tool: str | None = None

    def __post_init__(self) -> None:
        for what, name, valid in (
            ("conflict kind", self.kind, KINDS),
            ("conflict level", self.level, LEVELS),
            ("split", self.split, SPLIT_NAMES),
        ):
            if name is not None and name not in valid:
                raise UnknownName(what, name, valid)


def sides(
    con: duckdb.DuckDBPyConnection, dataset: str, only: Narrowed | None = None, limit: int = 20
) -> list[ConflictView]:
    """The conflicts of a dataset in a store with both sides: the finest level first, then by difference of mean returns."""
    rows = con.execute(_SIDES, {**_asked(con, dataset, only), "most": limit}).fetchall()
    return [_view(list(row)) for row in rows]


def count(con: duckdb.DuckDBPyConnection, dataset: str, only: Narrowed | None = None) -> int:
    """How many conflicts of a dataset are asked for."""
    ((found,),) = con.execute(f"SELECT count(*) {_ASKED}", _asked(con, dataset, only)).fetchall()
    return int(found)


def _asked(con: duckdb.DuckDBPyConnection, dataset: str, only: Narrowed | None) -> dict[str, Any]:
    only = only or Narrowed()
    if only.tool is not None:
        named = con.execute(
            "SELECT DISTINCT action FROM transitions WHERE dataset = ? ORDER BY 1", [dataset]
        ).fetchall()
        if (only.tool,) not in named:
            raise UnknownName("action", only.tool, [name for (name,) in named])
    return {
        "dataset": dataset,
        "kind": only.kind,
        "level": only.level,
        "split": only.split,
        "tool": only.tool,
    }


def _view(row: list[Any]) -> ConflictView:
    kind, level, state_key, detail, *both = row
    half = len(both) // 2
    return ConflictView(kind, level, state_key, detail, _read(both[:half]), _read(both[half:]))


_TEXT = 400


def _read(values: list[Any]) -> Side:
    count, mean, action, arguments, answer, value, success, said, episode_id, step, locator = values
    texts = tuple(Said(item["role"], _cut(item["text"])) for item in said or ())
    shown = None if answer is None else _cut(answer)
    return Side(count, mean, action, arguments, shown, value, success, texts, episode_id, step, locator)


def _cut(text: str | None) -> str:
    return "(no text)" if not text else text if len(text) <= _TEXT else text[:_TEXT] + "…"


_HALF = """c.count_{0}, c.mean_return_{0}, c.action_{0}, {0}.arguments, {0}.answer, {0}.return_to_go, {0}.success, {0}.said,
       c.episode_{0}, c.step_{0}, {0}.locator"""

_ASKED = """FROM conflicts c
WHERE c.dataset = $dataset AND c.kind = coalesce($kind, c.kind) AND c.level = coalesce($level, c.level)
  AND ($tool IS NULL OR c.action_a = $tool OR c.action_b = $tool)
  AND ($split IS NULL OR EXISTS (
      FROM transitions t WHERE t.dataset = $dataset AND t.split = $split
      AND (t.episode_id, t.step) IN ((c.episode_a, c.step_a), (c.episode_b, c.step_b))))"""

_ORDER = f"""list_position({list(LEVELS)}, {{0}}level), abs({{0}}mean_return_a - {{0}}mean_return_b) DESC, {{0}}kind,
         {{0}}state_key, {{0}}action_a, {{0}}action_b"""

_SIDES = f"""
WITH chosen AS (
    SELECT c.* {_ASKED}
    ORDER BY {_ORDER.format("c.")}
    LIMIT $most
), ends AS (
    SELECT episode_a AS episode_id, step_a AS step FROM chosen UNION SELECT episode_b, step_b FROM chosen
), decisions AS (
    SELECT e.*, s.arguments, s.position, t.return_to_go, t.success, t.locator, CASE WHEN s.kind <> 'tool' THEN left(own.content, {_TEXT + 1}) END AS answer
    FROM ends e
    JOIN steps s USING (episode_id, step)
    JOIN transitions t ON t.dataset = $dataset AND t.episode_id = e.episode_id AND t.step = e.step
    LEFT JOIN messages own ON own.episode_id = s.episode_id AND own.position = s.position
), before AS (
    SELECT d.episode_id, d.step, list({{'role': m.role, 'text': left(m.content, {_TEXT + 1})}} ORDER BY m.position) AS said
    FROM decisions d JOIN messages m ON m.episode_id = d.episode_id AND m.position BETWEEN d.position - 2 AND d.position - 1
    GROUP BY ALL
), example AS (SELECT * FROM decisions LEFT JOIN before USING (episode_id, step))
SELECT c.kind, c.level, c.state_key, c.detail, {_HALF.format("a")}, {_HALF.format("b")}
FROM chosen c
JOIN example a ON a.episode_id = c.episode_a AND a.step = c.step_a
JOIN example b ON b.episode_id = c.episode_b AND b.step = c.step_b
ORDER BY {_ORDER.format("c.")}
"""


WIDTH = 100
"""The columns that `render` keeps to."""
_LABEL = 11
_LINES = 4


def render(view: ConflictView) -> str:
    """A conflict for the terminal, at most WIDTH columns wide: what disagrees, then both sides under each other.

    What was said before is told once, above the sides, where it is the same on both.
    """
    place = "trajectory" if view.kind == "label" else "state"
    head = f"{view.kind} ({view.level}) in {place} {view.state_key}: {view.detail}"
    shared = view.a.said == view.b.said
    lines = [*_wrap(head, WIDTH), *(_fields("", view.a.said) if shared else ())]
    for name, side in (("a", view.a), ("b", view.b)):
        lines += _fields(name, _told(side, () if shared else side.said))
    return "\n".join(lines)


def _told(side: Side, said: Sequence[Said]) -> Iterator[tuple[str, str]]:
    outcome = {True: "success", False: "failure", None: "unknown"}[side.success]
    rows = "1 row" if side.count == 1 else f"{side.count} rows"
    yield "action", side.action
    yield "arguments", side.arguments
    if side.answer is not None:
        yield "answer", side.answer
    yield (
        "outcome",
        f"{outcome}, return {side.return_to_go:.4g} ({rows}, mean return {side.mean_return:.4g})",
    )
    yield from said
    yield "decided", f"{side.locator} (episode {side.episode_id}, step {side.step})"


def _fields(name: str, fields: Iterable[tuple[str, str]]) -> Iterator[str]:
    for label, text in fields:
        lead = f"  {name or ' '}  {_plain(label)[: _LABEL - 1]:{_LABEL}}"
        name = ""
        lines = _wrap(text, WIDTH - len(lead))
        if label not in ("outcome", "decided") and len(lines) > _LINES:
            lines = [*lines[: _LINES - 1], _wrap(lines[_LINES - 1], WIDTH - len(lead) - 1)[0] + "…"]
        for line in lines:
            yield (lead + line).rstrip()
            lead = " " * len(lead)


def _plain(text: str) -> str:
    """On one line, and without what could steer a terminal: log text is data."""
    text = " ".join(text.split())
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") else c for c in text)


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken at spaces where there are some; wide characters count twice."""
    lines = [""]
    used = 0
    for word in _plain(text).split(" "):
        for piece in _pieces(word, width):
            size = _columns(piece)
            if used and used + 1 + size > width:
                lines.append("")
                used = 0
            lines[-1] += (" " if used else "") + piece
            used += (1 if used else 0) + size
    return lines


def _pieces(word: str, width: int) -> Iterator[str]:
    start = used = 0
    for index, char in enumerate(word):
        size = _columns(char)
        if used + size > width:
            yield word[start:index]
            start, used = index, 0
        used += size
    yield word[start:]


def _columns(text: str) -> int:
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )
