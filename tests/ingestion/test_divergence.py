"""A losing copy that is no part of the owner's is named, whichever came first."""

from __future__ import annotations

import itertools

from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store
from support.made_sessions import line
from support.stored import assert_conserved

SESSION = "7c1d7d3e-0000-4000-8000-00000000d1f0"


def part(*numbers):
    """Lines of one session: questions and answers, without uuids of their own that would tell copies."""
    rows = []
    for number in numbers:
        rows.append(line(SESSION, 2 * number, "user", f"question {number}"))
        rows.append(
            line(SESSION, 2 * number + 1, "assistant", [{"type": "text", "text": f"answer {number}"}])
        )
    return rows


def said(store):
    rows = store.con.sql(
        "SELECT level, locator, rule, excerpt, records FROM quarantine ORDER BY locator"
    ).fetchall()
    kept = store.con.sql("SELECT path, kept, duplicates FROM sources ORDER BY 1").fetchall()
    return rows, kept


def after_each_order(tmp_path, files):
    found = []
    for number, order in enumerate([*itertools.permutations(files), None]):
        with Store(tmp_path / f"{number}.duckdb") as store:
            for group in [files] if order is None else [[file] for file in order]:
                ingest(store, group)
            assert_conserved(store)
            found.append(said(store))
    assert all(item == found[0] for item in found)
    return found[0]


def test_parts_of_one_session_in_two_files_are_no_mere_repetition(tmp_path, write_jsonl):
    files = [
        write_jsonl(tmp_path / "logs" / "first.jsonl", part(0, 1)),
        write_jsonl(tmp_path / "logs" / "second.jsonl", part(2, 3)),
    ]
    rows, kept = after_each_order(tmp_path, files)
    assert rows == [("part", "logs/second.jsonl", "diverging_copy", "question 2", 0)]
    assert kept == [("logs/first.jsonl", 4, 0), ("logs/second.jsonl", 0, 4)]


def test_an_earlier_state_of_a_session_is_a_mere_repetition(tmp_path, write_jsonl):
    files = [
        write_jsonl(tmp_path / "logs" / "early.jsonl", part(0, 1)),
        write_jsonl(tmp_path / "logs" / "whole.jsonl", part(0, 1, 2)),
    ]
    rows, kept = after_each_order(tmp_path, files)
    assert rows == []
    assert kept == [("logs/early.jsonl", 0, 4), ("logs/whole.jsonl", 6, 0)]
