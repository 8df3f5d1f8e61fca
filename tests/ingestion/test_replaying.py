"""What is read again is read as it was to be read: with its settings, its labels, and what holds it."""

from __future__ import annotations

import os
import zipfile

import pytest

from logforge.ingestion import looking
from logforge.ingestion.pipeline import ingest
from logforge.ingestion.replaying import replay
from support.made_conversations import TOKEN, conversation, everything, rows
from support.stored import assert_conserved

MAIL = "ann.lee@example.org"


@pytest.fixture
def closed(monkeypatch):
    """Call it with a folder's name: it cannot be listed until it is called with none."""
    real, names = os.scandir, set()

    def scandir(path="."):
        if not isinstance(path, int) and os.path.basename(os.fspath(path)) in names:
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)

    def close(*now):
        names.clear()
        names.update(now)

    return close


def test_what_lies_in_a_folder_that_could_not_be_entered_is_read_as_its_folder_was_to_be(
    store, tmp_path, write_jsonl, closed
):
    logs = tmp_path / "logs"
    said = f"write to {MAIL}"
    write_jsonl(logs / "deep" / "in" / "a.jsonl", [conversation("a", said, command="frobnicate")])
    write_jsonl(logs / "deep" / TOKEN / "b.jsonl", [conversation("b")])
    closed("deep")
    ingest(store, [logs], pii=["email"], danger=["pay=bash"])
    assert rows(store, "SELECT rule FROM quarantine") == [("unreadable_folder",)]
    closed()
    done = replay(store)
    assert (done.rescued, done.gone) == (1, ())
    assert_conserved(store)
    text = everything(store)
    assert MAIL not in text
    assert TOKEN not in text
    assert rows(store, "SELECT danger FROM steps WHERE kind = 'tool'") == [("pay",)]
    assert rows(store, "SELECT rule FROM quarantine") == [("secret_in_path",)]
    assert ingest(store, [logs], pii=["email"], danger=["pay=bash"]).read == 0, "an ingest would do the same"


def test_members_of_an_archive_that_cannot_be_read_are_not_gone(store, tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    with zipfile.ZipFile(tmp_path / "logs" / "a.zip", "w") as file:
        file.writestr("odd.jsonl", '{"who": "me"}\n')
        file.writestr(
            "good.jsonl",
            '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}\n',
        )
    ingest(store, [tmp_path / "logs"])
    before = rows(store, "SELECT path, kept FROM sources ORDER BY 1")

    def denied(path, *more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(looking, "sha256_of", denied)
    done = replay(store)
    assert done.gone == ()
    assert [why.partition(" ")[0] for why in done.stayed] == ["logs/a.zip"]
    assert rows(store, "SELECT path, kept FROM sources ORDER BY 1") == before
    (tmp_path / "logs" / "a.zip").unlink()
    assert replay(store).gone == ("logs/a.zip!odd.jsonl",)
