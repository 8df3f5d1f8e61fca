"""Forms that hold the arrays: what their consumers read is what the shard holds."""

from __future__ import annotations

import json
import os
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings

from logforge.exports import rlds
from logforge.exports.hugging_face import features
from logforge.exports.job import Job
from logforge.exports.pipeline import export
from logforge.schemas.errors import MissingExtra, UsageError
from logforge.schemas.manifest import SourceRef
from logforge.shards.arrays import ARRAYS
from logforge.shards.reader import Shard, SplitArrays, load_shards, write_dataset
from support.made_arrays import DIM, VOCABULARY, episode_kinds, make, manifest

KINDS = [(3, True), (3, False), (1, False), (1, True), (2, False)]


@pytest.fixture
def dataset(tmp_path):
    splits = {
        "train": make(KINDS),
        "validation": SplitArrays.empty(DIM, VOCABULARY.size),
        "test": make([(2, True)]),
    }
    write_dataset(tmp_path / "made", splits, manifest())
    return tmp_path / "made"


def shard_of(arrays, folder):
    return Shard(
        **{name: getattr(arrays, name) for name in ARRAYS}, manifest=manifest(), path=folder, split="train"
    )


# RLDS


@settings(max_examples=25, deadline=None)
@given(episode_kinds)
def test_rlds_steps_are_the_arrays_with_a_last_step_that_only_observes(tmp_path_factory, kinds):
    folder = tmp_path_factory.mktemp("rlds")
    shard = shard_of(make(kinds), folder)
    [written] = rlds.write(Job((shard,), folder / "r.parquet"))
    assert (written.rows, written.covered) == (len(kinds), shard.size)
    episodes = pq.read_table(folder / "r.parquet").to_pylist()
    for found, held, group in zip(episodes, shard.episodes(), shard.groups, strict=True):
        steps, last = found["steps"][:-1], found["steps"][-1]
        assert np.array_equal([step["observation"] for step in found["steps"]], held.observations)
        assert np.array_equal([step["action_mask"] for step in found["steps"]], held.masks)
        assert [step["action"] for step in steps] == held.actions.tolist()
        assert [step["reward"] for step in steps] == held.rewards.tolist()
        assert [step["discount"] for step in steps] == [1.0] * (len(steps) - 1) + [
            0.0 if held.terminal else 1.0
        ]
        assert (last["action"], last["reward"], last["discount"]) == (0, 0, 0)
        assert [step["is_first"] for step in found["steps"]] == [True] + [False] * len(steps)
        assert [step["is_last"] for step in found["steps"]] == [False] * len(steps) + [True]
        assert [step["is_terminal"] for step in found["steps"]] == [False] * len(steps) + [held.terminal]
        assert (found["success"], found["group"]) == (held.success, group)


def test_rlds_in_many_row_groups_is_the_same(dataset, tmp_path, monkeypatch):
    whole = pq.read_table(export(dataset, "rlds", tmp_path / "a.parquet").path)
    monkeypatch.setattr("logforge.exports.rlds.GROUP", 4)
    cut = export(dataset, "rlds", tmp_path / "b.parquet").path
    assert pq.read_metadata(cut).num_row_groups > 1
    assert pq.read_table(cut).equals(whole)
    assert float(whole.schema.metadata[b"gamma"]) == manifest().gamma
    assert json.loads(whole.schema.metadata[b"logforge_manifest"])["actions"] == list(VOCABULARY.actions)


# Minari


@pytest.fixture
def minari():
    pytest.importorskip("h5py")
    pytest.importorskip(
        "PIL", reason="Minari's HDF5 storage imports pillow: pip install 'logforge-rl[minari]'"
    )
    return pytest.importorskip("minari", reason="pip install 'logforge-rl[minari]'")


def test_minari_loads_every_episode_with_its_spaces(minari, dataset, tmp_path):
    from gymnasium.spaces import Box, Discrete

    shard = load_shards(dataset)
    report = export(dataset, "minari", tmp_path / "made-v0")
    loaded = minari.MinariDataset(tmp_path / "made-v0" / "data")
    assert (loaded.total_episodes, loaded.total_steps) == (len(KINDS), shard.size)
    assert report.rows == len(KINDS)
    assert loaded.observation_space == Box(-np.inf, np.inf, (DIM,), np.float32)
    assert loaded.action_space == Discrete(VOCABULARY.size)
    for found, held, success in zip(loaded.iterate_episodes(), shard.episodes(), shard.success, strict=True):
        assert found.observations.dtype == np.float32
        assert np.array_equal(found.observations, held.observations)
        assert np.array_equal(found.actions, held.actions)
        assert all(loaded.action_space.contains(action) for action in found.actions)
        assert np.array_equal(found.rewards, held.rewards)
        assert found.terminations.tolist() == [False] * (len(held.actions) - 1) + [held.terminal]
        assert found.truncations.tolist() == [False] * (len(held.actions) - 1) + [not held.terminal]
        assert np.array_equal(found.infos["action_mask"], held.masks)
        [about] = loaded.storage.get_episode_metadata([found.id])
        assert about["options"]["success"] == success


def test_minari_finds_it_by_its_id(minari, dataset, tmp_path, monkeypatch):
    export(dataset, "minari", tmp_path / "root" / "made-v3", split="test")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    loaded = minari.load_dataset("made-v3")
    assert (loaded.id, loaded.total_steps) == ("made-v3", 2)
    assert list(minari.list_local_datasets()) == ["made-v3"]


def test_a_folder_that_is_no_minari_id_is_refused_with_one_that_is(dataset, tmp_path):
    with pytest.raises(UsageError, match="train-set-v0"):
        export(dataset, "minari", tmp_path / "train set")


def test_without_the_extra_the_pip_command_is_told(dataset, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(MissingExtra, match=r'pip install "logforge-rl\[minari\]"'):
        export(dataset, "minari", tmp_path / "made-v0")
    assert not (tmp_path / "made-v0").exists()


# Hugging Face


def head_of(folder):
    _, head, _ = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(head)


def test_the_cards_head_names_files_columns_and_counts(dataset, tmp_path):
    report = export(dataset, "huggingface", tmp_path / "hub")
    head = head_of(tmp_path / "hub")
    assert [item["split"] for item in head["configs"][0]["data_files"]] == ["train", "test"]
    info = head["dataset_info"]
    assert {item["name"]: item["num_examples"] for item in info["splits"]} == {"train": 10, "test": 2}
    assert (report.rows, head["license"]) == (12, "unknown")
    files = sorted((tmp_path / "hub" / "data").iterdir())
    assert [file.name for file in files] == ["test-00000-of-00001.parquet", "train-00000-of-00001.parquet"]
    assert sum(file.stat().st_size for file in files) == info["download_size"]
    columns = pq.read_schema(files[1]).names
    assert columns == [column["name"] for column in features(load_shards(dataset))]
    text = (tmp_path / "hub" / "README.md").read_text("utf-8")
    assert "## Limits" in text
    assert "## Sources" in text


@pytest.mark.parametrize(
    ("stated", "licence"),
    [({"a": "MIT", "b": "MIT"}, "mit"), ({"a": "MIT", "b": "CC0"}, "other"), ({"a": "MIT"}, "unknown")],
)
def test_the_licence_is_that_of_all_sources(tmp_path, stated, licence):
    sources = (SourceRef("a" * 64, "a"), SourceRef("b" * 64, "b"))
    write_dataset(tmp_path / "made", {"train": make(KINDS)}, manifest(sources=sources, licences=stated))
    export(tmp_path / "made", "huggingface", tmp_path / "hub")
    assert head_of(tmp_path / "hub")["license"] == licence


def test_datasets_loads_the_folder(dataset, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    monkeypatch.setattr("logforge.exports.hugging_face._FILE_BYTES", 400)
    export(dataset, "huggingface", tmp_path / "hub")
    assert len(list((tmp_path / "hub" / "data").glob("train-*"))) > 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = datasets.load_dataset(str(tmp_path / "hub"), cache_dir=str(tmp_path / "cache"))
    shard = load_shards(dataset)
    assert loaded.num_rows == {"train": 10, "test": 2}
    train = loaded["train"].with_format("numpy")
    assert np.array_equal(train["observation"][:], shard.observations[shard.observation_rows])
    assert np.array_equal(train["next_observation"][:], shard.next_observations())
    assert np.array_equal(train["action_id"][:], shard.actions)
    assert loaded["train"].features["action_id"].names == list(VOCABULARY.actions)
    assert loaded["train"].features["observation"].length == DIM
    assert loaded["train"][1]["propensity"] is None


@pytest.mark.parametrize(("name", "out"), [("huggingface", "hub"), ("minari", "made-v0")])
def test_folders_of_others_are_left_alone_and_our_own_replaced(dataset, tmp_path, name, out, request):
    if name == "minari":
        request.getfixturevalue("minari")
    (tmp_path / out).mkdir()
    (tmp_path / out / "README.md").write_text("mine")
    with pytest.raises(UsageError, match="not"):
        export(dataset, name, tmp_path / out)
    assert os.listdir(tmp_path / out) == ["README.md"]
    (tmp_path / out / "README.md").unlink()
    first = export(dataset, name, tmp_path / out)
    assert export(dataset, name, tmp_path / out) == first


@pytest.mark.parametrize("name", ["parquet", "rlds"])
def test_observations_in_many_files_give_the_same_rows(dataset, tmp_path, name):
    write_dataset(tmp_path / "parts", {"train": make(KINDS)}, manifest(), part_bytes=64)
    assert len(list((tmp_path / "parts" / "train").glob("observations*"))) > 1
    whole, parts = (
        pq.read_table(export(tmp_path / place, name, tmp_path / f"{place}.parquet").path)
        for place in ("made", "parts")
    )
    assert whole.equals(parts)


@pytest.mark.parametrize("name", ["d3rlpy", "parquet", "huggingface", "rlds", "minari"])
def test_the_same_dataset_gives_the_same_bytes(dataset, tmp_path, name, request):
    if name == "minari":
        request.getfixturevalue("minari")
    for place in "ab":
        export(dataset, name, tmp_path / place / "same-v0")
    one, other = (
        {
            file.relative_to(tmp_path / place): file.read_bytes()
            for file in (tmp_path / place).rglob("*")
            if file.is_file()
        }
        for place in "ab"
    )
    assert one == other
