"""Summaries that a program writes in the user's name when a conversation grew too long: context, and nobody's words."""

from __future__ import annotations

_OPENINGS = (
    "This session is being continued from a previous conversation that ran out of context",
    "Another language model started to solve this problem and produced a summary of its thinking process",
    "Here is a summary of the conversation to date:",
    "<state_snapshot>",
    "<conversation_summary>",
    "[Summary of the conversation so far]",
)
"""Claude Code's, Codex's, LangChain's, Gemini CLI's and others'."""
_LONGEST = max(map(len, _OPENINGS))


def is_summary(text: str | None) -> bool:
    """True for a text that begins as such a summary does."""
    return text is not None and text[: _LONGEST + 20].lstrip().startswith(_OPENINGS)
