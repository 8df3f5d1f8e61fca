"""What a build says of its actions: names that were joined, the second level, what was proposed otherwise, who is how likely."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from logforge.core import BaseReport, Lines
from logforge.schemas import PROPENSITY_KINDS, Manifest

SHOWN: Final = 10
"""So many names stand in one line; `--json` has all of them."""


@dataclass(frozen=True)
class ActionReport(BaseReport):
    """The figures, from a sealed manifest and the rows of `transitions`. `changed` counts the decisions (of `decisions`) that
    executed another action than was proposed."""

    aliases: Mapping[str, str]
    others: Mapping[str, int]
    templates: int
    numbers: int
    decisions: int
    changed: int
    propensity_kinds: Mapping[str, int]
    propensity_model: Mapping[str, Any]

    @classmethod
    def of(cls, manifest: Manifest, rows: pl.DataFrame) -> ActionReport:
        """The report of a build."""
        return cls(
            aliases=manifest.action_aliases,
            others=manifest.other_actions,
            templates=len(manifest.argument_templates),
            numbers=len(manifest.argument_numbers),
            decisions=rows.height,
            changed=rows.height - rows["proposed_action"].null_count(),
            propensity_kinds=manifest.propensity_kinds,
            propensity_model=manifest.propensity_model,
        )

    def lines(self) -> Lines:
        """Nothing of what did not happen."""
        if self.aliases:
            yield "renamed tools: " + _shortened([f"{old} = {new}" for old, new in self.aliases.items()])
        if self.others:
            told = _shortened([f"{name} {count}" for name, count in self.others.items() if count])
            count = sum(self.others.values())
            yield f"rare tools: {count} decisions are `<other>`, which no policy chooses ({told})"
        if self.templates:
            yield f"second level: {self.templates} argument templates, {self.numbers} numeric arguments"
        if self.changed:
            share = self.changed / self.decisions
            yield f"proposed otherwise: {self.changed} of {self.decisions} decisions ({share:.1%}) executed another action"
        if self.propensity_model:
            yield from self._estimates()

    def _estimates(self) -> Iterator[str]:
        model = self.propensity_model
        kinds = ", ".join(
            f"{self.propensity_kinds[kind]} {kind}"
            for kind in PROPENSITY_KINDS
            if kind in self.propensity_kinds
        )
        if model["refused"]:
            yield f"propensities: {kinds}; none was estimated: {model['refused']}"
            return
        yield f"propensities: {kinds}"
        for name, part in (("train, cross-fitted", model["train"]), ("held out", model["held_out"])):
            if part:
                yield (
                    f"  {name}: calibration error {part['ece']:.3f}, log loss {part['log_loss']:.3f} "
                    f"(by frequency {part['marginal_log_loss']:.3f}), {part['rows']} decisions"
                )
        for policy, part in (model["policies"] or {}).items():
            yield f"  {policy}: calibration error {part['ece']:.3f}, log loss {part['log_loss']:.3f}"


def _shortened(names: list[str]) -> str:
    more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return ", ".join([*names[:SHOWN], *more])
