"""Hostile specs: whatever is written where, it is refused in words or does no harm. Nothing is run, read, fetched or written."""

from __future__ import annotations

import itertools
import json
import os
import time

import duckdb
import pytest

from logforge.core.frames import tables_of
from logforge.core.sql import sandbox
from logforge.rewards.pipeline import parse_spec, score
from logforge.schemas.errors import LogforgeError
from logforge.schemas.reward_columns import COLUMNS
from support.made_rewards import episode, step
from support.thoroughness import enough

CANARY = "7f0c2b-canary"
FILES = ("secret.csv", "secret.txt", "secret.json", "secret.parquet", "secret.db")

# what reads or writes a file, loads code or asks the network
_READERS = [
    f"{name}('{file}')"
    for name in (
        "read_csv", "read_csv_auto", "read_json", "read_json_auto", "read_json_objects", "read_ndjson", "read_ndjson_objects",
        "read_parquet", "parquet_scan", "parquet_metadata", "parquet_schema", "read_text", "read_blob", "glob", "sniff_csv",
        "sqlite_scan", "postgres_scan", "mysql_scan", "iceberg_scan", "delta_scan", "st_read", "read_xlsx", "load_aws_credentials",
        "http_get", "httpfs", "shell", "system", "load_extension", "writefile", "readfile", "pg_read_file", "lo_import",
    )
    for file in FILES[:3]
]  # fmt: skip
_INSPECTORS = [
    f"{name}({arguments})"
    for name, arguments in itertools.product(
        (
            "getenv", "current_setting", "set_config", "version", "current_database", "current_schema", "current_user",
            "current_query", "txid_current", "pragma_version", "duckdb_settings", "duckdb_tables", "duckdb_functions",
            "duckdb_secrets", "pg_sleep", "sleep", "nextval", "currval", "random", "uuid", "gen_random_uuid", "setseed",
            "now", "today", "query", "query_table", "eval", "exec", "execute", "error", "hash", "md5", "in_search_path",
            "add_parquet_key", "checkpoint", "force_checkpoint", "which_secret", "enable_logging", "write_log", "repeat",
            "range", "generate_series", "unnest", "list_transform", "list_reduce", "format", "printf", "concat", "chr",
            "string_agg", "count", "sum", "avg", "max", "min", "first", "last", "list", "array_agg", "histogram",
            "row_number", "rank", "lag", "lead", "ntile", "regexp_replace", "regexp_extract_all", "regexp_split_to_table",
            "json", "json_extract", "json_serialize_sql", "json_execute_serialized_sql", "from_base64", "encode", "decode",
            "strptime", "to_json", "struct_pack", "map", "row", "alias", "typeof", "stats", "getvariable", "combine",
        ),
        ("", "'secret.csv'", "said", "1, 2"),
    )
]  # fmt: skip
_STATEMENTS = [
    f"{before}{statement}"
    for before in ("", "1; ", "true; ", "1 -- \n; ")
    for statement in (
        "drop table steps", "delete from steps", "insert into steps values (1)", "update steps set action = 'x'",
        "create table t as select 1", "create macro f(x) as x", "create function f(x) as x", "create secret s (type s3)",
        "copy steps to 'out.csv'", "copy (select 1) to 'out.parquet'", "export database 'out'", "import database 'out'",
        "attach 'secret.db' as s", "detach memory", "use memory", "pragma database_list", "set memory_limit = '1TB'",
        "reset memory_limit", "install httpfs", "load httpfs", "call pragma_version()", "explain select 1", "describe steps",
        "show tables", "summarize steps", "vacuum", "checkpoint", "begin", "commit", "prepare p as select 1", "execute p",
        "values (1)", "from steps", "select 1", "with a as (select 1) select * from a", "pivot steps on action", "truncate steps",
    )
]  # fmt: skip
_QUERIES = [
    "(select 1)", "(select count(*) from steps) > 0", "exists (select 1)", "exists(from 'secret.csv')", "step in (select 1)",
    "step = any (select 1)", "step > all (select 1)", "(table steps)", "(from 'secret.csv')", "(select x from 'secret.csv')",
    '(select x from "secret.csv")', "(with recursive r as (select 1 union all select 1 from r) select count(*) from r)",
    "array(select 1)", "(values (1))", "case when (select true) then 1 end", "coalesce((select 1), 1)", "lateral (select 1)",
    "(pivot steps on action)", "(describe steps)", "(show tables)", "(summarize steps)", "'secret.csv'.x", '"secret.csv"',
    "from 'secret.csv'", "sum(step) over ()", "count(*) filter (where true)", "count(distinct action)", "row_number() over ()",
    "lag(step) over (order by step)", "max(step) over w", "step over (partition by action)", "any_value(said)",
    "columns(*)", "columns('s.*')", "columns(c -> true)", "*columns(*)", "*", "steps.*", "* exclude (step)", "* replace (1 as step)",
    "#1", "$1", "?", ":name", "@x", "@@version", "$name", "getvariable('x')", "steps.step", "main.steps.step", "memory.main.steps.step",
    "information_schema.tables", "duckdb_tables.x", "sqlite_master", "pg_catalog.pg_class", "rowid", "steps.rowid", "__import__",
    "x -> x + 1", "lambda x : x", "list_transform([1], x -> x)", "[x for x in [1, 2]]", "[1, 2, 3]", "{'a': 1}", "map {'a': 1}",
    "row(1, 2)", "(1, 2)", "[1, 2][1]", "said[1:2]", "said[1]", "struct_pack(a := 1)", "union_value(a := 1)", "1::struct(a int)",
    "a := 1", "1 as x", "x: 1", "step => 1", "try(1)", "interval 1 day", "date '2020-01-01'", "timestamp '2020-01-01'", "now()",
    "current_date", "current_timestamp", "current_user", "session_user", "localtime", "default", "null::secret", "x'41'", "0x41",
    "b'1'", "e'\\n'", "u&'\\0041'", "$$a$$", "$tag$a$tag$", "'a' 'b'", "'a' collate nocase", "said collate de", "said similar to 'a'",
    "said ~ '(a+)+$'", "said !~ 'a'", "said ~~ 'a'", "said ^@ 'a'", "said glob '*'", "regexp_matches(said, said)",
    "regexp_matches(said, 'a' || said)", "said like said", "said like 'a' escape 'b'", "regexp_matches(said, '(')",
    "regexp_full_match(said, '((a{1,900}){1,900}){1,900}')", "step & 1", "step | 1", "step << 62", "step >> 1", "~step", "step !",
    "5 !", "@ -1", "step ** 2", "step ^ 999999", "2 ^ 2 ^ 2 ^ 2 ^ 2 ^ 2", "power(power(10, 300), 300)", "exp(exp(exp(10)))",
    "1e400", "-1e400", "9" * 400, "0." + "0" * 400 + "1", "9223372036854775807 + 9223372036854775807", "1 / 0", "0 % 0",
    "sqrt(-1)", "ln(0)", "round(1, 999999999)", "'nan'::double", "cast('inf' as double)", "'' || repeat('a', 1000000000)",
    "lpad('a', 1000000000, 'b')", "replace('aaaa', 'a', 'aaaaaaaaaa')", "substring(said, -9223372036854775808)",
    "split_part(said, '', 999999999)", "strpos(said, '')", "length(said) > 99999999999999999999", "step between 'a' and 1",
]  # fmt: skip
_CASTS = [
    f"{form.format(kind)}"
    for kind in (
        "blob", "json", "date", "timestamp", "interval", "uuid", "bit", "int[]", "struct(a int)", "map(int, int)", "enum('a')",
        "union(a int)", "decimal(38, 2)", "decimal(99, 2)", "hugeint", "varint", "regclass", "regproc", "oid", "steps", "varchar(5)",
        "double[3]", "variant", "geometry", "time", "timetz", "null", "x", "utinyint",
    )
    for form in ("cast(said as {0}) is null", "said::{0} is not null", "try_cast(said as {0}) is null")
]  # fmt: skip
_TRICKS = [
    "true /* */ or /* ; drop table steps */ true", "true -- ; drop table steps", "true # comment", "'a''; drop table steps; --' = said",
    "said = ''' or 1=1 --'", "said = '\\'; drop table steps; --'", 'said = "x"; drop', "said = \u2018x\u2019", "said = \u201cx\u201d",
    "\uff53\uff45\uff4c\uff45\uff43\uff54 1", "\u202etrue", "step\u00a0= 1", "step\u200b = 1", "st\u0435p = 1", "\ufeffstep = 1",
    "step = 1\x00", "step = 1\x1a", "step\r\n=\r\n1", "/*", "*/", "--", "'", '"', "`", "``", "((", "))", "(", ")", ",", ",,", ";",
    ";;", "\\", "\\x", "{{x}}", "{% x %}", "${x}", "#{x}", "%s", "{0}", "__class__", "().__class__", "import os", "os.system('x')",
    "'; import os; '", "<script>", "../../etc/passwd", "file:///etc/passwd", "http://localhost/", "s3://bucket/x", "||", "''||''=''",
    "true or", "or true", "not", "not not not true", "between", "in ()", "step in ()", "case end", "case when then end", "is null",
    "null", "null is null", "null = null", "'a' = 1", "true = 1", "true + true", "said + 1", "- said", "not said", "said and true",
]  # fmt: skip
_BIG = [
    "(" * 500 + "true" + ")" * 500, "not " * 500 + "true", "-" * 501 + "1", " + ".join(["1"] * 5000), " or ".join(["true"] * 3000),
    " and ".join(["step = 1"] * 2000), "'" + "a" * 30_000 + "' = said", "case when true then " * 40 + "1" + " end" * 40,
    "case when step = 1 then 1 " * 1 + "when step = 2 then 2 " * 900 + "end", "step in (" + ", ".join(map(str, range(4000))) + ")",
    "coalesce(" * 60 + "1" + ", 2)" * 60, "if(true, " * 60 + "1" + ", 2)" * 60, "abs(" * 200 + "1" + ")" * 200,
    "lower(" * 40 + "said" + ")" * 40 + " = 'a'", " || ".join(["said"] * 3000) + " = 'a'", "said like '" + "%a" * 5000 + "'",
    "regexp_matches(said, '" + "(a*)*" * 2000 + "')", "regexp_matches(said, '" + "(" * 2000 + ")" * 2000 + "')",
    "regexp_matches(said, '(x+x+)+y')", "regexp_matches(said, '(a|a)*b')", "regexp_matches(said, '^(([a-z])+.)+[A-Z]([a-z])+$')",
    "regexp_matches(said, '(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x')", "regexp_matches(said, 'a{1000}')", "regexp_matches(said, '\\C*')",
    "greatest(" + ", ".join(["step"] * 3000) + ") > 0", "{" * 400, "[" * 400, "1" + "e" * 400, "step" * 5000, "\n" * 10_000 + "true",
    "replace(" * 20 + "said" + ", 'a', '" + "a" * 100 + "')" * 20, "replace(" * 9 + "'a'" + ", 'a', 'aaaaaaaaaa')" * 9 + " = 'a'",
]  # fmt: skip

HOSTILE = list(dict.fromkeys([*_READERS, *_INSPECTORS, *_STATEMENTS, *_QUERIES, *_CASTS, *_TRICKS, *_BIG]))


@pytest.fixture
def yard(tmp_path, monkeypatch):
    """A working folder with files that nothing may touch; their access times lie in the past, so that a read moves them."""
    for name in FILES:
        (tmp_path / name).write_text(f"x\n{CANARY}\n")
        os.utime(tmp_path / name, (1, 2))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert sorted(os.listdir(tmp_path)) == sorted(FILES)
    assert {name: (tmp_path / name).stat().st_atime for name in FILES} == dict.fromkeys(FILES, 1.0)


MADE = [
    episode(
        "e",
        [step(0, "look", "ok", result="a" * 5000, arguments='{"k":"v"}'), step(1, "respond")],
        success=True,
    )
]


def harmless(text, path="spec.yaml"):
    """Read and run a spec: refused in words, or evaluated soon to finite numbers or nulls that hold nothing of a file."""
    start = time.process_time()
    try:
        frame = score(parse_spec(text, path), tables_of(MADE))
    except LogforgeError as error:
        frame, told = None, str(error)
    assert time.process_time() - start < 20
    if frame is None:
        assert told
        assert CANARY not in told
        return False
    assert CANARY not in str(frame.to_dicts())
    assert frame.height == 2
    return True


def test_there_are_enough_of_them():
    assert len(HOSTILE) >= 500


@pytest.mark.parametrize("part", range(8))
def test_a_hostile_expression_is_refused_or_harmless(part, yard):
    for number, text in enumerate(HOSTILE[part::8]):
        for word in enough((("when", "value")[number % 2],), ("when", "value")):
            harmless(f"gamma: 1\nterms:\n  a:\n    {word}: {json.dumps(text)}\n")


def test_what_reads_runs_or_writes_is_refused_and_never_run(yard):
    for text in [*_READERS, *_STATEMENTS]:
        assert not harmless(f"gamma: 1\nterms:\n  a: {{value: {json.dumps(text)}}}\n"), text
        assert not harmless(f"gamma: 1\nlet:\n  b: {json.dumps(text)}\nterms:\n  a: {{value: b}}\n"), text


def test_shared_expressions_that_double_each_other_are_refused(yard):
    lines = ["  x0: said || said"] + [f"  x{n}: x{n - 1} || x{n - 1}" for n in range(1, 28)]
    assert not harmless("gamma: 1\nlet:\n" + "\n".join(lines) + "\nterms:\n  a: {value: length(x27)}\n")


@pytest.mark.parametrize(
    "name",
    [
        "secret.csv", "/etc/passwd", "../../../../etc/passwd", "file:///etc/passwd", "http://localhost/x.yaml", "", ".", "..", "/",
        "/dev/zero", "/dev/stdin", "/proc/self/environ", "a\x00b", "a" * 5000, "~/.bashrc", "$HOME/x", "`id`", "$(id)", "*.csv",
    ],
)  # fmt: skip
def test_an_include_of_a_text_reads_nothing(name, yard):
    assert not harmless(f"gamma: 1\ninclude: [{json.dumps(name)}]\nterms: {{a: {{value: 1}}}}\n", "<text>")


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "/dev/zero", "/dev/null", "..", ".", "a\x00b", "a" * 5000, "spec.yaml", "data.csv"],
)
def test_an_include_of_a_file_that_is_no_spec_is_refused_without_its_text(name, tmp_path):
    from logforge.rewards.pipeline import load_spec

    (tmp_path / "data.csv").write_text(f"x: [{CANARY}\n")
    path = tmp_path / "spec.yaml"
    path.write_text(f"gamma: 1\ninclude: [{json.dumps(name)}]\nterms: {{a: {{value: 1}}}}\n")
    with pytest.raises(LogforgeError) as caught:
        load_spec(path)
    assert CANARY not in str(caught.value)
    assert "root:" not in str(caught.value)


_NAMES = [
    "x' OR '1'='1",
    'x"; DROP TABLE steps; --',
    "$.a",
    'a"b',
    "a\\",
    'a\\"b',
    "'",
    "''",
    "\u2019",
    "a\x00b",
    "*",
    "[0]",
    "{}",
    "a.b",
]


@pytest.mark.parametrize("name", _NAMES)
def test_tools_and_slots_with_quotes_are_mere_names(name, yard):
    quoted = json.dumps(name)
    text = f"gamma: 1\nterms: {{a: {{value: completeness}}}}\ndetectors: {{completeness: {{tools: [{quoted}], slots: [{quoted}]}}}}\n"
    if harmless(text):
        made = [episode("e", [step(0, name, "ok", arguments=json.dumps({name: "v"}))], success=True)]
        assert score(parse_spec(text), tables_of(made))["reward"].to_list() == [1.0]


@pytest.mark.parametrize(
    "name", [*_NAMES, "select", "null", "A", "1a", "a b", "a-b", "é", "a" * 64, "", "__proto__"]
)
def test_a_terms_name_is_plain_or_refused(name, yard):
    fine = harmless(f"gamma: 1\nterms:\n  {json.dumps(name)}: {{value: 1}}\n")
    assert fine == (name in ("select", "null"))


@pytest.mark.parametrize("name", [*_NAMES, "os.system", "eval", "../x", "rouge_l; drop table steps"])
def test_a_scorers_name_and_parameters_are_checked(name, yard):
    quoted = json.dumps(name)
    assert not harmless(f"gamma: 1\nterms: {{a: {{scorer: {quoted}}}}}\n")
    assert not harmless(f"gamma: 1\nterms: {{a: {{scorer: {{name: rouge_l, text: {quoted}}}}}}}\n")
    assert not harmless(f"gamma: 1\nterms: {{a: {{scorer: {{name: rouge_l, {quoted}: 1}}}}}}\n")


def test_the_sandbox_reads_no_file_even_for_a_query(yard):
    columns = ", ".join(f"NULL AS {column.name}" for column in COLUMNS)
    with sandbox() as con:
        con.execute(f"CREATE TABLE inputs AS SELECT {columns}")
        for file in FILES:
            for query in (f"SELECT * FROM '{file}'", f"SELECT * FROM read_text('{file}')"):
                with pytest.raises(duckdb.Error, match=r"disabled|does not exist"):
                    con.sql(query).fetchall()
