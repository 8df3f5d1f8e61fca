"""The report as a whole: its page, its charts, its text, its command."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.report.page.charts import svg
from logforge.report.page.context import Context
from logforge.report.page.html import page
from logforge.report.page.section import Bars, Columns, Finding, Heat, Number, Query, Section, Table, plain
from logforge.report.pipeline import measure, report
from logforge.report.sections import SECTIONS
from logforge.schemas.errors import UnknownName
from support.made_report import episode, plant

EVIL = "<script>alert(1)</script>\"'&"


def section(**more):
    query = Query("q", f"SELECT '{EVIL}'", ("name", "n"), ((EVIL, 1),))
    return Section(
        "s", EVIL, EVIL, (query,), (Number("n", EVIL, EVIL, "q", "name"), Number("m", "m", 0.5, "q", method=EVIL, low=0.1, high=0.9)),
        (Table(EVIL, "q", query.columns, query.rows, note=EVIL),),
        (Bars(EVIL, (EVIL,), {EVIL: (1.0,), "b": (2.0,)}), Columns(EVIL, ("0", EVIL), {EVIL: (1.0,)}), Heat(EVIL, (EVIL,), (EVIL,), ((3.0,),))),
        (Finding("alarm", EVIL),), **more,
    )  # fmt: skip


def test_whatever_comes_from_a_log_is_escaped_everywhere():
    text = page(EVIL, EVIL, [section()])
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    ElementTree.fromstring(
        text.replace("<!doctype html>", "")
        .replace('<meta charset="utf-8">', "")
        .split("</head>")[1]
        .split("</html>")[0]
    )


def test_a_number_carries_its_exact_value_and_its_query():
    text = page("t", "", [section()])
    assert 'data-from="s.q" data-value="0.5"' in text
    assert 'data-query="s.q" data-column="name"' in text
    assert "95 % 0.1 … 0.9" in text
    assert 'id="sql-s.q"' in text
    assert text.count('id="sql-s.q"') == 1


@pytest.mark.parametrize(
    "chart",
    [
        Bars("t", (), {"a": ()}),
        Bars("t", ("x",), {"a": (0.0,)}),
        Columns("t", ("0", "1"), {"a": (0.0,), "b": (0.0,)}),
        Columns("t", tuple(map(str, range(25))), {"a": tuple(map(float, range(24)))}),
        Heat("t", (), (), ()),
        Heat("t", ("a", "b"), ("x",), ((0.0,), (5.0,))),
    ],
)
def test_charts_are_well_formed_whatever_they_hold(chart):
    drawing = svg(chart)
    root = ElementTree.fromstring(drawing)
    assert root.find("figcaption").text == "t"
    assert "nan" not in drawing
    assert "inf" not in drawing


def test_stacked_bars_are_as_long_as_their_numbers():
    root = ElementTree.fromstring(svg(Bars("t", ("x", "y"), {"a": (1.0, 2.0), "b": (3.0, 0.0)})))
    widths = [float(rect.get("width")) for rect in root.iter("rect")]
    assert widths[1] == pytest.approx(3 * widths[0], rel=0.01)
    assert widths[2] == pytest.approx(2 * widths[0], rel=0.01)
    assert len(root.findall("./div/span")) == 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (float("inf"), None),
        (1 / 3, 0.3333333333),
        (True, True),
        (["a", None], "a, —"),
        (3, 3),
        (None, None),
    ],
)
def test_values_of_duckdb_become_plain(value, expected):
    assert plain(value) == expected


def test_every_section_stands_a_dataset_without_its_folder_and_with_one_episode(store):
    found = measure(plant(store, episode("a", "x", success=None)))
    assert [item.key for item in found.sections] == list(SECTIONS)
    assert "no dataset in" in json.dumps(found.as_dict())
    assert found.html().count("<section id=") == len(SECTIONS)


def test_an_augmented_copy_changes_nothing_but_its_own_count(store):
    context = plant(store, episode("a", "x"), episode("b", "y", success=False))
    before = measure(context).as_dict()["sections"]
    copy = {"parent_id": "a/0", "augmenter": "paraphrase", "augment_seed": 0}
    plant(store, episode("a-copy", {"action": "z", **copy}, source_kind="synthetic"))
    store.con.execute("DELETE FROM episodes WHERE episode_id = 'a-copy'")
    store.con.execute("DELETE FROM steps WHERE episode_id = 'a-copy'")
    store.con.execute("DELETE FROM splits WHERE episode_id = 'a-copy'")
    after = measure(Context(store, "d")).as_dict()["sections"]
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {"sources"}
    assert after["sources"]["numbers"]["augmented_transitions"]["value"] == 1


def test_unknown_names_are_refused_with_the_valid_ones(store):
    plant(store, episode("a", "x"))
    with pytest.raises(UnknownName, match="sufficiency"):
        report(store, "d", sections=["sufficency"])
    with pytest.raises(UnknownName, match="dataset"):
        report(store, "e")
    with pytest.raises(UnknownName, match="dataset"):
        report(store, "d", reference="e")


def test_a_dataset_may_be_named_by_its_folder(store, tmp_path, monkeypatch):
    plant(store, episode("a", "x"))
    store.con.execute("UPDATE datasets SET path = 'datasets/d'")
    monkeypatch.chdir(tmp_path)
    for given in ("datasets/d", "datasets/d/", tmp_path / "datasets" / "d"):
        assert report(store, str(given), sections=["balance"]).dataset == "d"
    with pytest.raises(UnknownName, match="dataset"):
        report(store, "datasets/e", sections=["balance"])


def test_the_command_prints_a_section_and_writes_files_where_asked(store, tmp_path):
    plant(store, episode("a", "x"), episode("b", "x", success=False))
    store.close()
    base = ["report", "d", "--store", str(store.path)]
    alone = CliRunner().invoke(main, [*base, "--section", "balance"])
    assert alone.exit_code == 0, alone.output
    assert "success rate (known outcomes)" in alone.output
    assert not (tmp_path / "none-report").exists()
    as_json = CliRunner().invoke(main, [*base, "--section", "balance", "--json"])
    assert json.loads(as_json.stdout)["sections"]["balance"]["numbers"]["success_rate"]["value"] == 0.5
    whole = CliRunner().invoke(main, base)
    assert whole.exit_code == 0, whole.output
    assert f"written: {tmp_path / 'none-report' / 'report.html'}" in whole.output
    assert json.loads((tmp_path / "none-report" / "report.json").read_text("utf-8"))["dataset"] == "d"
