"""The scorers by name, and the check of what a spec says to one: built-in ones and those of other packages alike."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pydantic import ValidationError

from logforge.rewards.scorers.base import Reads, Scorer
from logforge.rewards.scorers.inputs import INPUTS
from logforge.schemas import UnknownName

ENTRY_POINTS = "logforge.scorers"
"""Other packages add a scorer by an entry point of this group: NAME = "module:Class"."""

BUILT_IN = {
    "bert_score": "logforge.rewards.scorers.similarity:BertScore",
    "chrf": "logforge.rewards.scorers.overlap:Chrf",
    "exact_match": "logforge.rewards.scorers.overlap:ExactMatch",
    "fact_check": "logforge.rewards.scorers.fact_check:FactCheck",
    "judge": "logforge.rewards.scorers.judge:Judge",
    "logged_judge": "logforge.rewards.scorers.logged_judge:LoggedJudge",
    "numeric_match": "logforge.rewards.scorers.overlap:NumericMatch",
    "pass_rate": "logforge.rewards.scorers.pass_rate:PassRate",
    "perplexity": "logforge.rewards.scorers.perplexity:Perplexity",
    "rouge_l": "logforge.rewards.scorers.overlap:RougeL",
    "satisfaction": "logforge.rewards.scorers.satisfaction:Satisfaction",
    "similarity": "logforge.rewards.scorers.similarity:Similarity",
}


@cache
def registry() -> dict[str, type[Scorer]]:
    """Every scorer's class by name, sorted. A broken third-party one is a warning, not a crash."""
    found = {name: _load(target) for name, target in BUILT_IN.items()}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            kind = point.load()
            if not issubclass(kind, Scorer) or kind.name != point.name:
                raise TypeError(f"must be a logforge.rewards.scorers.Scorer whose name is {point.name!r}")
            found[point.name] = kind
        except Exception as error:
            warnings.warn(f"scorer {point.name!r} ({point.value}) cannot be loaded: {error}", stacklevel=2)
    return dict(sorted(found.items()))


def _load(target: str) -> type[Scorer]:
    module, _, name = target.partition(":")
    kind: type[Scorer] = getattr(importlib.import_module(module), name)
    return kind


def make_scorer(call: Mapping[str, Any]) -> Scorer:
    """The scorer that a term's `scorer` names, with its parameters. `check_call` says what is wrong with one."""
    return registry()[call["name"]](**{name: value for name, value in call.items() if name != "name"})


def reads_of(call: Mapping[str, Any]) -> Reads:
    """What decides the scores of a valid call: the agent's own words, the logged outcome, or what the world answered."""
    return make_scorer(call).judged_by


def check_call(call: Mapping[str, Any], at: str = "step") -> str | None:
    """What is wrong with a term's `scorer`, where the term pays `at`; None when nothing is."""
    kind = registry().get(call["name"])
    if kind is None:
        return str(UnknownName("scorer", call["name"], list(registry())))
    try:
        scorer = make_scorer(call)
    except ValidationError as error:
        return "; ".join(_faults(kind, error))
    return _too_early(scorer) if at == "step" else None


def _faults(kind: type[Scorer], error: ValidationError) -> Iterator[str]:
    for item in error.errors(include_url=False):
        name = ".".join(map(str, item["loc"]))
        if item["type"] == "extra_forbidden":
            yield str(UnknownName(f"parameter of {kind.name}", name, sorted(kind.model_fields)))
        elif item["type"] == "missing":
            yield f"required parameter {name!r} of {kind.name} is missing"
        else:
            what = item["msg"].removeprefix("Value error, ").replace("Input should", "must")
            yield f"{name}: {what}" if name else what


def _too_early(scorer: Scorer) -> str | None:
    late = [name for name in scorer.inputs if INPUTS[name].known == "end"]
    if not late:
        return None
    valid = ", ".join(name for name, item in INPUTS.items() if item.known == "step")
    return f"{late[0]} is known only when the episode is over: say `at: end` or `at: terminal`. valid at a step: {valid}"
