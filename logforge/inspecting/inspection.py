"""`logforge inspect`: what a log is, who came near to reading it, and a mapping that does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from logforge.connectors import claims
from logforge.core import BaseReport, Lines, listed, noted, plural, replaced_file, table
from logforge.ingestion.sources import Found, find, packed_kind
from logforge.inspecting.inference import Inferred, infer
from logforge.inspecting.mapping_text import UNSURE
from logforge.inspecting.near import Near, near_connectors
from logforge.inspecting.proof import Proof
from logforge.inspecting.samples import Sample, take_sample
from logforge.inspecting.shape import Key, keys_of, samples_of
from logforge.schemas import InputError, UsageError

_KEYS = 40
_READ_KINDS = ("object", "array", "parquet", "arrow", "sqlite")


@dataclass(frozen=True)
class Mapped:
    """A mapping that reads a shape: its text, what is unsure about it, and what it made of the sample."""

    text: str
    unsure: tuple[str, ...]
    sample: Proof


@dataclass(frozen=True)
class Shape(BaseReport):
    """Files that begin alike. `records` were looked at, of the first file; `claimed` are the formats that would read it."""

    kind: str
    files: tuple[str, ...]
    records: int
    is_all: bool
    unreadable: int
    claimed: tuple[str, ...]
    keys: tuple[Key, ...]
    samples: tuple[str, ...]
    near: tuple[Near, ...] = ()
    mapping: Mapped | None = None

    def headline(self) -> Lines:
        """What it is and who reads it."""
        more = f" and {plural(len(self.files) - 1, 'file')} like it" if len(self.files) > 1 else ""
        looked = f"{plural(self.records, 'record')}" + ("" if self.is_all else ", the first of more")
        yield f"{self.files[0]}{more}: {self.kind}, {looked}"
        yield f"  {plural(self.unreadable, 'record')} among them cannot be read" if self.unreadable else None
        yield f"  read by {', '.join(self.claimed)}" if self.claimed else "  no connector reads it"

    def lines(self) -> Lines:
        """Its keys, samples, the connectors near it, and the mapping."""
        yield from self.headline()
        yield ""
        yield table(
            ("key", "in", "type"), [(key.path, f"{key.share:.0%}", key.told) for key in self.keys[:_KEYS]]
        )
        yield f"  {len(self.keys) - _KEYS} more keys: --json lists all" if len(self.keys) > _KEYS else None
        yield ""
        yield from (f"sample {number}: {text}" for number, text in enumerate(self.samples, 1))
        if self.near:
            yield ""
            yield "connectors that came near:"
            yield from (f"  {near.line}" for near in self.near)
        if self.mapping is not None:
            yield ""
            yield from self._mapped(self.mapping)

    def _mapped(self, mapping: Mapped) -> Lines:
        proof = mapping.sample
        roles = ", ".join(f"{count:,} {role}" for role, count in proof.messages.items())
        yield f"a mapping reads of it: {plural(proof.episodes, 'episode')}, messages {roles}"
        yield (
            f"  {plural(proof.calls, 'call')} ({proof.answered:,} with a result), {proof.outcomes:,} known outcomes, "
            f"{proof.words:.0%} of the words"
        )
        yield from listed("  set aside: ", [f"{n} × {rule}" for rule, n in proof.aside.items()], "more")
        yield from noted(mapping.unsure, "  unsure: ")
        yield from (f"    {line}" for line in mapping.text.splitlines())


@dataclass(frozen=True)
class Inspection(BaseReport):
    """The shapes of all files. `skipped` are files that hold no records; `written` is where the mapping is, and for which file."""

    shapes: tuple[Shape, ...]
    skipped: tuple[str, ...] = ()
    written: str | None = None
    written_for: str | None = None
    remarks: tuple[str, ...] = field(default=())

    def exit_code(self) -> int:
        """0 when there is a shape to tell of."""
        return 0 if self.shapes else 1

    def lines(self) -> Lines:
        """Shape by shape; those that a connector reads in short, unless there is one shape only."""
        short = len(self.shapes) > 1
        for number, shape in enumerate(self.shapes):
            yield "" if number and not shape.claimed else None
            yield from shape.headline() if shape.claimed and short else shape.lines()
        yield "" if self.skipped and self.shapes else None
        yield from listed("no records in: ", self.skipped, "more: --json lists all", 2)
        yield from self.remarks
        if self.written is not None:
            yield ""
            yield f"mapping written to {self.written}"
            yield f"check the lines marked `{UNSURE.strip()}`, then: logforge ingest {self.written_for} --mapping {self.written}"
        elif any(shape.mapping is not None for shape in self.shapes):
            yield ""
            yield f"to keep the mapping: logforge inspect {self.shapes[0].files[0]} --write-mapping mapping.yaml"


def inspect(paths: Iterable[str | Path], write_mapping: str | Path | None = None) -> Inspection:
    """Look at files and say what they are; write a mapping for the most frequent shape that no connector reads.

    Raises InputError when a path does not exist or no mapping can be made, UsageError when the mapping's file is there already.
    """
    target = None if write_mapping is None else Path(write_mapping)
    if target is not None and target.exists():
        raise UsageError(
            f"{target} is there already", "choose another name, or remove it", rule="file_exists"
        )
    groups, skipped = _grouped(find(paths, Path.cwd()))
    shapes = [_shape(group, wanted=target is not None) for group in groups]
    shapes.sort(key=lambda shape: (bool(shape.claimed), -len(shape.files) * shape.records, shape.files[0]))
    report = Inspection(tuple(shapes), tuple(skipped))
    return report if target is None else _written(report, target)


def _grouped(found: Sequence[Found]) -> tuple[list[list[Sample]], list[str]]:
    """Files that begin alike together; and those that hold no records."""
    groups: dict[tuple[object, ...], list[Sample]] = {}
    skipped = []
    for item in found:
        sample = None if item.verdict is not None or packed_kind(item.path) else _sample(item)
        if sample is None or not sample.documents:
            skipped.append(item.label)
            continue
        head = sample.head
        columns = frozenset(sample.documents[0]) if isinstance(sample.documents[0], dict) else frozenset()
        groups.setdefault((head.container, columns), []).append(sample)
    return list(groups.values()), skipped


def _sample(item: Found) -> Sample | None:
    try:
        sample = take_sample(item.path, item.label)
    except OSError:
        return None
    is_table = sample.head.container == "text" and any(
        isinstance(one, dict) and len(one) > 1 for one in sample.documents
    )
    return sample if sample.head.container in _READ_KINDS or is_table else None


def _shape(group: Sequence[Sample], *, wanted: bool) -> Shape:
    sample = group[0]
    claimed = tuple(f"{claim.connector.name} ({claim.confidence:g})" for claim in claims(sample.head))
    inferred = infer(sample) if wanted or not claimed else None
    return Shape(
        kind=sample.kind,
        files=tuple(one.label for one in group),
        records=len(sample.documents),
        is_all=sample.is_all,
        unreadable=sample.unread,
        claimed=claimed,
        keys=keys_of(sample.documents),
        samples=samples_of(sample.documents),
        near=() if claimed else near_connectors(sample.head),
        mapping=_mapped(inferred) if inferred is not None else None,
    )


def _mapped(inferred: Inferred) -> Mapped:
    return Mapped(inferred.text, inferred.doubts, inferred.proof)


def _written(report: Inspection, target: Path) -> Inspection:
    """Write the first mapping there is; shapes that no connector reads come first."""
    shape = next((shape for shape in report.shapes if shape.mapping is not None), None)
    if shape is None or shape.mapping is None:
        names = ", ".join(shape.files[0] for shape in report.shapes) or "what was given"
        remedy = (
            "write a mapping by hand (docs/formats/mapping.md), or a connector (docs/write-a-connector.md)"
        )
        raise InputError(
            names, "no talk of a user and an agent was found in it", remedy=remedy, rule="no_talk_found"
        )
    with replaced_file(target) as fresh:
        fresh.write_text(shape.mapping.text, "utf-8")
    others = [other.files[0] for other in report.shapes if other is not shape and not other.claimed]
    remarks = tuple(listed("other shapes need a mapping of their own: ", others, "more"))
    return replace(report, written=str(target), written_for=shape.files[0], remarks=remarks)
