"""What was set aside is told with place, finding and remedy, fits a screen, and is read again after a fix."""

from __future__ import annotations

import json
import re

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.cli.commands import main
from logforge.connectors import detection as connectors
from logforge.ingestion.pipeline import ingest
from logforge.ingestion.quarantine import overview, rows
from logforge.ingestion.replaying import replay
from logforge.ingestion.report import FormatCounts, IngestReport, Quarantined, Repairs
from logforge.schemas.errors import SpecError, UnknownName, UsageError
from logforge.schemas.rules import CATALOGUE, FOREIGN, remedy_of
from logforge.store.store import Store
from support.made_mapping import MAPPING
from support.places import SHARED
from support.stored import assert_conserved, content
from support.thoroughness import enough

TORN = '{"messages": [{"role": "us'
ODD = {"who": "me", "lines": [{"by": "u", "t": "hello"}, {"by": "a", "t": "good bye"}]}


TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], include_characters="\n"))
"""What a terminal shows in one line, and the line's end that it does not."""


def call(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def fits(text, lines=24, columns=100):
    return len(text.splitlines()) <= lines and all(len(line) <= columns for line in text.splitlines())


def set_aside(store, number, rule, *, source="logs/a.jsonl", reason="it is wrong", detail="", excerpt=""):
    """`number` rows under a rule, on lines of their own."""
    store.con.execute("DELETE FROM sources WHERE source_id = ?", [source])
    store.con.execute("INSERT INTO sources (source_id, path, settings) VALUES (?, ?, '{}')", [source, source])
    frame = pl.DataFrame(
        {
            "level": "record",
            "source_id": source,
            "locator": [f"{source}:{line}" for line in range(1, number + 1)],
            "reason": reason,
            "rule": rule,
            "detail": detail,
            "excerpt": excerpt,
            "records": 1,
        },
        schema_overrides={"records": pl.UInt64},
    )
    store.insert("quarantine", frame)


# --- what is shown


def test_rules_come_by_number_with_places_reasons_and_remedies(store):
    set_aside(store, 1204, "malformed_record", source="logs/b.jsonl", reason="cut off", detail="at byte 7")
    set_aside(store, 3, "malformed_record", source="logs/c.jsonl", reason="not UTF-8")
    set_aside(store, 12, "orphan_result")
    found = overview(store)
    assert [(g.rule, g.times, g.sources, g.first) for g in found.groups] == [
        ("malformed_record", 1207, 2, "logs/b.jsonl:1"),
        ("orphan_result", 12, 1, "logs/a.jsonl:1"),
    ]
    assert [(r.reason, r.times, r.detail) for r in found.groups[0].reasons] == [
        ("cut off", 1204, "at byte 7"),
        ("not UTF-8", 3, ""),
    ]
    shown = found.render()
    assert "1,207 × malformed_record in 2 sources; first: logs/b.jsonl:1" in shown
    assert "cut off (at byte 7); 1 other reason" in shown
    assert all(f"→ {remedy_of(rule)}" in shown for rule in ("malformed_record", "orphan_result"))


def test_the_first_place_is_the_first_line_not_the_first_text(store):
    set_aside(store, 30, "malformed_record")
    store.con.execute("DELETE FROM quarantine WHERE locator IN ('logs/a.jsonl:1', 'logs/a.jsonl:2')")
    assert overview(store).groups[0].first == "logs/a.jsonl:3"
    assert [row.locator for row in rows(store, limit=9).rows][-2:] == ["logs/a.jsonl:10", "logs/a.jsonl:11"]


def test_sixty_rules_fit_a_screen_and_the_rest_is_counted(store):
    for number in range(60):
        set_aside(
            store, 100 - number, f"rule_{number:02}", source=f"{'deep/' * 30}{number}.jsonl", reason="w" * 300
        )
    found = overview(store)
    shown = found.render()
    assert fits(shown), shown
    assert "100 × rule_00" in shown
    assert re.search(r"\d+ more rules: --json lists all", shown)
    assert ".jsonl:1" in shown, "what tells places apart is kept"
    assert len(found.as_dict()["groups"]) == 60
    assert found.as_dict()["times"] == sum(100 - number for number in range(60))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from([*CATALOGUE, "their_rule"]), st.integers(1, 10**12), TEXT), max_size=70
    )
)
def test_a_summary_of_an_ingest_fits_a_screen_whatever_is_in_it(found):
    report = IngestReport(
        read=10**9,
        unchanged=10**9,
        formats=tuple(
            FormatCounts(f"format_of_a_long_name_{n}", *[10 ** (n % 13)] * 9) for n in range(len(found))
        ),
        quarantine=tuple(
            Quarantined("record", rule, text, text, n, f"{text}:{n}") for rule, n, text in found
        ),
        skip_reasons={f"{rule}_{text}": number for rule, number, text in found},
        repairs=Repairs(7, 9, {f"kind_{number}": number for _, number, _ in found}),
    )
    assert fits(report.render())
    assert len(report.as_dict()["quarantine"]) == len(found)


def test_forty_formats_are_the_largest_one_by_one_and_the_others_as_one():
    formats = tuple(FormatCounts(f"format_{n:02}", 1, 100 + n, 100 + n, 0, 0, 0, 1, 2, 3) for n in range(40))
    report = IngestReport(
        40, 0, (*formats, FormatCounts("unread", 3, 3, 0, 0, 0, 3, 0, 0, 0)), (), {}, Repairs(0, 0, {})
    )
    lines = report.render().splitlines()
    assert fits(report.render())
    assert lines[3].split()[:3] == ["format_39", "1", "139"]
    assert re.search(r"^\d+ others ", report.render(), re.MULTILINE)
    assert [line.split()[0] for line in lines[-3:]] == ["unread", "total", "records"]
    sources = [int(re.search(r"(?:others|format_\d\d|unread) +([\d,]+)", line)[1]) for line in lines[3:-2]]
    assert sum(sources) == 43, "none is lost between the rows"


def test_a_row_names_file_line_rule_finding_and_remedy(store):
    set_aside(store, 3, "malformed_record", reason="not JSON", detail="at character 9", excerpt='{"a": ')
    text = rows(store, "malformed_record", limit=2).render()
    for part in (
        "logs/a.jsonl:1\n",
        "malformed_record (record): not JSON",
        "found: at character 9",
        '│ {"a":',
    ):
        assert part in text
    assert f"→ malformed_record: {remedy_of('malformed_record')}" in text
    assert text.endswith("2 of 3 rows; --limit N shows more")
    (first, *_) = rows(store, "malformed_record").as_dict()["rows"]
    assert (first["source"], first["locator"], first["remedy"]) == (
        "logs/a.jsonl",
        "logs/a.jsonl:1",
        remedy_of("malformed_record"),
    )


def test_a_rule_of_another_package_is_shown_like_any_other(store):
    set_aside(store, 1, "their_rule", reason="they say so")
    assert FOREIGN in overview(store).render()
    assert "they say so" in rows(store, "their_rule").render()


def test_excerpts_cannot_steer_the_terminal(tmp_path):
    path = tmp_path / "s.duckdb"
    with Store(path) as store:
        set_aside(store, 1, "malformed_record", reason="r\x1b[2J", excerpt="\x1b]0;owned\x07 {\u202e")
    for args in ((), ("--list",), ("--json",), ("--list", "--json")):
        shown = call("quarantine", "--store", path, *args).stdout
        assert "malformed_record" in shown
        assert not any(mark in shown for mark in "\x1b\x07\u202e")


def test_the_command_chooses_rows_by_rule_source_and_limit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store("logforge.duckdb") as store:
        set_aside(store, 30, "malformed_record", source="logs/a.jsonl")
        set_aside(store, 2, "orphan_result", source="logs/deep/b.jsonl")
        set_aside(store, 1, "orphan_result", source="logs.zip!c.jsonl")

    def locators(*args):
        return [row["locator"] for row in json.loads(call("quarantine", *args, "--json").stdout)["rows"]]

    assert len(locators("--list")) == 33
    assert len(locators("--list", "--limit", 5)) == 5
    assert len(locators("--rule", "orphan_result")) == 3
    assert locators("--source", "logs/deep") == ["logs/deep/b.jsonl:1", "logs/deep/b.jsonl:2"]
    assert locators("--source", tmp_path / "logs" / "deep" / "b.jsonl") == locators("--source", "logs/deep/")
    assert locators("--source", "logs.zip") == ["logs.zip!c.jsonl:1"]
    assert len(locators("--source", ".")) == 33
    assert locators("--source", "logs/a.jsonl", "--rule", "orphan_result") == []
    assert "20 of 33 rows" in call("quarantine", "--list").stdout
    assert call("quarantine", "--source", "log").exit_code == 2, (
        "a folder's name is no beginning of another's"
    )
    assert "did you mean 'orphan_result'" in call("quarantine", "--rule", "orphan_reslt").stderr
    assert call("quarantine", "--mapping", "x.yaml").exit_code == 2


def test_choices_that_are_none_are_refused(store):
    with pytest.raises(UnknownName):
        rows(store, "no_such_rule")
    with pytest.raises(UsageError, match="no source at"):
        rows(store, source="nowhere")
    assert rows(store, "malformed_record").render() == "nothing is set aside here"
    assert overview(store).render() == "nothing is set aside"


# --- reading again


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    """A whole file, one with a torn line, and one of a shape that none knows."""
    folder = tmp_path / "logs"
    write_jsonl(folder / "good.jsonl", [conversation("g1"), conversation("g2")])
    torn = write_jsonl(folder / "torn.jsonl", [conversation("t1"), conversation("t2")])
    lines = torn.read_text().splitlines()
    torn.write_text(f"{lines[0]}\n{TORN}\n")
    write_jsonl(folder / "odd.jsonl", [ODD])
    return folder


def mend(logs, write_jsonl, conversation):
    write_jsonl(logs / "torn.jsonl", [conversation("t1"), conversation("t2")])


def test_a_mended_file_is_rescued_alone(store, logs, write_jsonl, conversation):
    ingest(store, [logs])
    mend(logs, write_jsonl, conversation)
    done = replay(store, rule="malformed_record")
    assert (done.read, done.rescued, done.gone) == (1, 1, ())
    assert [(c.rule, c.before, c.after) for c in done.changes] == [("malformed_record", 1, 0)]
    assert done.exit_code() == 0
    assert [group.rule for group in overview(store).groups] == ["unknown_shape"], "the other was not touched"
    assert_conserved(store)


def test_a_mapping_rescues_a_shape_that_none_knew(store, logs, tmp_path):
    ingest(store, [logs])
    (tmp_path / "map.yaml").write_text(MAPPING)
    done = replay(store, rule="unknown_shape", mapping=tmp_path / "map.yaml")
    assert (done.read, done.rescued) == (1, 1)
    assert store.con.sql("SELECT format, kept FROM sources WHERE path LIKE '%odd.jsonl'").fetchall() == [
        ("mine", 1)
    ]
    assert ingest(store, [logs]).read == 0, "a later ingest without the mapping leaves it as it is"


def test_a_format_is_forced_on_what_is_chosen(store, tmp_path, write_jsonl, conversation):
    write_jsonl(tmp_path / "logs" / "x.jsonl", [{"made_by": "them"}, conversation("x")])
    ingest(store, [tmp_path / "logs"])
    assert [group.rule for group in overview(store).groups] == ["unknown_shape"]
    assert replay(store, source=tmp_path / "logs", format="openai_messages").rescued == 1


def test_what_reads_a_file_may_be_mended_too(store, logs, monkeypatch):
    """The bytes are the same, the connector is not."""
    reader = type(connectors.get("openai_messages"))

    def fails(self, source):
        raise RuntimeError("a defect")
        yield

    with monkeypatch.context() as patched:
        patched.setattr(reader, "read", fails)
        ingest(store, [logs])
    assert {group.rule for group in overview(store).groups} == {"connector_failed", "unknown_shape"}
    assert ingest(store, [logs]).read == 0, "for an ingest nothing has changed"
    done = replay(store, rule="connector_failed")
    assert (done.read, done.rescued) == (2, 3)
    assert [(c.rule, c.before, c.after) for c in done.changes] == [
        ("connector_failed", 2, 0),
        ("malformed_record", 0, 1),
    ]


def test_nothing_to_replay_is_said(store, tmp_path, write_jsonl, conversation, monkeypatch):
    write_jsonl(tmp_path / "logs" / "good.jsonl", [conversation("g")])
    ingest(store, [tmp_path / "logs"])
    before = content(store)
    done = replay(store)
    assert (done.read, done.changes, done.exit_code()) == (0, (), 0)
    assert done.render() == "nothing to replay: nothing is set aside here"
    assert content(store) == before


def test_a_replay_of_unchanged_failures_changes_nothing(store, logs):
    ingest(store, [logs])
    before = content(store)
    done = replay(store)
    assert [(c.rule, c.before, c.after) for c in done.changes] == [
        ("malformed_record", 1, 1),
        ("unknown_shape", 1, 1),
    ]
    assert (done.read, done.rescued, done.exit_code()) == (2, 0, 1), "nothing got better"
    assert content(store) == before


def test_sources_that_are_gone_are_said_and_stay(store, logs):
    ingest(store, [logs])
    before = content(store)
    (logs / "odd.jsonl").unlink()
    (logs / "torn.jsonl").unlink()
    done = replay(store)
    assert (done.read, done.exit_code()) == (0, 1)
    assert [path.rpartition("/")[2] for path in done.gone] == ["odd.jsonl", "torn.jsonl"]
    assert "gone, kept as it was: " in done.render()
    assert content(store) == before


def test_a_wrong_mapping_or_choice_changes_nothing(store, logs, tmp_path):
    ingest(store, [logs])
    before = content(store)
    (tmp_path / "map.yaml").write_text("name: x\nmesages: {}\n")
    for wrong, error in (
        ({"mapping": tmp_path / "map.yaml"}, SpecError),
        ({"format": "nonsense"}, UnknownName),
        ({"rule": "nonsense"}, UnknownName),
        ({"source": "nowhere"}, UsageError),
    ):
        with pytest.raises(error):
            replay(store, **wrong)
    assert content(store) == before


@settings(deadline=None, max_examples=enough(3, 20))
@given(torn=st.lists(st.sets(st.integers(0, 3), max_size=4), min_size=1, max_size=3), twin=st.booleans())
def test_replaying_mended_logs_gives_what_an_ingest_of_them_gives(tmp_path_factory, torn, twin):
    """Whatever lines of whatever files were torn, and also where files hold the same episodes: as much as an ingest of
    the mended files, and as much as one into a new store where no two files compete."""
    home = tmp_path_factory.mktemp("replay")
    whole = {}
    for number, lines in enumerate(torn):
        names = [f"{0 if twin else number}-{row}" for row in range(4)]
        texts = [json.dumps({"id": name, "messages": _talk(name)}) for name in names]
        file = home / f"{number}.jsonl"
        whole[file] = "\n".join(texts)
        damaged = [text[: len(text) // 2] if row in lines else text for row, text in enumerate(texts)]
        file.write_text("\n".join(damaged))
    stores = [Store(home / f"{name}.duckdb") for name in ("replayed", "ingested", "clean")]
    replayed, ingested, clean = stores
    ingest(replayed, list(whole))
    ingest(ingested, list(whole))
    for file, text in whole.items():
        file.write_text(text)
    done = replay(replayed)
    assert ingest(replayed, list(whole)).read == 0, "nothing is left to do"
    ingest(ingested, list(whole))
    ingest(clean, list(whole))
    assert content(replayed) == content(ingested)
    assert twin or content(replayed) == content(clean)
    assert_conserved(replayed)
    assert (done.read, done.gone) == (sum(1 for lines in torn if lines), ())
    for opened in stores:
        opened.close()


def _talk(name):
    return [{"role": "user", "content": f"hello {name}"}, {"role": "assistant", "content": "hi"}]


def test_the_command_replays_and_says_so(tmp_path, monkeypatch, logs, write_jsonl, conversation):
    monkeypatch.chdir(tmp_path)
    assert call("ingest", "logs").exit_code == 0
    again = call("quarantine", "--replay")
    assert again.exit_code == 1
    assert "set aside 2 before, 2 now" in again.stdout
    assert remedy_of("unknown_shape") in again.stdout.replace("\n", " ")
    mend(logs, write_jsonl, conversation)
    (tmp_path / "map.yaml").write_text(MAPPING)
    data = json.loads(call("quarantine", "--replay", "--mapping", "map.yaml", "--json").stdout)
    assert (data["read"], data["rescued"], data["gone"]) == (2, 2, [])
    assert {change["rule"]: change["after"] for change in data["changes"]} == {
        "malformed_record": 0,
        "unknown_shape": 0,
    }
    assert call("quarantine", "--replay").exit_code == 0
    assert call("quarantine").stdout.strip() == "nothing is set aside"


@pytest.mark.skipif(not SHARED.exists(), reason="the shared logs are not here")
def test_real_logs_fit_a_screen(tmp_path):
    shown = call(
        "ingest", SHARED / "quirks", SHARED / "logs" / "unsupported", "--store", tmp_path / "s.duckdb"
    ).stdout
    assert fits(shown), shown
    listing = call("quarantine", "--store", tmp_path / "s.duckdb").stdout
    assert fits(listing), listing
    assert "unsupported_shape" in listing
    for row in json.loads(call("quarantine", "--list", "--store", tmp_path / "s.duckdb", "--json").stdout)[
        "rows"
    ]:
        assert row["locator"], row
        assert row["remedy"], row
        assert row["detail"] or row["excerpt"] or row["reason"], row
