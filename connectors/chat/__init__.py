"""Conversations as chat APIs and fine-tuning sets write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.connectors.chat.anthropic_turns import add_turn
    from logforge.connectors.chat.dialects import dialect_of
    from logforge.connectors.chat.dialogue import add_given, chat_ending, json_field
    from logforge.connectors.chat.google_parts import (
        CallOrder,
        GoogleParts,
        Response,
        key_of,
        read_call,
        read_parts,
        read_response,
        tokens,
        value_of,
    )
    from logforge.connectors.chat.openai_turns import (
        add_message,
        add_messages,
        add_requested,
        calls_of,
        message_name,
        offer_requested,
        thought_of,
        tool_names,
    )
    from logforge.connectors.chat.simulations import FINISHED, simulation_outcome, termination_of

__all__ = [
    "FINISHED", "CallOrder", "GoogleParts", "Response", "add_given", "add_message", "add_messages",
    "add_requested", "add_turn", "calls_of", "chat_ending", "dialect_of", "json_field", "key_of",
    "message_name", "offer_requested", "read_call", "read_parts", "read_response", "simulation_outcome",
    "termination_of", "thought_of", "tokens", "tool_names", "value_of",
]  # fmt: skip

face(
    __name__,
    anthropic_turns="add_turn",
    dialects="dialect_of",
    dialogue="add_given chat_ending json_field",
    google_parts="CallOrder GoogleParts Response key_of read_call read_parts read_response tokens value_of",
    openai_turns="add_message add_messages add_requested calls_of message_name offer_requested "
    "thought_of tool_names",
    simulations="FINISHED simulation_outcome termination_of",
)
