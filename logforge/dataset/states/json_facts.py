"""What JSON text says, leaf by leaf, hashed into a few columns: the digest of a call's arguments, and the facts of an answer.

A number counts by its size in a digest, at the place of its key; any other value counts as 1 at the place of key and value, with
what varies between runs masked (logforge/texts/placeholders.py). So calls of one kind have one digest whatever ids they name. A text that is no
JSON is one leaf.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xxhash

from logforge.texts import mask_volatile

ARGUMENT_COLUMNS: Final = 8
MOST_FACTS: Final = 32
"""Leaves of an answer that count; those of a long one repeat."""
_LARGEST = 1e18
_ONE = 1000
"""A number of this size counts as 1."""
_KEPT = 65_536


@lru_cache(maxsize=_KEPT)
def argument_digest(arguments: str) -> npt.NDArray[np.float32]:
    """The digest of arguments as JSON text [ARGUMENT_COLUMNS], by signed feature hashing (Weinberger et al. 2009); `{}` is all
    zeros."""
    digest = np.zeros(ARGUMENT_COLUMNS, np.float64)
    for path, value in _leaves(arguments):
        if isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
            size = math.copysign(math.log1p(min(abs(value), _LARGEST)) / math.log1p(_ONE), value)
            code = _code(path)
        else:
            size, code = 1.0, _code(_said(path, value))
        digest[code % ARGUMENT_COLUMNS] += size if code >> 63 else -size
    found = digest.astype(np.float32)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=_KEPT)
def fact_columns(who: str, text: str, columns: int) -> tuple[int, ...]:
    """Which of so many columns stand for what `who` says in a text, sorted."""
    leaves = (leaf for leaf, _ in zip(_leaves(text), range(MOST_FACTS), strict=False))
    return tuple(sorted({_code(f"{who}\n{_said(*leaf)}") % columns for leaf in leaves}))


def _leaves(text: str) -> Iterator[tuple[str, Any]]:
    """Paths and values; keys in order."""
    try:
        left: list[tuple[str, Any]] = [("", json.loads(text))]
    except (ValueError, RecursionError):
        left = [("", text)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{path}.{key}", value[key]) for key in sorted(value, reverse=True)]
        elif isinstance(value, list):
            left += [(f"{path}[]", part) for part in reversed(value)]
        else:
            yield path, value


def _said(path: str, value: Any) -> str:
    """A leaf in words, with what varies between runs masked: a number is only a number."""
    if isinstance(value, str):
        return f"{path}={mask_volatile(value)}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{path}=<num>" if number else f"{path}={value}"


def _code(feature: str) -> int:
    return xxhash.xxh3_64_intdigest(feature.encode("utf-8", "surrogatepass"))
