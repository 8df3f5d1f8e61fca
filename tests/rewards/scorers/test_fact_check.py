import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.rewards.scorers.fact_check import _facts, _score
from logforge.schemas.errors import InputError
from support.made_scores import dialogue, scored

FACTS = [
    ("HAT001", "price", "120"),
    ("HAT001", "origin", "New York"),
    ("HAT001", "origin", "JFK"),
    ("Hotel Adler", "stars", "4"),
    ("東京", "人口", "14000000"),
]


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text("entity,attribute,value\n" + "".join(",".join(row) + "\n" for row in FACTS), "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The price of HAT001 is $120.00.", 1.0),
        ("The price of hat001 is $130.", 0.0),
        ("HAT001 leaves from its origin JFK.", 1.0),
        ("HAT001 leaves from its origin new york! Its price is 5.", 1.0),
        ("HAT001: origin Boston, price 120.", 0.5),
        ("Hotel Adler has 4 stars", 1.0),
        ("Hotel Adler has 14 stars", 0.0),
        ("東京の人口は 14000000 人。", 1.0),
        ("東京の人口は 9 人。", 0.0),
        ("The Adler has 5 stars.", None),
        ("Nothing of this kind.", None),
    ],
)
def test_statements(store, csv, text, value):
    call = {"name": "fact_check", "table": str(csv), "text": "answer"}
    reason = None if value is not None else "states nothing that the table knows"
    assert scored(store, call, [dialogue(answer=text)], at="end") == [(value, reason)]


@pytest.mark.parametrize("kind", ["parquet", "duckdb"])
def test_other_files_and_column_names(store, tmp_path, kind):
    path = tmp_path / f"kb.{kind}"
    rows = "SELECT 'HAT001' AS \"the thing\", 'price' AS p, 120 AS v"
    if kind == "parquet":
        duckdb.sql(rows).write_parquet(str(path))
    else:
        with duckdb.connect(str(path)) as con:
            con.execute(f'CREATE TABLE "my facts" AS {rows}')
    call = {
        "name": "fact_check", "table": str(path), "relation": "my facts", "entity": "the thing", "attribute": "p",
        "value": "v", "text": "answer",
    }  # fmt: skip
    assert scored(store, call, [dialogue(answer="the price of HAT001: 120")], at="end") == [(1.0, None)]


def test_other_facts_are_another_version(store, csv):
    call = {"name": "fact_check", "table": str(csv), "text": "answer"}
    episodes = [dialogue(answer="The price of HAT001 is 99.")]
    assert scored(store, call, episodes, at="end") == [(0.0, None)]
    csv.write_text("entity,attribute,value\nHAT001,price,99\n")
    assert scored(store, call, episodes, at="end") == [(1.0, None)]


def test_a_table_that_cannot_be_read_is_told(store, tmp_path, csv):
    for call in ({"table": str(tmp_path / "no.csv")}, {"table": str(csv), "value": "wert"}):
        with pytest.raises(InputError):
            scored(store, {"name": "fact_check", **call}, [dialogue()], at="end")


def test_text_of_logs_is_never_part_of_a_query(store, csv):
    text = "HAT001's price is 1'; DROP TABLE scorer_results; --"
    assert scored(
        store, {"name": "fact_check", "table": str(csv), "text": "answer"}, [dialogue(answer=text)], at="end"
    ) == [(0.0, None)]


@given(st.text(max_size=60))
def test_bounds(text):
    found = _score(_facts(FACTS), (text,))
    assert (found.value is None) == (found.reason is not None)
    assert found.value is None or 0 <= found.value <= 1
