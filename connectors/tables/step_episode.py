"""The rows of one episode as an episode: what was seen, done and rewarded, and where one episode ends and the next begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from logforge.connectors.episodes import (
    UNKNOWN,
    Call,
    EpisodeBuilder,
    Outcome,
    bad_part,
    close,
    content_id,
    read_outcome,
    text_or_none,
)
from logforge.connectors.records import canonical
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
from logforge.schemas import Ending, Reading, Reject, SourceKind

Row = TypeVar("Row", bound=StepRow)


@dataclass(frozen=True)
class Told:
    """What is known of an episode besides its rows."""

    format: str
    native: str | None
    is_last: bool
    """No other episode of its id comes after it."""
    records: int | None = None
    """How many records it accounts for; None for one a row."""
    locator: str | None = None
    kind: SourceKind | None = None
    policy: str | None = None
    parts: tuple[Reject, ...] = ()
    """What was set aside of the records before the rows were made."""


def episode_of_rows(rows: Sequence[StepRow], told: Told) -> Iterator[Reading]:
    """The episode of some rows and the parts of it that were set aside."""
    try:
        yield from list(_build(rows, told))
    except RecursionError:
        where = told.locator or rows[0].where
        size = len(rows) if told.records is None else told.records
        yield Reject(locator=where, reason="nested too deep", rule="nested_too_deep", records=size)


def _build(rows: Sequence[StepRow], told: Told) -> Iterator[Reading]:
    builder = EpisodeBuilder()
    builder.rejects.extend(told.parts)
    for index, row in enumerate(rows):
        _add(builder, row, rows[index - 1] if index else None, rows[index + 1 : index + 2])
    first, last = rows[0], rows[-1]
    ending, reason = _ending(last, told.is_last)
    model, person = text_or_none(first.value("model")), text_or_none(first.value("person"))
    kind: SourceKind = "human_demo" if model is None else "agent_log"
    human = f"human:{person}" if person else "human"
    episode = builder.finish(
        id=content_id(told.format, [row.cells for row in rows]),
        format=told.format,
        locator=told.locator or first.where,
        records=len(rows) if told.records is None else told.records,
        ending=ending,
        ending_reason=reason,
        native_id=told.native,
        task_id=text_or_none(first.value("task_id")),
        user_id=text_or_none(first.value("user")),
        task=text_of_cell(first.value("task")),
        source_kind=told.kind or kind,
        policy_id=told.policy or model or (None if told.kind == "agent_log" else human),
        model=model,
        **_outcome(builder, rows).fields(),
        metadata=canonical(_others(rows)),
    )
    yield from close(builder, episode)


def _outcome(builder: EpisodeBuilder, rows: Sequence[StepRow]) -> Outcome:
    """The last row's verdict, in its own column or in Gymnasium's `info`; the score that was told last."""
    last, names, scores = rows[-1], COLUMNS["success"], COLUMNS["score"]
    cells = {key: given(last.cells.get(key)) for key in names}
    flag = read_outcome(cells, last.where, builder.rejects, success=names, score=())
    info = {key: last.info.get(key) for key in names}
    told = read_outcome(
        info,
        last.place("info") + ("#" if isinstance(last.cells.get("info"), str) else ""),
        builder.rejects,
        success=names,
        score=(),
        under="info.",
    )
    told_so_far = [{key: given(row.cells.get(key)) for key in scores} for row in rows]
    found = [
        read_outcome(said, row.where, builder.rejects, success=(), score=scores)
        for said, row in zip(told_so_far, rows, strict=True)
    ]
    score = next((one for one in reversed(found) if one.score is not None), UNKNOWN)
    return flag.or_else(told).or_else(score)


def without_copies(rows: list[Row]) -> list[Row]:
    """Rows of one id without those that are logged twice, by step number where every row has one of its own."""
    seen: dict[int, set[str]] = {}
    kept: list[Row] = []
    for row in rows:
        same = seen.setdefault(row.number, set()) if row.number is not None else set()
        if row.text not in same:
            same.add(row.text)
            kept.append(row)
    numbers = [row.number for row in kept if row.number is not None]
    if len(set(numbers)) < len(kept):
        return kept
    return sorted(kept, key=lambda row: row.number or 0)


def runs(rows: list[Row]) -> Iterator[list[Row]]:
    """The rows of each episode: one ends at a flag, and where the step number starts over."""
    run: list[Row] = []
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


def _add(builder: EpisodeBuilder, row: StepRow, before: StepRow | None, after: Sequence[StepRow]) -> None:
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
    numbers: dict[str, Any] = {"reward": _reward(builder, row), "propensity": _propensity(builder, row)}
    said, arguments = choice.said or Cell(None, row.where), choice.arguments
    if _is_call(choice):
        call = Call(choice.name, arguments, None, row.where)
        builder.turn(said.value, [call], said.where, thought=thought, created_at=row.time, **numbers)
        return
    builder.turn(
        said.value,
        [],
        said.where,
        kind=SPEAKING[choice.name],
        arguments=None if arguments == said.value else arguments,
        thought=thought,
        created_at=row.time,
        **numbers,
    )


def _reward(builder: EpisodeBuilder, row: StepRow) -> float | None:
    value, where = row.get("reward")
    number = number_of(value)
    if number is None and value is not None and str(value).strip().lower() not in ("nan", "none", "null"):
        builder.rejects.append(bad_part(where, "reward is no finite number", "bad_reward", value))
    return number


def _propensity(builder: EpisodeBuilder, row: StepRow) -> float | None:
    value, where = row.get("propensity")
    number = number_of(value)
    if number is not None and 0 < number <= 1:
        return number
    if value is not None:
        builder.rejects.append(bad_part(where, "propensity outside (0, 1]", "bad_propensity", value))
    return None


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


def _others(rows: Sequence[StepRow]) -> dict[str, Any]:
    """The columns without a meaning here: those with one value for all rows, and the rest row by row."""
    others = [row.others for row in rows]
    same = {
        key: value for key, value in others[0].items() if all(other.get(key) == value for other in others)
    }
    rest = [{key: value for key, value in other.items() if key not in same} for other in others]
    return same | ({"rows": rest} if any(rest) else {})
