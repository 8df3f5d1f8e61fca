"""Closes the episode of a row that is a chat with, perhaps, a label and tools: ShareGPT's and LLaMA-Factory's rows alike."""

from __future__ import annotations

from typing import Any

from logforge.connectors.chat.dialogue import chat_ending
from logforge.connectors.chat.openai_turns import tool_names
from logforge.connectors.episodes import (
    EpisodeBuilder,
    content_id,
    failure_in,
    first_text,
    first_user_text,
    read_outcome,
    text_or_none,
)
from logforge.connectors.records import canonical
from logforge.schemas import Episode


def labelled_chat(
    name: str,
    builder: EpisodeBuilder,
    ids: list[str],
    row: dict[str, Any],
    locator: str,
    told: tuple[str, ...],
) -> Episode:
    """The episode of a row that is a chat with, perhaps, a label and tools.

    `ids` are call ids that its text gives; `told` are the fields that its messages hold and the metadata need not.
    """
    outcome = read_outcome(row, locator, builder.rejects).void(failure_in(row))
    ending, reason = chat_ending(builder, outcome.known, row)
    more = {"tool_call_ids": ids} if ids else {}
    return builder.finish(
        id=content_id(name, row),
        format=name,
        locator=locator,
        ending=ending,
        ending_reason=reason,
        native_id=first_text(row, "id", "conversation_id"),
        task=first_user_text(builder),
        model=text_or_none(row.get("model")),
        policy_id=text_or_none(row.get("model")),
        tools=tool_names(row.get("tools")),
        **outcome.fields(),
        metadata=canonical({k: v for k, v in row.items() if k not in told} | more),
    )
