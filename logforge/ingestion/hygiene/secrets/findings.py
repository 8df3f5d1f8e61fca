"""What the detectors of secrets hand on."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """A secret in a text, by its place in characters. `rank` decides between findings that overlap: 0 knows the shape, 1 is
    kingfisher's word, 2 knows the carrier (a header, a flag, a URL), 3 the name alone."""

    start: int
    end: int
    kind: str
    rule: str
    rank: int = 2
