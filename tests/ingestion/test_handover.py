"""What goes through a file of a private folder comes out as it went in, and leaves nothing there."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logforge.ingestion.workers import hand_over, take_over


@pytest.fixture
def room(tmp_path):
    (tmp_path / "room").mkdir()
    return tmp_path / "room"


TABLES = st.lists(st.tuples(st.text(), st.integers(-9, 9) | st.none(), st.lists(st.text(max_size=3)))).map(
    lambda rows: pa.table(
        {
            "text": pa.array([row[0] for row in rows], pa.string()),
            "number": pa.array([row[1] for row in rows], pa.int32()),
            "list": pa.array([row[2] for row in rows], pa.list_(pa.string())),
        }
    )
)


@given(st.lists(TABLES, max_size=3), st.text() | st.none())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tables_and_plain_values_come_out_as_they_went_in(room, tables, more):
    parcel = hand_over((tables, more), room)
    assert len(list(room.iterdir())) == 1
    taken, plain = take_over(parcel)
    assert list(room.iterdir()) == []
    assert plain == more
    for table, other in zip(taken, tables, strict=True):
        table.validate(full=True)
        assert table.equals(other)


def test_a_table_is_mapped_and_not_pickled(room):
    table = pa.table({"text": ["a" * 1000] * 1000})
    parcel = hand_over(table, room)
    assert len(parcel.pickled) < 2000
    assert sum(parcel.sizes) >= 1_000_000
    before = pa.total_allocated_bytes()
    taken = take_over(parcel)
    assert taken.equals(table)
    assert pa.total_allocated_bytes() - before < 100_000
