"""A conversation with a model behind an OpenAI-compatible endpoint (`POST URL/chat/completions`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from logforge.core.endpoint import Endpoint, Unavailable


class Reply(NamedTuple):
    """What a model answered, and the model that the endpoint says it is."""

    text: str
    model: str | None


@dataclass(frozen=True)
class ChatEndpoint(Endpoint):
    """An endpoint that is asked for chat completions."""

    def ask(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Reply:
        """The answer to a conversation. Raises Unavailable and Declined."""
        return _reply(self.post("chat/completions", {"messages": list(messages), **options}))


def _reply(answer: Any) -> Reply:
    try:
        content = answer["choices"][0]["message"]["content"]
        model = answer.get("model")
    except (LookupError, TypeError, AttributeError):
        raise Unavailable("the answer is no chat completion") from None
    # A model that refuses answers null: that is an answer without a score.
    return Reply(content if isinstance(content, str) else "", model if isinstance(model, str) else None)
