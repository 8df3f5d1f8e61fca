"""Episodes as text with credit: what the store and people say of each step, and nothing that nobody knows."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.exports.catalogue import Options
from logforge.exports.credit_text import IMAGINED, row_schema, threshold_of
from logforge.exports.pipeline import export
from logforge.exports.tagged_text import parse
from logforge.schemas.episode import CLARIFY, RESPOND
from logforge.schemas.errors import CheckFailed, UnknownName, UsageError
from logforge.store.store import Store
from support.made_exports import add_credit
from support.schema_faults import faults

SCHEMA = json.loads(files("logforge.templates").joinpath("credit_text.schema.json").read_text("utf-8"))
SPEAKING = (RESPOND, CLARIFY)


@pytest.fixture
def home(exports_home, tmp_path):
    """A store of one's own, with the dataset of all tests of exports."""
    (tmp_path / "store.duckdb").write_bytes((exports_home / "store.duckdb").read_bytes())
    return tmp_path


@pytest.fixture
def lines(exports_home, home):
    def write(**options):
        report = export(
            exports_home / "d",
            "credit-text",
            home / "x.jsonl",
            store=home / "store.duckdb",
            options=Options(**options),
        )
        return [json.loads(line) for line in report.path.read_text("utf-8").split("\n")[:-1]]

    return write


def steps_of(rows):
    return {
        (row["id"], part["step"]): part for row in rows for part in row["parts"] if part["kind"] == "step"
    }


def changed(home, query):
    with Store(home / "store.duckdb") as store:
        store.con.execute(query)


def test_rows_fit_the_schema_and_their_text_is_their_parts(lines):
    assert json.loads(json.dumps(row_schema())) == SCHEMA
    rows = lines()
    for row in rows:
        assert faults(row, SCHEMA) == []
        assert [{name: getattr(part, name) for name in part.__struct_fields__} for part in parse(row["text"])] == row["parts"]  # fmt: skip
    imagined = {**rows[0], "source_kind": "counterfactual"}
    assert faults(imagined, SCHEMA) == ["$.source_kind: counterfactual is not allowed"]
    del rows[0]["parts"][0]["credit"]
    assert faults(rows[0], SCHEMA) == ["$.parts[0].credit: missing"]


def test_all_that_an_episode_says_is_in_its_order(lines, home):
    rows = {row["id"]: row for row in lines()}
    with Store(home / "store.duckdb", read_only=True) as store:
        episodes = list(store.episodes(rows))
    assert len(episodes) == len(rows)
    for episode in episodes:
        told = rows[episode.episode_id]
        assert (told["task"], told["success"], told["source_kind"]) == (
            *(episode.task, episode.success, episode.source_kind),
        )
        parts = told["parts"]
        said = [part["text"] for part in parts if part["kind"] == "said" or part["action"] in SPEAKING]
        contents = [message.content for message in episode.messages if message.role != "tool"]
        assert said == [content for content in contents if content]
        thoughts = [part["text"] for part in parts if part["kind"] == "thought"]
        assert thoughts == [message.thought for message in episode.messages if message.thought]
        calls = [part for part in parts if part["kind"] == "step" and part["action"] not in SPEAKING]
        tools = [step for step in episode.steps if step.kind == "tool"]
        assert [(c["step"], c["action"], c["text"]) for c in calls] == [
            (step.step, step.action, step.arguments) for step in tools
        ]
        results = {part["step"]: part for part in parts if part["kind"] == "result"}
        answered = {step.step: step for step in tools if step.result_position is not None}
        assert {n: (r["text"], r["status"]) for n, r in results.items()} == {
            n: (step.result or "", step.result_status) for n, step in answered.items()
        }


def test_credit_is_the_stores_and_what_is_not_known_is_null(lines, home):
    steps = steps_of(lines())
    with Store(home / "store.duckdb", read_only=True) as store:
        held = store.sql("SELECT episode_id, step, credit FROM credit WHERE isfinite(credit)")
        every = store.sql(
            "SELECT t.episode_id, step FROM transitions t JOIN episodes USING (episode_id) WHERE t.split = 'train'"
        )
        assert store.sql("SELECT count(*) FROM credit WHERE isnan(credit)").item() > 0
    known = {(name, step): credit for name, step, credit in held.iter_rows() if (name, step) in steps}
    assert set(steps) == set(every.iter_rows())
    assert {key: part["credit"] for key, part in steps.items()} == {key: known.get(key) for key in steps}
    assert 0 < len(known) < len(steps)
    assert 0.0 in known.values()


def test_credit_has_six_digits_in_parts_and_text_alike(lines, home):
    changed(home, "UPDATE credit SET credit = credit / 7000")
    credits = {part["credit"] for part in steps_of(lines()).values()}
    assert credits == {None, 0.0, *(float(f"{n / 7000:.6g}") for n in (-3, -2, -1, 1))}


def test_key_steps_are_the_share_of_the_largest_amounts(lines):
    rows = lines(key_share=0.3)
    steps = steps_of(rows)
    amounts = [abs(part["credit"]) for part in steps.values() if part["credit"] is not None]
    [rule] = {json.dumps(row["rule"]) for row in rows}
    least = json.loads(rule)["threshold"]
    assert json.loads(rule) == {"share": 0.3, "least_support": 0, "threshold": 2.0}
    keys = [part for part in steps.values() if part["key"]]
    assert {part["key"] for part in keys} == {"credit"}
    assert all(abs(part["credit"]) >= least for part in keys)
    assert len(keys) == sum(amount >= least for amount in amounts) >= 0.3 * len(amounts)
    assert sum(row["text"].count("<key ") for row in rows) == len(keys)


def test_no_step_of_credit_0_is_key_and_without_credit_none_is(lines, home):
    assert not any(part["key"] for part in steps_of(lines(key_share=1)).values() if not part["credit"])
    changed(home, "UPDATE credit SET credit = 'inf'")
    rows = lines()
    assert {row["rule"]["threshold"] for row in rows} == {None}
    assert {(part["credit"], part["key"]) for part in steps_of(rows).values()} == {(None, "")}
    assert all('credit="unknown"' in row["text"] for row in rows)


def test_spread_and_support_are_the_stores(lines, home):
    steps = steps_of(lines())
    with Store(home / "store.duckdb", read_only=True) as store:
        rows = store.sql("SELECT episode_id, step, credit, spread, support FROM credit").iter_rows()
    held = {(name, step): told for name, step, *told in rows if (name, step) in steps}
    assert {key: part["support"] for key, part in steps.items()} == {
        key: held[key][2] if key in held else None for key in steps
    }
    assert {key: part["spread"] for key, part in steps.items() if part["credit"] is not None} == {
        key: spread for key, (credit, spread, _) in held.items() if np.isfinite(credit)
    }
    assert {part["spread"] for part in steps.values() if part["credit"] is None} == {None}
    assert {part["support"] for part in steps.values()} == {None, 0, 1, 2}


def test_below_the_least_support_credit_is_unknown(lines):
    steps, bound = steps_of(lines()), steps_of(lines(least_support=1))
    assert {part["support"] for part in bound.values() if part["credit"] is not None} == {1, 2}
    for key, part in bound.items():
        known = (part["support"] or 0) >= 1
        assert (part["credit"], part["spread"]) == (
            (steps[key]["credit"], steps[key]["spread"]) if known else (None, None)
        )


def test_peoples_key_steps_are_told_apart_from_computed_ones(lines, home):
    plain = steps_of(lines(key_share=0.3))
    key, other = (next(k for k, part in plain.items() if part["key"] == kind) for kind in ("credit", ""))
    judged = [(*key, "ana", True), (*key, "bo", 0.5), (*other, "ana", True), (*other, "bo", False)]
    sheet = home / "key_steps.jsonl"
    names = ("episode_id", "step", "annotator", "key")
    sheet.write_text("".join(json.dumps(dict(zip(names, one, strict=True))) + "\n" for one in judged))
    rows = lines(key_share=0.3, key_steps=str(sheet))
    steps = steps_of(rows)
    assert steps[key]["key"] == "credit human"
    assert steps[other]["key"] == "human"
    rest = {k: part["key"] for k, part in plain.items() if k not in (key, other)}
    assert {k: part["key"] for k, part in steps.items() if k in rest} == rest
    assert {row["id"]: row["annotators"] for row in rows if row["annotators"]} == {key[0]: 2, other[0]: 2}
    sheet.write_text(json.dumps({"episode_id": "none", "step": 0, "annotator": "ana", "key": True}) + "\n")
    with pytest.raises(CheckFailed, match="no episode 'none'"):
        lines(key_steps=str(sheet))


def test_what_did_not_happen_is_left_out_and_counted(lines, exports_home, home):
    name = lines()[0]["id"]
    changed(home, f"UPDATE episodes SET source_kind = 'counterfactual' WHERE episode_id = '{name}'")
    changed(home, "UPDATE episodes SET source_kind = 'synthetic' WHERE native_id = 'parallel'")
    report = export(exports_home / "d", "credit-text", home / "y.jsonl", store=home / "store.duckdb")
    rows = [json.loads(line) for line in report.path.read_text("utf-8").split("\n")[:-1]]
    assert report.as_dict()["splits"]["train"]["left_out"][IMAGINED] > 0
    assert name not in {row["id"] for row in rows}
    assert {row["source_kind"] for row in rows} == {"agent_log", "synthetic"}


def test_credit_names_where_it_comes_from_and_another_split_or_method_is_refused(lines, home, exports_home):
    [source] = {json.dumps(row["credit"]) for row in lines()}
    hash_ = json.loads((exports_home / "d" / "manifest.json").read_text())["hash"]
    assert json.loads(source) == {
        "dataset": "d", "hash": hash_, "method": "counterfactual", "policy": "bc", "settings": '{"seed": 0}',
    }  # fmt: skip
    with pytest.raises(UnknownName, match="--credit"):
        lines(credit="gae")
    with Store(home / "store.duckdb") as store:
        add_credit(store, "gae")
    assert {row["credit"]["method"] for row in lines(credit="gae")} == {"gae"}
    with pytest.raises(UsageError, match="--key-share 0 is no share"):
        lines(key_share=0)


@given(st.lists(st.integers(-9, 9).map(float), max_size=30), st.floats(0.01, 1))
def test_the_threshold_is_reached_by_the_share_and_by_no_more_than_ties(values, share):
    credit = np.array(values)
    least = threshold_of(credit, share)
    if not values:
        assert least is None
        return
    assert (np.abs(credit) >= least).sum() >= share * len(values)
    assert (np.abs(credit) > least).sum() < share * len(values) + 1


def test_datasets_loads_the_rows(lines, home):
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    rows = lines()
    loaded = datasets.load_dataset(
        "json", data_files=str(home / "x.jsonl"), split="train", cache_dir=str(home / "cache")
    )
    assert list(loaded) == rows
