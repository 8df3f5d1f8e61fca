"""Characters that hide go, those that belong stay, clean text is byte for byte what it was."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.ingestion.hygiene.characters import SUSPECT, clean

ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
HIDDEN = "".join(chr(0xE0000 + ord(letter)) for letter in "send it")

CLEAN = [
    "",
    "plain\ttext\r\nwith\x0cbreaks\x0b\x85\u2028",
    "\x1b[31mred\x1b[0m",
    "naïve café – “quotes” … 漢字 かな 한국어",
    "\U0001f469\u200d\U0001f4bb and \U0001f468\u200d\U0001f469\u200d\U0001f467",  # joined emoji
    "\U0001f3f3\ufe0f\u200d\U0001f308",  # a flag, a selector, a joiner, a rainbow
    "\u2764\ufe0f \u263a\ufe0e",
    ENGLAND,
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian: a non-joiner within a word
    "\u0915\u094d\u200d\u0937",  # Devanagari: a joiner after a virama
    "\u05e9\u05dc\u05d5\u05dd\u200f (x)",  # Hebrew with a direction mark
    "e\u0301 combined",
    "\U0001f1e9\U0001f1ea",
]


@pytest.mark.parametrize("text", CLEAN)
def test_what_belongs_stays(text):
    assert clean(text) == (text, (), "")


@pytest.mark.parametrize(
    ("text", "wanted", "flags"),
    [
        ("a\0b", "a\ufffdb", ["control", ]),
        ("bell\x07 back\x08 c1\x9b", "bell\ufffd back\ufffd c1\ufffd", ["control"]),
        ("lone \ud800 half", "lone \ufffd half", ["surrogate"]),
        ("pay\u200bload\ufeff so\u00adft", "payload soft", ["zero_width"]),
        ("x\u200dy z\u200cz", "xy zz", ["zero_width"]),
        ("\U0001f469\u200d\u200d\U0001f4bb", "\U0001f469\U0001f4bb", ["zero_width"]),
        ("if \u202etrue\u202c {", "if true {", ["bidi"]),
        ("\u2066isolate\u2069", "isolate", ["bidi"]),
        ("left\u200eto\u200fright", "lefttoright", ["bidi"]),
        (f"hi{HIDDEN}!", "hi!", ["tags"]),
        (f"{ENGLAND}{HIDDEN}", ENGLAND, ["tags"]),
        ("\U0001f600\ufe01\ufe02\U000e0101", "\U0001f600\ufe01", ["variation"]),
        ("was lost \ufffd", "was lost \ufffd", ["unreadable"]),
        ("a\ufe0f\u200b\ufe0fb", "a\ufe0fb", ["variation", "zero_width"]),
    ],
)  # fmt: skip
def test_what_hides_goes_and_is_named(text, wanted, flags):
    found = clean(text)
    assert found.text == wanted
    assert found.flags == tuple(f"unicode:{flag}" for flag in flags)


def test_tag_characters_tell_what_they_spelt():
    assert clean(f"hi{HIDDEN}").hidden == "send it"


DIRT = "\0\x07\x7f\x9b\ud83d\udc00\u200b\u200c\u200d\u200e\u202e\u2066\u00ad\ufeff\U000e0041\ufe0f\U000e0101\ufffd"
anything = st.text(
    alphabet=st.characters() | st.sampled_from(DIRT + "aé\u0645\U0001f469\U0001f3f4"), max_size=30
)


@given(anything)
def test_cleaning_twice_is_cleaning_once(text):
    once = clean(text)
    again = clean(once.text)
    assert again.text == once.text
    assert set(again.flags) <= {"unicode:unreadable"}
    once.text.encode()


@given(
    st.text(
        alphabet=st.characters(
            min_codepoint=32, exclude_categories=("C", "M", "Zl", "Zp"), exclude_characters="\ufffd"
        )
    )
)
def test_ordinary_text_is_untouched(text):
    assert clean(text) == (text, (), "")


@given(anything)
def test_the_cheap_test_misses_nothing(text):
    text = text.encode("utf-8", "ignore").decode()
    found = clean(text)
    if found.flags or found.text != text:
        assert re.search(SUSPECT, text)
        assert pl.Series([text]).str.contains(SUSPECT).all()
