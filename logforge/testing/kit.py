"""The conformance kit: the laws that hold for every connector, to be run on one's own.

    from logforge.testing import LAWS, check_connector

    @pytest.mark.parametrize("law", LAWS)
    def test_my_connector(law):
        check_connector(MyLog(), ["logs/a.jsonl"], laws=[law]).raise_if_broken()

A law looks at one file and tells what breaks it. Files are read, changed and read again in a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import xxhash

from logforge.connectors.records import Connector, Source
from logforge.core import BaseReport, Lines
from logforge.schemas import UnknownName
from logforge.testing.laws import LABEL, LAWS, Case, CountRecords, Law, companions_of, count_json_records
from logforge.testing.soundness import counted, unsound

__all__ = [
    "HASH_SEED",
    "LAWS",
    "Case",
    "ConformanceReport",
    "Finding",
    "check_connector",
    "count_json_records",
    "counted",
    "unsound",
]


class Finding(NamedTuple):
    """A law, the file that breaks it, and how."""

    law: str
    path: str
    what: str


@dataclass(frozen=True)
class ConformanceReport(BaseReport):
    """Which laws were looked at, on how many files, and what breaks them."""

    connector: str
    files: int
    laws: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """No law is broken."""
        return not self.findings

    def lines(self) -> Lines:
        """One line for each law."""
        broken = Counter(finding.law for finding in self.findings)
        yield f"{self.connector}: {self.files} files, {len(self.laws)} laws, {len(self.findings)} findings"
        yield from (f"  {'BROKEN' if broken[law] else 'holds '} {law}: {_saying(law)}" for law in self.laws)
        yield from (f"{finding.path}: {finding.law}: {finding.what}" for finding in self.findings)

    def raise_if_broken(self) -> None:
        """Raise AssertionError with the findings, when there are any."""
        if self.findings:
            raise AssertionError(self.render())


HASH_SEED = "hash_seed"


def _saying(law: str) -> str:
    return (LAWS[law].__doc__ or "") if law in LAWS else "Readings do not depend on Python's hash seed."


def check_connector(
    connector: Connector,
    paths: Iterable[str | Path],
    *,
    laws: Iterable[str] | None = None,
    count_records: CountRecords | None = None,
    foreign: Iterable[str | Path] = (),
    examples: int = 20,
    seed: int = 0,
) -> ConformanceReport:
    """Run the laws on a connector with some files of its format.

    `count_records` counts a file's records without the connector (`count_json_records`, say); without it their number is
    only compared between versions of a file. `foreign` are files it must not claim. `examples` is how many damaged
    versions are tried of each file, `seed` decides which. Raises UnknownName for an unknown law.
    """
    chosen = [*LAWS, HASH_SEED] if laws is None else list(laws)
    for law in chosen:
        if law not in (*LAWS, HASH_SEED):
            raise UnknownName("law", law, [*LAWS, HASH_SEED])
    files = [Path(path) for path in paths]
    others = tuple(Path(path) for path in foreign)
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="logforge-") as folder:
        for number, path in enumerate(files):
            home = Path(folder, str(number))
            case = Case(connector, path, home, examples, seed, count_records, others)
            for law in chosen:
                if law in LAWS:
                    findings += _findings(LAWS[law], case)
            shutil.rmtree(home, ignore_errors=True)
    if HASH_SEED in chosen and (what := _depends_on_seed(connector, files)):
        findings.append(Finding(HASH_SEED, "", what))
    return ConformanceReport(connector.name, len(files), tuple(chosen), tuple(findings))


def _findings(law: Law, case: Case) -> list[Finding]:
    name = law.__name__
    found: list[Finding] = []
    try:
        for what in law(case):
            found.append(Finding(name, str(case.path), what))
            if len(found) == 10:
                break
    except Exception as error:
        found.append(Finding(name, str(case.path), f"raises {type(error).__name__}: {error}"))
    return found


def digest(connector: Connector, paths: Iterable[str | Path]) -> str:
    """A hash of everything a connector makes of some files."""
    hashed = xxhash.xxh3_128()
    for path in map(Path, paths):
        source = Source(path, LABEL, companions_of(connector, path))
        hashed.update(msgspec.json.encode(list(connector.read(source))))
    return hashed.hexdigest()


def _depends_on_seed(connector: Connector, paths: list[Path]) -> str:
    kind = type(connector)
    code = (
        f"import importlib, sys\nfrom logforge.testing.kit import digest\n"
        f"found = getattr(importlib.import_module({kind.__module__!r}), {kind.__qualname__!r})\n"
        "print(digest(found(), sys.argv[1:]))"
    )
    env = os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)], env=env, capture_output=True, text=True
    )
    if done.returncode:
        return f"cannot be read in a process of its own: {done.stderr.strip()[-300:]}"
    same = done.stdout.strip() == digest(connector, paths)
    return "" if same else "another hash seed gives other readings"
