import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.core.stored_rows import StoredRows, gather

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=5)


def stored(lengths, dtype=np.float32, tail=(3,)):
    """Rows in parts, and the same as one array."""
    whole = np.arange(sum(lengths) * int(np.prod(tail)), dtype=dtype).reshape(-1, *tail)
    parts = np.split(whole, np.cumsum(lengths)[:-1])
    return StoredRows(parts, np.dtype(np.float32)), whole.astype(np.float32)


@st.composite
def keys(draw):
    """Whatever one indexes two dimensions with, and the array it is for."""
    sizes = draw(lengths)
    count = sum(sizes)
    row = st.integers(-count, count - 1)
    rows = draw(
        row
        | st.slices(count)
        | st.lists(row, max_size=9).map(lambda found: np.array(found, int))
        | st.lists(st.lists(row, min_size=2, max_size=2), min_size=1, max_size=3).map(np.array)
        | st.lists(st.booleans(), min_size=count, max_size=count).map(np.array)
    )
    return sizes, rows


@given(keys(), st.sampled_from([np.float32, np.float16]))
def test_it_is_indexed_as_one_array(drawn, dtype):
    sizes, rows = drawn
    found, whole = stored(sizes, dtype)
    assert np.array_equal(found[rows], whole[rows])
    assert found[rows].dtype == np.float32
    assert np.array_equal(found[rows, 1], whole[rows, 1])
    assert np.array_equal(found[rows, :2], whole[rows, :2])


@given(lengths, st.data())
def test_rows_and_columns_are_paired(sizes, data):
    found, whole = stored(sizes)
    rows = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=6)), int)
    columns = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))), int)
    assert np.array_equal(found[rows, columns], whole[rows, columns])


@given(lengths, st.data(), st.booleans())
def test_gather_fills_what_it_is_given(sizes, data, in_parts):
    found, whole = stored(sizes)
    rows = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=6)), int)
    out = np.full((len(rows), 3), -1, np.float32)
    assert gather(found if in_parts else whole, rows, out) is out
    assert np.array_equal(out, whole[rows])


def test_numpy_takes_it_for_an_array():
    found, whole = stored([2, 3])
    assert (found.shape, found.ndim, len(found), found.nbytes) == (whole.shape, 2, 5, whole.nbytes)
    assert np.array_equal(np.asarray(found), whole)
    assert np.asarray(found, np.float64).dtype == np.float64
    assert np.array_equal(np.stack(list(found)), whole)
    assert np.array_equal(np.count_nonzero(found, axis=1), np.count_nonzero(whole, axis=1))
    with pytest.raises(ValueError, match="copy"):
        np.asarray(found, copy=False)


def test_a_slice_within_one_part_is_a_view():
    found, _ = stored([2, 3])
    assert np.shares_memory(found[2:4], found.parts[1])
    assert not np.shares_memory(found[1:4], found.parts[1])


@pytest.mark.parametrize("key", [5, -6, np.array([0, 5]), np.array([-6]), np.ones(4, bool)])
def test_rows_that_are_not_there_are_refused(key):
    with pytest.raises(IndexError):
        stored([2, 3])[0][key]
