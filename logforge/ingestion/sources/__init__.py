"""Which files there are, and how packed ones are opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.ingestion.sources.containers import VERSION
    from logforge.ingestion.sources.discover import (
        Found,
        Verdict,
        check_paths,
        find,
        found_again,
        judge,
        label_of,
        same_place,
        sha256_of,
    )
    from logforge.ingestion.sources.limits import Limits, bytes_of
    from logforge.ingestion.sources.pipes import apart, refuse_pipes, spooled
    from logforge.ingestion.sources.unpacking import Contents, member_digest, packed_kind, room_beside, unpack

__all__ = [
    "VERSION", "Contents", "Found", "Limits", "Verdict", "apart", "bytes_of", "check_paths", "find",
    "found_again", "judge", "label_of", "member_digest", "packed_kind", "refuse_pipes", "room_beside",
    "same_place", "sha256_of", "spooled", "unpack",
]  # fmt: skip

face(
    __name__,
    containers="VERSION",
    discover="Found Verdict check_paths find found_again judge label_of same_place sha256_of",
    limits="Limits bytes_of",
    pipes="apart refuse_pipes spooled",
    unpacking="Contents member_digest packed_kind room_beside unpack",
)
