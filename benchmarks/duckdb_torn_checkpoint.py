"""DuckDB 2.0.1 alone: a checkpoint that is killed within a write leaves a file that is never opened again.

    python benchmarks/duckdb_torn_checkpoint.py [FOLDER]

New data goes into free blocks, and the header turns to them at the end. But metadata is written into blocks that the old header
still shows. The script makes a database, changes it, copies its file and its log of changes, and makes a checkpoint. Then it
gives the copy what the checkpoint wrote into the blocks, each one up to its first 4 KiB, and leaves the headers as they were: so
a file looks whose process was killed, or whose machine lost its power, before the header turned. DuckDB should open it by
the old header and replay the log of changes. It refuses it: a block fails its checksum.

Exit status: 0 when the fault shows, 1 when DuckDB opens the file with every row. It needs the package `duckdb` and nothing else.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import duckdb

HEADERS, BLOCK = 3 * 4096, 1 << 18
WRITTEN = 4096
"""So many bytes of each block reach the file before the kill."""
ROUNDS = 6


def change(con: duckdb.DuckDBPyConnection, number: int) -> None:
    """Rows that come and change: blocks become free, and the metadata is written again."""
    con.execute(
        f"INSERT INTO t SELECT i, repeat(i::VARCHAR, 40) FROM range({20_000 * number}, {20_000 * (number + 1)}) r(i)"
    )
    con.execute(f"UPDATE t SET text = text || 'x' WHERE id % {number + 2} = 0")


def killed(folder: Path) -> tuple[Path, int]:
    """A database as a kill within a checkpoint leaves it, and how many rows were committed."""
    path, copy = folder / "whole.duckdb", folder / "killed.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("PRAGMA disable_checkpoint_on_shutdown")
        con.execute("SET checkpoint_threshold = '1000TB'")
        con.execute("CREATE TABLE t (id BIGINT, text VARCHAR)")
        for number in range(ROUNDS):
            change(con, number)
            con.execute("CHECKPOINT")
        change(con, ROUNDS)
        ((rows,),) = con.sql("SELECT count(*) FROM t").fetchall()
        for end in ("", ".wal"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")
        con.execute("CHECKPOINT")
        after = path.read_bytes()
    before = bytearray(copy.read_bytes())
    before.extend(bytes(max(0, len(after) - len(before))))
    for start in range(HEADERS, len(after), BLOCK):
        before[start : start + WRITTEN] = after[start : start + WRITTEN]
    copy.write_bytes(before)
    return copy, rows


def main() -> int:
    """Make such a file, open it, and say what came of it."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as folder:
        path, rows = killed(Path(folder))
        print(f"DuckDB {duckdb.__version__}, {rows} rows committed")
        try:
            with duckdb.connect(str(path)) as con:
                found = con.sql("SELECT count(*), sum(length(text)) FROM t").fetchall()[0][0]
        except duckdb.Error as error:
            print(f"the file is lost: {error}")
            return 0
        print(f"it opens, with {found} rows")
        return 1 if found == rows else 0


if __name__ == "__main__":
    sys.exit(main())
