"""One HTML file from sections: no script, no request, everything from the logs escaped.

A `data-query` on a number or a table names the query that gives it, `data-value` the exact value: what is shown can be held
against the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape

from logforge.core import plural
from logforge.report.page.charts import svg
from logforge.report.page.section import Cell, Number, Section, Table

_MARKS = {"good": "✓", "note": "i", "alarm": "!"}
_N = ' class="n"'
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The page's content policy: a browser would refuse whatever is not in the page itself."""


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The whole report as HTML."""
    links = "".join(f'<li><a href="#{s.key}">{_badge(s.level)}{escape(s.title)}</a></li>' for s in sections)
    body = "".join(_section(section) for section in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n"
        f'<body><nav><b>{escape(title)}</b><ol>{links}</ol></nav><main id="top"><h1>{escape(title)}</h1>'
        f'<p class="about">{escape(subtitle)}</p>{_overview(sections)}{body}</main></body></html>\n'
    )


def _badge(level: str) -> str:
    return f'<i class="badge {level}" title="{level}">{_MARKS[level]}</i>'


def _overview(sections: Sequence[Section]) -> str:
    """What wants a look, first."""
    told = [(finding.level, section, finding.text) for section in sections for finding in section.findings]
    counts = {level: sum(item[0] == level for item in told) for level in ("alarm", "note")}
    rows = "".join(
        f'<li>{_badge(level)}<a href="#{section.key}">{escape(section.title)}</a>: {escape(text)}</li>'
        for wanted in ("alarm", "note")
        for level, section, text in told
        if level == wanted
    )
    head = ", ".join(plural(counts[level], level) for level in counts)
    return f'<section class="overview"><h2>At a glance: {head}</h2><ul class="findings">{rows}</ul></section>'


def _section(section: Section) -> str:
    findings = "".join(f"<li>{_badge(f.level)}{escape(f.text)}</li>" for f in section.findings)
    numbers = "".join(_number(section, item) for item in section.numbers)
    charts = "".join(svg(chart) for chart in section.charts)
    asked = list(dict.fromkeys(item.query for item in section.numbers))
    tables = ""
    for table in section.tables:
        tables += _table(section, table) + _queries(
            section, [table.query] if table.query not in asked else []
        )
        asked.append(table.query)
    rest = [query.key for query in section.queries if query.key not in asked]
    return (
        f'\n<section id="{section.key}"><h2>{_badge(section.level)}{escape(section.title)}</h2>'
        f'<p class="about">{escape(section.about)}</p>'
        + (f'<ul class="findings">{findings}</ul>' if findings else "")
        + (f'<div class="numbers">{numbers}</div>' if numbers else "")
        + _queries(section, dict.fromkeys(item.query for item in section.numbers))
        + f'<div class="charts">{charts}</div>{tables}{_queries(section, rest)}</section>'
    )


def _number(section: Section, item: Number) -> str:
    kind = "data-query" if item.column else "data-from"
    place = f'{kind}="{section.key}.{item.query}"'
    if item.column:
        place += f' data-column="{escape(item.column)}"'
    how = f' title="{escape(item.method)}"' if item.method else ""
    interval = ""
    if item.low is not None and item.high is not None:
        interval = f"<small>95 % {_shown(item.low, item.percent)} … {_shown(item.high, item.percent)}</small>"
    return (
        f'<div class="number"{how}><b {place} data-value="{_exact(item.value)}">{_shown(item.value, item.percent)}</b>'
        f"{interval}<span>{escape(item.label)}</span></div>"
    )


def _table(section: Section, table: Table) -> str:
    if not table.rows:
        return f'<h3>{escape(table.title)}</h3><p class="none">none</p>'
    numeric = [all(_is_number(row[place]) for row in table.rows) for place in range(len(table.columns))]
    head = "".join(
        f"<th{_N if right else ''}>{escape(name.replace('_', ' '))}</th>"
        for name, right in zip(table.columns, numeric, strict=True)
    )
    rows = "".join(f"<tr>{_cells(row, numeric)}</tr>" for row in table.rows)
    kind = "data-from" if table.method else "data-query"
    notes = "".join(f'<p class="about">{escape(text)}</p>' for text in (table.method, table.note) if text)
    return (
        f'<h3>{escape(table.title)}</h3>{notes}<div class="scroll"><table {kind}="{section.key}.{table.query}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cells(row: Iterable[Cell], numeric: Sequence[bool]) -> str:
    return "".join(
        f'<td{_N if right else ""} data-value="{_exact(value)}">{_shown(value)}</td>'
        for value, right in zip(row, numeric, strict=True)
    )


def _queries(section: Section, keys: Iterable[str]) -> str:
    """The queries named, each to be unfolded."""
    texts = {query.key: query.sql for query in section.queries}
    return "".join(
        f"<details><summary>SQL: {escape(section.key)}.{escape(key)}</summary>"
        f'<pre id="sql-{section.key}.{key}">{escape(texts[key])}</pre></details>'
        for key in keys
    )


def _exact(value: Cell) -> str:
    return escape(json.dumps(value, ensure_ascii=False))


def _shown(value: Cell, percent: bool = False) -> str:
    """A cell for people: numbers short, texts escaped."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if percent:
            return f"{100 * value:.1f} %"
        return f"{value:,}" if isinstance(value, int) else _rounded(value)
    return escape(value)


def _rounded(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.3g}"


def _is_number(value: Cell) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


CSS = """
:root{color-scheme:light dark;--ground:#fff;--text:#1c2330;--soft:#5b6575;--line:#dde2ea;--panel:#f6f8fb;--link:#0b5cad;
--good:#1a7f4b;--note:#8a6100;--alarm:#c0262d;--s0:#3b78c4;--s1:#d9822b;--s2:#8f99a8;--s3:#5aa469;--s4:#8e63b8;--s5:#c25b7c}
@media(prefers-color-scheme:dark){:root{--ground:#14181f;--text:#e3e8f0;--soft:#9aa5b5;--line:#2c3442;--panel:#1c222c;
--link:#7db8f5;--good:#57c98a;--note:#e0b04a;--alarm:#ff7b7b;--s0:#6aa5ea;--s1:#eda257;--s2:#7d8797;--s3:#7cc78c;--s4:#b493db;--s5:#e28aa5}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;
display:grid;grid-template-columns:250px minmax(0,1fr)}
nav{position:sticky;top:0;height:100vh;overflow:auto;padding:20px 14px;background:var(--panel);border-right:1px solid var(--line);font-size:14px}
nav ol{list-style:none;margin:12px 0;padding:0}
nav a{display:block;padding:3px 6px;border-radius:5px;color:var(--text);text-decoration:none}
nav a:hover,nav a:focus{background:var(--line)}
main{padding:24px 32px 80px;max-width:1080px;min-width:0}
h1{margin:0;font-size:26px}
h2{font-size:19px;margin:0 0 6px}
h3{font-size:14px;margin:18px 0 4px}
a{color:var(--link)}
section{padding:22px 0;border-top:1px solid var(--line);scroll-margin-top:8px}
.overview{border:1px solid var(--line);border-radius:8px;background:var(--panel);padding:14px 18px;margin:18px 0}
.about{color:var(--soft);margin:2px 0 10px;max-width:88ch}
.findings{list-style:none;padding:0;margin:8px 0}
.findings li{margin:3px 0;padding-left:26px;text-indent:-26px;overflow-wrap:anywhere}
.badge{display:inline-block;width:18px;height:18px;margin-right:8px;border-radius:50%;font:bold 11px/18px system-ui,sans-serif;
text-align:center;text-indent:0;color:var(--ground);background:var(--good)}
.badge.note{background:var(--note)}
.badge.alarm{background:var(--alarm)}
.numbers{display:grid;grid-template-columns:repeat(auto-fill,minmax(165px,1fr));gap:10px;margin:12px 0}
.number{border:1px solid var(--line);border-radius:8px;padding:8px 12px;overflow-wrap:anywhere}
.number b{display:block;font-size:19px;font-variant-numeric:tabular-nums}
.number small{display:block;color:var(--soft)}
.number span{color:var(--soft);font-size:13px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:4px 12px 4px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);max-width:38ch;overflow-wrap:break-word;white-space:pre-line}
th{color:var(--soft);font-weight:600;white-space:nowrap}
.n{text-align:right}
.none{color:var(--soft);margin:2px 0}
figure{margin:14px 0}
figcaption{font-size:14px;font-weight:600;margin-bottom:4px}
svg{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}
svg text{fill:var(--text)}
svg line{stroke:var(--line)}
.s0{fill:var(--s0);background:var(--s0)}.s1{fill:var(--s1);background:var(--s1)}.s2{fill:var(--s2);background:var(--s2)}
.s3{fill:var(--s3);background:var(--s3)}.s4{fill:var(--s4);background:var(--s4)}.s5{fill:var(--s5);background:var(--s5)}
.cell{fill:var(--s0);stroke:var(--line)}
.legend span{margin-right:16px;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:10px;height:10px;margin-right:6px;border-radius:2px}
details{margin:4px 0}
summary{cursor:pointer;color:var(--soft);font-size:13px}
pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:10px;overflow-x:auto;font-size:12px;white-space:pre-wrap}
@media(max-width:860px){body{display:block}nav{position:static;height:auto;border-right:0;border-bottom:1px solid var(--line)}
nav ol{columns:2}main{padding:16px}}
@media print{body{display:block}nav{display:none}}
"""
