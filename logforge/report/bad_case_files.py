"""Writes what follows from bad cases: their episodes, a rule for people to complete, and a file for `build-dataset --weights`.

topic.jsonl      one episode a line: the failures of the clusters, and the successes of their topics
rules.md         what fails, what did better, and room for the rule
up-weight.yaml   the factor of each of these episodes
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from logforge.core import refuse_foreign, replaced_folder
from logforge.report.bad_case_search import BadCase, BadCases, chosen
from logforge.schemas import UsageError

TOPIC_SET: Final = "topic.jsonl"
RULES: Final = "rules.md"
UP_WEIGHT: Final = "up-weight.yaml"
FACTOR: Final = 2.0
_MARKUP = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]<>()#+!|~"})


def write_bad_cases(
    found: BadCases, folder: str | Path, ranks: Iterable[int] = (1,), factor: float = FACTOR
) -> BadCases:
    """Write the files of the clusters with these ranks into a folder, in place of earlier ones, and name them in the report.

    Raises UsageError for a rank that there is not and for a folder that holds something else.
    """
    if not factor >= 0:
        raise UsageError(f"the factor is {factor!r}", "give a number of at least 0")
    target, cases = Path(folder), chosen(found, list(ranks))
    refuse_foreign(target, TOPIC_SET, "bad cases")
    texts = {
        TOPIC_SET: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _members(cases)),
        RULES: "\n".join(_rules(found.dataset, cases)),
        UP_WEIGHT: "\n".join(_up_weight(found.dataset, cases, factor)) + "\n",
    }
    with replaced_folder(target) as fresh:
        for name, text in texts.items():
            (fresh / name).write_text(text, "utf-8")
    return replace(found, written=tuple(str(target / name) for name in texts))


def _members(cases: Iterable[BadCase]) -> Iterator[dict[str, Any]]:
    """Each episode once; one that failed in a cluster and did well in none is a failure."""
    told: set[str] = set()
    for case in cases:
        for role, names in (("failure", case.episodes), ("alternative", case.alternatives)):
            for name in names:
                if name not in told:
                    told.add(name)
                    yield {
                        "episode_id": name, "role": role, "cluster": case.rank, "failure": case.failure,
                        "topic": list(case.topic),
                    }  # fmt: skip


def _rules(dataset: str, cases: Iterable[BadCase]) -> Iterator[str]:
    """What logs say is escaped: it is data, and no markup."""
    yield f"# Rules to write, from the bad cases of {_inert(dataset)}\n"
    for case in cases:
        yield f"## {case.rank}. {_inert(' '.join(case.topic))}: {_inert(case.failure)}\n"
        yield f"{case.count} episodes failed so, with a mean return of {case.mean_return:.2f}."
        yield f"The best alternative ({case.alternative_from}) has {case.alternative:.2f}: a regret of {case.regret:.2f} each.\n"
        for who, openings in (("failures", case.openings), ("successes of the topic", case.better)):
            yield f"* {who} begin with: {'; '.join(f'{_inert(a)} ({n})' for a, n in openings) or 'there is none'}"
        yield ""
        yield from (f"* {_inert(item.locator)}: {_inert(item.text)}" for item in case.examples)
        yield f"\nWhen a task speaks of {', '.join(map(_inert, case.topic))}:\n"
        yield "* the agent should … (write the rule here)\n"


def _up_weight(dataset: str, cases: Iterable[BadCase], factor: float) -> Iterator[str]:
    yield f"# Bad cases of {json.dumps(dataset)}: their failures, and what went well on the same topic."
    yield "episodes:"
    yield from sorted(f"  {row['episode_id']}: {float(factor)!r}" for row in _members(cases))


def _inert(text: str) -> str:
    return text.translate(_MARKUP)
