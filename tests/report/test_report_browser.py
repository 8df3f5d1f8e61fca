"""The report in a headless browser: it asks nobody for anything, says nothing on the console, and shows what SQL gives."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.report.page.section import plain
from logforge.report.pipeline import report
from logforge.report.sections import SECTIONS
from logforge.store.store import Store
from support.browsing import BROWSER, visit
from support.places import SAMPLES

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome is installed")
EVIL = "<script>document.title='hacked'</script>"
QUOTES = '"><img src=http://example.invalid/x.png onerror=alert(1)>'


class Reader(HTMLParser):
    """Numbers, tables and queries of the page."""

    def __init__(self):
        super().__init__()
        self.numbers, self.tables, self.queries, self.titles, self.tags = [], [], {}, [], []
        self._reading = None

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        if tag == "b" and "data-query" in found:
            self.numbers.append(found)
        elif tag == "table":
            self.tables.append((found, []))
        elif tag == "tr" and self.tables:
            self.tables[-1][1].append([])
        elif tag == "td":
            self.tables[-1][1][-1].append(json.loads(found["data-value"]))
        elif (tag == "pre" and "id" in found) or (tag == "title" and "title" not in self.queries):
            self._reading = found.get("id", "title")
            self.queries[self._reading] = ""

    def handle_endtag(self, tag):
        if tag in ("pre", "title"):
            self._reading = None

    def handle_data(self, data):
        if self._reading:
            self.queries[self._reading] += data


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A dataset of the sample logs and of one whose tools have hostile names, with its report."""
    folder = tmp_path_factory.mktemp("report")
    rows = []
    for n in range(8):
        call = {
            "id": "c",
            "type": "function",
            "function": {"name": EVIL if n % 2 else QUOTES, "arguments": "{}"},
        }
        messages = [
            {"role": "user", "content": f"please {EVIL} {n}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
            {"role": "assistant", "content": "done"},
        ]
        rows.append(
            {
                "id": f"{QUOTES}{n}",
                "task_id": f"{EVIL}{n}",
                "success": n % 2 == 0,
                "model": EVIL,
                "messages": messages,
            }
        )
    (folder / "evil.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Store(folder / "s.duckdb") as store:
        ingest(store, [SAMPLES, folder / "evil.jsonl"], workers=1)
        config = BuildConfig(encoder="hashing", text_size=8)
        build_dataset(store, SAMPLES / "reward.yaml", name="d", out=folder / "datasets", config=config)
        made = report(store, "d", out=folder / "out")
        yield folder, store, made


@pytest.fixture(scope="module")
def seen(built):
    return visit(built[0] / "out" / "report.html", built[0] / "profile")


@pytest.fixture(scope="module")
def read(seen):
    reader = Reader()
    reader.feed(seen.dom)
    return reader


def test_no_request_leaves_the_page_and_the_console_is_silent(seen):
    assert seen.requests == []
    assert seen.console == []
    assert "</html>" in seen.dom


def test_the_check_would_see_a_request_and_an_error(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<img src=http://example.invalid/x.png><script>console.error('oh')</script>")
    found = visit(page, tmp_path / "profile")
    assert any("example.invalid" in line for line in found.requests)
    assert any("oh" in line for line in found.console)


def test_hostile_names_stay_text(read, seen):
    assert read.queries["title"] == "Quality of d"
    assert not [tag for tag, _ in read.tags if tag in ("script", "img", "iframe", "link", "object")]
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    assert "&lt;script&gt;" in seen.dom


def test_numbers_in_the_dom_are_what_their_sql_gives(built, read):
    answers = {}
    for key, sql in read.queries.items():
        if key.startswith("sql-"):
            cursor = built[1].con.execute(sql)
            names = [item[0] for item in cursor.description]
            answers[key[4:]] = names, [[plain(value) for value in row] for row in cursor.fetchall()]
    assert len(read.numbers) > 80
    for number in read.numbers:
        names, [row] = answers[number["data-query"]]
        assert json.loads(number["data-value"]) == row[names.index(number["data-column"])], number
    exact = [(attributes, rows) for attributes, rows in read.tables if "data-query" in attributes]
    assert len(exact) > 20
    for attributes, rows in exact:
        assert [row for row in rows if row] == answers[attributes["data-query"]][1], attributes


def test_every_number_and_table_has_its_query_on_the_page(read):
    named = [
        attributes.get("data-query") or attributes.get("data-from")
        for tag, attributes in read.tags
        if tag in ("b", "table")
    ]
    assert all(f"sql-{key}" in read.queries for key in named if key)


def test_the_table_of_contents_leads_to_every_section(read):
    places = {attributes["id"] for tag, attributes in read.tags if tag == "section" and "id" in attributes}
    links = {attributes["href"][1:] for tag, attributes in read.tags if tag == "a"}
    assert places == links == set(SECTIONS)


def test_the_json_holds_the_same_numbers(built):
    folder, _, made = built
    data = json.loads((folder / "out" / "report.json").read_text("utf-8"))
    assert list(data["sections"]) == list(SECTIONS)
    for section in made.sections:
        shown = {name: item["value"] for name, item in data["sections"][section.key]["numbers"].items()}
        assert shown == {item.name: item.value for item in section.numbers}


def test_a_second_report_has_the_same_bytes(built):
    folder, store, _ = built
    report(store, "d", out=folder / "again")
    for name in ("report.html", "report.json"):
        assert (folder / "again" / name).read_bytes() == (folder / "out" / name).read_bytes()
