"""The files of a store: its own, what DuckDB and logforge keep beside it, and what a killed process left there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from logforge.store.block_journal import journal_of
from logforge.store.checkpoint import log_of


def target_of(path: Path) -> Path:
    """Where a link leads: DuckDB keeps what belongs to a file beside the file itself."""
    return path.resolve() if path.is_symlink() else path


def parts_of(path: Path) -> tuple[Path, ...]:
    """A store's file, its log of changes, those that a checkpoint has for a moment (DuckDB's, then ours)."""
    log = log_of(path)
    return (
        path,
        log,
        *(log.with_name(f"{log.name}.{end}") for end in ("checkpoint", "recovery")),
        journal_of(path),
    )


def own_files(path: Path) -> frozenset[Path]:
    """A store's file, what lies beside it, and the key of its secrets."""
    path = target_of(path)
    fresh = f".{path.name}.fresh"
    files = (*parts_of(path), *parts_of(path.with_name(fresh)), path.with_name(f"{path.name}.key"))
    return frozenset(file.resolve() for file in files)


def remove(path: Path) -> None:
    """Remove a database that is in nobody's use, with what lies beside it, or a folder."""
    for file in parts_of(path):
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)


def remove_spilled(path: Path) -> None:
    """What a killed process could not hold in memory and left beside the store, which is ours alone now."""
    for file in path.with_name(f"{path.name}.tmp").glob("duckdb_temp_*"):
        if file.name.split("_")[2] != str(os.getpid()):
            file.unlink(missing_ok=True)
