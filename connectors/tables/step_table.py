"""Demonstrations as tables of steps (CSV, JSON lines or arrays, Parquet) with Gymnasium's names. A record is a row.

A row is what the demonstrator saw, what they did, and what came of it: `observation`, `action`, `reward`, `terminated`,
`truncated`. Rows of one `episode_id` are an episode; without an id an episode ends at `terminated` or `truncated`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.episodes import (
    UNKNOWN,
    Call,
    EpisodeBuilder,
    Outcome,
    bad_part,
    bad_record,
    close,
    content_id,
    read_outcome,
    text_or_none,
)
from logforge.connectors.records import Head, Source, canonical, columns_of, table_rows
from logforge.connectors.tables.step_row import (
    COLUMNS,
    SPEAKING,
    Cell,
    Choice,
    StepRow,
    flag_of,
    given,
    number_of,
    text_of_cell,
)
from logforge.schemas import Duplicate, Ending, Reading, Reject, SourceKind

_OUTCOMES = frozenset(name for column in ("reward", "terminated", "truncated") for name in COLUMNS[column])


class StepTable:
    """Tables whose rows are steps."""

    name = "step_table"
    version = 4
    record = "one row: a step"
    fills = ("outcome", "score", "rewards", "thoughts", "times")

    def sniff(self, head: Head) -> float:
        """Columns for what was seen, what was done, and a reward or an end."""
        names = columns_of(head)
        seen = set(COLUMNS["observation"]) & names
        return 0.9 if seen and "action" in names and _OUTCOMES & names and "messages" not in names else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """The rows that cannot be read, then one episode per run of rows that belong together."""
        groups: dict[str | None, list[StepRow]] = {}
        holes = 0
        for where, cells in table_rows(source, "action"):
            row = None if isinstance(cells, Reject) else _row(cells, where, holes)
            if isinstance(row, StepRow):
                groups.setdefault(text_or_none(row.value("episode")), []).append(row)
            else:
                holes += 1
                yield row or cells
        for native, rows in groups.items():
            kept = _ordered(rows) if native is not None else rows
            if len(kept) < len(rows):
                yield Duplicate(records=len(rows) - len(kept))
            for run in _runs(kept):
                yield from self._episode(native, run, is_last=run[-1] is kept[-1])

    def _episode(self, native: str | None, rows: list[StepRow], is_last: bool) -> Iterator[Reading]:
        try:
            yield from list(self._build(native, rows, is_last))
        except RecursionError:
            where, size = rows[0].where, len(rows)
            yield Reject(locator=where, reason="nested too deep", rule="nested_too_deep", records=size)

    def _build(self, native: str | None, rows: list[StepRow], is_last: bool) -> Iterator[Reading]:
        builder = EpisodeBuilder()
        for index, row in enumerate(rows):
            _add(builder, row, rows[index - 1] if index else None, rows[index + 1 : index + 2])
        first, last = rows[0], rows[-1]
        ending, reason = _ending(last, is_last)
        model, person = text_or_none(first.value("model")), text_or_none(first.value("person"))
        kind: SourceKind = "human_demo" if model is None else "agent_log"
        outcome = _outcome(builder, rows)
        episode = builder.finish(
            id=content_id(self.name, [row.cells for row in rows]),
            format=self.name,
            locator=first.where,
            records=len(rows),
            ending=ending,
            ending_reason=reason,
            native_id=native,
            task_id=text_or_none(first.value("task_id")),
            user_id=text_or_none(first.value("user")),
            task=text_of_cell(first.value("task")),
            source_kind=kind,
            policy_id=model or (f"human:{person}" if person else "human"),
            model=model,
            **outcome.fields(),
            metadata=canonical(_others(rows)),
        )
        yield from close(builder, episode)


def _outcome(builder: EpisodeBuilder, rows: list[StepRow]) -> Outcome:
    """The last row's verdict, in its own column or in Gymnasium's `info`; the score that was told last."""
    last, names, scores = rows[-1], COLUMNS["success"], COLUMNS["score"]
    cells = {key: given(last.cells.get(key)) for key in names}
    flag = read_outcome(cells, last.where, builder.rejects, success=names, score=())
    info = {key: last.info.get(key) for key in names}
    told = read_outcome(
        info, f"{last.get('info').where}", builder.rejects, success=names, score=(), under="info."
    )
    told_so_far = [{key: given(row.cells.get(key)) for key in scores} for row in rows]
    found = [
        read_outcome(said, row.where, builder.rejects, success=(), score=scores)
        for said, row in zip(told_so_far, rows, strict=True)
    ]
    score = next((one for one in reversed(found) if one.score is not None), UNKNOWN)
    return flag.or_else(told).or_else(score)


def _row(cells: Any, where: str, holes: int) -> StepRow | Reject:
    """A row; a Reject when it is no step, or its action cannot be told."""
    try:
        text = canonical(cells)
    except (RecursionError, TypeError, ValueError):
        return Reject(locator=where, reason="nested too deep", rule="nested_too_deep")
    row = StepRow(cells, where, holes, text) if isinstance(cells, dict) else None
    choice = row.choice if row else None
    reason = ""
    if row is None or (choice is None and row.value("observation") is None):
        reason = "row without an observation and an action"
    elif choice is not None and choice.unreadable:
        reason = f"its action is {choice.unreadable}"
    if row is None or reason:
        return bad_record(where, reason, "not_a_step", text)
    return row


def _ordered(rows: list[StepRow]) -> list[StepRow]:
    """Rows of one id without those that are logged twice, by step number where every row has one of its own."""
    seen: dict[int, set[str]] = {}
    kept = []
    for row in rows:
        same = seen.setdefault(row.number, set()) if row.number is not None else set()
        if row.text not in same:
            same.add(row.text)
            kept.append(row)
    numbers = [row.number for row in kept if row.number is not None]
    if len(set(numbers)) < len(kept):
        return kept
    return sorted(kept, key=lambda row: row.number or 0)


def _runs(rows: list[StepRow]) -> Iterator[list[StepRow]]:
    """The rows of each episode: one ends at a flag, and where the step number starts over."""
    run: list[StepRow] = []
    for row in rows:
        if run and (_flags(run[-1]) != (False, False) or _starts_over(run[-1], row)):
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _starts_over(row: StepRow, after: StepRow) -> bool:
    return row.number is not None and after.number is not None and after.number <= row.number


def _follows(row: StepRow, before: StepRow) -> bool:
    """True unless rows between the two are missing: then the one is not what came of the other."""
    if row.number is not None and before.number is not None:
        return row.number == before.number + 1
    return row.holes == before.holes


def _add(builder: EpisodeBuilder, row: StepRow, before: StepRow | None, after: list[StepRow]) -> None:
    """What a row saw and did. What was seen next answers the call, from the next row or from `next_observation`."""
    if before is None or not (_is_call(before.choice) and _follows(row, before)):
        seen = row.get("observation")
        if seen.value is not None:
            builder.message("user", text_of_cell(seen.value), seen.where, created_at=row.time)
    for column in ("terminated", "truncated"):
        if row.value(column) is not None and flag_of(row.value(column)) is None:
            flag = row.get(column)
            builder.rejects.append(
                bad_part(flag.where, f"{column} is no truth value", "bad_flag", flag.value)
            )
    choice = row.choice
    if choice is None:
        reward = row.get("reward")
        if reward.value is not None:
            builder.rejects.append(
                bad_part(reward.where, "reward without an action", "bad_reward", reward.value)
            )
        return
    _act(builder, row, choice)
    if _is_call(choice):
        follows = after[0] if after and _follows(after[0], row) else None
        came = follows.get("observation") if follows else Cell(None, "")
        came = row.get("next") if came.value is None else came
        if came.value is not None:
            time = follows.time if follows else None
            builder.result(None, text_of_cell(came.value), came.where, created_at=time)


def _is_call(choice: Choice | None) -> bool:
    return choice is not None and choice.name not in SPEAKING


def _act(builder: EpisodeBuilder, row: StepRow, choice: Choice) -> None:
    thought = text_of_cell(row.value("thought"))
    reward = _reward(builder, row)
    said, arguments = choice.said or Cell(None, row.where), choice.arguments
    if _is_call(choice):
        call = Call(choice.name, arguments, None, row.where)
        builder.turn(said.value, [call], said.where, reward=reward, thought=thought, created_at=row.time)
        return
    builder.turn(
        said.value,
        [],
        said.where,
        kind=SPEAKING[choice.name],
        arguments=None if arguments == said.value else arguments,
        reward=reward,
        thought=thought,
        created_at=row.time,
    )


def _reward(builder: EpisodeBuilder, row: StepRow) -> float | None:
    value, where = row.get("reward")
    number = number_of(value)
    if number is None and value is not None and str(value).strip().lower() not in ("nan", "none", "null"):
        builder.rejects.append(bad_part(where, "reward is no finite number", "bad_reward", value))
    return number


def _flags(row: StepRow) -> tuple[bool, bool]:
    """Terminated and truncated. An old `done` means either of them: it was a time limit when the row says so."""
    ended = flag_of(row.value("terminated")) is True
    stopped = flag_of(row.value("truncated")) is True
    if not {"terminated", "terminal"} & row.cells.keys():
        stopped = stopped or row.info.get("TimeLimit.truncated") is True
        return ended and not stopped, stopped
    return ended, stopped


def _ending(last: StepRow, is_last: bool) -> tuple[Ending, str]:
    ended, stopped = _flags(last)
    if ended:
        return "terminal", "terminated (and truncated: termination wins)" if stopped else "terminated"
    if stopped:
        return "truncated", "truncated"
    return "truncated", "the log stops without an end" if is_last else "the step number starts over"


def _others(rows: list[StepRow]) -> dict[str, Any]:
    """The columns without a meaning here: those with one value for all rows, and the rest row by row."""
    others = [row.others for row in rows]
    same = {
        key: value for key, value in others[0].items() if all(other.get(key) == value for other in others)
    }
    rest = [{key: value for key, value in other.items() if key not in same} for other in others]
    return same | ({"rows": rest} if any(rest) else {})
