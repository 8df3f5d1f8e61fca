"""What an action is in words, and as a vector: an action that no log has shown has both, where it has no id.

The words are those of the action's name; what a tool's list of parameters or its description adds is given by the caller, for the
store knows tools by their names only. Vectors come from the dataset's own encoder and reduction, as those of states do; a dataset
holds those of its actions' names (`Shard.action_vectors`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from logforge.core import Float32Array
from logforge.schemas import INVALID, OTHER, UnknownName
from logforge.texts import Encoder, Pca, embed

if TYPE_CHECKING:
    import duckdb


_HUMPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORDS: Final = re.compile(r"[^\W\d_]+|\d+")


def name_words(name: str) -> str:
    """The words of a name in snake, camel, kebab or dotted case, in small letters: `getUserDetails` is `get user details`."""
    return " ".join(_WORDS.findall(_HUMPS.sub(" ", name))).lower()


def action_texts(actions: Sequence[str], about: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The text of each action: the words of its name, and behind a colon what `about` says of it (description, parameters).

    `<invalid>` and `<other>` stand for no action and have none. Raises UnknownName where `about` has a name that `actions` has not.
    """
    told = dict(about or {})
    if foreign := sorted(told.keys() - set(actions)):
        raise UnknownName("action", foreign[0], list(actions))
    return tuple("" if name in (INVALID, OTHER) else _text(name, told.get(name, "")) for name in actions)


def _text(name: str, about: str) -> str:
    words = name_words(name) or name
    return f"{words}: {about.strip()}" if about.strip() else words


class TextEmbedder(Protocol):
    """Makes vectors of texts as a dataset does: `logforge.serving.StateServer`."""

    def text_vectors(self, texts: Sequence[str]) -> Float32Array:
        """A row [columns] for each text; zeros for a blank one."""


def action_vectors(server: TextEmbedder, texts: Sequence[str]) -> Float32Array:
    """Vectors [actions, columns] of texts by the server's encoder and PCA; zeros for a blank text."""
    return server.text_vectors(texts)


def action_vectors_file(
    con: duckdb.DuckDBPyConnection, encoder: Encoder, pca: Pca, texts: Sequence[str]
) -> bytes:
    """The same vectors as a build writes them, by the cache of texts in the store: the bytes of the file ACTION_VECTORS."""
    lookup = embed(con, encoder, texts).map(pca.apply)
    data = io.BytesIO()
    np.save(data, np.ascontiguousarray(lookup.matrix[[lookup.index(text) for text in texts]], "<f4"))
    return data.getvalue()
