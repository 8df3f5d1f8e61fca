"""What was forgotten, as hashes: an ingest that meets it again leaves it out, and nobody can read from the store what it was."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from logforge.schemas import Episode, StoreError
from logforge.store.keyed_hashes import pseudonym

if TYPE_CHECKING:
    from logforge.store.store import Store

Kind = Literal["session", "source", "episode", "user"]
RULE = "forgotten"
"""The reason under which records that were forgotten are skipped."""


def key_of(kind: str, name: str) -> str:
    """How a name is remembered: the SHA-256 of its kind and itself."""
    return hashlib.sha256(f"{kind}/{name}".encode("utf-8", "surrogatepass")).hexdigest()


def hidden_label(label: str) -> str:
    """What stands for the path of a source that was forgotten."""
    return f"{RULE}/{key_of('source', label)[:12]}"


def is_hidden(label: str) -> bool:
    """Whether this stands for such a path."""
    return label.startswith(f"{RULE}/")


def keys_in(store: Store) -> frozenset[str]:
    """The keys of all that was forgotten."""
    return frozenset(row[0] for row in store.con.sql("SELECT DISTINCT key FROM forgotten").fetchall())


def pending(store: Store) -> bool:
    """Whether something was to be forgotten and is not yet gone, because a run was killed or the disk was full."""
    return bool(store.con.sql("SELECT 1 FROM forgotten WHERE pending LIMIT 1").fetchall())


def refuse_pending(store: Store) -> None:
    """Raise StoreError while a forget is cut short: what is read now could bring back what was to go."""
    if pending(store):
        raise StoreError(
            str(store.path),
            "a forget in this store was cut short",
            "run `logforge ingest` or `logforge forget` (in Python logforge.ingest), which complete it first",
        )


def is_forgotten(episode: Episode, keys: frozenset[str], secret_key: bytes) -> bool:
    """Whether an episode, what it is a part or a continuation of, or a decision it carries along was forgotten; also by the
    pseudonym that stands for one of its ids in the store (see hygiene), which is made with the store's key of secrets."""
    return bool(keys) and any(key in keys for key in _keys(episode, secret_key))


def names_forgotten(episode_id: str | None, keys: frozenset[str]) -> bool:
    """Whether this is the id of an episode that was forgotten."""
    return bool(keys) and episode_id is not None and key_of("episode", episode_id) in keys


def _keys(episode: Episode, secret_key: bytes) -> Iterator[str]:
    for name in (episode.episode_id, episode.parent_episode_id, episode.continues_episode_id):
        if name is not None:
            yield key_of("episode", name)
    for kind, name in (
        ("session", episode.session_id),
        ("session", episode.native_id),
        ("user", episode.user_id),
    ):
        if name is not None:
            yield key_of(kind, name)
            yield key_of(kind, pseudonym("", name, secret_key))
    for step in episode.steps:
        if step.decision_key is not None:
            yield key_of("decision", step.decision_key)
