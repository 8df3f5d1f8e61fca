"""One question to an OpenAI-compatible endpoint, over the standard library's client, and how long to wait before another."""

from __future__ import annotations

import email.utils
import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_MOST_BYTES = 64 << 20
_MOST_WAIT_S = 60.0
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that another try may mend."""
_SHOWN = 200


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


def check_url(url: str) -> str:
    """The base URL without a slash at its end. Raises ValueError, which does not repeat what may hold a secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be the base URL of an OpenAI-compatible endpoint, such as https://host/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must hold no user, password or query: the key comes from an environment variable")
    return url.rstrip("/")


def wait_s(tried: int, backoff_s: float, error: Unavailable) -> float:
    """Seconds to wait after so many tries: twice as long each time and a little by chance, or what the endpoint asks for."""
    wait = backoff_s * 2.0 ** (tried - 1) * (1 + random.random() / 4)
    return min(max(wait, error.after_s or 0.0), _MOST_WAIT_S)


@dataclass(frozen=True)
class Endpoint:
    """An endpoint and the key it wants (empty: none)."""

    url: str
    key: str = field(repr=False)
    timeout_s: float = 60.0

    def post(self, path: str, question: Mapping[str, Any]) -> Any:
        """The JSON that answers a question. Raises Unavailable and Declined."""
        body = json.dumps(question).encode("utf-8", "surrogatepass")
        request = urllib.request.Request(f"{self.url.rstrip('/')}/{path}", body, self._headers())
        try:
            with _OPENER.open(request, timeout=self.timeout_s) as response:
                return _decoded(_read(response, time.monotonic() + self.timeout_s))
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
            return Unavailable(f"HTTP {error.code}", _retry_after(error.headers.get("Retry-After")))
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


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Unavailable("the answer is not JSON") from None


def _retry_after(header: str | None) -> float | None:
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
