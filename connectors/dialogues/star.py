"""STAR dialogues (Wizard of Oz): one JSON document per dialogue, with the events of user, wizard and knowledge base.

The record is the dialogue. The wizard, a crowd worker playing the assistant, is the agent: queries are its tool calls,
utterances and picked suggestions what it says. Instructions to the user and clicks in the interface are no dialogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    episode_id,
    micros,
    read_rows,
    reject,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Ending, Episode, Reading, StepKind

_ASKS = re.compile(r"(?:[a-z]+_)?ask_")
_INTERFACE = frozenset(
    {
        ("UserGuide", "instruct"),
        ("User", "complete"),
        ("Wizard", "select_task"),
        ("Wizard", "select_topic"),
        ("Wizard", "select_primary"),
        ("Wizard", "select_secondary"),
    }
)
"""Events that neither side says: instructions and clicks. They are kept in the metadata, with their index."""


class Star:
    """STAR's dialogues."""

    name = "star"
    version = 4
    record = "one dialogue: the document"
    fills = ("outcome", "thoughts", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """A dialogue has an id, events and a scenario."""
        return 0.95 if {"DialogueID", "Events"} <= head.top and head.container in ("object", "array") else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per dialogue."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("Events"), list):
            yield reject(locator, "no list of `Events`", "", row)
            return
        dialogue = _Dialogue()
        for index, event in enumerate(row["Events"]):
            dialogue.add(event, index, at(locator, f"/Events/{index}"))
        yield from close(dialogue.builder, self._episode(dialogue, row, locator))

    def _episode(self, dialogue: _Dialogue, row: dict[str, Any], locator: str) -> Episode:
        native = text_or_none(row.get("DialogueID"))
        scenario = row["Scenario"] if isinstance(row.get("Scenario"), dict) else {}
        worker = text_or_none(row.get("AnonymizedWizardWorkerID"))
        ending, reason = _ending(row)
        success = _success(row.get("UserQuestionnaire"))
        return dialogue.builder.finish(
            id=content_id(self.name, row) if native is None else episode_id(self.name, native),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=native,
            task_id=_task_id(scenario),
            task=text_or_none(scenario.get("WizardTask")),
            source_kind="human_demo",
            policy_id=f"wizard:{worker}" if worker else "wizard",
            success=success,
            outcome_from=None if success is None else "UserQuestionnaire",
            metadata=canonical(
                {key: value for key, value in row.items() if key != "Events"}
                | {"interface_events": dialogue.interface, "unused_drafts": dialogue.drafts}
            ),
        )


class _Dialogue:
    """Takes a dialogue's events in order."""

    def __init__(self) -> None:
        self.builder = EpisodeBuilder()
        self.interface: list[dict[str, Any]] = []
        self.drafts: list[str] = []

    def add(self, event: Any, index: int, where: str) -> None:
        """Take one event."""
        kind = (event.get("Agent"), event.get("Action")) if isinstance(event, dict) else (None, None)
        if not all(isinstance(part, str) for part in kind):
            self.builder.rejects.append(bad_part(where, "event without agent and action", "bad_event", event))
        elif kind == ("User", "utter"):
            self.builder.message("user", event.get("Text"), f"{where}/Text", created_at=_time(event))
        elif kind == ("Wizard", "query"):
            self._query(event, where)
        elif kind == ("KnowledgeBase", "return_item"):
            self._item(event, where)
        elif kind in (("Wizard", "utter"), ("Wizard", "pick_suggestion")):
            self._say(event, where)
        elif kind == ("Wizard", "request_suggestions"):
            draft = text_of(event.get("Text"))
            self.drafts += [draft] if draft else []
        elif kind in _INTERFACE:
            told = {
                key: event[key] for key in ("Agent", "Action", "Text", "Task", "PrimaryItem") if key in event
            }
            self.interface.append({"index": index, **told})
        else:
            self.builder.rejects.append(bad_part(where, "event of an unknown kind", "unknown_event", event))

    def _query(self, event: dict[str, Any], where: str) -> None:
        name = event.get("APIName")
        if not isinstance(name, str) or not name:
            self.builder.rejects.append(bad_part(where, "query without an API name", "nameless_call", event))
            return
        call = Call(name, _constraints(event.get("Constraints")), None, where)
        self.builder.turn(None, [call], where, thought=self._thought(), created_at=_time(event))

    def _item(self, event: dict[str, Any], where: str) -> None:
        item = event.get("Item")
        text, where = (canonical(item), f"{where}/Item") if item else ("", where)
        self.builder.result(None, text, where, created_at=_time(event))

    def _say(self, event: dict[str, Any], where: str) -> None:
        label, text = text_or_none(event.get("ActionLabel")), text_of(event.get("Text"))
        self.builder.turn(
            text,
            [],
            f"{where}/Text",
            kind=_kind(label),
            arguments=None if label is None else {"label": label},
            thought=self._thought(),
            created_at=_time(event),
        )

    def _thought(self) -> str | None:
        drafts, self.drafts = self.drafts, []
        return "\n".join(drafts) or None


def _kind(label: str | None) -> StepKind | None:
    """The label tells a question from an answer; without one, or with one's own words (`custom`), the text does."""
    if label is None or label == "custom":
        return None
    return "clarify" if _ASKS.match(label) else "respond"


def _constraints(listed: Any) -> Any:
    """One object of a list of one-key objects; values stay as they are. A key that comes twice keeps a list."""
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        return listed
    merged: dict[str, Any] = {}
    repeated: set[str] = set()
    for key, value in (pair for item in listed for pair in item.items()):
        if key in repeated:
            merged[key].append(value)
        elif key in merged:
            merged[key] = [merged[key], value]
            repeated.add(key)
        else:
            merged[key] = value
    return merged


def _time(event: dict[str, Any]) -> int | None:
    return micros(event.get("UnixTime"))


def _ending(row: dict[str, Any]) -> tuple[Ending, str]:
    level = text_or_none(row.get("CompletionLevel"))
    ending: Ending = "terminal" if level == "Complete" else "truncated"
    return ending, f"completion level: {level or 'none'}"


def _task_id(scenario: dict[str, Any]) -> str | None:
    """The tasks that the wizard could do, joined."""
    listed = scenario.get("WizardCapabilities")
    tasks = (
        [item.get("Task") for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    )
    return "+".join(task for task in tasks if isinstance(task, str)) or None


def _success(questionnaire: Any) -> bool | None:
    """The user answered yes to every yes-or-no question; None when no such answer was given."""
    listed = questionnaire if isinstance(questionnaire, list) else []
    answers = [item.get("Answer") for item in listed if isinstance(item, dict)]
    yes_or_no = [answer for answer in answers if isinstance(answer, bool)]
    return all(yes_or_no) if yes_or_no else None
