import itertools
import unicodedata

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.conflicts import WIDTH, ConflictView, Said, Side, find_conflicts, render, sides
from logforge.schemas.errors import UnknownName, UsageError
from logforge.schemas.tables import CONFLICTS, TABLES

SCHEMA = {
    "episode_id": pl.String,
    "step": pl.Int32,
    "state_key": pl.String,
    "state_key_canonical": pl.String,
    "action": pl.String,
    "return_to_go": pl.Float64,
    "return_is_partial": pl.Boolean,
    "success": pl.Boolean,
    "parent_id": pl.String,
}


def row(episode, key, action, value, success=None, *, canonical=None, step=0, partial=False, parent=None):
    return (episode, step, key, canonical or f"c-{key}", action, value, partial, success, parent)


def frame(*rows):
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def found(*rows, epsilon=0.5):
    return find_conflicts(frame(*rows), epsilon).rows(named=True)


def test_columns_and_types_are_the_tables():
    conflicts = find_conflicts(frame(row("a", "s", "x", 1.0), row("b", "s", "x", 0.0)), 0.5)
    kinds = {"VARCHAR": pl.String, "UBIGINT": pl.UInt64, "DOUBLE": pl.Float64, "INTEGER": pl.Int32}
    expected = {c.name: kinds[c.type] for c in CONFLICTS.columns if c.name != "dataset"}
    assert dict(conflicts.schema) == expected
    assert dict(find_conflicts(frame(), 0.5).schema) == expected


def test_the_same_action_with_different_success_is_an_outcome_of_best_against_worst():
    rows = [
        row("e1", "s", "x", 5.0, True),
        row("e2", "s", "x", 7.0, True),
        row("e0", "s", "x", 7.0, True, step=3),
        row("e3", "s", "x", 7.0, False),
        row("e4", "s", "x", 1.0, False),
        row("e5", "s", "x", -9.0, None),
    ]
    [conflict] = found(*rows, epsilon=100)
    assert conflict["kind"] == "outcome"
    assert (conflict["action_a"], conflict["action_b"]) == ("x", "x")
    assert (conflict["count_a"], conflict["count_b"]) == (3, 2)
    assert conflict["mean_return_a"] == pytest.approx(19 / 3)
    assert conflict["mean_return_b"] == 4.0
    assert (conflict["episode_a"], conflict["step_a"]) == ("e0", 3)
    assert (conflict["episode_b"], conflict["step_b"]) == ("e4", 0)
    assert conflict["detail"].startswith("success 3 of 3 against 0 of 2; mean return")


def test_without_a_difference_in_success_the_returns_divide_the_rows():
    rows = [row(name, "s", "x", value) for name, value in (("a", 0.0), ("b", 1.0), ("c", 9.0), ("d", 10.0))]
    [conflict] = found(*rows)
    assert (conflict["count_a"], conflict["mean_return_a"], conflict["episode_a"]) == (2, 9.5, "d")
    assert (conflict["count_b"], conflict["mean_return_b"], conflict["episode_b"]) == (2, 0.5, "a")


def test_epsilon_is_exclusive():
    rows = [row("a", "s", "x", 1.0), row("b", "s", "x", 0.5)]
    assert found(*rows, epsilon=0.5) == []
    assert len(found(*rows, epsilon=0.49)) == 1


def test_different_actions_with_different_returns_are_a_contrast_with_the_better_one_first():
    rows = [
        row("a", "s", "x", 0.0),
        row("b", "s", "x", 2.0),
        row("c", "s", "y", 3.0),
        row("d", "s", "y", 5.0),
    ]
    [conflict] = [c for c in found(*rows, epsilon=2.5) if c["kind"] == "contrast"]
    assert (conflict["action_a"], conflict["action_b"]) == ("y", "x")
    assert (conflict["mean_return_a"], conflict["mean_return_b"]) == (4.0, 1.0)
    assert (conflict["episode_a"], conflict["episode_b"]) == ("d", "a")
    assert conflict["detail"] == "mean return 4.0 against 1.0"


def test_success_alone_makes_a_contrast():
    rows = [row("a", "s", "x", 1.0, False), row("b", "s", "y", 1.0, True)]
    [conflict] = found(*rows, epsilon=9)
    assert (conflict["kind"], conflict["action_a"], conflict["action_b"]) == ("contrast", "y", "x")


def test_equal_mixtures_are_no_contrast():
    rows = [row(f"{action}{n}", "s", action, 1.0, n == 0) for action in "xy" for n in range(2)]
    assert {c["kind"] for c in found(*rows)} == {"outcome"}


def test_agreement_and_other_states_are_no_conflict():
    rows = [row("a", "s", "x", 1.0, True), row("b", "s", "x", 1.0, True), row("c", "s", "y", 1.0, True)]
    assert found(*rows, row("d", "other", "x", -5.0, False)) == []


def test_partial_returns_and_augmented_rows_do_not_count():
    rows = [
        row("a", "s", "x", 5.0, True),
        row("b", "s", "x", 0.0, False, partial=True),
        row("c", "s", "x", 0.0, False, parent="a/0"),
        row("d", "s", "y", 0.0, False, parent="a/0"),
    ]
    assert found(*rows) == []


def test_the_canonical_level_reports_only_what_no_exact_state_shows():
    rows = [
        row("a", "s1", "x", 1.0, canonical="c"),
        row("b", "s2", "x", 9.0, canonical="c"),
        row("c", "s3", "y", 9.0, canonical="c"),
    ]
    conflicts = found(*rows)
    assert [(c["level"], c["kind"], c["state_key"]) for c in conflicts] == [
        ("canonical", "contrast", "c"),
        ("canonical", "outcome", "c"),
    ]
    assert all(c["detail"].endswith("; spans 3 exact states") for c in conflicts)
    shown = found(*rows, row("d", "s1", "x", 8.0, canonical="c"))
    assert [(c["level"], c["kind"]) for c in shown] == [("canonical", "contrast"), ("exact", "outcome")]


def test_a_negative_epsilon_is_refused():
    with pytest.raises(UsageError):
        find_conflicts(frame(), -0.1)
    with pytest.raises(UsageError):
        find_conflicts(frame(), float("nan"))


rows_strategy = st.lists(
    st.tuples(
        st.sampled_from(["s1", "s2", "s3"]),
        st.sampled_from("xyz"),
        st.sampled_from([0.0, 0.25, 1.0, 2.0]),
        st.sampled_from([True, False, None]),
    ),
    max_size=25,
)


def expected(rows, epsilon, key):
    """Which (kind, key, pair) conflict, by comparing rows and groups one by one."""
    groups = {}
    for each in rows:
        groups.setdefault((each[key], each[4]), []).append(each)
    result = set()
    for (state, action), members in groups.items():
        if any(
            {a[7], b[7]} == {True, False} or abs(a[5] - b[5]) > epsilon
            for a, b in itertools.combinations(members, 2)
        ):
            result.add(("outcome", state, frozenset([action])))
    for (one, a), (two, b) in itertools.combinations(groups.items(), 2):
        if one[0] == two[0]:
            known = [[r[7] for r in side if r[7] is not None] for side in (a, b)]
            rates = [sum(side) / len(side) if side else None for side in known]
            means = [sum(r[5] for r in side) / len(side) for side in (a, b)]
            if (None not in rates and rates[0] != rates[1]) or abs(means[0] - means[1]) > epsilon:
                result.add(("contrast", one[0], frozenset([one[1], two[1]])))
    return result


@settings(max_examples=80, deadline=None)
@given(rows_strategy, st.sampled_from([0.0, 0.6]), st.randoms(use_true_random=False))
def test_it_finds_what_comparing_every_pair_finds(drawn, epsilon, random):
    above = {"s1": "c1", "s2": "c1", "s3": "c2"}
    rows = [row(f"e{n:02}", k, a, v, ok, canonical=above[k]) for n, (k, a, v, ok) in enumerate(drawn)]
    conflicts = find_conflicts(frame(*rows), epsilon)
    got = {
        level: {
            (c["kind"], c["state_key"], frozenset([c["action_a"], c["action_b"]]))
            for c in part.rows(named=True)
        }
        for level in ("exact", "canonical")
        for part in [conflicts.filter(level=level)]
    }
    exact = expected(rows, epsilon, 2)
    assert got["exact"] == exact
    assert got["canonical"] == expected(rows, epsilon, 3) - {(k, above[s], pair) for k, s, pair in exact}
    assert conflicts.height == len(got["exact"]) + len(got["canonical"])
    random.shuffle(rows)
    assert find_conflicts(frame(*rows), epsilon).equals(conflicts)


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
    for episode, step, key, canonical, action, value, partial, success, parent in rows:
        con.execute(
            "INSERT INTO transitions BY NAME SELECT 'd' AS dataset, $1 AS episode_id, $2 AS step, $3 AS state_key,"
            "$4 AS state_key_canonical, $5 AS action, $6 AS return_to_go, $7 AS return_is_partial, $8 AS success,"
            "$9 AS parent_id, $1 || '.jsonl:' || $2 AS locator",
            [episode, step, key, canonical, action, value, partial, success, parent],
        )
        con.execute(
            "INSERT INTO steps BY NAME SELECT $1 AS episode_id, $2 AS step, 2 * $2 + 1 AS position, $3 AS arguments",
            [episode, step, f'{{"of":"{episode}"}}'],
        )
    for (episode,) in transitions.select("episode_id").unique().rows():
        for position, text in enumerate(["please", None, "x" * 900, "later"]):
            con.execute(
                "INSERT INTO messages BY NAME SELECT $1 AS episode_id, $2 AS position, $3 AS role, $4 AS content",
                [episode, position, "user" if position % 2 == 0 else "assistant", text],
            )
    for epsilon_conflict in find_conflicts(transitions, 0.5).rows():
        con.execute(f"INSERT INTO conflicts VALUES ('d', {', '.join('?' * 14)})", epsilon_conflict)


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
    assert [v.kind for v in sides(store, "d", kind="contrast")] == ["contrast"]
    assert [v.level for v in sides(store, "d", level="canonical")] == ["canonical"]
    assert len(sides(store, "d", limit=1)) == 1
    assert sides(store, "other") == []
    with pytest.raises(UnknownName, match="outcome, contrast"):
        sides(store, "d", kind="contrst")


def view(**more):
    given = {"arguments": "{}", "said": (), "locator": "logs/a.jsonl:1", "action": "x"} | more
    side = Side(count=1, mean_return=1.0, return_to_go=1.0, success=True, episode_id="e", step=0, **given)
    return ConflictView("contrast", "exact", "k" * 32, "mean return 1.0 against 0.0", side, side)


def test_render_shows_both_sides_aligned():
    text = render(view(said=(Said("user", "I want\nmy money back"),), arguments='{"id":1}'))
    lines = text.splitlines()
    assert lines[0].startswith("contrast (exact) in state kkk")
    block = [
        "  a  action     x",
        '     arguments  {"id":1}',
        "     outcome    success, return 1 (1 row, mean return 1)",
        "     user       I want my money back",
        "     decided    logs/a.jsonl:1 (episode e, step 0)",
    ]
    assert lines[-10:-5] == block
    assert lines[-5:] == ["  b" + block[0][3:], *block[1:]]


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
