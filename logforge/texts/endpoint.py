"""Texts to vectors by an OpenAI-compatible endpoint (`POST URL/embeddings`): `openai:MODEL@URL[?SETTING=VALUE&…]`.

The key is read from an environment variable and kept nowhere. What decides a vector (URL, model, size, length) is the
encoder's revision; whether the endpoint changes its model under the same name, nobody can see from here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from logforge.core import Declined, Endpoint, Unavailable, check_url, wait_s
from logforge.schemas import CheckFailed, Mismatch, UnknownName, UsageError

F32 = npt.NDArray[np.float32]
ENDPOINT: Final = "openai:"
_EXAMPLE = f"write {ENDPOINT}text-embedding-3-small@https://host/v1?dimensions=256"


@dataclass(frozen=True)
class Settings:
    """What is asked of which endpoint, and how. Those after `max_chars` decide no vector."""

    model: str
    url: str
    dimensions: int = 0
    """The size asked for, where the model offers several; 0 leaves it to the model."""
    max_chars: int = 20_000
    """Longer texts are cut."""
    batch: int = 64
    """Texts sent in one request."""
    key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; an unset one means that none is needed."""
    per_minute: float = 600.0
    """Requests a minute, at most, tries included."""
    tries: int = 5
    backoff_s: float = 1.0
    """The wait before the second try; it doubles, up to a minute."""
    timeout_s: float = 60.0

    @property
    def name(self) -> str:
        """Model and endpoint, as an encoder's name."""
        return f"{ENDPOINT}{self.model}@{self.url}"

    @property
    def revision(self) -> str:
        """A hash of what decides a vector."""
        deciding = [1, self.model, self.url, self.dimensions, self.max_chars]
        return xxhash.xxh3_64_hexdigest(msgspec.json.encode(deciding))


def read_settings(name: str) -> Settings:
    """The settings in an encoder's name. Raises UsageError, which repeats no value: it may be a key."""
    model, found, rest = name.removeprefix(ENDPOINT).partition("@http")
    if not model or not found:
        raise UsageError(f"an encoder {ENDPOINT!r} without model or URL", _EXAMPLE)
    url, _, query = f"http{rest}".partition("?")
    try:
        given = {key: _number_or_name(key, value) for key, value in parse_qsl(query, keep_blank_values=True)}
        return Settings(model, check_url(url), **given)
    except ValueError as error:
        raise UsageError(f"the encoder {ENDPOINT}{model}: {error}", _EXAMPLE) from None


def _number_or_name(key: str, value: str) -> Any:
    every = asdict(Settings("", ""))
    kinds = {name: type(value) for name, value in every.items() if name not in ("model", "url")}
    if key not in kinds:
        raise UnknownName("setting of an endpoint", key, list(kinds))
    try:
        found = kinds[key](value)
    except ValueError:
        found = None
    least = 0 if key in ("dimensions", "backoff_s") else 1e-9
    if found is None or (not isinstance(found, str) and not least <= found < float("inf")):
        raise ValueError(f"{key} must be a number above 0")
    return found


class EndpointEncoder:
    """Asks in batches, one after another, within the rate; a request that fails for now is tried again."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.truncated = settings, 0
        self.name, self.revision, self.batch = settings.name, settings.revision, settings.batch
        self._next_slot, self._model = 0.0, ""

    @cached_property
    def dim(self) -> int:
        """The size of a vector; asks for one where `dimensions` leaves it open."""
        return self.settings.dimensions or self.encode(["size"]).shape[1]

    def encode(self, texts: Sequence[str]) -> F32:
        """One row per text, as the endpoint gives it. Raises CheckFailed when it gives none, UsageError when it refuses, and
        Mismatch for vectors of another size or model than asked for."""
        most = self.settings.max_chars
        self.truncated += sum(len(text) > most for text in texts)
        question: dict[str, Any] = {"model": self.settings.model, "input": [text[:most] for text in texts]}
        if self.settings.dimensions:
            question["dimensions"] = self.settings.dimensions
        rows = self._asked(question)
        if self.settings.dimensions and rows.shape[1] != self.settings.dimensions:
            remedy = "leave `dimensions` out: the model has one size"
            raise Mismatch(
                f"size of the vectors of {self.name!r}", self.settings.dimensions, rows.shape[1], remedy
            )
        return rows

    def encode_tokens(self, text: str) -> F32:
        """Such an endpoint gives vectors of whole texts only."""
        raise UsageError(
            f"{self.name!r} gives no vectors of tokens", "use minilm-onnx, minilm or hashing for them"
        )

    def _asked(self, question: dict[str, Any]) -> F32:
        endpoint = Endpoint(
            self.settings.url, os.environ.get(self.settings.key_env, ""), self.settings.timeout_s
        )
        for attempt in range(1, self.settings.tries + 1):
            self._wait_for_slot()
            try:
                answer = endpoint.post("embeddings", question)
                rows = _vectors(answer, len(question["input"]))
            except Unavailable as error:
                if attempt == self.settings.tries:
                    what = f"{self.name!r} gave no vectors in {attempt} tries: {error}"
                    raise CheckFailed(what, remedy=f"run it again later; {_KEPT}") from None
                time.sleep(wait_s(attempt, self.settings.backoff_s, error))
            except Declined as error:
                remedy = f"see that the model is right and the variable {self.settings.key_env} holds a key; {_KEPT}"
                raise UsageError(f"{self.name!r} refuses: {error}", remedy, rule="endpoint_refuses") from None
            else:
                self._check_model(answer)
                return rows
        raise AssertionError("the last try returns or raises")

    def _check_model(self, answer: Any) -> None:
        """Vectors of two models are not comparable."""
        model = str(answer.get("model") or "")
        if self._model and model != self._model:
            remedy = "name one model, not a router that chooses one"
            raise Mismatch(f"model that answers for {self.name!r}", self._model, model, remedy)
        self._model = model

    def _wait_for_slot(self) -> None:
        now = time.monotonic()
        slot = max(now, self._next_slot)
        self._next_slot = slot + 60.0 / self.settings.per_minute
        time.sleep(slot - now)


_KEPT = "what was encoded before is kept: the next run asks for the others only"


def _vectors(answer: Any, count: int) -> F32:
    """The rows of an answer in the order of the texts. Raises Unavailable for one that is not whole."""
    try:
        items = sorted(answer["data"], key=lambda item: item["index"])
        rows = np.array([item["embedding"] for item in items], np.float32)
    except (LookupError, TypeError, ValueError):
        raise Unavailable("the answer is no list of embeddings") from None
    if [item["index"] for item in items] != list(range(count)) or rows.ndim != 2 or not rows.shape[1]:
        raise Unavailable(f"the answer holds {len(items)} embeddings for {count} texts")
    return rows
