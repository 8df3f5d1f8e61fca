"""ABCD (Action-Based Conversations Dataset): customer-service chats of two people. A record is one conversation.

`original` has `[speaker, text]` pairs. A turn of the speaker `action` is a button that the agent pressed: `delexed`, turn
by turn, has the button and its values in `targets`; the text is the system's reply to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    first_user_text,
    read_rows,
    reject,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Ending, Episode, Reading


class Abcd:
    """ABCD's conversations; the agent is a person."""

    name = "abcd"
    version = 4
    record = "one conversation (an array element, a line or the document)"
    fills: tuple[str, ...] = ()
    splittable = True

    def sniff(self, head: Head) -> float:
        """Conversations have a convo_id, the original turns and their delexicalised form."""
        mine = {"convo_id", "original", "delexed"} <= head.top and head.has_rows
        return 0.95 if mine else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("original"), list):
            yield reject(locator, "no list of `original` turns", "", row)
            return
        builder = EpisodeBuilder()
        labels = row["delexed"] if isinstance(row.get("delexed"), list) else []
        for index, turn in enumerate(row["original"]):
            label = labels[index] if index < len(labels) else None
            _add_turn(builder, turn, _targets(label), index, locator)
        yield from close(builder, self._episode(builder, row, labels, locator))

    def _episode(
        self, builder: EpisodeBuilder, row: dict[str, Any], labels: list[Any], locator: str
    ) -> Episode:
        scenario = row["scenario"] if isinstance(row.get("scenario"), dict) else {}
        flow = [text_or_none(scenario.get(key)) for key in ("flow", "subflow")]
        whole = len(labels) == len(row["original"])
        ending: Ending = "terminal" if whole else "truncated"
        kept = {key: value for key, value in row.items() if key not in ("original", "delexed")}
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason="end of conversation" if whole else "turns and their labels are not equally many",
            native_id=text_or_none(row.get("convo_id")),
            task_id="/".join(part for part in flow if part) or None,
            # None where the agent greets first: what the customer wants is not known before that decision.
            task=first_user_text(builder),
            source_kind="human_demo",
            policy_id="human",
            metadata=canonical(kept | {"targets": [_targets(label) for label in labels]}),
        )


def _add_turn(builder: EpisodeBuilder, turn: Any, targets: list[Any], index: int, locator: str) -> None:
    where = at(locator, f"/original/{index}")
    speaker = turn[0] if isinstance(turn, list) and len(turn) == 2 else None
    text, place = (text_of(turn[1]), f"{where}/1") if speaker is not None else (None, where)
    if speaker == "customer":
        builder.message("user", text, place)
    elif speaker == "agent":
        builder.turn(text, [], place)
    elif speaker != "action":
        builder.rejects.append(
            bad_part(where, "turn of neither agent, customer nor action", "unknown_role", turn)
        )
    elif len(targets) > 3 and isinstance(targets[2], str) and targets[2]:
        label = at(locator, f"/delexed/{index}/targets")
        builder.turn(None, [Call(targets[2], {"values": targets[3]}, None, label)], where)
        builder.result(None, text, place)
    else:
        # A button was pressed, and the log does not say which.
        builder.message("assistant", text, place)
        builder.rejects.append(bad_part(where, "action without a button", "nameless_call", turn))


def _targets(label: Any) -> list[Any]:
    """Intent, next step, button, values and rank of the utterance."""
    found = label.get("targets") if isinstance(label, dict) else None
    return found if isinstance(found, list) else []
