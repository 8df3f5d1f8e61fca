"""Episodes as text with tags: read back exactly, and no text of a log opens or closes a tag."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.exports.tagged_text import Part, parse, render
from logforge.schemas.errors import InputError

WORDS = st.sampled_from(
    ["<", ">", "&", '"', "\n", "&lt;", "&amp;", "&quot;", "&#10;", "</step>\n", '<key credit="9.0" by="human">', "null", "1", "true", ""]
)  # fmt: skip
TEXTS = st.lists(WORDS | st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=5).map(
    "".join
)
NUMBERS = st.integers(0, 2**31)


def said(kind, role):
    return st.builds(Part, role=st.just(role), kind=st.just(kind), text=TEXTS)


AMOUNTS = st.floats(allow_nan=False, allow_infinity=False)


def step(credit, spread, **told):
    return Part(
        role="assistant", kind="step", credit=credit, spread=None if credit is None else spread, **told
    )


PARTS = st.one_of(
    *(said("said", role) for role in ("system", "user", "assistant")),
    said("thought", "assistant"),
    st.builds(
        step,
        text=TEXTS,
        step=NUMBERS,
        action=TEXTS,
        credit=st.none() | AMOUNTS,
        spread=st.none() | AMOUNTS.map(abs),
        support=st.none() | NUMBERS,
        key=st.sampled_from(["", "credit", "human", "credit human"]),
    ),
    st.builds(
        Part,
        role=st.just("tool"),
        kind=st.just("result"),
        text=TEXTS,
        step=NUMBERS,
        action=TEXTS,
        status=st.none() | TEXTS,
    ),
)
STEP = Part(role="assistant", kind="step", text="{}", step=0, action="pay", credit=-0.5, support=2)


@given(st.lists(PARTS, max_size=8))
def test_what_is_written_is_read_back(parts):
    assert parse(render(parts)) == tuple(parts)


@given(st.lists(PARTS, max_size=8))
def test_there_are_as_many_tags_as_parts_whatever_texts_say(parts):
    text = render(parts)
    assert len(re.findall(r"<[a-z]", text)) == len(re.findall("</", text)) == len(parts)
    assert len(re.findall("<key ", text)) == sum(bool(part.key) for part in parts)


@given(st.lists(PARTS, min_size=1, max_size=4), st.data())
def test_a_changed_text_is_read_as_what_it_says_or_refused(parts, data):
    text = render(parts)
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(WORDS) + text[place + 1 :]
    with suppress(InputError):
        assert render(parse(changed)) == changed


def test_how_it_looks():
    key = Part(role="assistant", kind="step", text='{"a": 1}', step=1, action="find", key="credit human")
    assert render([STEP, key]) == (
        '<step credit="-0.5" support="2" step="0" action="pay">{}</step>\n'
        '<key credit="unknown" by="credit human" step="1" action="find">{"a": 1}</key>\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "<user>hi</user>",  # every part ends its line
        "<user>hi</agent>\n",
        "<user><b></user>\n",
        '<user credit="1.0">hi</user>\n',
        '<step credit="nan" step="0" action="a"></step>\n',
        '<step credit="1" step="0" action="a"></step>\n',  # written as 1.0
        '<step credit="x" step="0" action="a"></step>\n',
        '<step step="0" action="a"></step>\n',
        '<key credit="1.0" step="0" action="a"></key>\n',  # a key step of nobody
        '<step credit="1.0" by="me" step="0" action="a"></step>\n',
        '<step credit="1.0" step="0" action="a" size="2"></step>\n',
        "<user>&gt;</user>\n",  # nothing escapes > in a text
        "<user>a & b</user>\n",
    ],
)
def test_no_other_text_is_read(text):
    with pytest.raises(InputError, match="begins at character 0"):
        parse(text)
    with pytest.raises(InputError, match=f"begins at character {len(render([STEP]))}"):
        parse(render([STEP]) + text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "tool", "kind": "said"},
        {"role": "user", "kind": "said", "credit": 0.0},
        {"role": "user", "kind": "said", "key": "human"},
        {"role": "assistant", "kind": "step", "credit": float("nan")},
    ],
)
def test_parts_that_could_not_be_told_apart_are_not_made(wrong):
    with pytest.raises(ValueError, match=r"part of kind|only a step|unknown credit is None"):
        Part(text="", **wrong)
