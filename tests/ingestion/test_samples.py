"""Equal rows of one file: samples where they have neither an id nor a time, else copies. Equal files are copies."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logforge.dataset.build import BuildConfig, build_dataset
from logforge.ingestion import ingest
from logforge.store import Store, open_store
from support.stored import assert_conserved

ROW: dict[str, Any] = {
    "prompt": [{"role": "user", "content": "2+2"}],
    "completion": [{"role": "assistant", "content": "4"}],
    "reward": 1.0,
}
WRONG = {**ROW, "completion": [{"role": "assistant", "content": "5"}], "reward": 0.0}
CALL = {"type": "function", "function": {"name": "add", "arguments": "{}"}}


def called(call_id: str) -> list[dict[str, Any]]:
    """A completion that calls a tool."""
    asked = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": call_id}]}
    answered = {"role": "tool", "tool_call_id": call_id, "content": "4"}
    return [asked, answered, {"role": "assistant", "content": "4"}]


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def counts(store: Store) -> tuple[int, int]:
    """Episodes, and records that are duplicates."""
    assert_conserved(store)
    (found,) = store.con.sql(
        "SELECT (SELECT count(*) FROM episodes), sum(duplicates)::INT FROM sources"
    ).fetchall()
    return found


def test_equal_samples_keep_the_mean(store, tmp_path):
    """Two samples of three are right; to drop one of the equal ones would make it one of two."""
    ingest(store, [write(tmp_path / "results.jsonl", ROW, ROW, WRONG)])
    (tmp_path / "reward.yaml").write_text("gamma: 1.0\nterms:\n  logged: {value: score, at: terminal}\n")
    config = BuildConfig(encoder="hashing", text_size=8)
    build_dataset(store, tmp_path / "reward.yaml", name="d", out=tmp_path / "out", config=config)
    found = store.con.sql("SELECT count(*), avg(reward), count(DISTINCT split) FROM transitions").fetchall()
    assert found == [(3, pytest.approx(2 / 3), 1)]  # and the samples of a prompt are on one side


OWN: list[dict[str, Any]] = [
    {"id": "r1"},
    {"rollout_id": 7},
    {"trial": 0},
    {"sampleIndex": 0},
    {"timestamp": "2026-01-01T00:00:00Z"},
    {"createdAt": 1760000000},
    {"metadata": {"run_id": "x"}},
    {"completion": called("call_abcdef123456")},
]
OTHERS: list[dict[str, Any]] = [
    {"id": None},
    {"example_id": 4},
    {"task_id": "t"},
    {"prompt_id": "p"},
    {"instance_id": "a__b-1"},
    {"user_id": "u"},
    {"timestamp": ""},
    {"metadata": {"difficulty": 3}},
    {"completion": called("call_0")},
]


@pytest.mark.parametrize("more", OWN, ids=str)
def test_a_row_with_an_id_or_a_time_that_comes_again_is_a_copy(store, tmp_path, more):
    row = {**ROW, **more}
    report = ingest(store, [write(tmp_path / "results.jsonl", row, row)])
    assert (counts(store), report.samples) == ((1, 1), 0)


@pytest.mark.parametrize("more", OTHERS, ids=str)
def test_what_names_a_task_names_no_run(store, tmp_path, more):
    row = {**ROW, **more}
    report = ingest(store, [write(tmp_path / "results.jsonl", row, row, row)])
    assert (counts(store), report.samples) == ((3, 0), 2)
    assert "2 rows that equal another of the file kept as samples; --no-samples: as copies" in report.render()
    assert report.as_dict()["samples"] == 2


def test_without_samples_equal_rows_are_copies(store, tmp_path):
    path = write(tmp_path / "results.jsonl", ROW, ROW, WRONG)
    assert (ingest(store, [path], samples=False).samples, counts(store)) == (0, (2, 1))
    assert (ingest(store, [path]).samples, counts(store)) == (1, (3, 0))
    assert ingest(store, [path]).unchanged == 1


def test_messages_that_a_file_has_in_other_shapes(store, tmp_path):
    chat = {"messages": [*ROW["prompt"], *ROW["completion"]]}
    pair = {"prompt": "2+2", "chosen": "4", "rejected": "5"}
    write(tmp_path / "rows.jsonl", chat, chat)
    (tmp_path / "array.json").write_text(json.dumps([chat, {**chat, "reward": 1}, chat]))
    write(tmp_path / "pairs.jsonl", pair, pair)
    report = ingest(store, [tmp_path])
    assert store.con.sql("SELECT format, count(*) FROM episodes GROUP BY 1 ORDER BY 1").fetchall() == [
        ("openai_messages", 3),
        ("trl", 4),
    ]
    assert (counts(store)[1], report.samples) == (
        2,
        2,
    )  # a pair is one record, and the array holds the rows' file again


def test_a_mapping_has_samples_where_it_names_no_id(store, tmp_path):
    spec = """
        name: mine
        messages:
          path: $.talk[*]
          role: {path: $.who, values: {u: user, a: assistant}}
          content: $.said
    """
    (tmp_path / "m.yaml").write_text(spec)
    row = {"key": "k", "talk": [{"who": "u", "said": "2+2"}, {"who": "a", "said": "4"}]}
    path = write(tmp_path / "results.jsonl", row, row)
    ingest(store, [path], mapping=tmp_path / "m.yaml")
    assert counts(store) == (2, 0)
    (tmp_path / "m.yaml").write_text(spec + "\n        episode: {id: $.key}\n")
    ingest(store, [path], mapping=tmp_path / "m.yaml")
    assert counts(store) == (1, 1)


FILES = st.lists(st.lists(st.sampled_from("abc"), max_size=6), min_size=1, max_size=3)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES, st.booleans())
def test_each_file_says_how_often_a_row_is_there(tmp_path_factory, files, reverse):
    """Of equal rows in several files those of the file that has most of them are there, whatever the order of the rows."""
    folder = tmp_path_factory.mktemp("files")
    for number, file in enumerate(files):
        rows = [{**ROW, "completion": [{"role": "assistant", "content": name}]} for name in file]
        write(folder / f"{number}.jsonl", *(reversed(rows) if reverse else rows))
    most = Counter[str]()
    for file in files:
        most |= Counter(file)
    with open_store(folder / "s.duckdb") as store:
        ingest(store, sorted(folder.glob("*.jsonl")))
        said = store.con.sql("SELECT content FROM messages WHERE role = 'assistant'").fetchall()
        assert Counter(name for (name,) in said) == most
        assert counts(store)[1] or not sum(map(len, files)) - most.total()
