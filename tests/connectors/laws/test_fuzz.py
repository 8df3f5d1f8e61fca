"""Some hundred damaged logs of every shape: nothing raises or hangs, and whatever is read is sound and accounted for.

`python -m benchmarks.fuzz` runs many more; `python -m benchmarks.fuzz --shape SHAPE --number NUMBER` one of them again.
"""

from __future__ import annotations

import gzip
import io
import random
import resource
import tarfile
import warnings
import zipfile

import pyarrow as pa
import pytest

from logforge.connectors.chat.trl import Trl
from logforge.connectors.mapping.connector import MappingConnector
from logforge.connectors.mapping.spec import parse_mapping
from logforge.connectors.records.base import Source
from logforge.connectors.records.catalogue import BUILT_IN
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import SpecError
from logforge.testing.soundness import unsound
from support import fuzzed_shapes, fuzzing
from support.mutated_bytes import BYTES
from support.mutations import Seed, Vocabulary, input_of
from support.thoroughness import enough

INPUTS = enough(40, 300)
MAPPINGS = 300
MEMORY_MB = 256
"""Inputs of some kilobytes, one after the other: a reader that hoards, or takes a number from a log for a size, takes more."""
SHAPES = sorted(fuzzed_shapes.shapes())


def most_held() -> float:
    """The most memory that this process ever held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("name", SHAPES)
def test_damaged_logs_keep_the_laws(name, tmp_path):
    before = most_held()
    with fuzzing.Fuzz(fuzzed_shapes.shapes()[name], tmp_path) as fuzz:
        failures = [failure for number in range(INPUTS) if (failure := fuzz.failure(number)) is not None]
    assert not failures, "\n".join(map(str, failures[:5]))
    assert most_held() - before < MEMORY_MB


def test_every_connector_is_damaged():
    assert set(BUILT_IN) <= set(SHAPES)


def test_inputs_are_the_same_each_time_and_different_from_one_another():
    for shape in fuzzed_shapes.shapes().values():
        made = [shape.make(number) for number in range(20)]
        assert made == [shape.make(number) for number in range(20)]
        assert len({given.data for given in made}) > 10


def test_a_connector_that_fails_or_hangs_is_found(tmp_path):
    class Fails(Trl):
        def read(self, source):
            yield from super().read(source)
            raise KeyError("role")

    class Hangs(Trl):
        def read(self, source):
            yield from super().read(source)
            while True:
                pass

    shape = fuzzed_shapes.shapes()["trl"]
    for kind, told in ((Fails, "KeyError: 'role'"), (Hangs, "is not read after")):
        broken = fuzzed_shapes.Fuzzed("trl", kind(), shape.words)
        with fuzzing.Fuzz(broken, tmp_path / kind.__name__, seconds=0.2) as fuzz:
            failure = fuzz.failure(2)
        assert failure is not None
        assert any(told in what for what in failure.problems)
        assert (failure.shape, failure.number, failure.path.read_bytes()) == ("trl", 2, broken.make(2).data)


MAPPED = {
    fuzzed_shapes.CHAT: fuzzed_shapes.CHATS,
    fuzzed_shapes.STEPS: fuzzed_shapes.ROWS,
    fuzzed_shapes.TALK: fuzzed_shapes.TALKS,
}


@pytest.mark.parametrize("text", MAPPED, ids=["chat", "steps", "talk"])
def test_a_damaged_mapping_is_refused_or_read_with(text, tmp_path):
    lines = Seed("map.yaml", "text", tuple(text.strip().split("\n")))
    words = Vocabulary([lines])
    rows = MAPPED[text]
    log = tmp_path / "log.jsonl"
    log.write_bytes(fuzzed_shapes.as_lines(rows))
    read = 0
    for number in range(MAPPINGS):
        mapping = input_of("mapping", number, words).data.decode("utf-8", "replace")
        with fuzzing.limited(fuzzing.SECONDS):
            try:
                spec = parse_mapping(mapping, "map.yaml")
            except SpecError:
                continue
            readings = list(MappingConnector(spec).read(Source(log, "log")))
        assert list(unsound(readings)) == [], mapping
        read += 1
    assert read > 10


def test_damaged_archives_are_accounted_for(store, tmp_path):
    words = fuzzed_shapes.shapes()["openai_messages"].words
    (tmp_path / "logs").mkdir()
    before = most_held()
    for number in range(INPUTS):
        name, data = packed(number, input_of("packed", number, words).data)
        (tmp_path / "logs" / name).write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ingest(store, [tmp_path / "logs"])
    wrong = "SELECT path FROM sources WHERE records != kept + duplicates + quarantined + skipped"
    assert store.con.sql(wrong).fetchall() == []
    bugs = "SELECT locator, detail FROM quarantine WHERE rule IN ('connector_failed', 'unfit_value')"
    assert store.con.sql(bugs).fetchall() == []
    files = f"SELECT count(DISTINCT regexp_replace(path, '!.*', '')), sum(kept) > {INPUTS // 6} FROM sources"
    assert store.con.sql(files).fetchall() == [(INPUTS, True)]
    assert most_held() - before < MEMORY_MB


def packed(number: int, data: bytes) -> tuple[str, bytes]:
    """A log in an archive that is then damaged, now and then not at all."""
    chance = random.Random(number)
    kind = chance.choice(("gz", "zst", "zip", "tar", "tar.gz"))
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w", chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            archive.writestr("a/log.jsonl", data)
            archive.writestr(chance.choice(("../b.jsonl", "b.jsonl", "/b.jsonl", "c\x00.jsonl")), data)
    elif kind.startswith("tar"):
        with tarfile.open(fileobj=file, mode="w:gz" if kind == "tar.gz" else "w") as archive:
            for name in ("a/log.jsonl", chance.choice(("../b.jsonl", "b.jsonl"))):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    else:
        file.write(gzip.compress(data) if kind == "gz" else pa.compress(data, codec="zstd", asbytes=True))
    whole = file.getvalue()
    return f"{number}.jsonl.{kind}", chance.choice(BYTES)(whole, chance) if chance.random() < 0.8 else whole
