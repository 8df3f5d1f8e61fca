"""Which id makes an episode: a native id that is unique wherever it is met, else the record that it stands on."""

from __future__ import annotations

import re

from logforge.connectors.builder import content_id, episode_id

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)


def is_uuid(text: str | None) -> bool:
    """True for an id that is a UUID."""
    return text is not None and _UUID.fullmatch(text) is not None


def native_or_content(format_name: str, native_id: str | None, record: object) -> str:
    """The episode id from a UUID; any other native id repeats between machines, so the record decides."""
    if native_id is not None and is_uuid(native_id):
        return episode_id(format_name, native_id.lower())
    return content_id(format_name, record)
