"""Keyed hashes of secrets, so that the same secret can be joined across files without being stored.

The key is random, one for each store, in a file beside it. Whoever has the store alone can guess no password from a hash.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

from logforge.schemas import StoreError

KEY_BYTES = 32
_PSEUDONYM = re.compile(r"<[A-Z0-9_]+(:[0-9a-f]{12}>)")


def key_path(store: Path) -> Path:
    """Where a store's key lies."""
    return store.with_name(store.name + ".key")


def store_key(store: Path) -> bytes:
    """The store's key, made when there is none (readable by its owner alone). Raises StoreError when it cannot be."""
    path = key_path(store)
    try:
        if not path.exists():
            _make(path)
    except OSError as error:
        remedy = "make the store's folder writable, or name another place with --store"
        raise StoreError(str(path), f"cannot write the key of secrets: {error.strerror}", remedy) from None
    return _read(path)


def _make(path: Path) -> None:
    """Whole or not at all: half a key, left by a kill or a full disk, would bar every later run."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(os.urandom(KEY_BYTES))
        with suppress(FileExistsError):  # another process was first: its key is as good
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except OSError as error:
        remedy = "give yourself the right to read it: it lies beside the store"
        raise StoreError(str(path), f"cannot read the key of secrets: {error.strerror}", remedy) from None
    if len(key) != KEY_BYTES:
        remedy = "put the right file back, or remove it: hashes made from then on join no earlier ones"
        raise StoreError(str(path), f"this is no key of {KEY_BYTES} bytes", remedy)
    return key


def pseudonym(kind: str, value: str, key: bytes) -> str:
    """What stands for an id that is a secret or an address as a whole, so that the ids of two users stay two."""
    return f"<{kind}:{short_hash(value, key)}>"


def without_kind(name: str) -> str | None:
    """A pseudonym without its kind, as `pseudonym("", …)` makes it; None for any other name."""
    found = _PSEUDONYM.fullmatch(name)
    return None if found is None else f"<{found[1]}"


def short_hash(value: str, key: bytes) -> str:
    """12 hex digits: enough to tell apart what one store holds."""
    return keyed_hash(value, key)[:12]


def keyed_hash(secret: str, key: bytes) -> str:
    """32 hex digits."""
    return hashlib.blake2b(secret.encode("utf-8", "surrogatepass"), key=key, digest_size=16).hexdigest()
