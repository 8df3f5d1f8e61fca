"""What an encoder's revision is made of: the files that decide its vectors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import xxhash

_CHUNK = 1 << 20


def files_hash(files: Iterable[Path], root: Path | None = None, settings: bytes = b"") -> str:
    """32 hex digits (xxh3-128) over the files' names (below `root`; without it their last part) and bytes, and the settings."""
    total = xxhash.xxh3_128(settings)
    for path in sorted(files):
        name = path.relative_to(root).as_posix() if root else path.name
        total.update(f"{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                total.update(chunk)
    return total.hexdigest()
