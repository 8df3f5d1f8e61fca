"""The sections of the report, in the order of the page.

A section is a module with `measure(context) -> Section`.
"""

from __future__ import annotations

from logforge.report.sections import (
    advice,
    balance,
    characteristics,
    clone,
    conflicts,
    conservation,
    coverage,
    drift,
    duplicates,
    entropy,
    failures,
    labels,
    laziness,
    leak,
    overlap,
    returns,
    sources,
    splits,
    sufficiency,
    terms,
)

SECTIONS = {
    module.__name__.rpartition(".")[2]: module.measure
    for module in (
        sources, conservation, balance, returns, terms, failures, drift, labels, laziness, coverage, entropy, characteristics,
        overlap, conflicts, duplicates, splits, leak, sufficiency, clone, advice,
    )
}  # fmt: skip
"""Every section by its name, in the order of the page."""
