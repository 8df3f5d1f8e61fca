"""Charts as inline SVG: bars, columns and heat maps. Colours come from the page's style, so that they fit light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape

from logforge.core import cut
from logforge.report.page.section import Bars, Chart, Columns, Heat

WIDTH = 720
_LABEL, _ROW, _CELL = 240, 22, 24
_HEIGHT = 180
_CHARACTER = 7.2
"""Pixels a letter takes, about."""


def svg(chart: Chart) -> str:
    """A chart with its title as a figure of HTML."""
    draw = {Bars: _bars, Columns: _columns, Heat: _heat}[type(chart)]
    return f"<figure><figcaption>{escape(chart.title)}</figcaption>{draw(chart)}{_legend(chart)}</figure>"  # type: ignore[operator]


def short(number: float) -> str:
    """A number in few characters."""
    return f"{number:,.0f}" if abs(number) >= 1000 or number == int(number) else f"{number:.3g}"


def _frame(title: str, width: float, height: float, parts: Iterable[str]) -> str:
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="max-width:{width:.0f}px">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, style: str, title: str) -> str:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
    return f"<rect {box} {style}><title>{escape(title)}</title></rect>"


def _cut(text: str, pixels: float) -> str:
    room = max(3, int(pixels / _CHARACTER))
    return cut(text, room)


def _legend(chart: Chart) -> str:
    if isinstance(chart, Heat) or len(chart.series) < 2:
        return ""
    named = (
        f'<span><i class="s{number}"></i>{escape(name)}</span>' for number, name in enumerate(chart.series)
    )
    return f'<div class="legend">{"".join(named)}</div>'


def _totals(series: Mapping[str, tuple[float, ...]]) -> list[float]:
    return [sum(values) for values in zip(*series.values(), strict=True)]


def _bars(chart: Bars) -> str:
    totals = _totals(chart.series)
    scale = (WIDTH - _LABEL - 70) / max([*totals, 1e-12])
    return _frame(chart.title, WIDTH, _ROW * len(totals) + 4, _bar_parts(chart, totals, scale))


def _bar_parts(chart: Bars, totals: list[float], scale: float) -> Iterator[str]:
    for row, label in enumerate(chart.labels):
        y, x = row * _ROW + 3, float(_LABEL)
        yield _text(_LABEL - 8, y + 13, _cut(label, _LABEL - 12), "end")
        for number, (name, values) in enumerate(chart.series.items()):
            told = f"{label} · {name}: {short(values[row])}"
            yield _rect(x, y, values[row] * scale, _ROW - 6, f'class="s{number}"', told)
            x += max(values[row] * scale, 0)
        yield _text(x + 6, y + 13, short(totals[row]))


def _columns(chart: Columns) -> str:
    totals = _totals(chart.series)
    step = (WIDTH - 90) / max(len(totals), 1)
    top = max([*totals, 1e-12])
    return _frame(chart.title, WIDTH, _HEIGHT + 30, _column_parts(chart, step, top))


def _column_parts(chart: Columns, step: float, top: float) -> Iterator[str]:
    for share in (0.5, 1.0):
        y = _HEIGHT - share * (_HEIGHT - 16)
        yield f'<line x1="50" x2="{WIDTH - 40}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(44, y + 4, short(top * share), "end")
    count = len(chart.edges) - 1
    for place in range(count):
        y = float(_HEIGHT)
        for number, (name, values) in enumerate(chart.series.items()):
            height = values[place] / top * (_HEIGHT - 16)
            y -= height
            told = f"{chart.edges[place]} … {chart.edges[place + 1]} · {name}: {short(values[place])}"
            yield _rect(50 + place * step + 1, y, step - 2, height, f'class="s{number}"', told)
    every = max(1, round(len(chart.edges) / 9))
    for place in range(0, len(chart.edges), every):
        yield _text(50 + place * step, _HEIGHT + 18, chart.edges[place], "middle")


def _heat(chart: Heat) -> str:
    head = min(150.0, 12 + _CHARACTER * max((len(name) for name in chart.columns), default=0) * 0.75)
    width = _LABEL + _CELL * len(chart.columns) + 100
    height = head + _CELL * len(chart.rows) + 4
    return _frame(chart.title, width, height, _heat_parts(chart, head))


def _heat_parts(chart: Heat, head: float) -> Iterator[str]:
    top = max((value for row in chart.values for value in row), default=0) or 1
    for place, name in enumerate(chart.columns):
        x = _LABEL + place * _CELL + _CELL * 0.6
        turned = f' transform="rotate(-45 {x:.1f} {head - 6:.1f})"'
        yield _text(x, head - 6, _cut(name, 170), "start", turned)
    for row, label in enumerate(chart.rows):
        y = head + row * _CELL
        yield _text(_LABEL - 8, y + 16, _cut(label, _LABEL - 12), "end")
        for place, value in enumerate(chart.values[row]):
            x = _LABEL + place * _CELL
            strength = 0.15 + 0.85 * (value / top) ** 0.5 if value else 0
            style = f'class="cell" style="fill-opacity:{strength:.2f}"'
            yield _rect(
                x, y, _CELL - 2, _CELL - 2, style, f"{label} · {chart.columns[place]}: {short(value)}"
            )
