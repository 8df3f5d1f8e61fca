"""The contract of a dataset folder: the JSON schema of its manifest, and what a reader refuses."""

from __future__ import annotations

import json
from importlib.resources import files

import msgspec
import pytest

from logforge.learning.policies.bundle import Golden, PolicyCard
from logforge.schemas.errors import Mismatch
from logforge.schemas.manifest import (
    SCHEMA_VERSION,
    EncoderRef,
    FeatureSlice,
    Manifest,
    Vocabulary,
    manifest_schema,
)
from logforge.shards.reader import load_shards, write_dataset
from support.made_arrays import DIM, VOCABULARY, make, manifest
from support.schema_faults import faults

SCHEMA = json.loads(files("logforge.templates").joinpath("manifest.schema.json").read_text("utf-8"))


@pytest.fixture
def dataset(tmp_path):
    write_dataset(tmp_path / "d", {"train": make([(3, True), (2, False)])}, manifest())
    return tmp_path / "d"


def written(dataset):
    return json.loads((dataset / "manifest.json").read_text("utf-8"))


def test_a_written_manifest_fits_the_schema(dataset):
    assert json.loads(json.dumps(manifest_schema())) == SCHEMA
    assert faults(written(dataset), SCHEMA) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 1}, "schema_version"),
        ({"observation_dtype": "float64"}, "observation_dtype"),
        ({"actions": ["respond", 3]}, r"actions[1]"),
        ({"gamma": "0.9"}, "gamma"),
        ({"layout": [{"name": "a", "start": 0}]}, "layout[0].stop"),
        ({"splits": {"train": {"episodes": 1}}}, "splits.train.transitions"),
        ({"return_range": [1, 2, 3]}, "return_range"),
        ({"encoder": {"name": "x", "revision": "1", "dim": "64"}}, "encoder.dim"),
        ({"checksums": {"a": 1}}, "checksums.a"),
        ({"hash": ""}, "hash"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_breaks_the_schema_breaks_the_reader_too(dataset, change, said):
    broken = {**written(dataset), **change}
    assert any(said in fault for fault in faults(broken, SCHEMA))
    with pytest.raises(Exception, match=r"manifest|schema version|hash"):
        Manifest.from_json(json.dumps(broken))


def test_fields_that_are_missing_break_both(dataset):
    for name in SCHEMA["$defs"]["Manifest"]["required"]:
        broken = {key: value for key, value in written(dataset).items() if key != name}
        assert any(name in fault for fault in faults(broken, SCHEMA))
        with pytest.raises(Exception, match=r"manifest|hash"):
            Manifest.from_json(json.dumps(broken))


def test_a_dataset_of_another_schema_version_is_refused_with_the_reason(dataset):
    old = {**written(dataset), "schema_version": SCHEMA_VERSION - 1}
    (dataset / "manifest.json").write_text(json.dumps(old))
    with pytest.raises(Mismatch, match=r"schema version: expected 3, found 2.*build the dataset again"):
        load_shards(dataset)


def test_a_reader_made_for_it_is_served(dataset):
    found = load_shards(dataset).manifest
    load_shards(dataset, like=found)
    card = PolicyCard.of(found, algo="bc", kind="logits", golden=Golden([], []))
    assert load_shards(dataset, like=card).size == 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actions": Vocabulary.build(["search", "refund", "other"]).actions}, "action vocabulary"),
        ({"actions": Vocabulary.build(["new"], VOCABULARY).actions}, "action vocabulary"),
        ({"layout": (FeatureSlice("all", 0, DIM),)}, "feature layout: expected .*all 0:3"),
        ({"encoder": None}, "encoder: expected none"),
        ({"encoder": EncoderRef("hashing", "2", 64, 2)}, "encoder: expected hashing 2"),
        ({"encoder": EncoderRef("hashing", "1", 64, 3)}, "reduced to 3"),
    ],
)
def test_a_reader_made_for_another_is_refused_with_the_reason(dataset, change, said):
    with pytest.raises(Mismatch, match=said) as caught:
        load_shards(dataset, like=manifest(**change))
    assert "--vocabulary" in caught.value.remedy


def test_meanings_of_blocks_are_no_part_of_the_contract(dataset):
    layout = tuple(msgspec.structs.replace(part, meaning="reworded") for part in manifest().layout)
    load_shards(dataset, like=manifest(layout=layout))
