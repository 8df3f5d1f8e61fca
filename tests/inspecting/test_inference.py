"""Mappings that `logforge inspect` makes for shapes that no connector reads, held against the talks that were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.detection import detect
from logforge.connectors.mapping import mapping_of
from logforge.connectors.records import Source
from logforge.inspecting import inspect
from logforge.inspecting.inference import Inferred, infer
from logforge.inspecting.samples import take_sample
from logforge.schemas.episode import Episode
from support import fuzzed_shapes
from support.places import ROOT
from support.thoroughness import enough
from support.unknown_shapes import SHAPES, Shape, agreement, events_of

CONNECTORS = ROOT / "tests" / "data" / "connectors"
LONG = 60_000
RIGHT = 0.9
ENOUGH = 0.8


def measured(shape: Shape, folder: Path, seed: int = 1) -> tuple[float, Inferred | None]:
    """The share of turns and calls that are right by the mapping, and the mapping."""
    path, truth = shape.make(folder, seed)
    found = infer(take_sample(path, shape.file))
    if found is None:
        return 0.0, None
    readings = list(mapping_of(found.text, "made.yaml").read(Source(path, shape.file)))
    return agreement(truth, [events_of(one) for one in readings if isinstance(one, Episode)]), found


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_mapping_is_right_or_says_that_it_is_unsure(shape: Shape, tmp_path: Path) -> None:
    assert detect(shape.make(tmp_path)[0]) == [], "a connector reads it"
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        share, found = measured(shape, folder, seed)
        assert share >= RIGHT or found is None or found.doubts, (
            f"a silent wrong one: {share:.2f}\n{found.text}"
        )


def test_most_shapes_are_read_right_without_an_edit(tmp_path: Path) -> None:
    shares = {}
    for shape in SHAPES:
        (tmp_path / shape.name).mkdir()
        shares[shape.name] = measured(shape, tmp_path / shape.name)[0]
    right = [name for name, share in shares.items() if share >= RIGHT]
    assert len(SHAPES) >= 20
    assert len(right) >= ENOUGH * len(SHAPES), shares


def test_the_measure_tells_right_from_wrong() -> None:
    talk: list[list[tuple[Any, ...]]] = [[("user", "a"), ("call", "f", {}, "1"), ("assistant", "b")]]
    assert agreement(talk, talk) == 1.0
    assert agreement(talk, [[("user", "a"), ("assistant", "b")]]) == pytest.approx(2 / 3)
    assert agreement(talk, [[*talk[0], ("user", "x")]]) == 0.75
    assert agreement(talk, [*talk, [("user", "x")]]) == 0.75
    assert agreement(talk, []) == 0.0


@pytest.mark.parametrize(
    "name", ["fuzzed_talk.lines", "fuzzed_talk.csv", "fuzzed_chat.array", "langsmith_runs"]
)
def test_no_damaged_file_raises(name: str, tmp_path: Path) -> None:
    shape = fuzzed_shapes.shapes()[name]
    for number in range(enough(15, 500)):
        made = shape.make(number)
        path = tmp_path / f"damaged{Path(made.name).suffix or '.jsonl'}"
        path.write_bytes(made.data)
        inspect([path]).render()


def files_of_connectors() -> list[Path]:
    """Files of formats that are known; the inference knows none of them."""
    return [path for path in sorted(CONNECTORS.rglob("*")) if path.is_file() and path.stat().st_size < LONG]


def test_files_of_known_formats_are_never_misread_in_silence() -> None:
    """What the connector of a format reads is the truth; a mapping that reads less or other things must say that it is unsure."""
    right = tried = 0
    for path in files_of_connectors():
        claims = detect(path)
        if not claims:
            continue
        tried += 1
        found = infer(take_sample(path, path.name))
        if found is None:
            continue
        source = Source(path, path.name)
        truth = [events_of(one) for one in claims[0].connector.read(source) if isinstance(one, Episode)]
        read = [
            events_of(one)
            for one in mapping_of(found.text, "made.yaml").read(source)
            if isinstance(one, Episode)
        ]
        share = agreement(truth, read)
        right += share >= RIGHT
        assert share >= RIGHT or found.doubts, f"{path.name}: a silent wrong one: {share:.2f}\n{found.text}"
    assert tried >= 40
    assert right >= 10
