"""Keys of known issuers, found by kingfisher-secret-scanner (offline; it never validates anything).

Many texts are scanned as one buffer to see which of them to look at; what is in a text is then said by a scan of that text
alone, so that it does not depend on its neighbours.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING

from logforge.ingestion.hygiene.secrets.findings import Finding
from logforge.ingestion.hygiene.secrets.values import stands_in

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

BUFFER_BYTES = 256 << 10
"""Buffers of 128 to 512 kB are scanned fastest."""
_GAP = b"\n\n\n\n"

_KINDS = {
    "aws-access-token": "AWS_KEY",
    "aws-secret-access-key": "AWS_SECRET",
    "aws-session-token": "AWS_SECRET",
    "private-key": "PRIVATE_KEY",
    "jwt": "JWT",
    "jwt-base64": "JWT",
    "generic-credential-uri": "PASSWORD",
    "curl-auth-header": "TOKEN",
    "curl-auth-user": "PASSWORD",
}
_SUFFIX = re.compile(r"\.\d+$")
_NO_SECRET = re.compile(
    r"-(?:(?:client|tenant|account|application|app|project|organization|user|key|api|subscription|auth|access|atlas-service-account)-id"
    r"|url|host|domain|name|username|repository|address)(?:\.\d+)?$"
)
_IS_SECRET_ID = re.compile(r"access-key-id|webhook-url|sensitive-url|credential-uri")


@cache
def _scanner() -> Scanner:
    """Built once per process: compiling the rules takes seconds the first time, half a second from the cache."""
    from kingfisher_sdk import Scanner

    return Scanner()


@cache
@cache
def engine_version() -> str:
    """The version of the rules: another one may find something else."""
    return version("kingfisher-secret-scanner")


def hits(texts: Sequence[str]) -> set[int]:
    """The indices of the texts that hold something."""
    found: set[int] = set()
    for start, stop in _buffers(texts):
        parts = [text.encode() for text in texts[start:stop]]
        data = _GAP.join(parts)
        places = None
        for finding in _scanner().scan(data):
            places = places or list(accumulate((len(part) + len(_GAP) for part in parts), initial=0))
            found.add(start + bisect_right(places, finding.location["start_offset"]) - 1)
            found.add(start + bisect_right(places, max(finding.location["end_offset"] - 1, 0)) - 1)
    return found


def _buffers(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    start = size = 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= BUFFER_BYTES:
            yield start, index + 1
            start, size = index + 1, 0
    if start < len(texts):
        yield start, len(texts)


def vendor_findings(text: str) -> Iterator[Finding]:
    """Every secret that kingfisher sees in a text, halves of a pair included; they may overlap."""
    data = text.encode()
    for found in _scanner().scan(data):
        name = found.rule_id.split(".", 1)[-1].split("/")[-1]
        if not found.visible and _NO_SECRET.search(name) and not _IS_SECRET_ID.search(name):
            continue
        start, end = found.location["start_offset"], found.location["end_offset"]
        before = data[:start].decode("utf-8", "ignore")
        inside = data[start:end].decode("utf-8", "ignore")
        if name == "curl-auth-user":  # the user's name is no secret
            user = inside.partition(":")[0] + ":"
            before, inside = before + user, inside[len(user) :]
        if inside.strip() and not (name == "generic-credential-uri" and stands_in(inside)):
            yield Finding(len(before), len(before) + len(inside), kind_of_rule(name), name, 1)


def kind_of_rule(name: str) -> str:
    """The placeholder's word for a rule of kingfisher: `sendgrid-api-token` is SENDGRID_API_TOKEN."""
    if name in _KINDS:
        return _KINDS[name]
    kind = re.sub(r"[^A-Z0-9]+", "_", _SUFFIX.sub("", name).upper())
    return kind if kind[0].isalpha() else f"N{kind}"
