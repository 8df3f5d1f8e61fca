"""A secret in the name of a file or folder gets into no row: the file is set aside, and read when it was renamed."""

from __future__ import annotations

import zipfile

import pytest

from logforge.forgetting.pipeline import forget
from logforge.ingestion.dry_runs import dry_run
from logforge.ingestion.pipeline import ingest
from logforge.ingestion.reading import ReadOptions
from logforge.schemas.rules import remedy_of
from support.made_conversations import TOKEN, conversation, everything, rows
from support.stored import assert_conserved


@pytest.fixture
def logs(tmp_path, write_jsonl):
    for number, folder in enumerate([TOKEN, TOKEN[:-1] + "z", "plain"]):
        write_jsonl(tmp_path / "logs" / folder / "x.jsonl", [conversation(f"e{number}")])
    return tmp_path / "logs"


def test_it_is_set_aside_under_a_label_without_it(logs, store):
    report = ingest(store, [logs])
    assert_conserved(store)
    text = everything(store) + str(report.as_dict()) + report.render()
    assert TOKEN[:-1] not in text
    found = rows(store, "SELECT rule, locator FROM quarantine ORDER BY 2")
    assert [rule for rule, _ in found] == ["secret_in_path"] * 2
    assert len({place for _, place in found}) == 2, "two such folders stay two"
    assert all("/<GITHUB_TOKEN>/x.jsonl~" in str(place) for _, place in found)
    assert rows(store, "SELECT native_id FROM episodes") == [("e2",)]
    assert ingest(store, [logs]).read == 0
    assert "Rename" in remedy_of("secret_in_path")


def test_renamed_it_is_read_and_its_old_row_can_be_forgotten(logs, store):
    ingest(store, [logs])
    (logs / TOKEN).rename(logs / "renamed")
    assert ingest(store, [logs]).read == 1
    assert rows(store, "SELECT count(*) FROM episodes") == [(2,)]
    for (path,) in rows(store, "SELECT path FROM sources WHERE path LIKE '%~%'"):
        forget(store, source=path)
    assert rows(store, "SELECT count(*) FROM quarantine") == [(0,)]


def test_what_is_allowed_and_what_is_not_redacted_is_read(logs, store):
    assert ingest(store, [logs], allow_secret=[TOKEN[:6] + "*"]).quarantined == 0
    assert ingest(store, [logs], redact=False).quarantined == 0
    assert rows(store, "SELECT count(*) FROM episodes") == [(3,)]


def test_a_member_of_an_archive_too(logs, store, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for path in sorted(logs.rglob("*.jsonl")):
            file.write(path, path.relative_to(logs))
    ingest(store, [tmp_path / "a.zip"])
    assert_conserved(store)
    assert TOKEN[:-1] not in everything(store)
    assert rows(store, "SELECT native_id FROM episodes") == [("e2",)]


def test_a_dry_run_says_so(logs, tmp_path):
    plan = dry_run([logs], tmp_path / "none.duckdb", ReadOptions())
    assert TOKEN[:-1] not in str(plan.as_dict()) + plan.render()
    assert sum(file.quarantined for file in plan.files) == 2


MAIL = "ann@example.org"


@pytest.mark.parametrize("packed", [False, True])
def test_what_was_read_before_the_path_was_to_be_redacted_goes(store, tmp_path, write_jsonl, packed):
    logs = tmp_path / "logs"
    write_jsonl(logs / "plain.jsonl", [conversation("other")])
    path = write_jsonl(logs / f"{MAIL}.jsonl", [conversation("e", f"I am {MAIL}")])
    if packed:
        with zipfile.ZipFile(logs / f"{MAIL}.zip", "w") as file:
            file.write(path, "x.jsonl")
        path.unlink()
    for _ in range(2):  # turned on, off, and on again: the label of the first time is known then
        ingest(store, [logs])
        assert MAIL in everything(store)
        assert rows(store, "SELECT count(*) FROM episodes") == [(2,)]
        ingest(store, [logs], pii=["email"])
        assert MAIL not in everything(store)
        assert rows(store, "SELECT native_id FROM episodes") == [("other",)]
        assert_conserved(store)
    assert ingest(store, [logs], pii=["email"]).read == 0


def test_so_does_what_was_read_without_redaction(logs, store):
    ingest(store, [logs], redact=False)
    ingest(store, [logs])
    assert TOKEN[:-1] not in everything(store)
    assert rows(store, "SELECT count(*), sum(kept) FROM sources") == [(3, 1)]


def test_and_where_the_row_of_the_set_aside_file_was_forgotten(logs, store):
    ingest(store, [logs])
    for (path,) in rows(store, "SELECT path FROM sources WHERE path LIKE '%~%'"):
        forget(store, source=path)
    ingest(store, [logs], redact=False)
    assert TOKEN in everything(store)
    ingest(store, [logs])
    assert TOKEN[:-1] not in everything(store)


def test_what_is_no_log_stays_none(store, tmp_path):
    folder = tmp_path / "logs" / TOKEN / ".git"
    folder.mkdir(parents=True)
    report = ingest(store, [tmp_path / "logs"])
    assert (report.quarantined, report.skip_reasons) == (0, {"tool_folder": 1})
    assert TOKEN not in everything(store)
