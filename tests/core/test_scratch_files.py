"""What lies on disk comes back as it was, in any order, and leaves nothing behind."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.core import scratch_files
from logforge.core.scratch_files import Episodes, EpisodeSpool, RowSpool, SpoolFile, batches
from logforge.core.stored_rows import kept_rows
from logforge.schemas.errors import StoreError
from support.made_episodes import episodes, parallel_episode


@given(st.lists(episodes(), min_size=1, max_size=4))
@settings(max_examples=30)
def test_episodes_come_back_equal_in_the_order_of_their_ids(made):
    made = [scratch_files.msgspec.structs.replace(e, episode_id=f"{n:02}") for n, e in enumerate(made)]
    kept = EpisodeSpool()
    for episode in reversed(made):
        kept.add(episode)
    found = Episodes(kept, (e.episode_id for e in reversed(made)))
    assert list(found) == made == list(found)
    assert list(found.without({"00"})) == made[1:]
    assert list(found.only({"00", "99"})) == made[:1]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.sampled_from([1, 700, 1 << 20]))
@settings(max_examples=30)
def test_what_is_read_along_changes_nothing_in_any_order_and_as_more_is_added(asked, ahead):
    kept, alone, made = EpisodeSpool(), {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch_files, "_BUFFER", ahead)
        for number, name in enumerate(f"{n:02}" for n in asked):
            if name not in made:
                made[name] = parallel_episode(name=f"{name}/{'x' * number}")
                made[name] = scratch_files.msgspec.structs.replace(made[name], episode_id=name)
                kept.add(made[name])
                own = EpisodeSpool()
                own.add(made[name])
                alone[name] = own.digest(name)
            assert kept[name] == made[name]
            assert list(Episodes(kept, made)) == [made[one] for one in sorted(made)]
            assert {one: kept.digest(one) for one in made} == alone


def test_pieces_hold_no_more_than_they_may(monkeypatch):
    kept, names = EpisodeSpool(), [f"{n:02}" for n in range(10)]
    for name in names:
        kept.add(parallel_episode(name=name))
    ids = [e.episode_id for e in Episodes(kept, kept._places)]
    monkeypatch.setattr(scratch_files, "TOGETHER", 4)
    pieces = list(Episodes(kept, ids).pieces())
    assert [len(piece) for piece in pieces] == [4, 4, 2]
    assert [e.episode_id for piece in pieces for e in piece] == sorted(ids)
    monkeypatch.setattr(scratch_files, "TOGETHER_BYTES", 1)
    assert [len(piece) for piece in Episodes(kept, ids).pieces()] == [1] * 10, "a longer one is alone"


@given(st.lists(st.integers(0, 6), max_size=5), st.randoms())
@settings(max_examples=30)
def test_rows_are_indexed_as_an_array_of_them(sizes, chance):
    rows = np.arange(3 * sum(sizes), dtype=np.float32).reshape(-1, 3)
    kept = RowSpool(np.float32, (3,))
    for piece in np.split(rows, np.cumsum(sizes)[:-1]) if sizes else []:
        kept.append(piece)
    found = kept.as_array()
    assert found.shape == rows.shape
    np.testing.assert_array_equal(found[:], rows)
    np.testing.assert_array_equal(found[1:3], rows[1:3])
    chosen = np.array([chance.random() < 0.5 for _ in rows], np.bool_)
    np.testing.assert_array_equal(found[chosen], rows[chosen])
    left = kept_rows(found, chosen)
    np.testing.assert_array_equal(left[:], rows[chosen])
    np.testing.assert_array_equal(left[1:2], rows[chosen][1:2])
    places = np.array([chance.randrange(len(rows)) for _ in range(4)] if len(rows) else [], np.int64)
    np.testing.assert_array_equal(found[places], rows[places])


@pytest.mark.parametrize("count", [0, 5])
def test_rows_of_a_saved_file_stay_readable_when_its_name_is_gone(tmp_path, count):
    rows = np.arange(3 * count, dtype=np.float32).reshape(-1, 3)
    np.save(tmp_path / "rows.npy", rows)
    found = RowSpool.saved(tmp_path / "rows.npy").as_array()
    (tmp_path / "rows.npy").unlink()
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:], rows)
    np.testing.assert_array_equal(found[1:3], rows[1:3])
    chosen = np.arange(count)[::-2]
    np.testing.assert_array_equal(found[chosen], rows[chosen])


def test_rows_may_be_put_in_their_places():
    kept = RowSpool.of(5, np.float16, (2,))
    kept.put(np.array([3, 0]), np.array([[1, 2], [3, 4]]))
    found = kept.as_array(np.dtype(np.float32))
    assert found[:].tolist() == [[3, 4], [0, 0], [0, 0], [1, 2], [0, 0]]
    assert found[3:4].dtype == np.float32


def test_files_have_no_name_and_lie_where_there_is_a_folder(tmp_path):
    file = SpoolFile(tmp_path / "not" / "there")
    assert file.append(b"abc") == 0
    assert file.append(b"def") == 3
    assert file.read(2, 3).tobytes() == b"cde"
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    file = SpoolFile(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="No space left"):
        file.append(bytes(scratch_files._BUFFER + 1))


def test_batches_keep_order_and_size():
    assert list(batches(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(batches([], 2)) == []
