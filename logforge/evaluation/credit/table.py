"""What methods of credit gave, kept in the store's table `credit`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from logforge.evaluation.credit.methods import BONUS, Method, Values
from logforge.shards import Shard
from logforge.store import Store
from logforge.texts import is_read_only

_KEY = ("dataset", "hash", "split", "method", "policy", "settings")
_SAME = (
    "DELETE FROM credit WHERE dataset = ? AND (hash <> ? OR (split = ? AND method = ? "
    "AND policy IS NOT DISTINCT FROM ? AND settings = ?))"
)


def keep_credit(
    store: Store,
    shard: Shard,
    frame: pl.DataFrame,
    methods: Iterable[tuple[Method, Values | None, Mapping[str, Any]]],
) -> bool:
    """Write each method's columns of `frame` (as in CreditReport) into the store, all or nothing.

    It takes the place of what the same method gave with the same options, and of all credit of an earlier build of the
    dataset. Returns whether it was kept: in a store opened for reading it is not.
    """
    if is_read_only(store.con):
        return False
    manifest = shard.manifest
    with store.transaction():
        for method, values, options in methods:
            policy = values.policy if values is not None and method.needs == "values" else None
            settings = json.dumps(settings_of(method, values, options), sort_keys=True)
            same = [manifest.dataset, manifest.hash, shard.split, method.name, policy, settings]
            store.con.execute(_SAME, same)
            about = dict(zip(_KEY, (pl.lit(value, pl.String) for value in same), strict=True))
            columns = {"credit": method.name, "spread": f"{method.name}_spread"}
            rows = frame.select("episode_id", "step", "support", **columns)
            store.insert("credit", rows.with_columns(**about))
    return True


def settings_of(method: Method, values: Values | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a method's credit besides the dataset and the policy's name."""
    found = {name: options[name] for name in method.options}
    if method.clock and options.get("per_seconds") is not None:
        found["per_seconds"] = options["per_seconds"]
    if method.name == "shaped":
        found["bonus"] = BONUS
    if values is not None and method.needs == "values":
        found["values"] = values.version
    return found
