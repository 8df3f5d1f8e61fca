"""`logforge inspect`: shapes, samples, connectors that came near, and the mapping's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.connectors.records import look
from logforge.inspecting import inspect
from logforge.inspecting.near import near_connectors
from logforge.inspecting.shape import keys_of, samples_of
from logforge.schemas.errors import InputError, UsageError
from support.unknown_shapes import SHAPES

TALK = [
    {"by": "client", "words": "Where is order 7?"},
    {"by": "bot", "words": "Let me look at it."},
]
KEY = "AKIA" + "Q3EGRIZ7TB2WXN5K"


def wrote(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_keys_have_shares_and_types():
    rows = [{"a": 1, "b": [{"c": "x"}, {"c": None}]}, {"a": True}, {"a": '{"d": 2.5}'}, {"b": "plain"}]
    assert {key.path: (key.share, key.types) for key in keys_of(rows)} == {
        "$.a": (0.75, {"flag": 0.3333, "number": 0.3333, "object": 0.3333}),
        "$.b": (0.5, {"list": 0.5, "text": 0.5}),
        "$.b[*]": (0.25, {"object": 1.0}),
        "$.b[*].c": (0.25, {"null": 0.5, "text": 0.5}),
        "$.a.d": (0.25, {"number": 1.0}),
    }


def test_samples_lose_secrets_and_people_and_what_is_long():
    row = {
        "env": f"AWS_ACCESS_KEY_ID={KEY}",
        "mail": "ann@example.org",
        "n": list(range(50)),
        "t": "word " * 500,
    }
    first, *others = samples_of([row, {}, {}, {}])
    assert KEY not in first
    assert "ann@example.org" not in first
    shown = json.loads(first)
    assert shown["n"] == [0, 1, "… 48 more"]
    assert len(shown["t"]) == 200
    assert others == ["{}", "{}"]


def test_a_secret_in_a_key_is_not_shown(tmp_path):
    report = inspect([wrote(tmp_path / "x.jsonl", {KEY: "a", "turns": TALK})])
    assert KEY not in json.dumps(report.as_dict()["shapes"][0]["keys"])
    assert KEY not in "".join(report.shapes[0].samples)


def test_a_connector_that_came_near_says_what_it_missed(tmp_path):
    head = look(wrote(tmp_path / "x.jsonl", {"conversations": [{"from": "human", "text": "hi"}]}))
    near = {one.connector: one for one in near_connectors(head)}
    assert near["sharegpt_tools"].found == ("conversations.from",)
    assert near["sharegpt_tools"].missing == ("conversations.value",)
    assert (
        near["sharegpt_tools"].line
        == "sharegpt_tools: found conversations.from; looked for conversations.value in vain"
    )
    assert near_connectors(look(wrote(tmp_path / "y.jsonl", {"nothing_known": 1}))) == ()


def test_a_written_mapping_is_ingested_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shape = next(shape for shape in SHAPES if shape.name == "app_json")
    shape.make(tmp_path)
    run = CliRunner()
    done = run.invoke(main, ["inspect", shape.file, "--write-mapping", "m.yaml", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["written"], told["shapes"][0]["mapping"]["unsure"]) == ("m.yaml", [])
    assert told["shapes"][0]["mapping"]["text"] == (tmp_path / "m.yaml").read_text("utf-8")
    done = run.invoke(main, ["ingest", shape.file, "--mapping", "m.yaml", "--json"])
    assert done.exit_code == 0, done.output
    (read,) = json.loads(done.stdout)["formats"]
    proof = told["shapes"][0]["mapping"]["sample"]
    assert (read["kept"], read["steps"], read["quarantined"]) == (12, proof["steps"], 0)
    assert read["episodes"] == proof["episodes"]


def test_an_unsure_line_is_marked_in_the_file(tmp_path):
    rows = [{"nr": n, "talk": [{**turn, "words": f"{turn['words']} {n}"} for turn in TALK]} for n in range(4)]
    rows[0]["talk"].append({"by": "ops", "words": "I close this."})
    inspect([wrote(tmp_path / "x.jsonl", *rows)], tmp_path / "m.yaml")
    text = (tmp_path / "m.yaml").read_text("utf-8")
    assert "  role:  # unsure: who is 'ops'? give each a role, or skip it\n" in text
    assert "# unsure: 1 parts or records of the sample are set aside (unknown_role)\n" in text


def test_a_mapping_is_not_written_over(tmp_path):
    path = wrote(tmp_path / "x.jsonl", {"talk": TALK})
    (tmp_path / "m.yaml").write_text("mine", "utf-8")
    with pytest.raises(UsageError):
        inspect([path], tmp_path / "m.yaml")
    assert (tmp_path / "m.yaml").read_text("utf-8") == "mine"


@pytest.mark.parametrize(
    "row",
    [
        {"temperature": 20, "room": "kitchen", "note": "the window was open all day"},
        {"text": "User: hi there\nBot: hello, what can I do?"},
        {"talk": ["hi there you", "hello to you too"]},
        {"a": [[["x"]]], "b": None},
        [1, 2, 3],
        "text",
        None,
    ],
)
def test_what_is_no_talk_gets_no_mapping(tmp_path, row):
    path = wrote(tmp_path / "x.jsonl", *[row] * 5)
    with pytest.raises(InputError) as caught:
        inspect([path], tmp_path / "m.yaml")
    assert caught.value.rule == "no_talk_found"
    assert not (tmp_path / "m.yaml").exists()


def test_files_of_a_folder_that_begin_alike_are_one_shape(tmp_path):
    for name in "abc":
        wrote(tmp_path / f"{name}.jsonl", {"talk": TALK, "nr": name})
    wrote(
        tmp_path / "known.jsonl",
        {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]},
    )
    (tmp_path / "notes.md").write_text("# hi\n", "utf-8")
    report = inspect([tmp_path])
    unknown, known = report.shapes
    assert ([Path(file).name for file in unknown.files], unknown.claimed) == (
        ["a.jsonl", "b.jsonl", "c.jsonl"],
        (),
    )
    assert known.claimed
    assert known.mapping is None
    assert [Path(file).name for file in report.skipped] == ["notes.md"]
    assert "and 2 files like it: " in report.render()


def test_the_refusal_of_an_unknown_shape_names_the_command_and_every_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = [f"key_{number:02}" for number in range(30)]
    wrote(tmp_path / "x.jsonl", dict.fromkeys(keys, 1))
    run = CliRunner()
    run.invoke(main, ["ingest", "x.jsonl"])
    (row,) = json.loads(run.invoke(main, ["quarantine", "--list", "--json"]).stdout)["rows"]
    assert row["rule"] == "unknown_shape"
    assert row["detail"] == "first record's keys: " + ", ".join(keys)
    assert "`logforge inspect FILE --write-mapping M.yaml`" in row["remedy"]
