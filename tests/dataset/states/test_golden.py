"""Golden states: chosen alike whatever the order, proven at load, named where they differ, and forgotten with their episode."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from logforge.dataset.actions.vocabulary import ActionSpace
from logforge.dataset.build import conflict_treatment
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.build.report import LeftOut
from logforge.dataset.states import features
from logforge.dataset.states.golden import (
    GOLDEN_COUNT,
    GOLDEN_FILE,
    GoldenStates,
    digests,
    golden_file,
    prove,
    read_golden,
)
from logforge.forgetting.pipeline import forget
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import InputError, Mismatch
from logforge.serving.server import StateServer
from logforge.shards.reader import check_files, load_shards, read_manifest
from logforge.store.store import Store
from logforge.texts.hashing import HashingEncoder
from support.made_episodes import parallel_episode, state_builder
from support.made_policy import texts_of_its_own
from support.places import SAMPLES

structs = msgspec.structs


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A store of the sample logs and its dataset; tests that change them take a copy."""
    home = tmp_path_factory.mktemp("golden")
    with Store(home / "s.duckdb") as store:
        ingest(store, [SAMPLES / name for name in ("openai_messages", "star", "tau_bench")])
        config = BuildConfig(
            encoder="hashing", text_size=8, augment=("tool_failure",), retryable=("get_user_details",)
        )
        build_dataset(store, SAMPLES / "reward.yaml", out=home, config=config)
    return home


@pytest.fixture
def folder(home, tmp_path) -> Path:
    return shutil.copytree(home / "default", tmp_path / "default")


def golden_in(folder: Path):
    return read_golden((folder / GOLDEN_FILE).read_bytes())


def test_twenty_logged_states_of_the_train_split_from_every_format_in_turn(home):
    golden = golden_in(home / "default")
    assert len(golden) == GOLDEN_COUNT
    assert digests(golden) == read_manifest(home / "default").golden_states
    with Store(home / "s.duckdb") as store:
        logged = "SELECT DISTINCT episode_id, format FROM transitions JOIN episodes USING (episode_id) WHERE split = 'train'"
        places = dict(store.sql(logged).rows())
    assert {one.episode_id: one.format for one in golden}.items() <= places.items()
    counts = [sum(one.format == name for one in golden) for name in set(places.values())]
    assert min(counts) > 0
    assert max(counts) < GOLDEN_COUNT / 2


def test_their_vectors_are_rows_of_the_shards(home):
    shard = load_shards(home / "default", "train")
    rows = {row.tobytes() for row in np.asarray(shard.observations)}
    assert all(one.vector in rows for one in golden_in(home / "default"))


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_episodes_does_not_matter(seed):
    symbols = state_builder().symbols
    several = [named(f"e{number}", form) for number in range(8) for form in ("invented", "other")]
    first, second = GoldenStates(6), GoldenStates(6)
    for episode in several:
        first.add(episode, symbols)
    random.Random(seed).shuffle(several)
    for episode in several:
        second.add(episode, symbols)
    assert first.states == second.states
    assert len(first.states) == 6


def named(name: str, form: str):
    return structs.replace(
        parallel_episode(), episode_id=name, task=name, format=form, tools=["find", "book"]
    )


def test_a_huge_state_is_left_out():
    chosen = GoldenStates()
    chosen.add(structs.replace(parallel_episode(), task="x" * 60_000), state_builder().symbols)
    assert chosen.states == []


def test_the_file_is_read_as_it_was_written_and_nothing_else_is(home):
    golden = golden_in(home / "default")
    assert read_golden(golden_file(golden)) == golden
    for wrong in (b"", b"{}", b'[{"episode_id": 1}]', b"\xff"):
        with pytest.raises(InputError, match="not golden states"):
            read_golden(wrong)


# At load.


def test_a_server_reproduces_them(home, folder):
    StateServer(folder)
    (folder / GOLDEN_FILE).unlink()
    with pytest.raises(Mismatch, match="checksum"):
        StateServer(folder)


def test_a_feature_that_is_computed_otherwise_is_refused_by_name(home, monkeypatch):
    meta = features._meta
    monkeypatch.setattr(features, "_meta", lambda state, budget: (*meta(state, budget)[:-1], 0.5))
    with pytest.raises(Mismatch, match=r"episode \w{32}, meta.hour_known \(column \d+\)"):
        StateServer(home / "default")
    StateServer(home / "default", verify=False)


def test_an_encoder_that_says_otherwise_is_refused_by_the_blocks_of_text(home, monkeypatch):
    encode = HashingEncoder.encode
    monkeypatch.setattr(HashingEncoder, "encode", lambda self, texts: encode(self, texts) * np.float32(1.001))
    with pytest.raises(Mismatch, match=r"task, last_message, window\.\w+"):
        StateServer(home / "default")


def test_another_window_is_refused(home, folder):
    """A build setting that the manifest does not name as it was: the symbols are the same, the numbers are not."""
    server = StateServer(folder)
    server.builder.config = replace(server.builder.config, decay=0.5)
    del server.builder.__dict__["_blocks"]
    with pytest.raises(Mismatch, match="window"):
        server._prove(folder / GOLDEN_FILE)


@pytest.mark.parametrize(
    ("off", "tolerance", "well"), [(1e-6, 1e-5, True), (1e-4, 1e-5, False), (1e-6, 0.0, False)]
)
def test_the_tolerance(home, off, tolerance, well):
    golden, manifest = golden_in(home / "default"), read_manifest(home / "default")
    rows = np.stack([np.frombuffer(one.vector, "<f4") for one in golden])
    shifted = rows + np.float32(off)
    if well:
        prove(golden, manifest, lambda states: shifted, tolerance)
    else:
        with pytest.raises(Mismatch, match="task"):
            prove(golden, manifest, lambda states: shifted, tolerance)


def test_vectors_that_are_not_the_manifest_s_are_refused(home):
    golden, manifest = golden_in(home / "default"), read_manifest(home / "default")
    with pytest.raises(Mismatch, match="vectors"):
        prove(golden[1:], manifest, lambda states: np.zeros((0, 0)), 0.0)


def test_another_schema_vocabulary_or_layout_is_refused_with_the_reason(home, folder, monkeypatch):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 1}))
    with pytest.raises(Mismatch, match="schema version"):
        StateServer(folder)
    monkeypatch.setattr(features, "ROLES", ("user", "assistant", "tool", "system"))
    with pytest.raises(Mismatch, match="feature layout"):
        StateServer(home / "default")


def test_another_vocabulary_is_refused_with_the_reason(home, monkeypatch):
    from_dict = ActionSpace.from_dict
    monkeypatch.setattr(
        ActionSpace, "from_dict", lambda data: from_dict({**data, "actions": [*data["actions"], "new_tool"]})
    )
    with pytest.raises(Mismatch, match="action vocabulary"):
        StateServer(home / "default")


# What the build sets aside, and what is forgotten.


def test_an_episode_that_the_conflicts_set_aside_has_none(home, tmp_path, monkeypatch):
    gone = golden_in(home / "default")[0].episode_id
    copy = shutil.copytree(home, tmp_path / "copy")

    def treated(*given):
        found = treatment_of(*given)
        return found._replace(
            left_out={**found.left_out, gone: LeftOut("conflict", "for the test", None, "x:1")}
        )

    treatment_of = conflict_treatment.treatment_of
    monkeypatch.setattr(conflict_treatment, "treatment_of", treated)
    with Store(copy / "s.duckdb") as store:
        build_dataset(
            store, SAMPLES / "reward.yaml", out=copy, config=BuildConfig(encoder="hashing", text_size=8)
        )
    golden = golden_in(copy / "default")
    assert len(golden) == GOLDEN_COUNT
    assert gone not in {one.episode_id for one in golden}


def test_the_card_says_that_the_folder_holds_texts(home):
    assert "`golden_states.json` holds texts of the logs" in (home / "default" / "README.md").read_text()


def test_nothing_of_a_forgotten_episode_stays_in_them(home, tmp_path):
    copy = shutil.copytree(home, tmp_path / "copy")
    golden = golden_in(copy / "default")
    gone, own = next((one, own) for one in golden if (own := texts_of_its_own(one, golden)))
    assert all(text in (copy / "default" / GOLDEN_FILE).read_bytes() for text in own)
    with Store(copy / "s.duckdb") as store:
        forget(store, episode=gone.episode_id)
    data = b"".join(path.read_bytes() for path in (copy / "default").rglob("*") if path.is_file())
    assert gone.episode_id.encode() not in data
    assert not any(text in data for text in own)
    left = golden_in(copy / "default")
    assert 0 < len(left) < len(golden)
    check_files(copy / "default", read_manifest(copy / "default"))
    StateServer(copy / "default")
