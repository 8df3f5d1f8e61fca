"""What is found at and below a path, and why something of it is no log."""

from __future__ import annotations

import pytest

from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import InputError


def rules_of(store):
    return [row[0] for row in store.con.sql("SELECT rule FROM quarantine ORDER BY ALL").fetchall()]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("it", "a link that leads to itself"),
        ("gone", "a link to gone, which is not there"),
        (None, "no such file"),
    ],
)
def test_a_link_to_nothing_given_by_name_is_called_that(store, tmp_path, target, says):
    if target is not None:
        (tmp_path / "it").symlink_to(target)
    with pytest.raises(InputError, match=says) as caught:
        ingest(store, [tmp_path / "it"])
    assert ("typing error" in caught.value.remedy) == (target is None)


@pytest.mark.parametrize(
    "text",
    ["[" * 10_000 + "]" * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000, "[" * 5_000_000, '{"a":[' * 9_999],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_a_document_that_is_nested_too_deep_is_called_that(store, tmp_path, text, name):
    (tmp_path / name).write_text(text)
    ingest(store, [tmp_path / name])
    ((rule, detail, excerpt),) = store.con.sql("SELECT rule, detail, excerpt FROM quarantine").fetchall()
    assert rule == "nested_too_deep"
    assert "levels" in detail
    assert excerpt == text[:200]


def test_the_depth_of_a_later_document_says_nothing_about_the_first(store, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"who": "[[", "x": [[]]}\n' + "[" * 300 + "]" * 300 + "\n")
    ingest(store, [tmp_path / "a.jsonl"])
    assert rules_of(store) == ["unknown_shape"]
