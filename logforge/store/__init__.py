"""The one DuckDB file: opened, committed, kept whole when a process is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.store.checkpoint import checkpoint_when_due
    from logforge.store.files import own_files
    from logforge.store.forgotten import (
        RULE,
        Kind,
        hidden_label,
        is_forgotten,
        is_hidden,
        key_of,
        keys_in,
        names_forgotten,
        pending,
        refuse_pending,
    )
    from logforge.store.keyed_hashes import (
        key_path,
        keyed_hash,
        pseudonym,
        short_hash,
        store_key,
        without_kind,
    )
    from logforge.store.store import DEFAULT_PATH, Store, dataset_named, open_store

__all__ = [
    "DEFAULT_PATH", "RULE", "Kind", "Store", "checkpoint_when_due", "dataset_named", "hidden_label",
    "is_forgotten", "is_hidden", "key_of", "key_path", "keyed_hash", "keys_in", "names_forgotten",
    "open_store", "own_files", "pending", "pseudonym", "refuse_pending", "short_hash", "store_key",
    "without_kind",
]  # fmt: skip

face(
    __name__,
    checkpoint="checkpoint_when_due",
    files="own_files",
    forgotten="Kind RULE hidden_label is_forgotten is_hidden key_of keys_in names_forgotten "
    "pending refuse_pending",
    keyed_hashes="key_path keyed_hash pseudonym short_hash store_key without_kind",
    store="DEFAULT_PATH Store dataset_named open_store",
)
