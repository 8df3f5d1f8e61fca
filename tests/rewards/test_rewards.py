import json
import math
import pickle
from functools import reduce
from operator import add

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.core import sql as expressions
from logforge.core.frames import tables_of
from logforge.core.sql import sandbox
from logforge.rewards.pipeline import collected, compile_query, load_spec, parse_spec, score
from logforge.rewards.sql.inputs import input_stages
from logforge.schemas.errors import Mismatch, SpecError
from logforge.schemas.reward import COLUMNS, Detectors, RewardSpec, Term
from support.made_rewards import episode, problems, random_episodes, spec_of, step, values
from support.places import ROOT
from support.thoroughness import enough

TAU = """\
gamma: 0.99
terms:
  success:   {when: success, value: 10, at: terminal}
  step_cost: {value: -0.1}
  tool_error: {when: "result_status in ('error', 'timeout')", value: -0.2}
  repeat:    {when: repeats > 0, value: -0.2, max_per_episode: 3}
  first_lookup: {when: "action = 'get_user_details' and result_status = 'ok'", value: 0.5, once: true}
"""
DOCS = ROOT / "docs" / "reward-spec.md"


def refusal(expression, word="when"):
    """The one-line problems of a spec whose only fault is this expression, on line 4."""
    text = f"gamma: 1.0\nterms:\n  bad:\n    {word}: {json.dumps(expression)}\n"
    found = problems(text)
    assert all((p.path, p.line, p.field) == ("spec.yaml", 4, f"terms.bad.{word}") for p in found)
    return "\n".join(p.what for p in found)


# -- the worked example ---------------------------------------------------------------------------------------------


def test_worked_example():
    lookup = '{"user_id":"mia_li_3668"}'
    tables = tables_of(
        [
            episode(
                "solved",
                [
                    step(0, "respond"),
                    step(1, "get_user_details", "error", error_class="not_found"),
                    step(2, "get_user_details", "ok", arguments=lookup),
                    step(3, "get_user_details", "ok", arguments=lookup),
                    step(4, "book_reservation", "ok", arguments='{"x":1}'),
                ],
                success=True,
            ),
            episode("failed", [step(0, "cancel", "timeout"), step(1, "respond")], success=False),
            episode("cut", [step(0, "respond")], ending="truncated"),
        ]
    )
    frame = score(parse_spec(TAU), tables)
    assert frame.columns == ["episode_id", "step", "reward", "reward_terms", "null_reason"]
    assert frame.select("episode_id", "step").rows() == [
        ("cut", 0),
        ("failed", 0),
        ("failed", 1),
        *[("solved", i) for i in range(5)],
    ]
    assert frame["reward"].to_list() == pytest.approx([-0.1, -0.3, -0.1, -0.1, -0.3, 0.4, -0.3, 9.9])
    assert values(frame, "success") == [0, 0, 0, 0, 0, 0, 0, 10]
    assert values(frame, "first_lookup") == [0, 0, 0, 0, 0, 0.5, 0, 0]
    assert values(frame, "repeat") == [0, 0, 0, 0, 0, 0, -0.2, 0]
    assert values(frame, "tool_error") == [0, -0.2, 0, 0, -0.2, 0, 0, 0]
    assert frame["null_reason"].null_count() == 8
    assert frame.schema["reward_terms"] == pl.List(pl.Struct({"key": pl.String, "value": pl.Float64}))


def test_terms_come_in_name_order_whatever_the_order_in_the_file():
    frame = score(
        spec_of("b: {value: 1}", "a_b: {value: 2}", "a: {value: 4}"), tables_of([episode("e", [step(0)])])
    )
    assert [t["key"] for t in frame["reward_terms"][0]] == ["a", "a_b", "b"]


def test_no_steps_give_no_rows():
    frame = score(parse_spec(TAU), tables_of([episode("empty", [])]))
    assert frame.height == 0
    assert frame.schema["reward"] == pl.Float64


# -- laws -----------------------------------------------------------------------------------------------------------


def by_hand(one):
    """The worked example's spec, written in Python. None is null."""
    repeats_paid, looked_up, seen = 0, False, []
    for s in one.steps:
        last = s.step == len(one.steps) - 1
        success = 0.0
        if last and one.ending == "terminal":
            success = None if one.success is None else 10.0 * one.success
        repeat = seen.count((s.action, s.arguments)) > 0 and repeats_paid < 3
        lookup = s.action == "get_user_details" and s.result_status == "ok" and not looked_up
        repeats_paid, looked_up = repeats_paid + repeat, looked_up or lookup
        seen.append((s.action, s.arguments))
        yield {
            "first_lookup": 0.5 * lookup,
            "repeat": -0.2 * repeat,
            "step_cost": -0.1,
            "success": success,
            "tool_error": -0.2 * (s.result_status in ("error", "timeout")),
        }


EXAMPLE = parse_spec(TAU)


@settings(max_examples=enough(12, 100), deadline=None)
@given(random_episodes())
def test_every_term_is_what_its_words_say(made):
    frame = score(EXAMPLE, tables_of(made))
    expected = [terms for one in made for terms in by_hand(one)]
    found = [{t["key"]: t["value"] for t in row} for row in frame["reward_terms"]]
    assert found == expected


awkward = st.floats(-1e9, 1e9, allow_nan=False).filter(lambda x: abs(x) > 1e-9)


@settings(max_examples=enough(10, 100), deadline=None)
@given(st.lists(awkward, min_size=1, max_size=6), st.sets(st.integers(0, 5)))
def test_the_reward_is_the_exact_sum_of_its_terms_from_the_left(numbers, optional):
    terms = [
        f"t{i}: {{value: {number!r}, optional: {str(i in optional).lower()}}}"
        for i, number in enumerate(numbers)
    ]
    frame = score(spec_of(*terms), tables_of([episode("e", [step(0), step(1)])]))
    for row, reward in zip(frame["reward_terms"], frame["reward"], strict=True):
        assert [t["value"] for t in row] == numbers
        assert reward == reduce(add, [t["value"] for t in row])


def test_the_sum_is_neither_reordered_nor_compensated():
    frame = score(
        spec_of("a: {value: 1.0e16}", "b: {value: 1}", "c: {value: -1.0e16}"),
        tables_of([episode("e", [step(0)])]),
    )
    assert frame["reward"].to_list() == [(1e16 + 1.0) + -1e16] == [0.0]


@settings(max_examples=enough(8, 50), deadline=None)
@given(random_episodes(), st.randoms())
def test_does_not_depend_on_the_order_of_rows(made, random):
    tables = tables_of(made)
    order = list(range(tables.steps.num_rows))
    random.shuffle(order)
    mixed = tables._replace(steps=tables.steps.take(order), episodes=tables.episodes.slice(0)[::-1])
    assert score(EXAMPLE, mixed).equals(score(EXAMPLE, tables))


# -- when a term pays -----------------------------------------------------------------------------------------------


def test_end_pays_on_any_last_step_and_terminal_on_true_ends():
    made = [
        episode("a", [step(0), step(1)], ending="terminal"),
        episode("b", [step(0), step(1)], ending="truncated"),
    ]
    frame = score(
        spec_of("end: {at: end}", "terminal: {at: terminal}", "always: {at: step}"), tables_of(made)
    )
    assert values(frame, "end") == [0, 1, 0, 1]
    assert values(frame, "terminal") == [0, 1, 0, 0]
    assert values(frame, "always") == [1, 1, 1, 1]


def test_once_and_max_per_episode_count_payments_of_each_episode():
    made = [episode(name, [step(i) for i in range(5)]) for name in ("a", "b")]
    frame = score(
        spec_of(
            "once: {when: step >= 1, once: true}", "twice: {when: step <> 1, value: step, max_per_episode: 2}"
        ),
        tables_of(made),
    )
    assert values(frame, "once") == [0, 1, 0, 0, 0] * 2
    assert values(frame, "twice") == [0, 0, 2, 0, 0] * 2


def test_expressions_do_not_matter_where_a_term_does_not_apply():
    made = episode("e", [step(i, "search", "ok", latency_s=1.0 if i == 1 else None) for i in range(4)])
    frame = score(
        spec_of(
            "only_end: {value: latency_s, at: end, optional: true}",
            "guarded: {when: step = 1, value: latency_s}",
            "paid: {when: 'coalesce(step < 1, false) or latency_s > 2', once: true}",
            "cast: {when: step = 9, value: 'cast(action as double)'}",
        ),
        tables_of([made]),
    )
    assert values(frame, "only_end") == [0, 0, 0, None]
    assert values(frame, "guarded") == [0, 1, 0, 0]
    assert values(frame, "paid") == [1, 0, 0, 0]
    assert values(frame, "cast") == [0, 0, 0, 0]
    assert frame["reward"].to_list() == [1, 1, 0, 0]


# -- null -----------------------------------------------------------------------------------------------------------


def test_a_missing_input_makes_the_term_and_the_reward_null_with_a_reason():
    frame = score(
        spec_of(
            "outcome: {when: success, value: 10, at: terminal}",
            "speed: {value: 'score - latency_s'}",
            "cost: {value: -1}",
        ),
        tables_of([episode("e", [step(0, "search", "ok", latency_s=0.5), step(1)], score=2.0)]),
    )
    assert frame["reward"].to_list() == [0.5, None]
    assert values(frame, "outcome") == [0, None]
    assert values(frame, "speed") == [1.5, None]
    assert values(frame, "cost") == [-1, -1]
    assert frame["null_reason"].to_list() == [None, "outcome: missing success; speed: missing latency_s"]


def test_an_optional_term_is_dropped_instead():
    frame = score(
        spec_of("quality: {value: score, optional: true}", "cost: {value: -1}"),
        tables_of([episode("with", [step(0)], score=0.25), episode("without", [step(0)])]),
    )
    assert frame["reward"].to_list() == [-0.75, -1.0]
    assert [[t["key"] for t in row] for row in frame["reward_terms"]] == [["cost", "quality"], ["cost"]]
    assert frame["null_reason"].to_list() == [None, None]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "expression", ["score", "coalesce(score, 1) * 0 + score", "case when score > 0 then 1 else 0 end"]
)
def test_an_input_that_is_no_number_is_missing(bad, expression):
    frame = score(spec_of(f"a: {{value: '{expression}'}}"), tables_of([episode("e", [step(0)], score=bad)]))
    assert frame["reward"].to_list() == [None]
    assert frame["null_reason"].to_list() == ["a: missing score"]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1 / step", "a: value is not finite"),
        ("exp(1000 + step)", "a: value is not finite"),
        ("sqrt(step - 1)", "a: value is not finite"),
        ("ln(step)", "a: value is not finite"),
        ("step % step", "a: value is null though no input is missing (guard it with coalesce)"),
        (
            "case when step > 0 then 1 end",
            "a: value is null though no input is missing (guard it with coalesce)",
        ),
        (
            "try_cast(action as double)",
            "a: value is null though no input is missing (guard it with coalesce)",
        ),
    ],
)
def test_a_value_that_is_no_number_is_null_with_a_reason(expression, reason):
    frame = score(spec_of(f"a: {{value: '{expression}'}}"), tables_of([episode("e", [step(0)])]))
    assert frame["reward"].to_list() == [None]
    assert frame["null_reason"].to_list() == [reason]


def test_a_sum_beyond_float64_is_null_with_a_reason():
    frame = score(
        spec_of(*(f"t{i}: {{value: 9.0e+299 * 1.5e+8}}" for i in range(2))),
        tables_of([episode("e", [step(0)])]),
    )
    assert frame["reward"].to_list() == [None]
    assert frame["null_reason"].to_list() == ["the sum of the terms is not finite"]


@pytest.mark.parametrize(
    "condition",
    [
        "result_status in ('error', 'timeout')",
        "error_class = 'auth'",
        "contains(result, 'x')",
        "prev_action = 'search'",
        "prev_arguments = '[]'",
        "prev_result_status = 'error'",
        "prev_error_class = 'auth'",
    ],
)
def test_what_cannot_be_there_is_not_missing(condition):
    made = episode("e", [step(0, "respond"), step(1, "clarify")])
    frame = score(spec_of(f'a: {{when: "{condition}"}}'), tables_of([made]))
    assert frame["reward"].to_list() == [0, 0]


def test_an_untyped_error_and_an_unlogged_answer_are_missing():
    made = episode(
        "e", [step(0, "a", "ok"), step(1, "a", "error"), step(2, "a", "missing"), step(3, "respond")]
    )
    frame = score(
        spec_of("typed: {when: error_class = 'auth', optional: true}", "said: {when: result = 'x', optional: true}",
                "before: {when: prev_error_class = 'auth', optional: true}"),
        tables_of([made]),
    )  # fmt: skip
    assert values(frame, "typed") == [0, None, None, 0]
    assert values(frame, "said") == [None, None, None, 0]
    assert values(frame, "before") == [0, 0, None, None]


@pytest.mark.parametrize(
    "expression",
    [
        "case when success then 1 else -1 end",
        "case when is_last and success then 1 else -1 end",
        "case success when true then 1 else -1 end",
        "if(success, 1, -1)",
        "least(score, 1)",
        "greatest(0, least(1, score))",
        "greatest(score, latency_s, 1)",
        "case when step > 5 then 1 when success then 2 else 3 end",
    ],
)
def test_sql_does_not_hide_a_missing_value(expression):
    frame = score(spec_of(f"a: {{value: '{expression}'}}"), tables_of([episode("e", [step(0)])]))
    assert frame["reward"].to_list() == [None]
    assert frame["null_reason"][0] in (
        "a: missing score",
        "a: missing success",
        "a: missing latency_s, score",
    )


def test_a_missing_value_can_be_handled_on_purpose():
    frame = score(
        spec_of(
            "a: {value: 'coalesce(score, 3)'}",
            "b: {value: 'case when success is null then 4 when success then 1 else 0 end'}",
            "c: {when: success is not true, value: 8}",
        ),
        tables_of([episode("e", [step(0)])]),
    )
    assert frame["reward"].to_list() == [15]


def test_arguments_that_are_no_json_have_no_keys():
    made = episode(
        "e",
        [
            step(0, "pay", "ok", arguments='{"amount":12.5,"to":{"it\'s":"x"}}'),
            step(1, "pay", "ok", arguments='{"amount": 1', arguments_status="invalid"),
        ],
    )
    frame = score(
        spec_of(
            "amount: {value: \"cast(arguments ->> '$.amount' as double)\", optional: true}",
            "to: {when: \"arguments->>'$.to.\\\"it''s\\\"' = 'x'\", optional: true}",
            "pointer: {when: \"json_extract_string(arguments, '/to/it''s') = 'x'\", optional: true}",
        ),
        tables_of([made]),
    )
    assert values(frame, "amount") == [12.5, None]
    assert values(frame, "to") == [1, None]
    assert values(frame, "pointer") == [1, None]


# -- inputs ---------------------------------------------------------------------------------------------------------


def test_every_documented_column_has_its_documented_type():
    detectors = Detectors(completeness={"tools": ["a"], "slots": ["x"]}, came_back={"within_s": 60})
    names = [column.name for column in COLUMNS]
    stages, last = input_stages(names, detectors, final=True)
    with duckdb.connect() as con:
        tables = tables_of([episode("e", [step(0)])])
        for name in ("episodes", "messages", "steps"):
            con.register(name, getattr(tables, name))
        relation = con.sql(f"WITH {', '.join(stages)} SELECT {', '.join(names)} FROM {last}")
        found = {name: str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}
    assert found == {column.name: column.type for column in COLUMNS}


def test_running_and_previous_columns():
    made = episode(
        "e",
        [
            step(0, "a", "error", error_class="auth"),
            step(1, "a", "timeout", arguments='{"x":1}', error_class="timeout"),
            step(2, "a", "ok"),
            step(3, "a", "ok"),
        ],
        policy_id="gpt",
    )
    frame = score(
        spec_of(
            "again: {value: repeats}",
            "errors: {value: errors_so_far}",
            "left: {value: n_steps - step}",
            "after: {when: \"prev_action = 'a' and prev_result_status = 'timeout' and prev_error_class = 'timeout' and prev_arguments <> '{}'\"}",
            "who: {when: policy_id = 'gpt' and format = 'tau_bench' and source_kind = 'agent_log'}",
        ),
        tables_of([made]),
    )
    assert values(frame, "again") == [0, 0, 1, 2]
    assert values(frame, "errors") == [0, 1, 2, 2]
    assert values(frame, "left") == [4, 3, 2, 1]
    assert values(frame, "after") == [0, 0, 1, 0]
    assert values(frame, "who") == [1, 1, 1, 1]


def test_the_docs_list_exactly_the_columns():
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    listed = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]
    assert [row for row in listed if row[1] in {c.type for c in COLUMNS}] == [
        (f"`{c.name}`", c.type, c.meaning) for c in COLUMNS
    ]


def test_the_docs_list_exactly_the_functions_and_their_examples_are_valid():
    text = DOCS.read_text()
    assert ", ".join(f"`{name}`" for name in expressions.FUNCTIONS.split(", ")) in " ".join(text.split())
    blocks = [block.split("```")[0] for block in text.split("```yaml\n")[1:]]
    assert blocks
    for block in blocks:
        parse_spec(block, str(DOCS))


CALLS = {
    "abs": "abs(step)", "ceil": "ceil(score)", "coalesce": "coalesce(score, 0)", "contains": "contains(action, 'x')",
    "ends_with": "ends_with(action, 'x')", "exp": "exp(step)", "floor": "floor(score)", "greatest": "greatest(step, 1)",
    "if": "if(is_last, 1, 2)", "json_extract_string": "json_extract_string(arguments, '$.a')", "least": "least(step, 1)",
    "length": "length(action)", "ln": "ln(step)", "lower": "lower(action)", "nullif": "nullif(step, 0)",
    "power": "power(step, 2)", "regexp_full_match": "regexp_full_match(action, 'a.*')",
    "regexp_matches": "regexp_matches(action, 'a')", "replace": "replace(action, 'a', 'b')", "round": "round(score, 1)",
    "sign": "sign(step)", "split_part": "split_part(action, '_', 1)", "sqrt": "sqrt(step)",
    "starts_with": "starts_with(action, 'x')", "strpos": "strpos(action, 'x')", "substring": "substring(action, 1, 2)",
    "trim": "trim(action)", "upper": "upper(action)",
}  # fmt: skip


def test_every_listed_function_can_be_called():
    assert sorted(CALLS) == sorted(expressions.FUNCTIONS.split(", "))
    for call in CALLS.values():
        frame = score(
            spec_of(f'a: {{when: "({call}) is not null"}}'), tables_of([episode("e", [step(0)], score=1.0)])
        )
        assert frame.height == 1


# -- hostile and mistaken expressions -------------------------------------------------------------------------------

HOSTILE = r"""
1; drop table steps
; 1
select 1
(select 1)
exists(select 1)
step in (select 1)
step = any(select 1)
success or (select count(*) > 0 from steps)
read_text('/etc/passwd') = 'x'
read_csv('/etc/passwd')
read_csv_auto('x')
read_parquet('x')
read_blob('/etc/passwd')
glob('/*')
sniff_csv('x')
getenv('HOME') = 'x'
getvariable('x')
current_setting('threads') = '1'
set_config('a', 'b')
query('select 1')
query_table('steps')
duckdb_tables()
nextval('s')
random() > 0.5
now() > 1
current_date
sum(step) > 1
count(*) > 1
row_number() over () > 1
lag(success) over (order by step)
max(step) filter (where success)
list_transform([1], x -> x)
unnest([1])
[1] = [1]
{'a': 1}
map {'a': 1}
columns(*)
*
step.step
steps.action = 'x'
main.steps.action = 'x'
$1
?
:name
@step > 1 and $x
step AS x
step, success
1 = 1 --comment\n; drop table x
copy steps to '/tmp/x'
attach '/tmp/x' as y
install httpfs
load httpfs
pragma database_list
set threads = 1
create table x (y int)
insert into x values (1)
delete from steps
update steps set step = 1
call pragma_version()
explain select 1
from read_csv('x')
with a as (select 1) select 1
values (1)
table steps
cast(step as decimal(38, 0)) = 1
cast(action as json)
cast(action as int[])
cast(1 as blob)
action::regclass
interval 1 day
action collate nocase = 'x'
regexp_matches(action, result)
regexp_matches(action, 'a' || result)
action like result
action ~ 'x'
action glob '*'
action in result
arguments -> 'a'
arguments ->> action
arguments ->> '$.*' = 'x'
result ->> 'a' ->> 'b' = 'x'
json_transform(arguments, '{}')
to_json(action)
repeat(action, 1000000000)
repeat('x', 1000000000) = 'y'
range(1000000000)
error('x')
sleep(100)
try(1)
concat(action, score) = 'x'
"a""; drop table x; --" = 1
success'
(((
1 +
select
""
x := 1
distinct step
lambda x: x
step is 1
""".strip().splitlines()


@pytest.mark.parametrize("expression", HOSTILE)
@pytest.mark.parametrize("word", ["when", "value"])
def test_refuses_what_is_no_plain_expression(expression, word):
    assert refusal(expression.replace("\\n", "\n"), word)


@pytest.mark.parametrize(
    "expression",
    ["(" * 900 + "1" + ")" * 900, "not " * 400 + "success", "- " * 1500 + "1", "1 + " * 9_999 + "1"],
)
def test_refuses_what_would_exhaust_the_parser(expression):
    assert refusal(expression, "value") == "nested too deeply"


def test_refuses_cases_that_would_explode_in_the_engine():
    nested = "success"
    for _ in range(8):
        nested = f"case when {nested} then true else false end"
    assert refusal(nested) == "CASE nests deeper than 5"


def test_a_spec_built_by_hand_is_as_safe():
    for term in (Term(when="1; drop table steps"), Term(value="(select 1)"), Term(value="getenv('HOME')")):
        with pytest.raises(SpecError):
            compile_query(RewardSpec(gamma=1.0, terms={"a": term}))


def test_text_in_an_expression_stays_text():
    hostile = "x'; DROP TABLE steps; --"
    quoted = hostile.replace("'", "''")
    spec = spec_of(f"a: {json.dumps({'when': f'''action = '{quoted}' '''})}")
    frame = score(spec, tables_of([episode("e", [step(0, hostile, "ok"), step(1, "y", "ok")])]))
    assert frame["reward"].to_list() == [1, 0]


def test_text_in_the_log_is_never_sql():
    hostile = "'); DROP TABLE steps; -- (select 1)"
    made = episode(hostile, [step(0, hostile, "ok", arguments=hostile, result=hostile)], task_id=hostile)
    frame = score(spec_of("a: {when: action = result and task_id = arguments}"), tables_of([made]))
    assert frame.rows()[0][:3] == (hostile, 0, 1.0)


def test_the_engine_is_locked(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    with sandbox() as con:
        with pytest.raises(duckdb.Error):
            con.execute(f"SELECT * FROM read_text('{secret}')").fetchall()
        with pytest.raises(duckdb.Error):
            con.execute("SET enable_external_access = true")


@pytest.mark.parametrize(
    ("word", "expression", "message"),
    [
        ("when", "step", "gives INTEGER, must give a truth value"),
        ("when", "action", "gives VARCHAR, must give a truth value"),
        ("value", "action", "gives VARCHAR, must give a number"),
        ("value", "success", "gives BOOLEAN, must give a number"),
        ("when", "action = 1", "compares text with a number"),
        ("when", "step in ('1', 2)", "compares text with a number"),
        ("when", "success = 'true'", "compares text with a boolean"),
        ("when", "step between 'a' and 'b'", "compares text with a number"),
        ("when", "success and action", "a text where a truth value is needed"),
        ("when", "not step", "a number where a truth value is needed"),
        ("value", "case when action then 1 else 0 end", "a text where a truth value is needed"),
        ("value", "action + 1", "Binder Error"),
        ("value", "lower(step)", "Binder Error"),
        ("when", "regexp_matches(action, '(')", "missing )"),
        ("when", "latncy_s > 1", "unknown column 'latncy_s'. did you mean 'latency_s'? valid: step, kind"),
        (
            "when",
            "starts_wth(action, 'x')",
            "unknown function 'starts_wth'. did you mean 'starts_with'? valid: abs",
        ),
    ],
)
def test_a_wrong_type_or_name_is_found_before_there_is_data(word, expression, message):
    assert message in refusal(expression, word)


def test_all_problems_of_an_expression_are_listed():
    found = refusal("actoin = 'x' and sucess and getenv('HOME') = 'y'")
    assert sorted(line.split(".")[0] for line in found.splitlines()) == [
        "unknown column 'actoin'",
        "unknown column 'sucess'",
        "unknown function 'getenv'",
    ]


@pytest.mark.parametrize(
    ("term", "field", "line"),
    [
        ("cast(action as double)", "value", 5),
        ("cast(cast(step as varchar) || action as bigint)", "value", 5),
        ("(step + 2000000000) * (step + 2000000000) * (step + 2000000000)", "value", 5),
        ("cast(action as boolean)", "when", 5),
    ],
)
def test_an_expression_that_fails_on_the_data_is_named(term, field, line):
    spec = parse_spec(f"gamma: 1\nterms:\n  fine: {{value: 1}}\n  bad:\n    {field}: {term}\n", "spec.yaml")
    with pytest.raises(SpecError) as caught:
        score(spec, tables_of([episode("e", [step(0, "search", "ok"), step(1, "search", "ok")])]))
    (problem,) = caught.value.problems
    assert (problem.path, problem.line, problem.field) == ("spec.yaml", line, f"terms.bad.{field}")
    assert "fails on the data" in problem.what


def test_steps_without_their_episode_are_not_lost_in_silence():
    tables = tables_of([episode("a", [step(0)]), episode("b", [step(0)])])
    with pytest.raises(Mismatch, match="expected 2, found 1"):
        score(EXAMPLE, tables._replace(episodes=tables.episodes.slice(0, 1)))


def test_tables_without_their_columns_are_a_mismatch():
    tables = tables_of([episode("a", [step(0)])])
    with pytest.raises(Mismatch, match="result_status"):
        score(EXAMPLE, tables._replace(steps=tables.steps.drop_columns(["result_status"])))


# -- canonical expressions ------------------------------------------------------------------------------------------

NUMBERS = st.sampled_from(["step", "n_steps", "repeats", "2", "0.5", "3"])
TRUTHS = st.sampled_from(
    ["is_last", "success", "action = 'search'", "action in ('a', 'b')", "action like 's%'"]
)


def expression_texts(depth):
    """Texts of numbers and of truth values, in which only some operators have parentheses."""
    if depth == 0:
        return NUMBERS, TRUTHS
    number, truth = expression_texts(depth - 1)
    numbers = st.one_of(
        number,
        st.tuples(number, st.sampled_from(["+", "-", "*"]), number).map(" ".join),
        number.map("(- {})".format),
        number.map("({})".format),
        number.map("abs({})".format),
        st.tuples(truth, number, number).map(lambda t: "(case when {} then {} else {} end)".format(*t)),
        st.tuples(number, number).map(lambda t: "least({}, {})".format(*t)),
    )
    truths = st.one_of(
        truth,
        st.tuples(number, st.sampled_from(["<", "<=", "=", "<>"]), number).map(
            lambda t: "({} {} {})".format(*t)
        ),
        st.tuples(truth, st.sampled_from(["and", "or"]), truth).map(" ".join),
        truth.map("(not {})".format),
        truth.map("({})".format),
        st.tuples(number, number, number).map(lambda t: "({} between {} and {})".format(*t)),
    )
    return numbers, truths


expression_text = st.one_of(*expression_texts(4))


@pytest.fixture(scope="module")
def inputs():
    """Rows without nulls, where canonical and plain SQL mean the same."""
    with duckdb.connect() as con:
        con.execute("""CREATE TABLE inputs AS SELECT * FROM (VALUES
            (0::BIGINT, 4::BIGINT, 0::BIGINT, false, true, 'search'), (1, 4, 1, false, false, 'a'),
            (2, 4, 0, false, true, 'respond'), (3, 4, 2, true, false, 'b'))
            t(step, n_steps, repeats, is_last, success, action)""")
        yield con


@settings(max_examples=enough(50, 300), deadline=None)
@given(text=expression_text)
def test_the_canonical_expression_means_what_the_text_means(inputs, text):
    canonical = expressions.parse(text)
    rows = inputs.sql(
        f"SELECT {text}, {canonical.text}, {canonical.sql} FROM inputs ORDER BY step"
    ).fetchall()
    for plain, spelled, run in rows:
        assert [float(spelled), float(run)] == pytest.approx([float(plain)] * 2)


@settings(max_examples=enough(50, 300), deadline=None)
@given(expression_text)
def test_canonical_text_is_a_fixed_point_free_of_spelling(text):
    canonical = expressions.parse(text)
    assert expressions.parse(canonical.text) == canonical
    assert expressions.parse(f" ( {text} ) /* why */") == canonical


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        (
            "not action in ('a') and (is_last or step>1)",
            "(NOT (action IN ('a'))) AND (is_last OR (step > 1))",
        ),
        ("1 - (2 - Step)", "1 - (2 - step)"),
        ("1 - 2 - step", "(1 - 2) - step"),
        ("- -step", "-(-step)"),
        ("case when success then .5 end", "CASE success WHEN TRUE THEN 0.5e0 END"),
    ],
)
def test_canonical_spelling(text, sql):
    assert expressions.parse(text).sql == sql


def test_a_long_chain_is_not_deep():
    chain = " or ".join(f"action = 'a{i}'" for i in range(500))
    frame = score(
        spec_of(f'a: {{when: "{chain}"}}'),
        tables_of([episode("e", [step(0, "a499", "ok"), step(1, "b", "ok")])]),
    )
    assert frame["reward"].to_list() == [1, 0]


# -- the file -------------------------------------------------------------------------------------------------------


def test_every_problem_is_listed_at_once_with_its_line():
    found = problems("""\
gamma: 1.5
laiers: {}
terms:
  Bad: {value: 1}
  typo:
    wen: success
    value: [1]
  place: {at: terminl}
  both: {once: true, max_per_episode: 2}
  none: {max_per_episode: 0}
  text: {once: "yes"}
  empty:
  column: {when: sucess}
""")
    assert all(p.path == "spec.yaml" for p in found)
    assert [(p.line, p.field) for p in found] == [
        (1, "gamma"),
        (2, "laiers"),
        (4, "terms.Bad"),
        (6, "terms.typo.wen"),
        (7, "terms.typo.value"),
        (8, "terms.place.at"),
        (9, "terms.both"),
        (10, "terms.none.max_per_episode"),
        (11, "terms.text.once"),
        (12, "terms.empty"),
        (13, "terms.column.when"),
    ]
    what = {p.field: p.what for p in found}
    assert what["laiers"].startswith(
        "unknown key 'laiers'. did you mean 'layers'? valid: gamma, include, let, "
    )
    assert what["terms.typo.wen"].startswith("unknown key 'wen'. did you mean 'when'? valid: when, value, ")
    assert (
        what["terms.place.at"] == "unknown at 'terminl'. did you mean 'terminal'? valid: step, end, terminal"
    )
    assert "exclude each other" in what["terms.both"]
    assert "did you mean 'success'?" in what["terms.column.when"]
    assert "less than or equal to 1, not 1.5" in what["gamma"]


@pytest.mark.parametrize("word", ["gamma", "terms", "layers", "let", "include", "detectors"])
def test_words_of_the_spec_are_no_words_of_a_term(word):
    (found,) = problems(f"gamma: 1\nterms:\n  a: {{{word}: true}}\n")
    assert found.what.startswith(f"unknown key '{word}'")
    assert found.line == 3


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
        ("gamma: 1\n", 1, "a spec needs `terms` or `layers`"),
        ("terms:\n  a: {value: 1}\n", 1, "required key 'gamma' is missing"),
        ("gamma: 1\nterms: {}\n", 1, "a spec needs `terms` or `layers`"),
        ("gamma: 1\nterms: [a]\n", 2, "must be a mapping"),
        ("- 1\n", 1, "must be a mapping"),
        ("gamma: true\nterms: {a: {}}\n", 1, "must be a valid number"),
        ("gamma: '1'\nterms: {a: {}}\n", 1, "must be a valid number"),
        ("gamma: 0\nterms: {a: {}}\n", 1, "greater than 0"),
        ("gamma: .nan\nterms: {a: {}}\n", 1, "gamma"),
        ("gamma: 1\nterms:\n  a: {value: .inf}\n", 3, "must be a finite number"),
        ("gamma: 1\nterms:\n  a: {value: true}\n", 3, "must be a number or an SQL expression"),
        ("gamma: 1\nterms:\n  a: {value: }\n", 3, "must be a number or an SQL expression"),
        ("gamma: 1\nterms:\n  a: {when: ''}\n", 3, "must be a condition in SQL"),
        ("gamma: 1\nterms:\n  a: {when: 3}\n", 3, "must be a condition in SQL"),
        ("gamma: 1\ngamma: 2\nterms: {a: {}}\n", 2, "key 'gamma' is there twice, first on line 1"),
        ("gamma: 1\nterms:\n  a: {value: 1}\n  a: {value: 2}\n", 4, "key 'a' is there twice, first on line 3"),
        ("gamma: 1\nterms:\n  a: &x {value: 1}\n  b: *x\n", 4, "alias *x is not accepted"),
        ("gamma: 1\nterms:\n  a: {<<: {value: 1}}\n", 3, "unknown key '<<'"),
        ("gamma: !!python/object/apply:os.system ['true']\n", 1, "tag tag:yaml.org,2002:python/object/apply:os.system is not accepted"),
        ("gamma: !!python/name:os.system x\nterms: {a: {}}\n", 1, "tag"),
        ("gamma: 1\nterms:\n  a: {value: !!binary aGk=}\n", 3, "tag"),
        ("gamma: 1\nterms:\n  ? [x]\n  : {value: 1}\n", 3, "a key must be text"),
        ("gamma: 1\nterms:\n  a: {value: 1\n", 4, "not valid YAML"),
        ("gamma: 1\n\tterms: 2\n", 2, "not valid YAML"),
        ("gamma: 1\n---\ngamma: 2\n", 2, "not valid YAML: expected a single document"),
        ("gamma: 1\nx: \x00\n", 2, "is not allowed"),
        ("a: " + "[" * 100_000, 1, "nested too deeply"),
        ("gamma: 1\nterms:\n  a: {value: " + "9" * 5000 + "}\n", 3, "is no valid int"),
    ],
)  # fmt: skip
def test_a_damaged_file_says_where(text, line, what):
    found = problems(text)
    assert what in "\n".join(f"{p.what} {p.field}" for p in found)
    assert found[0].path == "spec.yaml"
    assert found[0].line == line


def test_aliases_cannot_make_a_short_file_endless():
    bomb = "a: &a [x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
    )
    assert "alias *a is not accepted" in problems(bomb)[0].what


def test_files_that_cannot_be_read(tmp_path):
    missing, binary, long = tmp_path / "none.yaml", tmp_path / "latin.yaml", tmp_path / "long.yaml"
    binary.write_bytes(b"gamma: 1\nterms: {a: {}} # \xe9\n")
    long.write_bytes(b"#" * 1_000_001)
    for path, line, what in (
        (missing, None, "no such file"),
        (binary, 2, "not UTF-8 text"),
        (long, None, "longer than"),
        (tmp_path, None, "cannot be read"),
    ):
        with pytest.raises(SpecError) as caught:
            load_spec(path)
        (problem,) = caught.value.problems
        assert (problem.path, problem.line) == (str(path), line)
        assert what in problem.what


def test_load_spec_reads_what_parse_spec_reads(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + TAU.replace("\n", "\r\n").encode())
    assert load_spec(path).hash == EXAMPLE.hash
    assert load_spec(str(path)).gamma == 0.99


def test_a_spec_survives_pickling_with_its_lines():
    spec = pickle.loads(pickle.dumps(parse_spec(TAU, "spec.yaml")))
    assert spec.hash == EXAMPLE.hash
    assert spec.problem("x", "terms.repeat.when").line == 6


@pytest.mark.parametrize(
    "text",
    [
        TAU.replace("{when: success, ", "{when: '( Success )', ").replace("value: 10,", "value: 10.0,"),
        TAU.replace("once: true", "max_per_episode: 1"),
        TAU.replace("{value: -0.1}", "{value: '-(0.1)', when: true, at: step, optional: false}  # cost"),
        "terms:\n" + "".join(f"{line}\n" for line in reversed(TAU.splitlines()[2:])) + "gamma: 0.99\n",
    ],
)
def test_the_hash_is_that_of_the_meaning(text):
    assert text != TAU
    assert parse_spec(text).hash == EXAMPLE.hash


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.99", "0.98"),
        ("value: 10", "value: 11"),
        ("at: terminal", "at: end"),
        ("max_per_episode: 3", "max_per_episode: 4"),
        ("once: true", "optional: true"),
        ("repeats > 0", "repeats > 1"),
        ("step_cost", "turn_cost"),
        ("('error', 'timeout')", "('error', 'Timeout')"),
    ],
)
def test_the_hash_changes_with_the_meaning(old, new):
    assert parse_spec(TAU.replace(old, new)).hash != EXAMPLE.hash


def test_the_query_is_the_same_every_time_and_names_each_term():
    query = compile_query(EXAMPLE)
    assert query == compile_query(parse_spec(TAU))
    for name in EXAMPLE.names:
        assert f"--   {name} (at " in query
    with duckdb.connect() as con:
        tables = tables_of([episode("e", [step(0)])])
        con.register("episodes", tables.episodes)
        con.register("steps", tables.steps)
        assert collected(EXAMPLE, con.sql(query).pl()).equals(score(EXAMPLE, tables))


def test_numbers_keep_every_bit():
    wanted = [0.1, 1 / 3, 1e-7, 123456789.12345678, 5e-324, 1e22]
    terms = [f"t{i}: {{value: {json.dumps(repr(number))}}}" for i, number in enumerate(wanted)]
    frame = score(spec_of(*terms), tables_of([episode("e", [step(0)])]))
    assert [t["value"] for t in frame["reward_terms"][0]] == wanted
