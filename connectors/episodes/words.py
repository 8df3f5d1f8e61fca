"""What a message's content says, and what in it is not understood.

Text parts give their text, parts that are known to be no text a visible mark (`[image]`). Any other part is not understood:
it is no words, and whoever reads the message has to set it aside (EpisodeBuilder.unknown).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator
from typing import Any, Final, NamedTuple

from logforge.connectors.records import canonical, described

TEXT_PARTS: Final = frozenset(
    {"text", "input_text", "output_text", "refusal", "summary_text", "markdown", "audio_transcription"}
)
"""Types of parts that are text: in `text`, `content` or `refusal`."""
MARKED: Final = frozenset(
    {"image", "image_url", "input_image", "output_image", "image_file", "image_asset_pointer"}
    | {"audio", "input_audio", "output_audio", "audio_url", "video", "video_url", "input_video"}
    | {"file", "input_file", "document", "pdf", "resource", "resource_link", "container_upload"}
    | {"audio_asset_pointer", "real_time_user_audio_video_asset_pointer", "video_container_asset_pointer"}
    | {"search_result", "web_search_result", "web_search_result_location", "tool_reference"}
)
"""Types of parts that are no text and no decision; each leaves a mark."""

_TEXT_KEYS = ("text", "content", "refusal")
_CALL_KEY = re.compile(r"tool|function|call(?!back)|invocation", re.IGNORECASE)
_NAME = re.compile(r"(?:.*[_a-z])?name|tool|function|action", re.IGNORECASE)
_ARGUMENTS = frozenset(
    {
        "arguments",
        "args",
        "input",
        "parameters",
        "params",
        "kwargs",
        "tool_input",
        "toolInput",
        "action_input",
    }
)
_DEPTH = 6

_LOOKS_LIKE: Final = (
    (frozenset({"toolUse", "toolResult", "cachePoint", "reasoningContent"}), "Bedrock's Converse API"),
    (
        frozenset(
            {"tool-call", "tool-result", "toolInvocations", "toolInvocation", "step-start", "toolCallId"}
        ),
        "the Vercel AI SDK",
    ),
    (
        frozenset(
            {"function_call", "function_call_output", "custom_tool_call", "reasoning", "item_reference"}
        ),
        "items of OpenAI's Responses API",
    ),
    (
        frozenset(
            {"functionCall", "functionResponse", "executableCode", "codeExecutionResult", "inlineData"}
        ),
        "Gemini's `contents`",
    ),
    (
        frozenset({"additional_kwargs", "response_metadata", "invalid_tool_calls", "lc"}),
        "LangChain's messages",
    ),
    (frozenset({"part_kind"}), "Pydantic AI's messages"),
    (frozenset({"parts"}), "the Vercel AI SDK or Gemini's `contents`"),
)


class Unknown(NamedTuple):
    """A part that is not understood; `place` is where it stands within the content ("" for the content itself)."""

    place: str
    part: Any


def text_of(content: Any) -> str | None:
    """The text of a message's content, its parts joined by line breaks.

    Whatever is not understood stands there as JSON, so that nothing of a tool's answer is lost. Where the content is a
    message of somebody, ask `unknown_parts` first.
    """
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        return canonical(content)
    return "\n".join(canonical(part) if (text := part_text(part)) is None else text for part in content)


def part_text(part: Any) -> str | None:
    """The text of one part, or a mark that says what kind of part it is; None for a part that is not understood."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    kind = part.get("type", part.get("content_type"))
    if kind is None:
        return str(part["text"]) if isinstance(part.get("text"), str) and not _more_than_text(part) else None
    if not isinstance(kind, str):
        return None
    if kind in TEXT_PARTS:
        return next((str(part[key]) for key in _TEXT_KEYS if isinstance(part.get(key), str)), None)
    return f"[{kind}]" if kind in MARKED else None


def _more_than_text(part: dict[str, Any]) -> bool:
    """A part without a type that holds more than its text and plain facts about it."""
    return any(isinstance(value, dict | list) and value for value in part.values())


def words_of(content: Any) -> str | None:
    """The text of what is understood of a message's content, unlike `text_of`, which keeps the rest as JSON."""
    if not isinstance(content, list):
        return None if isinstance(content, dict) else text_of(content)
    texts = [text for part in content if (text := part_text(part)) is not None]
    return "\n".join(texts) if texts else None


def unknown_parts(content: Any) -> list[Unknown]:
    """The parts of a message's content that are not understood."""
    if isinstance(content, dict):
        return [Unknown("", content)]
    if not isinstance(content, list):
        return []
    return [Unknown(f"/{i}", part) for i, part in enumerate(content) if part_text(part) is None]


def looks_like(part: Any) -> str | None:
    """The format whose parts look so; None when it is none that is known."""
    names = set(_names_in(part, 3))
    return next((format for keys, format in _LOOKS_LIKE if keys & names), None)


def _names_in(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, dict):
        kind = value.get("type")
        if isinstance(kind, str):
            yield kind
        yield from (key for key in value if isinstance(key, str))
    if depth and isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _names_in(inner, depth - 1)


def told_unknown(part: Any) -> str:
    """What a part is that is not understood: its kind, its keys, and the format that it looks like."""
    like = looks_like(part)
    kind = part.get("type") if isinstance(part, dict) else None
    said = f"{described(part)}{f', of type {kind!r}' if isinstance(kind, str) else ''}"
    return f"{said}; it looks like {like}" if like else said


def may_hold_call(value: Any, known_ids: Iterable[str] = ()) -> bool:
    """True for an object or list in which a call may lie that nobody read: named like one, or with a name and arguments.

    A call whose id is among the `known_ids` was read from elsewhere.
    """
    return _call_in(value, frozenset(known_ids), _DEPTH)


def _call_in(value: Any, known: frozenset[str], depth: int) -> bool:
    if isinstance(value, list):
        return depth > 0 and any(_call_in(inner, known, depth - 1) for inner in value)
    if not isinstance(value, dict):
        return False
    if any(
        isinstance(value.get(key), str) and value[key] in known for key in ("id", "call_id", "tool_call_id")
    ):
        return False
    if value.keys() & _ARGUMENTS and any(isinstance(key, str) and _NAME.fullmatch(key) for key in value):
        return True
    return depth > 0 and any(
        (_is_named_call(key, inner) and not _all_known(inner, known)) or _call_in(inner, known, depth - 1)
        for key, inner in value.items()
    )


def _is_named_call(key: Any, value: Any) -> bool:
    return (
        isinstance(key, str)
        and bool(value)
        and isinstance(value, dict | list)
        and bool(_CALL_KEY.search(key))
    )


def _all_known(value: Any, known: frozenset[str]) -> bool:
    return isinstance(value, list) and all(
        isinstance(inner, dict) and isinstance(inner.get("id"), str) and inner["id"] in known
        for inner in value
    )


def unread_calls(row: dict[str, Any], read: Collection[str], known_ids: Iterable[str] = ()) -> dict[str, Any]:
    """The keys of an agent's message, beside those that are `read`, in which a call may lie. A copy of a call with a known id is none."""
    known = frozenset(known_ids)
    return {key: value for key, value in row.items() if key not in read and names_call(key, value, known)}


def unsaid(row: dict[str, Any], read: Container[str]) -> dict[str, Any]:
    """The keys of a message without words, beside those that are `read`, that may hold what it says: texts, objects and lists."""
    return {
        key: value
        for key, value in row.items()
        if key not in read and isinstance(value, str | dict | list) and value
    }


def names_call(key: str, value: Any, known_ids: Iterable[str] = ()) -> bool:
    """True when the value of a key may hold a call: by the key's name, or by what lies inside."""
    known = frozenset(known_ids)
    return (_is_named_call(key, value) and not _all_known(value, known)) or _call_in(value, known, _DEPTH)


_SUMMARIES = (
    "This session is being continued from a previous conversation that ran out of context",
    "Another language model started to solve this problem and produced a summary of its thinking process",
    "Here is a summary of the conversation to date:",
    "<state_snapshot>",
    "<conversation_summary>",
    "[Summary of the conversation so far]",
)
"""How summaries begin that a program writes in the user's name when a conversation grew too long: Claude Code's, Codex's, LangChain's,
Gemini CLI's and others'."""
_OPENING = max(map(len, _SUMMARIES))


def is_summary(text: str | None) -> bool:
    """True for a summary that a program wrote: context, and nobody's words."""
    return text is not None and text[: _OPENING + 20].lstrip().startswith(_SUMMARIES)
