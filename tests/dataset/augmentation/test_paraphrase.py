import re
import tomllib
from fnmatch import fnmatch
from importlib.resources import files

import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logforge.dataset.augmentation.paraphrase import (
    NEGATIONS,
    SYNONYM_FILE,
    paraphrase,
    protected,
    read_synonyms,
    synonyms,
)
from logforge.schemas.errors import SpecError
from support.places import ROOT

NEVER_CHANGED = (
    "42",
    "3.5",
    "$1,200.00",
    "A-1047",
    "ord_17_please",
    "#W2378156",
    "UM3OG5",
    "https://example.org/please/verify?great=1",
    "really.great@example.org",
    "src/really/utilize.py",
    "utilize.py",
    "C:\\really\\great",
    '"please verify really"',
    "'verify please'",
    "“really great”",
    "`verify please`",
    "```\nplease verify\n```",
    '{"please": ["really", "great"]}',
    "[great, really]",
    "<b>really great</b>",
    "SELECT please FROM great;",
    "git commit really great",
    "    verify please really",
    "total = really + great",
    "verify(please)",
    "PLEASE",
    "won't verify",
    "not really",
    "never please",
    "without assistance",
    "isn’t great",
    "re-verify",
)
FREE = (
    "please",
    "verify",
    "really",
    "great",
    "assistance",
    "Hello",
    "a",
    "an",
    "the",
    "entire",
    "ensure",
    "and",
)


def first(word):
    return synonyms()[word][0]


def last(word):
    return synonyms()[word][-1]


def independent_guards(text):
    """What may not change, found without the module: numbers, addresses, code, quotes, capitals and negations."""
    patterns = (
        r"\d[\w.,-]*",
        r"\S+@\S+|https?://\S+|\S*[/\\_]\S*",
        r'"[^"]*"|`[^`]*`|“[^”]*”|\{.*\}',
        r"\b[A-Z]{2,}\b",
        r"(?<![.!?\n] )(?<=[a-z,] )[A-Z]\w*",
        r"(?i)\b(?:" + "|".join(NEGATIONS) + r")\b\S*(?: \S+)?|\b\w+n['’]t\b",
    )
    return [re.findall(pattern, text) for pattern in patterns]


def test_plain_words_change_and_keep_their_case():
    assert paraphrase("Hello, I really like it. Please verify my order", first) == (
        "Hi, I truly like it. Kindly check my order"
    )
    assert paraphrase("it stopped suddenly!", first) == "it stopped all of a sudden!"


@pytest.mark.parametrize("piece", NEVER_CHANGED)
@pytest.mark.parametrize("choose", [first, last])
def test_protected_pieces_stay(piece, choose):
    assert paraphrase(piece, choose) == piece
    assert piece in paraphrase(f"you should verify\n{piece}\nreally", choose)


@pytest.mark.parametrize(
    "text",
    [
        "my name is Hello",
        "I met Great Allen at Choose Street",
        "Great Allen is my doctor",
        "it is PLEASE",
        "do not really",
        "it isn't great",
        "cannot verify",
        'he said "verify it',
        "note ```please verify",
        "note `please verify",
        '{"a": please verify',
    ],
)
def test_doubtful_words_stay(text):
    assert paraphrase(text, first) == text


def test_an_unclosed_quote_hides_the_rest_and_a_lone_inch_mark_too():
    text = 'I really want the 5" great one named "really great", please verify'
    assert paraphrase(text, first) == text.replace("really", "truly", 1)


def test_a_closing_please_stays():
    assert paraphrase("a refund, please.", first) == "a refund, please."


def test_articles_stay_right():
    assert paraphrase("an entire day, a difficult day", first) == "an entire day, a tough day"
    assert paraphrase("a great day", first) == "a great day"
    assert paraphrase("a great day", last) == "a wonderful day"


@pytest.mark.parametrize(
    "text",
    [
        "Ich möchte meine Bestellung stornieren, aber nicht die andere.",
        "Je voudrais annuler ma commande, s'il vous plaît.",
        "注文をキャンセルしたいです。",
        "أريد إلغاء طلبي",
        "Vill du vänta till imorgon?",
        "",
        " \n\t",
    ],
)
def test_text_without_listed_words_is_unchanged(text):
    assert paraphrase(text, first) == text


def test_choosing_nothing_changes_nothing():
    text = "Hello, please verify this really great offer"
    assert paraphrase(text, lambda _: None) == text


def test_the_table_is_plain_english_and_breaks_no_guard():
    assert len(synonyms()) >= 80
    starters = re.compile(r"(?:git|cd|ls|cat|import|return|from|if|for|while|with|make)\b")
    for word, others in synonyms().items():
        assert re.fullmatch("[a-z]+", word)
        assert others
        for other in others:
            assert re.fullmatch("[a-z]+(?: [a-z]+)*", other)
            assert other != word
            assert not set(other.split()) & NEGATIONS
            assert protected(other) == []
            assert other in ("make sure", "makes sure", "making sure") or not starters.match(other)
    assert not set(synonyms()) & NEGATIONS


def test_the_table_is_a_file_of_the_package_and_ships_with_it():
    package = "logforge.dataset.augmentation"
    text = files(package).joinpath(SYNONYM_FILE).read_text("utf-8")
    assert read_synonyms(text, SYNONYM_FILE) == synonyms()
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert any(fnmatch(SYNONYM_FILE, pattern) for pattern in shipped[package])


def test_a_word_has_the_synonyms_it_has_always_had():
    """The whole table as one number: the paraphrases of a seed follow from it."""
    text = repr([*synonyms().items()]).encode()
    assert xxhash.xxh64_hexdigest(text) == "98030b248dfc3d5f"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("upon: [on]", "cannot stand for it: True"),
        ("upon: [upon]", "cannot stand for it: upon"),
        ("upon: [at 2]", "cannot stand for it: at 2"),
        ("upon: at", "names no list of words"),
        ("upon: []", "names no list of words"),
        ("Upon: [at]", "not one plain word in lower case"),
        ("great: [fine]", "key 'great' is there twice"),
        ("upon: [at", "not valid YAML"),
    ],
)
def test_a_table_that_is_none_is_refused_with_file_and_line(line, told):
    with pytest.raises(SpecError) as caught:
        read_synonyms(f"great: [excellent]\n{line}\n", "words.yaml")
    assert told in str(caught.value)
    [problem] = caught.value.problems
    assert problem.path == "words.yaml"
    assert problem.line in (2, 3)  # what is not closed is missed at the end


pieces = st.sampled_from(NEVER_CHANGED + FREE * 3 + tuple(synonyms())) | st.from_regex(
    r"[A-Za-z0-9.,'!?-]{1,8}", fullmatch=True
)
texts = st.lists(st.tuples(pieces, st.sampled_from([" ", " ", " ", "\n", ". ", ", "])), max_size=25).map(
    lambda parts: "".join(piece + gap for piece, gap in parts)
)


@settings(max_examples=300, deadline=None)
@given(texts, st.sampled_from([first, last]))
@example("ensure this\nensure that", first)
def test_guards_hold_on_mixed_texts(text, choose):
    new = paraphrase(text, choose)
    assert protected(new) == protected(text)
    assert independent_guards(new) == independent_guards(text)
    assert [c for c in new if c.isspace() and c != " "] == [c for c in text if c.isspace() and c != " "]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_guards_hold_on_any_text(text):
    assert protected(paraphrase(text, first)) == protected(text)
