import unicodedata
from dataclasses import replace

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.dataset.conflicts.groups import find_conflicts
from logforge.dataset.conflicts.rows import comparable, decisions_of
from logforge.dataset.conflicts.views import WIDTH, ConflictView, Narrowed, Said, Side, count, render, sides
from logforge.schemas.errors import UnknownName
from logforge.schemas.tables import TABLES
from support.made_conflicts import frame, row


@pytest.fixture
def store():
    con = duckdb.connect()
    for table in TABLES.values():
        con.execute(f"CREATE TABLE {table.name} ({', '.join(f'{c.name} {c.type}' for c in table.columns)})")
    yield con
    con.close()


def fill(con, rows):
    """Transitions, steps and messages of episodes whose step n is decided at position 2n + 1."""
    transitions = frame(*rows)
    for episode, step, key, canonical, action, value, partial, success, parent, *_ in rows:
        con.execute(
            "INSERT INTO transitions BY NAME SELECT 'd' AS dataset, $1 AS episode_id, $2 AS step, $3 AS state_key,"
            "$4 AS state_key_canonical, $5 AS action, $6 AS return_to_go, $7 AS return_is_partial, $8 AS success,"
            "$9 AS parent_id, $1 || '.jsonl:' || $2 AS locator, 'train' AS split",
            [episode, step, key, canonical, action, value, partial, success, parent],
        )
        con.execute(
            "INSERT INTO steps BY NAME SELECT $1 AS episode_id, $2 AS step, 2 * $2 + 1 AS position, $3 AS arguments, 'tool' AS kind",
            [episode, step, f'{{"of":"{episode}"}}'],
        )
    for (episode,) in transitions.select("episode_id").unique().rows():
        for position, text in enumerate(["please", None, "x" * 900, "later"]):
            con.execute(
                "INSERT INTO messages BY NAME SELECT $1 AS episode_id, $2 AS position, $3 AS role, $4 AS content",
                [episode, position, "user" if position % 2 == 0 else "assistant", text],
            )
    for conflict in find_conflicts(comparable(transitions, decisions_of(con)), 0.5).rows():
        con.execute(f"INSERT INTO conflicts VALUES ('d', {', '.join('?' * 14)})", conflict)


ROWS = (
    row("a", "s", "x", 1.0, True),
    row("b", "s", "y", -1.0, False),
    row("a", "t", "x", 1.0, True, step=1),
    row("c", "t", "x", -7.0, False, step=1),
    row("d", "u1", "x", 0.0, canonical="u"),
    row("e", "u2", "x", 50.0, canonical="u"),
)


def test_sides_shows_both_with_what_was_known_before(store):
    fill(store, ROWS)
    outcome, contrast, canonical = sides(store, "d")
    assert (outcome.kind, outcome.state_key, outcome.a.count) == ("outcome", "t", 1)
    assert outcome.a == Side(
        1,
        1.0,
        "x",
        '{"of":"a"}',
        None,
        1.0,
        True,
        (Said("assistant", "(no text)"), Said("user", "x" * 400 + "…")),
        "a",
        1,
        "a.jsonl:1",
    )
    assert (outcome.b.episode_id, outcome.b.success, outcome.b.return_to_go) == ("c", False, -7.0)
    assert (contrast.kind, contrast.a.action, contrast.b.action) == ("contrast", "x", "y")
    assert contrast.a.said == (Said("user", "please"),)
    assert (canonical.level, canonical.a.episode_id) == ("canonical", "e")


def test_sides_can_be_narrowed(store):
    fill(store, ROWS)
    assert [v.kind for v in sides(store, "d", Narrowed(kind="contrast"))] == ["contrast"]
    assert [v.level for v in sides(store, "d", Narrowed(level="canonical"))] == ["canonical"]
    assert [v.a.action for v in sides(store, "d", Narrowed(tool="y"))] == ["x"]
    assert len(sides(store, "d", Narrowed(split="train"))) == count(store, "d", Narrowed(split="train")) == 3
    assert sides(store, "d", Narrowed(split="test")) == []
    assert len(sides(store, "d", limit=1)) == 1
    assert sides(store, "other") == []


def test_a_name_that_there_is_not_is_refused(store):
    fill(store, ROWS)
    for wrong, valid in (
        ({"kind": "contrst"}, "outcome, contrast"),
        ({"level": "far"}, "near"),
        ({"split": "dev"}, "train"),
    ):
        with pytest.raises(UnknownName, match=valid):
            Narrowed(**wrong)
    with pytest.raises(UnknownName, match="x, y"):
        sides(store, "d", Narrowed(tool="z"))


def test_an_answer_is_shown_with_its_text(store):
    fill(store, ROWS)
    store.execute("UPDATE steps SET kind = 'respond' WHERE episode_id = 'a'")
    store.execute("UPDATE messages SET content = 'the answer' WHERE position = 1")
    contrast = next(v for v in sides(store, "d") if v.kind == "contrast")
    assert (contrast.a.answer, contrast.b.answer) == ("the answer", None)
    assert "     answer     the answer" in render(contrast).splitlines()


def view(**more):
    given = {"arguments": "{}", "answer": None, "said": (), "locator": "logs/a.jsonl:1", "action": "x"} | more
    side = Side(count=1, mean_return=1.0, return_to_go=1.0, success=True, episode_id="e", step=0, **given)
    return ConflictView("contrast", "exact", "k" * 32, "mean return 1.0 against 0.0", side, side)


def test_render_shows_both_sides_aligned_and_what_they_share_once():
    same = view(said=(Said("user", "I want\nmy money back"),), arguments='{"id":1}')
    lines = render(same).splitlines()
    assert lines[0].startswith("contrast (exact) in state kkk")
    block = [
        "  a  action     x",
        '     arguments  {"id":1}',
        "     outcome    success, return 1 (1 row, mean return 1)",
        "     decided    logs/a.jsonl:1 (episode e, step 0)",
    ]
    asked = "     user       I want my money back"
    assert lines[-9:] == [asked, *block, "  b" + block[0][3:], *block[1:]]
    other = replace(same, b=replace(same.b, said=(Said("user", "hello"),)))
    told = render(other).splitlines()
    assert told.count(asked) == 1
    assert told[-2] == "     user       hello"


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=600), st.text(max_size=600), st.text(max_size=300))
def test_render_keeps_to_the_width_and_lets_nothing_steer_the_terminal(said, arguments, locator):
    text = render(view(said=(Said("tool", said),), arguments=arguments, locator=locator))
    for line in text.split("\n"):
        assert (
            sum(
                2 if unicodedata.east_asian_width(c) in "WF" else 1
                for c in line
                if not unicodedata.combining(c)
            )
            <= WIDTH
        )
        assert not any(unicodedata.category(c) in ("Cc", "Cf") for c in line)


def test_render_cuts_long_texts_but_never_the_locator():
    text = render(view(said=(Said("user", "word " * 400),), locator="folder/" * 40 + "a.jsonl:7"))
    assert "…" in text
    assert "folder/" * 40 + "a.jsonl:7" in text.replace("\n", "").replace(" " * 16, "")
    assert len(text.splitlines()) < 30
