"""The connectors and the door they come through: built-in ones and those of other packages are found the same way."""

from __future__ import annotations

import importlib
import warnings
import zlib
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from logforge.connectors.records import BUILT_IN, Connector, Head, look
from logforge.schemas import UnknownName

ENTRY_POINTS = "logforge.connectors"
"""Other packages add a connector by an entry point of this group: NAME = "module:Class"."""


class Claim(NamedTuple):
    """A connector's claim on a file."""

    connector: Connector
    confidence: float


@cache
def registry() -> dict[str, Connector]:
    """Every connector by name, sorted. A broken third-party one is a warning, not a crash."""
    found = {name: _load(target) for name, target in BUILT_IN.items()}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found[point.name] = _checked(point.load()(), point.name)
        except Exception as error:
            warnings.warn(f"connector {point.name!r} ({point.value}) cannot be loaded: {error}", stacklevel=2)
    return dict(sorted(found.items()))


def _checked(connector: Any, name: str) -> Connector:
    """A third-party connector, when it has what every one must have."""
    lacking = [
        part for part in ("name", "version", "record", "sniff", "read") if not hasattr(connector, part)
    ]
    if lacking:
        raise TypeError(f"it has no {', '.join(lacking)}")
    if connector.name != name:
        raise ValueError(f"its name is {connector.name!r}, its entry point's {name!r}")
    found: Connector = connector
    return found


def registry_version() -> int:
    """A number that changes when a connector is added, removed or bumped: files that none claimed are then looked at again."""
    known = ",".join(f"{name}={connector.version}" for name, connector in registry().items())
    return zlib.crc32(known.encode()) & 0x7FFFFFFF


def _load(target: str) -> Connector:
    module, _, name = target.partition(":")
    connector: Connector = getattr(importlib.import_module(module), name)()
    return connector


def get(name: str) -> Connector:
    """The connector of that name. Raises UnknownName, listing the valid ones."""
    connectors = registry()
    if name not in connectors:
        raise UnknownName("format", name, list(connectors))
    return connectors[name]


def detect(path: Path) -> list[Claim]:
    """The claims on a file, the surest first; empty when no connector knows it."""
    return claims(look(path))


def claims(head: Head, *more: Connector) -> list[Claim]:
    """The claims on a file of which the head was read already, by the registered connectors and some more."""
    found = [Claim(connector, _confidence(connector, head)) for connector in (*registry().values(), *more)]
    return sorted(
        (claim for claim in found if claim.confidence > 0), key=lambda c: (-c.confidence, c.connector.name)
    )


def _confidence(connector: Connector, head: Head) -> float:
    """What a connector claims. One that raises claims nothing, and that is said: the others are not to fall with it."""
    try:
        return connector.sniff(head)
    except Exception as error:
        warnings.warn(f"connector {connector.name!r} failed to look at {head.name}: {error}", stacklevel=2)
        return 0.0
