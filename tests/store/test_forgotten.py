"""What is forgotten is known again by ids, pseudonyms and paths, and what only lies beside it is not."""

from __future__ import annotations

import json

import pytest

from logforge.forgetting.pipeline import forget, revoke
from logforge.ingestion.pipeline import ingest
from logforge.lineage.source_bytes import moved
from logforge.store.keyed_hashes import pseudonym, without_kind
from support.made_conversations import TOKEN, conversation, everything, rows
from support.stored import assert_conserved

NAME = "5f0c2a77-quokka-session"
MAIL = "ann.lee@example.org"


@pytest.fixture
def log(tmp_path, write_jsonl):
    """A file that is named after its session."""
    made = conversation("a", f"the key is {TOKEN}", session_id=NAME)
    return write_jsonl(tmp_path / "logs" / f"{NAME}.jsonl", [made])


def add(path, **made):
    with path.open("a") as file:
        file.write(json.dumps(conversation(**made)) + "\n")


def test_the_places_of_secrets_lose_the_name_too(store, log):
    log.write_text(log.read_text() + f'{{"messages": "{TOKEN}\n')
    ingest(store, [log])
    assert rows(store, "SELECT count(*) FROM secrets WHERE episode_id IS NULL") == [(1,)]
    forget(store, session=NAME)
    assert NAME not in everything(store)
    (place,) = rows(store, "SELECT DISTINCT locator FROM secrets")[0]
    assert place.startswith("forgotten/")


def test_a_file_that_holds_more_again_has_its_path_again(store, log):
    ingest(store, [log])
    forget(store, session=NAME)
    add(log, name="more of it", session_id=NAME)
    ingest(store, [log])
    assert NAME not in everything(store), "nothing but what was forgotten"
    add(log, name="other", session_id="another")
    report = ingest(store, [log])
    assert (report.kept, report.skip_reasons["forgotten"]) == (1, 2)
    assert_conserved(store)
    assert rows(store, "SELECT path FROM sources") == [(f"logs/{NAME}.jsonl",)]
    assert rows(store, "SELECT locator FROM episodes") == [(f"logs/{NAME}.jsonl:3",)]
    assert list(moved(store)) == []
    assert ingest(store, [log]).read == 0
    forget(store, session="another")
    assert NAME not in everything(store)


@pytest.mark.parametrize("pii", [["email"], []])
@pytest.mark.parametrize("kind", ["user", "session"])
def test_who_is_forgotten_by_the_name_that_the_store_shows_stays_out(store, tmp_path, write_jsonl, kind, pii):
    column = f"{kind}_id"
    log = write_jsonl(tmp_path / "a.jsonl", [conversation("a", **{column: MAIL})])
    add(log, name="b", **{column: "bob@example.org"})
    ingest(store, [log], pii=["email"])
    (shown,) = rows(store, f"SELECT {column} FROM episodes WHERE native_id = 'a'")[0]
    assert without_kind(shown) == pseudonym("", MAIL, (tmp_path / f"{store.path.name}.key").read_bytes())
    assert forget(store, **{kind: shown}).episodes == 1
    other = write_jsonl(tmp_path / "new.jsonl", [conversation("new", **{column: MAIL})])
    ingest(store, [log, other], pii=pii)
    assert rows(store, "SELECT native_id FROM episodes") == [("b",)]
    revoke(store, **{kind: shown})
    ingest(store, [log, other], pii=pii)
    assert rows(store, "SELECT count(*) FROM episodes") == [(3,)]


@pytest.mark.parametrize("name", ["ann", "<EMAIL>", "<EMAIL:xyz>", "<EMAIL:1f2e3d4c5b6a> ", MAIL])
def test_other_names_are_no_pseudonyms(name):
    assert without_kind(name) is None
