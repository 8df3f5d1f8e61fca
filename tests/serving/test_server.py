"""What is served is what was built: the last state of every episode, and the states on the way, bit by bit."""

from __future__ import annotations

import json
import shutil

import msgspec
import pytest

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import Mismatch
from logforge.schemas.transition import DRAWN_SPLITS
from logforge.serving.server import StateServer
from logforge.shards.reader import load_shards
from logforge.store.store import Store
from support.places import SAMPLES


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A dataset of the sample logs, its episodes by id, and their observations and masks."""
    home = tmp_path_factory.mktemp("serving")
    with Store(home / "s.duckdb") as store:
        ingest(store, [SAMPLES])
        build_dataset(
            store, SAMPLES / "reward.yaml", out=home, config=BuildConfig(encoder="hashing", text_size=8)
        )
        episodes = {episode.episode_id: episode for episode in store.episodes()}
        rows = store.sql("SELECT DISTINCT split, episode_id FROM transitions ORDER BY ALL").rows()
    arrays = {split: load_shards(home / "default", split) for split in DRAWN_SPLITS}
    places = {split: [name for part, name in rows if part == split] for split in DRAWN_SPLITS}
    found = {
        name: arrays[split].episode(number)
        for split, names in places.items()
        for number, name in enumerate(names)
    }
    return home / "default", episodes, found


def test_the_last_state_of_every_episode(built):
    folder, episodes, arrays = built
    server = StateServer(folder)
    observations, masks = server.observe([episodes[name] for name in arrays])
    for row, mask, wanted in zip(observations, masks, arrays.values(), strict=True):
        assert row.tobytes() == wanted.observations[-1].tobytes()
        assert (mask == wanted.masks[-1]).all()


def test_states_on_the_way_are_those_of_the_build(built):
    """As the log stands before each turn (the first call of a parallel group): what comes later is not there."""
    folder, episodes, arrays = built
    server, checked = StateServer(folder), 0
    for name, wanted in arrays.items():
        episode = episodes[name]
        for step in episode.steps:
            first = (
                step.parallel_group is None
                or episode.steps[step.step - 1].parallel_group != step.parallel_group
            )
            if step.step and first and step.tools is None:
                earlier = [
                    msgspec.structs.replace(s, result=None, result_status="missing", result_position=None)
                    if s.result_position is not None and s.result_position >= step.position
                    else s
                    for s in episode.steps[: step.step]
                ]
                known = msgspec.structs.replace(
                    episode, messages=episode.messages[: step.position], steps=earlier
                )
                [row], _ = server.observe([known])
                assert row.tobytes() == wanted.observations[step.step].tobytes()
                checked += 1
    assert checked > 100


def test_a_text_is_encoded_once(built, monkeypatch):
    folder, episodes, arrays = built
    server = StateServer(folder)
    chosen = [episodes[name] for name in arrays][:5]
    once = server.observe(chosen)[0]
    monkeypatch.setattr(server.encoder, "encode", None)
    assert server.observe(chosen[::-1])[0][::-1].tobytes() == once.tobytes()


def test_a_changed_file_and_another_revision_are_refused(built, tmp_path, monkeypatch):
    folder = shutil.copytree(built[0], tmp_path / "d")
    monkeypatch.setattr("logforge.texts.hashing.HashingEncoder.revision", "another")
    with pytest.raises(Mismatch, match="revision"):
        StateServer(folder)
    monkeypatch.undo()
    (folder / "actions.json").write_text(json.dumps({"actions": [], "tools_by_format": {}}))
    with pytest.raises(Mismatch, match="checksum"):
        StateServer(folder)
