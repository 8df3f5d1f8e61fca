"""Documents that hold several conversations and yet are one record of their source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from logforge.schemas.episode import Episode, Reading, Reject, Skip


def as_one_record(readings: Iterable[Reading], locator: str) -> Iterator[Reading]:
    """Count a document's readings as one record: its first episode takes it, whatever is set aside beside it is a part.

    Without an episode the first reject takes it, and without that the first skip.
    """
    found = list(readings)
    first = next((item for item in found if isinstance(item, Episode)), None)
    if first is None:
        chosen = next((item for item in found if isinstance(item, Reject)), found[0] if found else None)
        if isinstance(chosen, Reject):
            yield msgspec.structs.replace(chosen, level="record", records=1, episode_id=None)
        else:
            yield Skip(reason=chosen.reason if isinstance(chosen, Skip) else "empty_conversation")
        return
    for item in found:
        if isinstance(item, Episode):
            yield msgspec.structs.replace(item, records=int(item is first))
        elif isinstance(item, Reject):
            yield msgspec.structs.replace(
                item, level="part", records=1, episode_id=item.episode_id or first.episode_id
            )
        elif isinstance(item, Skip):
            # Beside an episode it can take no record, but it leaves its trace.
            reason = item.reason.replace("_", " ")
            yield Reject(
                level="part", locator=locator, reason=reason, rule=item.reason, episode_id=first.episode_id
            )
