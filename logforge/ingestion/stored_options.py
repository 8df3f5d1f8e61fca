"""With what a stored source was read that a later run does not name again: its mapping, or a format forced on it.

It stands among the source's settings (`mapping`: the text, `read_as`: a connector's name), so that a run without it reads the
source as it was read. It is no part of what tells whether a source is unchanged: that is the reader's version.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from logforge.connectors import registry
from logforge.connectors.mapping import MappingConnector, mapping_of
from logforge.connectors.records import Connector
from logforge.schemas import SpecError


class Remembered(NamedTuple):
    """The settings of a stored source: those that a run has too, and what it was read with.

    `read_as` is the format that was forced on it, in this run or an earlier one.
    """

    settings: str
    mapping: str | None
    read_as: str | None

    def reader(self) -> Connector | None:
        """The connector, when it is still to be had."""
        if self.mapping is not None:
            return stored_mapping(self.mapping)
        return None if self.read_as is None else registry().get(self.read_as)


@lru_cache(maxsize=1024)
def remembered(settings: str) -> Remembered:
    """The parts of `sources.settings`."""
    found = json.loads(settings)
    mapping, read_as = found.pop("mapping", None), found.pop("read_as", None)
    return Remembered(json.dumps(found), mapping, read_as or found.get("format"))


def remembering(settings: str, reader: Connector | None, earlier: Connector | None) -> str:
    """What `sources.settings` says of a source that `reader` read, of which `earlier` was known before."""
    if isinstance(reader, MappingConnector):
        return json.dumps({**json.loads(settings), "mapping": reader.text})
    given = json.loads(settings)
    if reader is None or earlier is None or reader.name != earlier.name or given["format"] is not None:
        return settings
    return json.dumps({**given, "read_as": reader.name})


@lru_cache(maxsize=64)
def stored_mapping(text: str) -> MappingConnector | None:
    """The connector of a stored mapping; None when this version cannot read it any more."""
    try:
        return mapping_of(text, "the stored mapping")
    except SpecError:
        return None
