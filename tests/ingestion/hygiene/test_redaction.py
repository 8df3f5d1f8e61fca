"""Secrets leave texts: nearly all made-up ones, hardly anything harmless, the same way every time, and JSON stays JSON."""

from __future__ import annotations

import hashlib
import json
import time

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors.records.json import canonical
from logforge.ingestion.hygiene.inspection import forget_texts, inspect
from logforge.ingestion.hygiene.redaction import Redaction, redact, redact_json, views
from logforge.ingestion.hygiene.secrets.vendors import hits, kind_of_rule, vendor_findings
from support.made_secrets import KINDS, Maker, Sample, benign, corpus
from support.places import ROOT

CORPUS = corpus(seed=11, rounds=1)
AWS = "AK" + "IAZ7Q3M5N2K4J6H7PL"
TOKEN = "gh" + "p_" + Maker(1).some("abcdefgh01234", 36)


def redacted(sample: Sample) -> str:
    return (redact_json if sample.as_json else redact)(sample.text).text


def test_nearly_every_made_up_secret_is_found():
    missed = [f"{s.kind} in {s.carrier}: {s.text[:80]!r}" for s in CORPUS if s.secret in redacted(s)]
    assert len({sample.kind for sample in CORPUS}) >= 25
    assert 1 - len(missed) / len(CORPUS) >= 0.99, missed


def test_harmless_texts_stay():
    assert {text: redact(text).text for text in benign()} == {text: text for text in benign()}


def test_hardly_any_message_of_the_sample_logs_is_touched(sample_texts):
    touched = inspect(pl.Series(sample_texts, dtype=pl.String), redaction=Redaction())
    assert sum(bool(item.secrets) for item in touched.values()) <= 0.001 * len(sample_texts)


@pytest.fixture(scope="module")
def sample_texts() -> list[str]:
    texts = set()
    for path in (ROOT / "sample_logs").rglob("*.json*"):
        raw = path.read_text("utf-8")
        for line in raw.splitlines() if path.suffix == ".jsonl" else [raw]:
            texts |= set(strings(json.loads(line)))
    return sorted(texts)


def strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in strings(item)]


@pytest.mark.parametrize("sample", CORPUS[::7], ids=lambda s: f"{s.kind} {s.carrier}")
def test_a_redacted_text_stays_as_it_is(sample):
    once = redacted(sample)
    assert redacted(sample._replace(text=once)) == once


parts = st.sampled_from([
    *(sample.text for sample in CORPUS[::11] if not sample.as_json), "password=", "token: ", "Bearer ", '"', "'", "\\", "\n", " ",
    "<PASSWORD>", "https://", "a:b@c", AWS, TOKEN, "AccountKey=", "}", "é", "☃",
])  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(parts | st.text(max_size=12), max_size=6).map("".join))
def test_redacting_twice_is_redacting_once(text):
    once = redact(text).text
    assert redact(once).text == once


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | parts | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.text(max_size=8) | st.sampled_from(["password", "token", AWS, "x"]), inner, max_size=3
            )
        ),
        max_leaves=6,
    )
)
def test_arguments_stay_canonical_json(value):
    text = canonical(value)
    once = redact_json(text)
    assert canonical(json.loads(once.text)) == once.text
    assert redact_json(once.text).text == once.text
    assert bool(once.secrets) == (once.text != text)


def test_what_a_text_becomes_does_not_depend_on_its_neighbours():
    texts = sorted({sample.text for sample in CORPUS if not sample.as_json} | set(benign()))
    alone = {text: redact(text).text for text in texts}
    for order in (texts, texts[::-1]):
        found = inspect(pl.Series(order), redaction=Redaction())
        assert {text: found[text].text if text in found else text for text in texts} == alone


def test_a_buffer_finds_the_texts_that_hold_something():
    texts = ["nothing", f"é☃ {TOKEN}", "", f"{AWS} nothing else", "word " * 70_000, TOKEN]
    alone = {index for index, text in enumerate(texts) if any(True for _ in vendor_findings(text))}
    assert hits(texts) >= alone
    assert alone == {1, 5}


def test_offsets_count_characters_and_not_bytes():
    assert redact(f"ééé☃😀 {TOKEN} ☃").text == "ééé☃😀 <GITHUB_TOKEN> ☃"


def test_names_stay_readable_and_look_alikes_untouched():
    text = f"REGION=ASIAPACIFIC\nDB_PASSWORD=hunter2-not-real\nSHA={'3f78' * 10}\nAWS_ACCESS_KEY_ID={AWS}\nTHEME=sketch-board"
    wanted = f"REGION=ASIAPACIFIC\nDB_PASSWORD=<PASSWORD>\nSHA={'3f78' * 10}\nAWS_ACCESS_KEY_ID=<AWS_KEY>\nTHEME=sketch-board"
    assert redact(text).text == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"password": 'hun"ter2 \\x'}, {"password": "<PASSWORD>"}),
        (
            {"headers": {"Authorization": "Bearer abcdef-123456789"}},
            {"headers": {"Authorization": "Bearer <TOKEN>"}},
        ),
        ({"cmd": ["db", "--password", "hunter2xx"]}, {"cmd": ["db", "--password", "<PASSWORD>"]}),
        ({AWS: 1, "a": 2}, {"<AWS_KEY>": 1, "a": 2}),
        ({AWS: 1, AWS[:-1] + "Q": 2}, {"<AWS_KEY>": 1, "<AWS_KEY>_2": 2}),
        (
            {"n": 12345678901234567890123, "password": "hunter2xx"},
            {"n": 12345678901234567890123, "password": "<PASSWORD>"},
        ),
    ],
)
def test_json_is_redacted_by_its_strings(value, wanted):
    assert redact_json(canonical(value)).text == canonical(wanted)


def test_damaged_arguments_are_redacted_as_text():
    assert redact_json('{"password": "hunter2xx", "a').text == '{"password": "<PASSWORD>", "a'


@settings(deadline=None)
@given(st.text(alphabet='ab\\"n/u0041', max_size=30))
def test_a_view_knows_where_its_characters_come_from(text):
    for view in views(text):
        for position, letter in enumerate(view.text):
            begin, end = view.place(position), view.place(position + 1)
            assert text[begin:end] == letter or text[begin] == "\\"
        assert view.place(len(view.text)) == len(text)


@pytest.mark.parametrize(
    ("entry", "stays"),
    [
        (AWS, True),
        ("AK*PL", True),
        (hashlib.sha256(AWS.encode()).hexdigest().upper(), True),
        (AWS.lower(), False),
        ("AK*x", False),
    ],
)
def test_what_is_allowed_is_a_value_a_glob_over_it_or_its_hash(entry, stays):
    how = Redaction(allowed=(entry,))
    assert how.allows(AWS) is stays
    assert (redact(f"key {AWS}", how).text == f"key {AWS}") is stays


def test_a_glob_is_over_the_value_and_not_over_its_hash():
    digest = hashlib.sha256(AWS.encode()).hexdigest()
    assert not Redaction(allowed=(f"*{digest[3:6]}*", f"{digest[:8]}*", "*" + digest[-1])).allows(AWS)


def test_the_cheap_test_misses_none_in_capitals():
    texts = {
        change(s.text) for s in CORPUS if not s.as_json for change in (str.upper, str.title, str.swapcase)
    }
    for word in ("CONTRASEÑA", "ContraseÑa", "ПАРОЛЬ", "Пароль", "пАРоль"):
        texts.add(f"{word}: hola1234x")
        assert redact(f"{word}: hola1234x").text == f"{word}: <PASSWORD>"
    found = inspect(pl.Series(sorted(texts)), redaction=Redaction())
    assert {text for text in texts if redact(text).secrets} == {text for text in found if found[text].secrets}


def test_what_is_named_a_key_of_hex_digits_is_one_where_nothing_stands_before_it():
    digits = "0123456789abcdef" * 2
    assert redact(f"use key-{digits} now").text == "use <MAILGUN_KEY> now"
    for name in (f"cache-key-{digits}", f"my_key-{digits}", f"monkey-{digits}"):
        assert redact(name).text == name


def test_every_kind_has_a_placeholder_that_is_a_word():
    for name in ("1password-secret-key", "telnyx-api-v2-key.1", "sendgrid-api-token"):
        assert kind_of_rule(name).replace("_", "").isalnum()
        assert kind_of_rule(name)[0].isalpha()
    assert all(
        sample.kind in {kind.name for kind in KINDS} | {"credential", "ssh key", "rsa key", "pkcs8 key"}
        for sample in CORPUS
    )


@pytest.mark.parametrize(
    "seed",
    ["a", "secret.", "access-key-", "-----BEGIN " + "PRIVATE KEY-----\n", "curl -u ", 'token="', "a:b@://"],
)
def test_cost_grows_with_the_length_and_not_with_its_square(seed):
    short, long = (min(_seconds(seed, size) for _ in range(2)) for size in (10_000, 80_000))
    assert long < 24 * short + 0.05


def _seconds(seed: str, size: int) -> float:
    start = time.process_time()
    redact((seed * size)[:size])
    return time.process_time() - start


def test_a_long_text_is_scanned_once(monkeypatch):
    scanned: list[str] = []
    monkeypatch.setattr(
        "logforge.ingestion.hygiene.secrets.vendors.hits", lambda texts: scanned.extend(texts) or set()
    )
    forget_texts()
    prompt = "You are a helpful agent. " * 100
    for other in ("one", "two"):
        inspect(pl.Series([prompt, other]), redaction=Redaction())
    assert sorted(scanned) == sorted([prompt, "one", "two"])
    forget_texts()
