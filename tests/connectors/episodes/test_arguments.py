"""Arguments and names that models damage: what is mended, what is refused, and that no value ever changes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from logforge.cli.commands import main
from logforge.connectors.episodes.arguments import as_logged, parse_arguments
from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.episodes.tool_names import KINDS as NAME_KINDS
from logforge.connectors.episodes.tool_names import meant
from logforge.connectors.records.repair import KINDS
from logforge.ingestion.pipeline import ingest
from support.places import DATA

GOLDEN = json.loads((DATA / "arguments.json").read_text("utf-8"))

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.text(max_size=8) | st.text("ab {}[]\"',:\\`\n\t«", max_size=10)


def values(texts=TEXTS, keys=TEXTS):
    inner = st.recursive(
        SCALARS | texts,
        lambda more: st.lists(more, max_size=3) | st.dictionaries(keys, more, max_size=3),
        max_leaves=8,
    )
    return st.dictionaries(keys, inner, max_size=3)


WORDS = st.from_regex(r"[a-z_][a-z0-9_-]{0,6}", fullmatch=True)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def raw_text(text: str) -> str:
    """Quotes and backslashes escaped, line breaks and other control characters not."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def smart(text: str) -> str:
    return "“" + quoted(text)[1:-1].replace('\\"', '"') + "”"


def careless(text: str) -> str:
    return quoted(text).replace("'", "\\'")


def written(value, text=quoted, key=None, comma="", true="true", false="false", null="null"):
    """JSON text with the damage of choice."""
    more = {"text": text, "key": key, "comma": comma, "true": true, "false": false, "null": null}
    if isinstance(value, dict):
        inner = ", ".join(f"{(key or text)(k)}: {written(v, **more)}" for k, v in value.items())
        return "{" + inner + (comma if value else "") + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(v, **more) for v in value) + (comma if value else "") + "]"
    if isinstance(value, str):
        return text(value)
    return (
        {True: true, False: false, None: null}[value]
        if value is None or isinstance(value, bool)
        else repr(value)
    )


PYTHON = {"true": "True", "false": "False", "null": "None"}
NOT_SMART = st.text(st.characters(exclude_characters="“”‘’", exclude_categories=["Cs"]), max_size=8)
DAMAGES = {
    "fence": (values(), lambda v: f"```json\n{json.dumps(v, indent=1)}\n```"),
    "fence without end": (values(), lambda v: f"```\n{quoted(v)}\n"),
    "prose": (values(), lambda v: f"Here's the call I'd make: {json.dumps(v)}\nDoes it look right?"),
    # In a text with a quote that JSON lacks; nothing else tells Python's \\x41 from a slip.
    "python": (values().map(lambda v: {"it": v}), repr),
    "python words": (values(), lambda v: written(v, **PYTHON)),
    "trailing comma": (values(), lambda v: written(v, comma=", ")),
    "keys": (values(keys=WORDS), lambda v: written(v, key=str)),
    "control characters": (values(), lambda v: written(v, text=raw_text)),
    "smart quotes": (values(NOT_SMART, NOT_SMART), lambda v: written(v, text=smart)),
    "apostrophes": (values(), lambda v: written(v, text=careless)),
    "encoded twice": (values(), lambda v: json.dumps(json.dumps(v))),
    "quotes escaped": (values(), lambda v: json.dumps(json.dumps(v))[1:-1]),
    "string of Python": (values(), lambda v: "'" + json.dumps(json.dumps(v))[1:-1].replace("'", "\\'") + "'"),
    "everything": (
        values(keys=WORDS),
        lambda v: f"Sure:\n```\n{written(v, text=raw_text, key=str, comma=',', **PYTHON)}\n```\nDone.",
    ),
}
DAMAGED = st.one_of(*(st.tuples(given_, st.just(damage)) for given_, damage in DAMAGES.values()))


@pytest.mark.parametrize("case", GOLDEN["arguments"], ids=lambda case: case["case"])
def test_golden_arguments(case):
    text, status, repair = parse_arguments(case["raw"])
    assert (status, repair) == (case["status"], case["repair"])
    assert (text if status == "invalid" else json.loads(text)) == case.get("value", case["raw"])


@pytest.mark.parametrize("name", DAMAGES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_mended_value_is_the_value_before_the_damage(name, data):
    given_, damage = DAMAGES[name]
    value = data.draw(given_)
    text, status, repair = parse_arguments(damage(value))
    assert json.loads(text) == value
    assert repr(json.loads(text)) == repr(json.loads(json.dumps(value, sort_keys=True)))
    assert (status == "ok") == (repair is None)


@given(DAMAGED, st.data())
@settings(max_examples=300, deadline=None)
def test_a_text_that_is_cut_off_is_never_completed(damaged, data):
    value, damage = damaged
    whole = damage(value)
    end = max(whole.rfind("}"), whole.rfind("]"))
    cut = whole[: data.draw(st.integers(1, end))]
    assume(cut.strip())
    assert parse_arguments(cut) == (cut, "invalid", None)


@given(st.text(max_size=60) | st.text("{}[]()\"'“”`\\,: \nabTrue1-.", max_size=60))
@settings(max_examples=1000, deadline=None)
def test_any_text_is_read_without_an_error_and_says_what_was_done(raw):
    text, status, repair = parse_arguments(raw)
    if status == "invalid":
        assert (text, repair) == (raw, None)
        return
    assert (status == "repaired") == (repair is not None)
    assert set((repair or KINDS[0]).split("+")) <= set(KINDS)
    assert parse_arguments(text)[0] == text


@given(values().filter(bool) | st.lists(values(), min_size=1, max_size=3))
def test_an_object_and_its_text_are_the_same(value):
    assert parse_arguments(value) == parse_arguments(json.dumps(value))
    assert parse_arguments(value)[1:] == ("ok", None)


@pytest.mark.parametrize(
    "raw",
    [
        "{" * 200_000,
        "[" * 5000 + "]" * 5000,
        "{'a': (1, " * 300 + "1" + ")}" * 300,
        '{"a": "' + "\\" * 100_001,
        "'" * 100_000,
        "x " * 400_000 + '{"a": 1}',
        '{"a": ' + '"b" ' * 50_000 + "}",
        "{" + '"a": 1,,' * 50_000 + "}",
        "`" * 100_000 + "{}",
    ],
)
def test_hostile_text_is_refused_in_no_time(raw):
    assert parse_arguments(raw) == (raw, "invalid", None)


@pytest.mark.parametrize("case", GOLDEN["names"], ids=lambda case: repr(case["name"]))
def test_golden_names(case):
    builder = EpisodeBuilder()
    builder.turn(None, [Call(case["name"], {})], "f:1")
    builder.result(None, "done", "f:2")
    (step,) = finish(builder, tools=GOLDEN["offered"]).steps
    assert step.repair == case["repair"]
    assert step.action == (case["action"] or case["name"])
    assert step.proposed_action == (case["name"] if case["repair"] else None)
    assert step.action_valid is (case["action"] is not None)
    assert step.arguments_status == "ok"


def finish(builder, **more):
    return builder.finish(
        id="0" * 32, format="test", locator="f:1", ending="terminal", ending_reason="test", **more
    )


@given(
    st.text(max_size=12),
    st.lists(st.text(max_size=12) | st.sampled_from(["get_user", "getUser"]), max_size=4),
)
def test_a_name_becomes_an_offered_one_or_stays(name, offered):
    assume(name not in offered)
    tool = meant(name, offered)
    assert tool is None or (tool.name in offered and tool.kind in NAME_KINDS)
    assert tool == meant(name, offered[::-1])


def test_names_are_left_alone_where_nobody_says_what_was_offered_or_what_was_proposed_is_logged():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("Get-User", {}, proposed="get_users")], "f:1")
    assert finish(builder).steps[0].action_valid
    assert finish(builder).steps[0].action == "Get-User"
    (step,) = finish(builder, tools=["get_user"]).steps
    assert (step.action, step.proposed_action, step.action_valid, step.repair) == (
        "Get-User",
        "get_users",
        False,
        None,
    )


def both_damaged():
    builder = EpisodeBuilder()
    calls = [Call("Get-User", "{'id': 7}"), Call("get_user", '{"id": 7}')]
    builder.turn("hm", calls, "f:1")
    builder.turn("hm", [Call("get_usr", '{"id": 7}')], "f:1")
    builder.result(None, "Ada", "f:2")
    builder.turn("well", [], "f:2", arguments="{'label': 'x'}")
    return finish(builder, tools=["get_user"])


def test_a_name_and_its_arguments_may_both_be_mended():
    steps = both_damaged().steps
    assert [(s.action, s.arguments, s.arguments_status, s.repair) for s in steps] == [
        ("get_user", '{"id":7}', "repaired", "python_literal+name_case"),
        ("get_user", '{"id":7}', "ok", None),
        ("get_user", '{"id":7}', "ok", "name_near"),
        ("respond", '{"label":"x"}', "repaired", "python_literal"),
    ]


@pytest.mark.parametrize(
    ("name", "result", "mended"),
    [
        ("get_usr", "Ada", True),
        ("get_usr", None, False),
        ("get_usr", "", False),
        ("get_usr", "Error: no tool get_usr", False),
        ("get_usr", "Timed out", False),
        ("Get-User", "Error: no tool Get-User", True),
        ('{"name": "get_user"}', None, True),
    ],
)
def test_a_slip_in_a_name_is_mended_only_where_the_call_went_well(name, result, mended):
    builder = EpisodeBuilder()
    builder.turn(None, [Call(name, {})], "f:1")
    if result is not None:
        builder.result(None, result, "f:2")
    (step,) = finish(builder, tools=["get_user"]).steps
    assert (step.action, step.proposed_action) == (("get_user", name) if mended else (name, None))
    assert (step.action_valid, step.repair is not None) == (mended, mended)


def test_a_name_in_a_group_does_not_hang_on_the_results_of_the_group():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("get_usr", {}), Call("get_user", {})], "f:1")
    builder.result(None, "Ada", "f:2")
    builder.result(None, "Ada", "f:3")
    assert [s.action for s in finish(builder, tools=["get_user"]).steps] == ["get_usr", "get_user"]


def test_strict_keeps_reserved_names_apart():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("respond", {})], "f:1")
    episode = finish(builder, tools=["Respond"])
    assert [(s.action, s.repair) for s in episode.steps] == [("Respond", "name_case")]
    assert as_logged(episode).steps[0].action == "tool:respond"


def test_strict_undoes_every_repair():
    steps = as_logged(both_damaged()).steps
    assert [
        (s.action, s.proposed_action, s.arguments, s.arguments_status, s.action_valid) for s in steps
    ] == [
        ("Get-User", None, "{'id': 7}", "invalid", False),
        ("get_user", None, '{"id":7}', "ok", True),
        ("get_usr", None, '{"id":7}', "ok", False),
        ("respond", None, "{'label': 'x'}", "invalid", True),
    ]
    assert {s.repair for s in steps} == {s.logged_arguments for s in steps} == {None}


@pytest.fixture
def damaged_logs(tmp_path, conversation, write_jsonl):
    rows = [conversation(str(n)) for n in range(4)]
    for row, raw in zip(rows, ["{'key': 1}", '```\n{"key": 2}\n```', '{"key": ', '{"key": 3,}'], strict=True):
        row["messages"][1]["tool_calls"][0]["function"]["arguments"] = raw
    rows[3]["tools"] = [{"type": "function", "function": {"name": "Look_Up"}}]
    return write_jsonl(tmp_path / "logs" / "a.jsonl", rows)


CALLS = "SELECT action, arguments, arguments_status, repair, proposed_action FROM steps WHERE kind = 'tool' ORDER BY locator"


def test_the_ingest_report_counts_repairs_by_kind(store, damaged_logs):
    report = ingest(store, [damaged_logs])
    assert report.as_dict()["repairs"] == {
        "arguments": 3,
        "names": 1,
        "kinds": {"fence": 1, "name_case": 1, "python_literal": 1, "trailing_comma": 1},
    }
    assert "repaired 3 arguments: 1 fence · 1 python_literal · 1 trailing_comma" in report.render()
    assert "repaired 1 name: 1 name_case" in report.render()
    assert store.con.sql(CALLS).fetchall() == [
        ("lookup", '{"key":1}', "repaired", "python_literal", None),
        ("lookup", '{"key":2}', "repaired", "fence", None),
        ("lookup", '{"key": ', "invalid", None, None),
        ("Look_Up", '{"key":3}', "repaired", "trailing_comma+name_case", "lookup"),
    ]
    assert [step.repair for episode in store.episodes() for step in episode.steps].count(None) == 5


def test_strict_arguments_are_part_of_the_reingest_key(store, damaged_logs):
    ingest(store, [damaged_logs])
    mended = store.con.sql(CALLS).fetchall()
    strict = ingest(store, [damaged_logs], strict_arguments=True)
    assert (strict.read, strict.repairs.kinds) == (1, {})
    assert not [line for line in strict.render().splitlines() if line.startswith("repaired")]
    assert [row[:3] for row in store.con.sql(CALLS).fetchall()] == [
        ("lookup", "{'key': 1}", "invalid"),
        ("lookup", '```\n{"key": 2}\n```', "invalid"),
        ("lookup", '{"key": ', "invalid"),
        ("lookup", '{"key": 3,}', "invalid"),
    ]
    assert ingest(store, [damaged_logs], strict_arguments=True).unchanged == 1
    assert ingest(store, [damaged_logs]).read == 1
    assert store.con.sql(CALLS).fetchall() == mended


def test_a_copy_takes_over_with_the_strictness_its_source_was_read_with(store, tmp_path, damaged_logs):
    copy = damaged_logs.with_name("b.jsonl")
    copy.write_bytes(damaged_logs.read_bytes())
    ingest(store, [damaged_logs, copy], strict_arguments=True)
    damaged_logs.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    ingest(store, [damaged_logs])
    assert store.con.sql("SELECT count(*) FROM steps WHERE arguments_status = 'invalid'").fetchall() == [(4,)]


def test_the_command_line_refuses_repairs_and_reports_them(tmp_path, damaged_logs):
    def run(*options):
        store = tmp_path / "cli.duckdb"
        result = CliRunner().invoke(
            main, ["ingest", str(damaged_logs), "--store", str(store), "--json", *options]
        )
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["repairs"]

    assert run()["arguments"] == 3
    assert run("--strict-arguments") == {"arguments": 0, "names": 0, "kinds": {}}
