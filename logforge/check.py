"""Validates a dataset again: its rows in the store, its shards on disk, and that the two belong together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from logforge.quality import validate
from logforge.queries import require_dataset
from logforge.schemas.errors import CheckFailed, LogforgeError, Problem
from logforge.shards import SPLITS, load_shards
from logforge.store import Store
from logforge.tabulate import plural


@dataclass(frozen=True)
class CheckReport:
    """What was checked; a broken rule raises instead."""

    dataset: str
    hash: str
    transitions: int
    splits: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)

    def render(self) -> str:
        """For people."""
        return f"{self.dataset}: {self.transitions} transitions, shards {', '.join(self.splits)} — all rules hold"


def check_dataset(store: Store, name: str) -> CheckReport:
    """Check a dataset. Raises CheckFailed listing every broken rule."""
    require_dataset(store, name)
    label, hash_ = store.con.sql(
        "SELECT path, hash FROM datasets WHERE dataset = ?", params=[name]
    ).fetchall()[0]
    path = str(store.path.parent / label)
    rows = store.con.sql(
        "SELECT * EXCLUDE (dataset) FROM transitions WHERE dataset = ? ORDER BY episode_id, step",
        params=[name],
    ).pl()
    problems, shards = [], {}
    for split in SPLITS:
        try:
            shards[split] = load_shards(path, split)
        except LogforgeError as error:
            problems.append(Problem(error.message, path))
    for split, shard in shards.items():
        found = rows.filter(rows["split"] == split).height
        if shard.size != found:
            problems.append(Problem(f"{split} holds {shard.size} transitions, the store {found}", path))
    if shards:
        manifest = next(iter(shards.values())).manifest
        if manifest.hash != hash_:
            problems.append(
                Problem(
                    f"the shards are those of {manifest.hash}, the store's rows of {hash_}; build again", path
                )
            )
        failures = validate(rows, manifest.gamma, manifest.vocabulary.size, manifest.vocabulary.invalid)
        problems += [
            Problem(row["reason"], row["locator"] or "", rule=row["rule"]) for row in failures.to_dicts()
        ]
    if problems:
        raise CheckFailed(f"{name}: {plural(len(problems), 'problem')}", problems, "build the dataset again")
    return CheckReport(name, hash_, rows.height, tuple(shards))
