"""Shards written in pieces: the same bytes whatever the pieces, bounded memory, and nothing half done."""

from __future__ import annotations

import random
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.schemas.errors import CheckFailed, InputError, Mismatch, UnknownName, UsageError
from logforge.schemas.manifest import FeatureSlice
from logforge.shards.array_rules import check_arrays
from logforge.shards.arrays import ARRAYS
from logforge.shards.files import checksum
from logforge.shards.reader import check_files, load_shards, read_manifest, write_dataset
from logforge.shards.writer import ShardWriter, episode_pieces
from support.killing import started
from support.made_arrays import DIM, VOCABULARY, altered, episode_kinds, make, manifest
from support.written_files import files_of

KINDS = [(3, True), (1, False), (4, True), (2, False), (2, True)]


def write_in_pieces(folder, arrays, most, part_bytes=1 << 20, about=None):
    with ShardWriter.replacing(folder, about or manifest(), part_bytes) as writer:
        split = writer.split("train", transitions=arrays.size, episodes=arrays.episode_count)
        for piece in episode_pieces(arrays, most):
            split.append(piece)
        writer.add_file("encoder/pca.npz", b"pca")
    return writer.manifest


@settings(max_examples=25, deadline=None)
@given(kinds=episode_kinds, most=st.integers(1, 9), part_bytes=st.integers(1, 300))
def test_the_pieces_leave_no_trace(tmp_path_factory, kinds, most, part_bytes):
    folder, arrays = tmp_path_factory.mktemp("pieces"), make(kinds)
    sealed = write_in_pieces(folder / "pieces", arrays, most, part_bytes)
    whole = write_dataset(
        folder / "whole", {"train": arrays}, manifest(), {"encoder/pca.npz": b"pca"}, part_bytes
    )
    assert sealed == whole
    assert files_of(folder / "pieces") == files_of(folder / "whole")
    assert sealed.checksums == {
        name: checksum(folder / "whole" / name)
        for name in files_of(folder / "whole")
        if name not in ("manifest.json", "README.md")
    }
    shard = load_shards(folder / "pieces")
    shard.verify()
    for name in ARRAYS:
        found, expected = np.asarray(getattr(shard, name)), getattr(arrays, name)
        assert np.array_equal(found, expected, equal_nan=name == "propensities"), name


def test_files_are_those_of_np_save(tmp_path):
    arrays = make(KINDS)
    write_in_pieces(tmp_path / "d", arrays, 3)
    for name in ARRAYS:
        np.save(tmp_path / "one.npy", getattr(arrays, name))
        assert (tmp_path / "d" / "train" / f"{name}.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()


def test_large_arrays_lie_in_numbered_files(tmp_path):
    arrays = make(KINDS)
    write_in_pieces(tmp_path / "d", arrays, 5, part_bytes=5 * DIM * 4)
    names = sorted(path.name for path in (tmp_path / "d" / "train").glob("observations*"))
    assert names == [f"observations-0000{part}.npy" for part in range(4)]
    parts = [np.load(tmp_path / "d" / "train" / name) for name in names]
    assert [len(part) for part in parts] == [5, 5, 5, 2]
    assert np.array_equal(np.concatenate(parts), arrays.observations)
    assert (tmp_path / "d" / "train" / "rewards.npy").is_file()


def test_a_lost_part_names_itself(tmp_path):
    write_in_pieces(tmp_path / "d", make(KINDS), 5, part_bytes=60)
    (tmp_path / "d" / "train" / "observations-00001.npy").unlink()
    for verify in (True, False):
        with pytest.raises(Mismatch, match=r"observations-00001\.npy"):
            load_shards(tmp_path / "d", verify=verify)


def test_a_part_of_another_width_or_dtype_is_refused(tmp_path):
    write_in_pieces(tmp_path / "d", make(KINDS), 5, part_bytes=60)
    file = tmp_path / "d" / "train" / "observations-00001.npy"
    for rows in (np.zeros((5, DIM + 1), np.float32), np.zeros((5, DIM), np.float64), np.zeros(5, np.float32)):
        np.save(file, rows)
        with pytest.raises(Mismatch, match=r"observations-00001\.npy: rows"):
            load_shards(tmp_path / "d", verify=False)
    file.write_bytes(b"no array")
    with pytest.raises(InputError, match=r"observations-00001\.npy"):
        load_shards(tmp_path / "d", verify=False)


def test_methods_agree_in_parts_and_whole(tmp_path):
    arrays = make(KINDS)
    write_in_pieces(tmp_path / "d", arrays, 5, part_bytes=20)
    shard = load_shards(tmp_path / "d")
    assert np.array_equal(shard.next_observations(), arrays.next_observations())
    for found, expected in zip(shard.episodes(), arrays.episodes(), strict=True):
        assert all(
            np.array_equal(one, other, equal_nan=True)
            for one, other in zip(found[:7], expected[:7], strict=True)
        )
    kept = np.array([True, False, True, True, False])
    one, other = shard.only(kept), arrays.only(kept)
    assert all(
        np.array_equal(getattr(one, n), getattr(other, n), equal_nan=n == "propensities") for n in ARRAYS
    )


# float16


def test_float16_is_read_as_float32(tmp_path):
    arrays = make(KINDS)
    about = manifest(observation_dtype="float16")
    sealed = write_in_pieces(tmp_path / "d", arrays, 3, about=about)
    assert np.load(tmp_path / "d" / "train" / "observations.npy").dtype == np.float16
    shard = load_shards(tmp_path / "d")
    shard.verify()
    assert (shard.observations.dtype, sealed.observation_dtype) == (np.float32, "float16")
    expected = arrays.observations.astype(np.float16).astype(np.float32)
    assert np.array_equal(np.asarray(shard.observations), expected)
    assert shard.batch(np.array([0, 5])).observations.dtype == np.float32
    # what was read is written again without a loss
    again = write_dataset(tmp_path / "again", {"train": shard}, about, {"encoder/pca.npz": b"pca"})
    assert again.hash == sealed.hash
    assert sealed.hash != write_in_pieces(tmp_path / "wide", arrays, 3).hash


def test_numbers_beyond_float16_are_refused(tmp_path):
    arrays = altered(make(KINDS), "observations", (0, 1), 1e5)
    with pytest.raises(CheckFailed, match="too large for float16"):
        write_in_pieces(tmp_path / "d", arrays, 99, about=manifest(observation_dtype="float16"))
    assert not (tmp_path / "d").exists()


def test_files_of_another_dtype_than_the_manifest_says_are_refused(tmp_path):
    write_in_pieces(tmp_path / "d", make(KINDS), 9, about=manifest(observation_dtype="float16"))
    np.save(tmp_path / "d" / "train" / "observations.npy", make(KINDS).observations)
    with pytest.raises(Mismatch, match="float16"):
        load_shards(tmp_path / "d", verify=False)


# what it refuses


def test_pieces_must_be_sound_and_keep_the_promise(tmp_path):
    arrays = make(KINDS)

    def write(transitions, episodes, piece):
        with ShardWriter.replacing(tmp_path / "d", manifest()) as writer:
            writer.split("train", transitions=transitions, episodes=episodes).append(piece)

    with pytest.raises(CheckFailed, match="'train' are not consistent"):
        write(arrays.size, arrays.episode_count, altered(arrays, "rewards", 0, np.nan))
    for transitions, episodes in [(13, 5), (12, 6), (11, 5), (12, 4)]:
        with pytest.raises(Mismatch, match="12 of 5"):
            write(transitions, episodes, arrays)
    assert [path.name for path in tmp_path.iterdir()] == [".d.lock"]


def test_splits_are_begun_once_and_by_their_names(tmp_path):
    with ShardWriter.replacing(tmp_path / "d", manifest()) as writer:
        writer.split("test", transitions=0, episodes=0)
        with pytest.raises(UsageError, match="begun already"):
            writer.split("test", transitions=0, episodes=0)
        with pytest.raises(UnknownName):
            writer.split("trian", transitions=0, episodes=0)
        with pytest.raises(UsageError, match=r"README\.md"):
            writer.add_file("README.md", b"")
    assert load_shards(tmp_path / "d", "test").size == 0


def test_too_many_parts_are_refused(tmp_path):
    arrays = make([(1000, True)] * 110)
    with pytest.raises(UsageError, match="larger part size"):
        write_dataset(tmp_path / "d", {"train": arrays}, manifest(), part_bytes=1)


def test_splits_may_be_written_by_turns(tmp_path):
    train, test = make(KINDS), make([(2, True), (3, False)], seed=1)
    with ShardWriter.replacing(tmp_path / "turns", manifest()) as writer:
        one = writer.split("train", transitions=train.size, episodes=train.episode_count)
        other = writer.split("test", transitions=test.size, episodes=test.episode_count)
        pieces = list(episode_pieces(train, 4)), list(episode_pieces(test, 2))
        one.append(pieces[0][0])
        for piece in pieces[1]:
            other.append(piece)
        for piece in pieces[0][1:]:
            one.append(piece)
    assert writer.manifest == write_dataset(tmp_path / "d", {"train": train, "test": test}, manifest())


@given(episode_kinds, st.integers(1, 9))
def test_pieces_hold_whole_episodes(kinds, most):
    arrays = make(kinds)
    pieces = list(episode_pieces(arrays, most))
    for piece in pieces:
        check_arrays(piece, VOCABULARY, DIM)
        assert piece.size <= most or piece.episode_count == 1
    assert np.array_equal(np.concatenate([piece.rewards for piece in pieces]), arrays.rewards)


# memory and death


WIDE = 64


def long_piece(rows):
    arrays = make([(rows, True)])
    observations = np.zeros((rows + 1, WIDE), np.float32)
    return replace(arrays, observations=observations)


def test_memory_does_not_grow_with_the_split(tmp_path):
    piece, count = long_piece(2000), 60  # 31 MB of observations
    about = manifest(layout=(FeatureSlice("all", 0, WIDE),), observation_size=WIDE)
    tracemalloc.start()
    try:
        with ShardWriter.replacing(tmp_path / "d", about, 4 << 20) as writer:
            split = writer.split("train", transitions=2000 * count, episodes=count)
            split.append(piece)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(count - 1):
                split.append(piece)
            peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert load_shards(tmp_path / "d", verify=False).size == 2000 * count


def write_slowly(folder, seed):
    """In a process that will be killed."""
    arrays = make([(5, True)] * 60, seed)
    with ShardWriter.replacing(folder, manifest(), 600) as writer:
        split = writer.split("train", transitions=arrays.size, episodes=arrays.episode_count)
        for piece in episode_pieces(arrays, 5):
            split.append(piece)
            time.sleep(0.002)


def test_a_killed_writer_leaves_the_old_dataset_and_a_rerun_gives_the_same_hash(tmp_path):
    folder, chance = tmp_path / "d", random.Random(4)
    write_slowly(folder, 1)
    before, killed = files_of(folder), 0
    for _ in range(6):
        process = started(write_slowly, folder, 2)
        time.sleep(chance.uniform(0.05, 0.3))
        process.kill()
        process.join()
        if read_manifest(folder).hash == read_hash(before):
            killed += 1
            assert files_of(folder) == before
        check_files(folder, read_manifest(folder))
    assert killed
    write_slowly(folder, 2)
    write_slowly(tmp_path / "clean", 2)
    assert read_manifest(folder).hash == read_manifest(tmp_path / "clean").hash
    assert {path.name for path in tmp_path.iterdir()} == {"d", ".d.lock", "clean", ".clean.lock"}


def read_hash(files):
    import json

    return json.loads(files["manifest.json"])["hash"]
