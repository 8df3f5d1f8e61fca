"""Who played a file of τ-bench results: the results do not say, the file's name does.

The harness names a file `STRATEGY-MODEL-TEMPERATURE_range_…`; published ones are named `MODEL-DOMAIN`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_RUN = re.compile(r"(?P<agent>.+?)-(?P<temperature>\d(?:\.\d+)?)_range_-?\d+-+\d+(?:_.*)?")
_DOMAIN = re.compile(r"(?P<agent>.+?)-(?:airline|retail|telecom)(?:[._-].*)?")
_STRATEGY = re.compile(r"(?:tool-calling|few-shot|react|act)-")
_FAMILY = re.compile(
    r"(?:^|-)(?P<model>(?:chatgpt|gpt|o1|o3|o4|claude|sonnet|haiku|opus|gemini|gemma|llama|meta-llama|mistral|mixtral"
    r"|codestral|qwen|qwq|deepseek|grok|command|phi|nova|kimi|glm|granite|nemotron)(?![a-z])[\w.-]*)$",
    re.IGNORECASE,
)
_NOBODY = "-none"


class Agent(NamedTuple):
    """Who decided, as far as the file's name tells."""

    policy: str | None = None
    model: str | None = None
    temperature: float | None = None


def agent_of(name: str) -> Agent:
    """The agent in the name of a file of results; nothing where the name is of no form that has one."""
    stem = name.removesuffix(".gz").removesuffix(".json").removesuffix(".jsonl")
    run = _RUN.fullmatch(stem)
    placed = run or _DOMAIN.fullmatch(stem)
    agent = placed["agent"] if placed else stem
    family = _FAMILY.search(agent)
    if not (placed or family or _STRATEGY.match(agent)):
        return Agent()
    policy = agent.removesuffix(_NOBODY) or None
    model = family["model"] if family else None
    return Agent(policy, model, float(run["temperature"]) if run else None)
