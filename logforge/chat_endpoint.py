"""One question to an OpenAI-compatible endpoint (`POST URL/chat/completions`), over the standard library's client."""

from __future__ import annotations

import email.utils
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_MOST_BYTES = 4 << 20
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that another try may mend."""
_SHOWN = 200


class Reply(NamedTuple):
    """What a model answered, and the model that the endpoint says it is."""

    text: str
    model: str | None


class Unavailable(Exception):
    """No answer this time: busy, broken or too slow. `after_s` is how long the endpoint asks to be left alone."""

    def __init__(self, what: str, after_s: float | None = None) -> None:
        super().__init__(what)
        self.after_s = after_s


class Declined(Exception):
    """The endpoint will not answer such a question, however often it is asked."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key goes to the host that the user named, and to no other."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""
        return


_OPENER = urllib.request.build_opener(_NoRedirect)


@dataclass(frozen=True)
class ChatEndpoint:
    """An endpoint and the key it wants (empty: none)."""

    url: str
    key: str = field(repr=False)
    timeout_s: float = 60.0

    def ask(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Reply:
        """The answer to a conversation. Raises Unavailable and Declined."""
        body = json.dumps({"messages": list(messages), **options}).encode("utf-8", "surrogatepass")
        request = urllib.request.Request(f"{self.url.rstrip('/')}/chat/completions", body, self._headers())
        try:
            with _OPENER.open(request, timeout=self.timeout_s) as response:
                return _reply(_read(response, time.monotonic() + self.timeout_s))
        except urllib.error.HTTPError as error:
            with error:
                raise self._failure(error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Unavailable(f"{type(reason).__name__}: {reason}".rstrip(": ")) from None

    def _headers(self) -> dict[str, str]:
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return {"Content-Type": "application/json", "User-Agent": "logforge", **key}

    def _failure(self, error: urllib.error.HTTPError) -> Exception:
        if error.code in _AGAIN:
            return Unavailable(f"HTTP {error.code}", _wait(error.headers.get("Retry-After")))
        try:
            said = error.read(_MOST_BYTES).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            said = ""
        said = " ".join(said.replace(self.key, "…").split() if self.key else said.split())
        return Declined(f"HTTP {error.code} {said[:_SHOWN]}".strip())


def _read(response: Any, end: float) -> bytes:
    """The body, unless it is too long or drips for longer than the timeout."""
    parts, size = [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise Unavailable(f"the answer is longer than {_MOST_BYTES:,} bytes")
        if time.monotonic() > end:
            raise Unavailable("TimeoutError: the answer is too slow")
    length = response.headers.get("Content-Length")
    if length is not None and length.isdecimal() and size < int(length):
        raise Unavailable("the connection was cut within the answer")
    return b"".join(parts)


def _reply(body: bytes) -> Reply:
    try:
        data = json.loads(body)
        content = data["choices"][0]["message"]["content"]
        model = data.get("model")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Unavailable("the answer is no chat completion") from None
    # A model that refuses answers null: that is an answer without a score.
    return Reply(content if isinstance(content, str) else "", model if isinstance(model, str) else None)


def _wait(header: str | None) -> float | None:
    """Seconds to wait by a Retry-After header: a number, or a date."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds == seconds else None
