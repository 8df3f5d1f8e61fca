import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from logforge.core import files as atomic
from logforge.schemas.errors import CheckFailed, InputError, Mismatch, StoreError, UnknownName, UsageError
from logforge.shards import reader as shards
from logforge.shards.array_rules import check_arrays
from logforge.shards.arrays import SplitArrays
from logforge.shards.reader import ARRAYS, check_files, load_shards, write_dataset
from support.made_arrays import DIM, VOCABULARY, altered, episode_kinds, make, manifest
from support.places import ROOT
from support.written_files import files_of

KINDS = [(3, True), (1, False), (1, True), (2, False)]
DOCS = ROOT / "docs" / "shards.md"


@pytest.fixture
def arrays():
    return make(KINDS)


@pytest.fixture
def dataset(tmp_path, arrays):
    write_dataset(
        tmp_path / "made",
        {"train": arrays, "test": make([(2, True)], seed=1)},
        manifest(),
        {"encoder/pca.npz": b"pca"},
    )
    return tmp_path / "made"


def problems_of(arrays):
    with pytest.raises(CheckFailed) as caught:
        check_arrays(arrays, VOCABULARY, DIM)
    return "\n".join(map(str, caught.value.failures))


# what the arrays must obey


def test_consistent_arrays_pass(arrays):
    check_arrays(arrays, VOCABULARY, DIM)
    check_arrays(SplitArrays.empty(DIM, VOCABULARY.size), VOCABULARY, DIM)


@pytest.mark.parametrize(
    ("name", "where", "value", "said"),
    [
        ("timeouts", 2, True, r"terminal and timeout at once: 1 rows, first 2 \(episode 0\)"),
        ("terminals", 1, True, "an end before the episode's last step"),
        ("timeouts", 6, False, r"neither terminal nor timeout: 1 rows, first 6 \(episode 3\)"),
        ("rewards", 4, np.nan, r"not finite: 1 rows, first 4 \(episode 2\) @ \$.rewards"),
        ("returns", 0, np.inf, r"\$.returns"),
        ("weights", 0, -1, "negative"),
        ("weights", 0, np.nan, r"not finite.*weights"),
        ("propensities", 0, 0, "yet it happened"),
        ("propensities", 0, 1.5, "yet it happened"),
        ("actions", 3, VOCABULARY.size, "not an id from 0 to 5"),
        ("actions", 3, -1, "not an id from 0 to 5"),
        ("observations", (10, 2), np.nan, "not finite: 1 rows, first 10"),
        ("masks", (0, VOCABULARY.invalid), True, "allows `<invalid>`"),
        ("masks", 10, False, "allows nothing: 1 rows, first 10"),
        ("masks", (slice(None), slice(0, 4)), False, "forbidden by its mask"),
        ("success", 1, 2, "not 1, 0 or -1"),
        ("episode_offsets", 1, 4, "episode 1 has no step"),
        ("episode_offsets", -1, 6, "run from 0 to 6, must from 0 to 7"),
        ("episode_offsets", 0, 1, "run from 1"),
        ("observation_offsets", 1, 3, "observation_offsets"),
    ],
)
def test_each_broken_rule_is_named(arrays, name, where, value, said):
    assert re.search(said, problems_of(altered(arrays, name, where, value)))


@pytest.mark.parametrize("name", ARRAYS)
def test_wrong_lengths_and_dtypes_are_refused(arrays, name):
    given = {field: getattr(arrays, field) for field in ARRAYS}
    assert problems_of(SplitArrays(**{**given, name: given[name][:-1]}))
    assert f"must be {ARRAYS[name].dtype}" in problems_of(
        SplitArrays(**{**given, name: given[name].astype(np.float64)})
    )


def test_rows_after_the_last_end_are_refused(arrays):
    assert "neither terminal nor timeout" in problems_of(altered(arrays, "timeouts", -1, False))


def test_all_problems_come_at_once(arrays):
    broken = altered(altered(arrays, "rewards", 0, np.nan), "observations", 0, np.nan)
    assert len(problems_of(broken).splitlines()) == 2


# stepping through them


@given(episode_kinds)
def test_observations_follow_their_transitions(kinds):
    arrays = make(kinds)
    rows = arrays.observations[arrays.observation_rows, 0]
    assert (rows == np.arange(arrays.size) + arrays.episode_index).all()
    assert (arrays.next_observations()[:, 0] == rows + 1).all()
    episodes = list(arrays.episodes())
    assert [(len(episode.actions), episode.terminal) for episode in episodes] == kinds
    assert all(
        len(episode.observations) == len(episode.masks) == len(episode.actions) + 1 for episode in episodes
    )
    assert np.array_equal(np.concatenate([episode.observations for episode in episodes]), arrays.observations)


def test_success_is_unknown_where_the_log_has_none(arrays):
    assert [episode.success for episode in arrays.episodes()] == [None, False, True, None]


def test_torch_batches_hold_every_transition_once(arrays):
    batches = list(arrays.torch_batches(3, seed=1))
    assert [len(batch.indices) for batch in batches] == [3, 3, 1]
    seen = np.concatenate([batch.indices.numpy() for batch in batches])
    assert sorted(seen) == list(range(arrays.size))
    again = np.concatenate([batch.indices.numpy() for batch in arrays.torch_batches(3, seed=1)])
    other = np.concatenate([batch.indices.numpy() for batch in arrays.torch_batches(3, seed=2)])
    assert (seen == again).all()
    assert (seen != other).any()
    for batch in batches:
        assert np.array_equal(batch.next_observations[:, 0].numpy(), batch.observations[:, 0].numpy() + 1)
        assert np.array_equal(batch.rewards.numpy(), batch.indices.numpy() + 1)


# writing and reading


@settings(max_examples=15, deadline=None)
@given(kinds=episode_kinds)
def test_round_trip(tmp_path_factory, kinds):
    folder = tmp_path_factory.mktemp("round") / "made"
    arrays = make(kinds)
    sealed = write_dataset(folder, {"train": arrays}, manifest())
    shard = load_shards(folder)
    assert shard.manifest == sealed
    for name in ARRAYS:
        assert np.array_equal(getattr(shard, name), getattr(arrays, name), equal_nan=name == "propensities")
    shard.verify()


def test_same_arrays_same_bytes(tmp_path, arrays):
    strided = SplitArrays(**{name: np.asfortranarray(getattr(arrays, name)) for name in ARRAYS})
    write_dataset(tmp_path / "one", {"train": arrays}, manifest(), {"encoder/pca.npz": b"pca"})
    write_dataset(tmp_path / "deep" / "two", {"train": strided}, manifest(), {"encoder/pca.npz": b"pca"})
    assert files_of(tmp_path / "one") == files_of(tmp_path / "deep" / "two")
    assert len(files_of(tmp_path / "one")) == len(ARRAYS) + 3


def test_manifest_counts_what_was_written(dataset, arrays):
    found = load_shards(dataset).manifest
    assert found.splits["train"] == arrays.summary()
    assert (
        found.splits["train"].terminals,
        found.splits["train"].timeouts,
        found.splits["train"].successes,
    ) == (2, 2, 1)
    assert found.return_range == (float(arrays.returns.min()), float(arrays.returns.max()))
    assert set(found.checksums) == set(files_of(dataset)) - {"manifest.json", "README.md"}


def test_shards_are_memory_mapped_and_read_only(dataset):
    shard = load_shards(dataset, "train")
    assert (shard.split, shard.path, shard.size, shard.episode_count) == ("train", dataset, 7, 4)
    assert (shard.observation_size, shard.action_size) == (DIM, VOCABULARY.size)
    for name in ARRAYS:
        array = getattr(shard, name)
        assert isinstance(array.base, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_split_without_episodes_can_be_written_and_read(tmp_path):
    write_dataset(tmp_path / "made", {"train": SplitArrays.empty(DIM, VOCABULARY.size)}, manifest())
    shard = load_shards(tmp_path / "made")
    assert (shard.size, shard.manifest.return_range, list(shard.episodes())) == (0, None, [])


def test_a_missing_folder_and_an_unknown_split_are_refused(tmp_path, dataset):
    with pytest.raises(UsageError, match="no dataset in"):
        load_shards(tmp_path / "nowhere")
    with pytest.raises(UnknownName, match="valid: test, train"):
        load_shards(dataset, "validation")


def test_a_name_is_answered_with_the_folder_that_it_stands_for(tmp_path, monkeypatch):
    write_dataset(tmp_path / "datasets" / "made", {"train": make([(2, True)])}, manifest())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        load_shards("made")
    assert caught.value.remedy == f"did you mean {Path('datasets', 'made')}?"
    with pytest.raises(UnknownName, match="valid: train, validation, test"):
        write_dataset(tmp_path / "x", {"trian": make(KINDS)}, manifest())


@pytest.mark.parametrize("name", ["train/rewards.npy", "train/observations.npy", "train/masks.npy"])
def test_a_changed_byte_names_its_file(dataset, name):
    data = bytearray((dataset / name).read_bytes())
    data[-1] ^= 1
    (dataset / name).write_bytes(data)
    with pytest.raises(Mismatch, match=re.escape(name)):
        load_shards(dataset)
    load_shards(dataset, "test")
    load_shards(dataset, verify=False)


def test_extra_files_are_checked_when_asked_for(dataset):
    check_files(dataset, load_shards(dataset).manifest)
    (dataset / "encoder" / "pca.npz").write_bytes(b"other")
    with pytest.raises(Mismatch, match=r"pca\.npz"):
        check_files(dataset, load_shards(dataset).manifest)


@pytest.mark.parametrize("verify", [True, False])
def test_a_lost_file_names_itself(dataset, verify):
    (dataset / "train" / "weights.npy").unlink()
    with pytest.raises(Mismatch, match=r"weights\.npy"):
        load_shards(dataset, verify=verify)


def test_unverified_files_must_still_be_arrays_of_the_right_shape(dataset, arrays):
    np.save(dataset / "train" / "rewards.npy", arrays.rewards[:-1])
    with pytest.raises(CheckFailed, match="rewards"):
        load_shards(dataset, verify=False)
    (dataset / "train" / "rewards.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match=r"rewards\.npy"):
        load_shards(dataset, verify=False)


def test_pickled_arrays_are_never_loaded(dataset):
    np.save(dataset / "train" / "rewards.npy", np.array([print] * 7, object), allow_pickle=True)
    with pytest.raises(InputError, match=r"rewards\.npy"):
        load_shards(dataset, verify=False)


def test_inconsistent_arrays_are_not_written(tmp_path, arrays):
    with pytest.raises(CheckFailed, match="'train' are not consistent"):
        write_dataset(tmp_path / "made", {"train": altered(arrays, "rewards", 0, np.nan)}, manifest())
    assert [path.name for path in tmp_path.iterdir()] == [".made.lock"]


# replacing


def test_a_rebuild_leaves_nothing_of_the_old(dataset, arrays):
    write_dataset(dataset, {"train": make([(1, True)])}, manifest())
    assert load_shards(dataset).size == 1
    assert not (dataset / "test").exists()
    assert not (dataset / "encoder").exists()
    assert {path.name for path in dataset.parent.iterdir()} == {"made", ".made.lock"}


def test_open_shards_outlive_a_rebuild(dataset, arrays):
    shard = load_shards(dataset)
    write_dataset(dataset, {"train": make([(1, True)])}, manifest())
    assert np.array_equal(shard.observations, arrays.observations)


def test_other_folders_and_files_are_not_replaced(tmp_path, arrays):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for name in ("thesis", "file"):
        with pytest.raises(UsageError):
            write_dataset(tmp_path / name, {"train": arrays}, manifest())
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "precious"


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "train/rewards.npy", "manifest.json", ""])
def test_extra_files_stay_in_their_place(tmp_path, arrays, name):
    with pytest.raises(UsageError):
        write_dataset(tmp_path / "made", {"train": arrays}, manifest(), {name: b""})
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("exchange", [True, False])
def test_a_failed_swap_keeps_the_old(dataset, monkeypatch, exchange):
    before = files_of(dataset)
    monkeypatch.setattr(
        atomic,
        "_exchange",
        lambda one, other: exchange and (_ for _ in ()).throw(OSError(28, "No space left")),
    )
    real, calls = Path.rename, []

    def rename(self, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(28, "No space left")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(StoreError, match="No space left"):
        write_dataset(dataset, {"train": make([(1, True)])}, manifest())
    assert files_of(dataset) == before
    assert not list(dataset.parent.glob(".made.new"))


def test_without_exchange_two_renames_do(dataset, monkeypatch):
    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    write_dataset(dataset, {"train": make([(1, True)])}, manifest())
    assert load_shards(dataset).size == 1
    assert {path.name for path in dataset.parent.iterdir()} == {"made", ".made.lock"}


KILLED = """
import os, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from support.made_arrays import make, manifest
from logforge.core import files as atomic
from logforge.shards import files as shard_files, reader as shards
point, exchange = {point!r}, {exchange!r}
if not exchange:
    atomic._exchange = lambda one, other: False
real, calls = Path.rename, []
def rename(self, target):
    calls.append(target)
    if point == "rename" and len(calls) == 2:
        os._exit(9)
    return real(self, target)
Path.rename = rename
if point == "arrays":
    shard_files.ArrayWriter.append = lambda *given: os._exit(9)
if point == "swap":
    atomic._swap = lambda *paths: os._exit(9)
shards.write_dataset({folder!r}, {{"train": make([(1, True)])}}, manifest())
"""


@pytest.mark.parametrize(("point", "exchange"), [("arrays", True), ("swap", True), ("rename", False)])
def test_a_killed_writer_harms_nothing(dataset, arrays, point, exchange):
    """Dead while writing, before the swap, or between the two renames: the old is whole or comes back."""
    code = KILLED.format(tests=str(ROOT / "tests"), point=point, exchange=exchange, folder=str(dataset))
    before = files_of(dataset)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert list(dataset.parent.glob(".made.*[!k]"))
    if point != "rename":
        assert files_of(dataset) == before
    with pytest.raises(StoreError):
        write_dataset(dataset, {"train": arrays}, manifest(), {"a/b": b"", "a": b"this one fails too"})
    assert files_of(dataset) == before
    assert {path.name for path in dataset.parent.iterdir()} == {"made", ".made.lock"}


def test_readers_see_the_old_or_the_new(dataset):
    sizes, stop = set(), threading.Event()

    def read():
        while not stop.is_set():
            sizes.add(shards.read_manifest(dataset).splits["train"].transitions)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for size in (1, 2, 3, 4):
            write_dataset(dataset, {"train": make([(size, True)])}, manifest())
    finally:
        stop.set()
        reader.join()
    assert reader.is_alive() is False
    assert sizes <= {7, 1, 2, 3, 4}
    assert 4 in sizes | {load_shards(dataset).size}


def test_a_link_to_a_dataset_is_followed(tmp_path, dataset):
    (tmp_path / "latest").symlink_to(dataset)
    write_dataset(tmp_path / "latest", {"train": make([(1, True)])}, manifest())
    assert load_shards(dataset).size == 1
    assert (tmp_path / "latest").is_symlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_a_store_error(tmp_path, arrays):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="Permission denied"):
        write_dataset(tmp_path / "made", {"train": arrays}, manifest())


def test_docs_list_every_array():
    text = DOCS.read_text()
    for name, spec in ARRAYS.items():
        assert f"| `{name}` | {spec.dtype} | ({spec.shape}) | {spec.meaning} |" in text
