"""Flags by a classifier of the user's own (`--flag-with module:function`), for toxicity say: none is shipped.

The function takes a list of texts and returns for each the names of its flags, none for most:

    def toxic(texts: list[str]) -> list[list[str]]: ...

It is code that the user names on the command line or in the config, and runs with the user's rights; no log and no store can name
one. It gets each distinct text of a batch once, after secrets were taken out.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from logforge.schemas import UsageError

Flagger = Callable[[list[str]], Sequence[Iterable[str]]]
BATCH = 256
"""Texts that are handed over at once."""

_FLAG = re.compile(r"[a-z][a-z0-9_.:-]{0,63}")
_REMEDY = "write --flag-with MODULE:FUNCTION, a function that can be imported from here"


def flagger_versions(names: Iterable[str]) -> dict[str, str]:
    """What each flagger is, for `sources.settings`: another version reads everything again.

    It is the function's `version`, else a hash of the file it stands in. Raises UsageError for what is no such function.
    """
    return {name: _version(name) for name in names}


@cache
def _version(name: str) -> str:
    function = _loaded(name)
    if (told := getattr(function, "version", None)) is not None:
        return str(told)
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        file = None
    if file is None:
        raise UsageError(
            f"nobody knows which version {name} is", f"give the function an attribute `version` ({name})"
        )
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]


@cache
def _loaded(name: str) -> Flagger:
    """The function. The working folder is on the path, as it is for `python -m`."""
    module, sign, path = name.partition(":")
    if not (module and sign and path):
        raise UsageError(f"{name!r} names no function", _REMEDY)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{name!r} cannot be imported: {error}", _REMEDY) from error
    if not callable(found):
        raise UsageError(f"{name!r} is no function", _REMEDY)
    return found  # type: ignore[no-any-return]


def with_own_flags(messages: pa.Table, names: Sequence[str]) -> pa.Table:
    """The messages with the flags that these functions give their texts; system prompts are not shown to them.

    Raises UsageError when one fails or gives anything but names of flags: half a batch without flags would pass for clean.
    """
    if not names:
        return messages
    pairs = list(zip(messages["role"].to_pylist(), messages["content"].to_pylist(), strict=True))
    texts = sorted({text for role, text in pairs if role != "system" and text})
    flags: dict[str, set[str]] = {}
    for name in names:
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            for text, given in zip(batch, _given(name, batch), strict=True):
                if given:
                    flags.setdefault(text, set()).update(given)
    if not flags:
        return messages
    index = messages.schema.get_field_index("flags")
    made = [
        sorted({*(before or ()), *flags.get(text or "", ())} if role != "system" else before or ()) or None
        for (role, text), before in zip(pairs, messages["flags"].to_pylist(), strict=True)
    ]
    field = messages.schema.field("flags")
    return messages.set_column(index, field, pa.array(made, type=field.type))


def _given(name: str, batch: list[str]) -> list[list[str]]:
    remedy = "it takes a list of texts and returns a list of flags for each, as [[], ['toxic']]"
    try:
        given = [item if isinstance(item, str) else list(item) for item in _loaded(name)(list(batch))]
    except Exception as error:
        raise UsageError(f"{name} failed: {type(error).__name__}: {error}", remedy) from error
    wrong = next((item for item in given if isinstance(item, str) or not all(map(_is_flag, item))), None)
    if len(given) != len(batch) or wrong is not None:
        what = (
            f"{wrong!r} for a text" if wrong is not None else f"{len(given)} answers for {len(batch)} texts"
        )
        raise UsageError(f"{name} gave {what}", remedy)
    return given  # type: ignore[return-value]


def _is_flag(value: object) -> bool:
    return isinstance(value, str) and bool(_FLAG.fullmatch(value))
