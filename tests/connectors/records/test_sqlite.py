"""SQLite databases: rows, damage, limits, and files that another program holds."""

from __future__ import annotations

import shutil
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.records import base, sqlite
from logforge.connectors.records.base import Source, look
from logforge.ingestion.sources.discover import judge
from logforge.lineage.locate import resolve
from logforge.schemas.episode import Reject


def made(path: Path, *script: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for statement in script:
            connection.execute(statement)
        connection.commit()
    return path


def rows(path: Path, table: str, label: str = "log", max_record: int = 1 << 28, **how: Any) -> list[Any]:
    with sqlite.open_database(Source(path, label, max_record=max_record)) as database:
        assert isinstance(database, sqlite.Database), database
        return list(database.rows(table, **how))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


TALKS = 'CREATE TABLE "a/b~ talks" (id TEXT PRIMARY KEY, value BLOB)'
FILLED = "INSERT INTO \"a/b~ talks\" VALUES ('x', '{\"said\": [\"hi\"]}'), ('y', x'ff00'), ('z', NULL)"


def test_rows_have_their_values_and_places(tmp_path):
    path = made(tmp_path / "a.db", TALKS, FILLED)
    found = rows(path, "a/b~ talks")
    assert found == [
        ("log#/a~1b~0 talks/1", {"id": "x", "value": '{"said": ["hi"]}'}),
        ("log#/a~1b~0 talks/2", {"id": "y", "value": b"\xff\x00"}),
        ("log#/a~1b~0 talks/3", {"id": "z", "value": None}),
    ]
    for place, row in found:
        assert resolve(path, place, "log") == row
    assert resolve(path, "log#/a~1b~0 talks/1/value#/said/0", "log") == "hi"
    for lost in ("log#/a~1b~0 talks/9", "log#/other/1", "log#/a~1b~0 talks/1/none", "log#/x/y/z"):
        with pytest.raises(LookupError):
            resolve(path, lost, "log")


def test_conditions_and_orders_are_the_connectors(tmp_path):
    path = made(
        tmp_path / "a.db",
        "CREATE TABLE t (k TEXT, n INT)",
        "INSERT INTO t VALUES ('a', 2), ('b', 1), ('c', 3)",
    )
    found = rows(path, "t", where="n < ?", values=(3,), order="n")
    assert found == [("log#/t/2", {"k": "b", "n": 1}), ("log#/t/1", {"k": "a", "n": 2})]


def test_a_head_has_the_tables_and_their_columns(tmp_path):
    path = made(
        tmp_path / "a.db",
        TALKS,
        "CREATE TABLE t (rowid TEXT, n INT)",
        "CREATE VIEW v AS SELECT n FROM t",
        "CREATE TABLE counted (n INTEGER PRIMARY KEY AUTOINCREMENT)",
    )
    head = look(path)
    assert head.container == "sqlite"
    assert head.keys == {
        "": {"a/b~ talks", "t", "counted"},
        "a/b~ talks": {"id", "value"},
        "t": {"rowid", "n"},
        "counted": {"n"},
    }


@pytest.mark.parametrize(
    "table",
    ["(rowid TEXT, n INT)", "(rowid TEXT, _rowid_ INT, oid INT, n INT)", "(n INT PRIMARY KEY) WITHOUT ROWID"],
)
def test_tables_that_hide_their_row_ids_or_have_none(tmp_path, table):
    path = made(tmp_path / "a.db", f"CREATE TABLE t {table}", "INSERT INTO t (n) VALUES (7), (9)")
    found = rows(path, "t")
    assert [(place, row["n"]) for place, row in found] == [("log#/t/1", 7), ("log#/t/2", 9)]
    for place, row in found:
        assert resolve(path, place, "log") == row


def test_text_that_is_no_utf8_comes_as_bytes(tmp_path):
    path = made(
        tmp_path / "a.db", "CREATE TABLE t (v TEXT)", "INSERT INTO t VALUES (CAST(x'c328' AS TEXT)), ('é')"
    )
    assert [row["v"] for _, row in rows(path, "t")] == [b"\xc3(", "é"]


def test_a_row_beyond_the_limit_is_set_aside_alone(tmp_path):
    path = made(
        tmp_path / "a.db", "CREATE TABLE t (v TEXT)", f"INSERT INTO t VALUES ('a'), ('{'b' * 5000}'), ('c')"
    )
    first, long, last = rows(path, "t", max_record=1000)
    assert (first[1], last[1]) == ({"v": "a"}, {"v": "c"})
    assert (long[1].rule, long[1].locator, long[1].level) == ("element_too_long", "log#/t/2", "record")
    assert "1,000 bytes" in long[1].detail


def test_rows_are_streamed(tmp_path):
    path = made(
        tmp_path / "a.db",
        "CREATE TABLE t (v TEXT)",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 200)"
        " INSERT INTO t SELECT printf('%.*c', 200000, 'x') FROM c",
    )
    with sqlite.open_database(Source(path, "log")) as database:
        assert isinstance(database, sqlite.Database)
        tracemalloc.start()
        assert sum(len(row["v"]) for _, row in database.rows("t") if isinstance(row, dict)) == 40_000_000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 3_000_000


# --- files that others hold, and damaged ones ------------------------------------------------------------------------


def test_a_database_that_a_program_holds_is_read_with_its_log_and_left_as_it_is(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    path = made(home / "a.db", "PRAGMA journal_mode = WAL", TALKS)
    with closing(sqlite3.connect(path)) as holder:
        holder.execute(FILLED)
        holder.commit()
        assert (home / "a.db-wal").stat().st_size
        before = files(home)
        assert [row["id"] for _, row in rows(path, "a/b~ talks")] == ["x", "y", "z"]
        assert resolve(path, "log#/a~1b~0 talks/1/value#/said/0", "log") == "hi"
        assert look(path).top == {"a/b~ talks"}
        assert files(home) == before


def test_tables_that_lie_in_the_log_alone_are_seen(tmp_path):
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("PRAGMA journal_mode = WAL")
        holder.execute(TALKS)
        holder.commit()
        assert look(path).top == {"a/b~ talks"}


def test_what_a_killed_program_left_half_written_is_undone_in_a_copy(tmp_path):
    path = made(tmp_path / "a.db", TALKS, FILLED)
    copy = tmp_path / "killed" / "a.db"
    copy.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN")
        writer.execute('DELETE FROM "a/b~ talks"')
        for number in range(400):
            writer.execute('INSERT INTO "a/b~ talks" VALUES (?, ?)', (str(number), "n" * 900))
        for suffix in ("", "-journal"):
            shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        writer.execute("ROLLBACK")
    assert copy.read_bytes() != path.read_bytes()
    before = files(copy.parent)
    assert [row["id"] for _, row in rows(copy, "a/b~ talks")] == ["x", "y", "z"]
    assert files(copy.parent) == before


def test_a_database_that_changes_while_it_is_read_says_so(tmp_path):
    path = made(tmp_path / "a.db", TALKS, FILLED)
    with sqlite.open_database(Source(path, "log")) as database:
        assert isinstance(database, sqlite.Database)
        found = database.rows("a/b~ talks")
        next(found)
        made(path, "INSERT INTO \"a/b~ talks\" VALUES ('new', NULL)")
        *_, (place, last) = found
    assert isinstance(last, Reject)
    assert (place, last.rule) == ("log#/a~1b~0 talks", "database_busy")


def test_a_database_that_never_holds_still_is_not_read(tmp_path, monkeypatch):
    path = made(tmp_path / "a.db", TALKS)
    (tmp_path / "a.db-wal").write_bytes(b"log")
    copy = shutil.copyfile

    def slow(source: Path, target: Path) -> None:
        copy(source, target)
        with path.open("ab") as file:
            file.write(b"\x00")

    monkeypatch.setattr(sqlite.shutil, "copyfile", slow)
    with sqlite.open_database(Source(path, "log")) as found:
        assert isinstance(found, Reject)
        assert (found.rule, found.locator) == ("database_busy", "log#")


def test_a_damaged_row_costs_no_other(tmp_path):
    path = made(
        tmp_path / "a.db",
        "CREATE TABLE t (n INT, v TEXT)",
        f"INSERT INTO t VALUES (1, 'a'), (2, '{'b' * 60_000}'), (3, 'c')",
    )
    data = bytearray(path.read_bytes())
    first = next(page for page in range(2, len(data) // 4096) if data[page * 4096 + 4 :][:4] == b"bbbb")
    data[first * 4096 : first * 4096 + 4] = b"\x7f\xff\xff\xff"  # where the rest of the text lies
    path.write_bytes(data)
    one, two, three = rows(path, "t")
    assert (one[1]["v"], three[1]["v"]) == ("a", "c")
    assert (two[1].rule, two[1].locator) == ("malformed_record", "log#/t/2")


@pytest.mark.parametrize("how", [{}, {"order": "v"}, {"where": "v = 'none'"}])
def test_pages_that_lead_back_to_themselves_end(tmp_path, how):
    path = made(
        tmp_path / "a.db",
        "PRAGMA page_size = 512",
        "CREATE TABLE t (v TEXT)",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 300) INSERT INTO t SELECT 'v' || n FROM c",
    )
    data = bytearray(path.read_bytes())
    root = 512  # the table's root: its children's page numbers stand in cells of 4 bytes and a row id
    begins = [int.from_bytes(data[root + 12 + 2 * i :][:2], "big") for i in range(3)]
    for begin in begins:
        data[root + begin : root + begin + 4] = (2).to_bytes(4, "big")
    path.write_bytes(data)
    *_, (place, last) = rows(path, "t", **how)
    assert isinstance(last, Reject)
    assert (place, last.rule) == ("log#/t", "malformed_record")
    with sqlite.open_database(Source(path, "log")) as database:
        assert isinstance(database, sqlite.Database)
        assert database.count("t", "v = 'none'") == 0


def test_what_is_no_database_is_said(tmp_path):
    whole = made(tmp_path / "a.db", TALKS, FILLED).read_bytes()
    for number, data in enumerate((b"", whole[:700], sqlite.SQLITE + b"\xff" * 5000, b"no database" * 99)):
        path = tmp_path / f"{number}.db"
        path.write_bytes(data)
        assert look(path).top == set()
        with sqlite.open_database(Source(path, "log")) as found:
            assert isinstance(found, Reject) or (not data and found.tables == {})
            assert not isinstance(found, Reject) or (found.rule, found.locator) == (
                "malformed_record",
                "log#",
            )


def test_damaged_bytes_never_raise(tmp_path):
    import random

    whole = made(
        tmp_path / "a.db",
        TALKS,
        FILLED,
        "CREATE TABLE t (n INT, v TEXT)",
        f"INSERT INTO t VALUES (1, '{'x' * 9000}')",
    ).read_bytes()
    path = tmp_path / "b.db"
    for seed in range(300):
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 30)):
            data[chance.randrange(16, len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.randrange(len(data)) if seed % 3 == 0 else len(data)])
        look(path)
        with sqlite.open_database(Source(path, "log")) as found:
            for table in () if isinstance(found, Reject) else found.tables:
                for place, row in found.rows(table):
                    assert place.startswith("log#/")
                    assert isinstance(row, dict | Reject)


def test_a_schema_is_data(tmp_path):
    """A generated column, a view and a trigger of a database that somebody sent run nothing."""
    path = made(
        tmp_path / "a.db",
        "CREATE TABLE t (n INT, m INT GENERATED ALWAYS AS (n + 1))",
        "INSERT INTO t VALUES (1)",
    )
    assert rows(path, "t") == [("log#/t/1", {"n": 1})]
    with sqlite.open_database(Source(path, "log")) as database:
        assert isinstance(database, sqlite.Database)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            database._connection.execute("INSERT INTO t VALUES (2)")


def test_a_database_that_no_connector_knows_is_told_with_its_tables(tmp_path):
    path = made(tmp_path / "a.db", "CREATE TABLE zebras (stripes INT)")
    verdict = judge(path)
    assert (verdict.quarantined, verdict.rule, verdict.detail) == (
        True,
        "unknown_shape",
        "its tables: zebras",
    )
    settings = path.rename(tmp_path / "settings.vscdb")
    assert judge(settings).rule == "not_a_log"
    assert base.look(settings).container == "sqlite"
