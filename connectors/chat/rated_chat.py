"""Plain chats with ratings: `{"conversation": [{"role", "content"}, …], "rating": …}`, or one question, its answer and a rating.

A record is one chat. A rating of the whole chat is its success or score; a rating of one message is the reward of that turn.
(Rows with `messages` are those of `openai_messages`.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat.dialogue import CALLS_IN_TEXT, chat_ending
from logforge.connectors.chat.openai_messages import SESSION_KEYS
from logforge.connectors.chat.ratings import RATING_KEYS, rating_of
from logforge.connectors.episodes import (
    EpisodeBuilder,
    Outcome,
    bad_part,
    close,
    content_id,
    first_text,
    first_user_text,
    micros,
    read_outcome,
    read_rows,
    reject,
    stopped_by,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Episode, Reading

_LISTS = ("conversation", "chat", "dialogue", "dialog", "turns")
_QUESTIONS = ("prompt", "question", "query", "input", "user_message")
_ANSWERS = ("response", "answer", "output", "assistant_message")
_SPEAKERS = ("role", "speaker", "sender", "author", "from")
_WORDS = ("content", "text", "message", "value", "utterance")
_ROLES = {
    **dict.fromkeys(("user", "human", "customer"), "user"),
    **dict.fromkeys(("assistant", "bot", "ai", "agent", "model", "gpt"), "assistant"),
    "system": "system",
}
_OTHERS = frozenset(
    {"messages", "conversations", "utterances", "context", "chosen", "completion", "observation"}
    | {"working_dir"}
)


class RatedChat:
    """Chats without tools, with what people thought of them."""

    name = "rated_chat"
    version = 3
    record = "one chat (a line, an array element or the document)"
    fills = ("outcome", "score", "rewards", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """A rating beside a chat, or beside a question and its answer; a list of roles and contents may have none."""
        if not head.has_rows or _OTHERS & head.top:
            return 0.0
        rated = bool(set(RATING_KEYS) & head.top)
        chat = any(_is_chat(head.keys.get(key, set()), rated) for key in _LISTS if key in head.top)
        if not chat and not (rated and set(_QUESTIONS) & head.top and set(_ANSWERS) & head.top):
            return 0.0
        return 0.0 if any(mark in head.data for mark in CALLS_IN_TEXT) else 0.6

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per chat."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        row_ = row if isinstance(row, dict) else {}
        builder = EpisodeBuilder()
        listed = next((key for key in _LISTS if isinstance(row_.get(key), list)), None)
        asked, answered = _first_key(row_, _QUESTIONS), _first_key(row_, _ANSWERS)
        used: tuple[str | None, ...] = (listed,)
        if listed is not None:
            for index, turn in enumerate(row_[listed]):
                _add_turn(builder, turn, at(locator, f"/{listed}/{index}"))
        elif asked is not None and answered is not None:
            used = (asked, answered)
            builder.message("user", row_[asked], at(locator, f"/{asked}"))
            builder.turn(row_[answered], [], at(locator, f"/{answered}"))
        else:
            yield reject(locator, "neither a list of turns nor a question and an answer", "", row)
            return
        yield from close(builder, self._episode(builder, row_, used, locator))

    def _episode(
        self, builder: EpisodeBuilder, row: dict[str, Any], used: tuple[str | None, ...], locator: str
    ) -> Episode:
        rating = rating_of(row)
        told = read_outcome(row, locator, builder.rejects)
        outcome = told.or_else(Outcome(rating.success, rating.score, rating.source))
        ending, reason = chat_ending(builder, outcome.known, row)
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=first_text(row, "id", "conversation_hash", *SESSION_KEYS),
            task=first_user_text(builder),
            session_id=first_text(row, *SESSION_KEYS),
            user_id=text_or_none(row.get("user_id")),
            model=text_or_none(row.get("model")),
            policy_id=text_or_none(row.get("model")),
            **outcome.fields(),
            metadata=canonical({key: value for key, value in row.items() if key not in used}),
        )


def _is_chat(turn: set[str], rated: bool) -> bool:
    if not set(_SPEAKERS) & turn or not set(_WORDS) & turn or "tool_calls" in turn:
        return False
    return rated or bool(set(RATING_KEYS) & turn) or {"role", "content"} <= turn


def _first_key(row: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((key for key in keys if isinstance(row.get(key), str)), None)


def _add_turn(builder: EpisodeBuilder, turn: Any, where: str) -> None:
    row = turn if isinstance(turn, dict) else {}
    said_by = next((row[key] for key in _SPEAKERS if isinstance(row.get(key), str)), "")
    role = _ROLES.get(said_by.lower())
    key = next((key for key in _WORDS if row.get(key) is not None), None)
    if role is None:
        builder.rejects.append(
            bad_part(where, "turn of neither user, assistant nor system", "unknown_role", turn)
        )
        return
    text, place = (text_of(row[key]), where) if key else (None, where)
    if key and isinstance(row[key], str):
        place = f"{where}/{key}"
    stamp = row.get("timestamp") or row.get("created_at")
    time = None if stamp is None else micros(stamp)
    if role == "assistant":
        builder.turn(text, [], place, reward=rating_of(row).reward, created_at=time)
        builder.cut = stopped_by(row)
    else:
        builder.message(role, text, place, created_at=time)
