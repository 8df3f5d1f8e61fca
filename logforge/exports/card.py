"""The dataset's card with the head that the Hugging Face hub reads: which files are which split, and what the columns are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from logforge.schemas import Manifest
from logforge.shards import dataset_card

_SIZES: Final = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
)
_FILES = """
## Files

`data/SPLIT-*.parquet` hold a row for each decision: what the agent knew (`observation`), what was allowed (`mask`), what it
did, what that earned, and what followed. `datasets.load_dataset` reads this folder. Values must not be bootstrapped from
`next_observation` where `terminal` is true, and must where `timeout` is. `propensity` is null where nobody knows it. The
manifest that the card speaks of is `logforge_manifest.json`; the arrays themselves are not in this folder.
"""


class Size(NamedTuple):
    """Of a split's files: `stored` bytes, and `bytes` of what they hold."""

    stored: int
    bytes: int


def card(manifest: Manifest, sizes: Mapping[str, Size], features: Sequence[Mapping[str, Any]]) -> str:
    """README.md of an export for the hub. `sizes` has the splits that have files."""
    import yaml

    head = yaml.safe_dump(_head(manifest, sizes, features), sort_keys=False, allow_unicode=True, width=120)
    return f"---\n{head}---\n\n{dataset_card(manifest)}{_FILES}"


def _head(
    manifest: Manifest, sizes: Mapping[str, Size], features: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    rows = {split: manifest.splits[split].transitions for split in sizes}
    total = sum(rows.values())
    return {
        "pretty_name": manifest.dataset,
        "license": licence(manifest),
        "task_categories": ["reinforcement-learning"],
        "tags": ["offline-rl", "tool-use", "agents", "logforge"],
        "size_categories": [next((name for limit, name in _SIZES if total < limit), "n>100M")],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": f"data/{split}-*.parquet"} for split in sizes],
            }
        ],
        "dataset_info": {
            "features": list(features),
            "splits": [
                {"name": split, "num_bytes": sizes[split].bytes, "num_examples": count}
                for split, count in rows.items()
            ],
            "download_size": sum(size.stored for size in sizes.values()),
            "dataset_size": sum(size.bytes for size in sizes.values()),
        },
    }


def licence(manifest: Manifest) -> str:
    """The one under which all sources stand, in small letters as the hub's identifiers are; `other` for several, `unknown`
    where one is not stated."""
    stated = {manifest.licences.get(source.format, "") for source in manifest.sources}
    if not stated or "" in stated:
        return "unknown"
    return stated.pop().lower() if len(stated) == 1 else "other"
