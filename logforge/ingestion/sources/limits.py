"""How far packed files may unfold, and how long a record may be."""

from __future__ import annotations

import re
from dataclasses import dataclass

from logforge.core import option
from logforge.schemas import UsageError

_SIZE = re.compile(r"(\d{1,12}(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def bytes_of(size: str) -> int:
    """The bytes of a size such as `512MB`, `16 GB` or `1000000`. Raises UsageError."""
    found = _SIZE.fullmatch(size.strip())
    if found is None:
        raise UsageError(f"{size!r} is no size", "write a number with KB, MB, GB or TB")
    return int(float(found[1]) * 1024 ** ("KMGT".find(found[2].upper()) + 1 if found[2] else 0))


@dataclass(frozen=True)
class Limits:
    """How far one packed file may unfold, archives within it included: bytes in all, bytes for each packed byte (counted
    beyond `SMALL`), files, and archives in one another. `record` is how many bytes one line, element of an array or
    document may have, packed or not."""

    unpacked: int = option(
        16 << 30, "Bytes a packed file may unfold to.", "--max-unpacked", given="16GB", read=bytes_of
    )
    ratio: int = option(500, "And times its own size.", "--max-ratio", least=1)
    members: int = 500_000
    depth: int = 3
    record: int = option(
        256 << 20, "Bytes a line or document may have.", "--max-record", given="256MB", read=bytes_of
    )
