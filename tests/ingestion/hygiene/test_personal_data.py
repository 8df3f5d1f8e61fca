"""Personal data is taken out where it is asked for, and what merely looks like it stays."""

from __future__ import annotations

import json
import sys

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.core import extras as optional
from logforge.forgetting.pipeline import forget
from logforge.ingestion.hygiene.inspection import inspect
from logforge.ingestion.hygiene.personal_data import personal_findings, personal_kinds
from logforge.ingestion.hygiene.redaction import Redaction, redact, redact_json
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import MissingExtra, UsageError
from support.made_conversations import conversation, everything, rows
from support.made_personal import LOOK_ALIKES, corpus

KINDS = personal_kinds(["all"])
ALL = Redaction(personal=KINDS)
MAIL = "ann.lee@example.org"


def test_recall_of_each_kind_and_nothing_else():
    samples = corpus(seed=5)
    missed = [s for s in samples if s.value in redact(s.text, ALL).text]
    assert {sample.kind for sample in samples} == set(KINDS)
    assert len(missed) / len(samples) <= 0.01, missed[:9]
    assert not [text for text in LOOK_ALIKES if redact(text, Redaction(False, KINDS)).text != text]


@pytest.mark.parametrize("kind", KINDS)
def test_a_placeholder_says_what_was_there(kind):
    for sample in (sample for sample in corpus(seed=9) if sample.kind == kind):
        once = redact(sample.text, ALL)
        assert once.text == sample.text.replace(sample.value, f"<{kind.upper()}>"), sample
        assert redact(once.text, ALL).text == once.text


def test_the_cheap_test_misses_none():
    samples = corpus(seed=11)
    texts = pl.Series(sorted({sample.text for sample in samples}))
    found = inspect(texts, redaction=Redaction(False, KINDS))
    assert {text for text in texts if redact(text, Redaction(False, KINDS)).secrets} == set(found)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("user+@gmail.com", "<EMAIL>"),
        ("ann@österreich.at", "<EMAIL>"),
        ("ann@firma.xn--p1ai", "<EMAIL>"),
        ("_john.doe@example.com_", "_<EMAIL>_"),
        ("ann@example.com:hunter22", "<EMAIL>:hunter22"),
        ("ann@example.com(work)", "<EMAIL>(work)"),
        ("h = q@k.transpose(0, 1)", None),
        ("scp x bob@build.example.com:/tmp", None),
        ("scp x bob@build.example.com:~/x", None),
        ("git@github.com:team/repo.git", None),
        ("__a__@b.ab_cd", None),
    ],
)
def test_addresses_among_other_signs(text, wanted):
    how = Redaction(False, ("email",))
    assert redact(text, how).text == (wanted or text)
    found = inspect(pl.Series([text]), redaction=how)
    assert (found[text].text if text in found else None) == wanted


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([s.text for s in corpus(seed=3)[::5]]) | st.text(max_size=12), max_size=4).map(
        "".join
    )
)
def test_redacting_twice_is_redacting_once(text):
    once = redact(text, ALL).text
    assert redact(once, ALL).text == once


def test_a_national_number_is_found_where_its_country_is_wanted():
    text = "ring 090-1790-1357 today"
    assert not list(personal_findings(text, personal_kinds(["phone"])))
    assert [text[f.start : f.end] for f in personal_findings(text, personal_kinds(["phone:JP"]))] == [
        "090-1790-1357"
    ]


@pytest.mark.parametrize("entry", ["mail", "email:DE", "phone:ZZ", ""])
def test_a_wrong_kind_is_refused(entry):
    with pytest.raises(UsageError, match=r"kind of personal data|no country"):
        personal_kinds([entry])


def test_phone_numbers_need_a_package_and_the_others_do_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    with pytest.raises(MissingExtra, match=r"logforge-rl\[pii\]"):
        personal_kinds(["phone"])
    assert personal_kinds(["email", "card"]) == ("card", "email")
    assert optional.need("json", "pii")


def test_arguments_stay_json():
    text = json.dumps({"to": [MAIL], "note": "ok"}, separators=(",", ":"))
    assert redact_json(text, ALL).text == '{"note":"ok","to":["<EMAIL>"]}'


def test_it_is_asked_for_and_a_change_reads_again(store, tmp_path, write_jsonl):
    path = write_jsonl(
        tmp_path / "a.jsonl", [conversation("a", f"write to {MAIL}", result="from 81.2.69.142")]
    )
    assert not ingest(store, [path]).redactions
    assert MAIL in everything(store)
    report = ingest(store, [path], pii=["all"])
    assert (report.read, report.redactions) == (1, {"EMAIL": 1, "IP": 1})
    assert MAIL not in everything(store)
    assert ingest(store, [path], pii=["all"]).read == 0
    assert ingest(store, [path], pii=["email"]).read == 1
    assert "81.2.69.142" in everything(store)
    assert ingest(store, [path], pii=["email"], redact=False).read == 1
    assert MAIL not in everything(store)


def test_users_stay_apart_and_can_be_forgotten_by_their_address(store, tmp_path, write_jsonl):
    users = [MAIL, "bob@example.org", MAIL]
    made = [conversation(f"e{number}", user_id=user) for number, user in enumerate(users)]
    logs = write_jsonl(tmp_path / "logs" / "a.jsonl", made)
    ingest(store, [logs], pii=["email"])
    names = [row[0] for row in rows(store, "SELECT user_id FROM episodes ORDER BY native_id")]
    assert names[0] == names[2] != names[1]
    assert names[0].startswith("<EMAIL:")
    hashes = {row[0] for row in rows(store, "SELECT keyed_hash FROM secrets")}
    assert {name[7:-1] for name in names} == {found[:12] for found in hashes}
    assert forget(store, user=MAIL).episodes == 2
    logs.write_text(logs.read_text() + "\n")
    ingest(store, [logs], pii=["email"])
    assert rows(store, "SELECT native_id FROM episodes") == [("e1",)]
