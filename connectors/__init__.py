"""The connectors and the door they come through: built-in ones and those of other packages are found the same way."""

from __future__ import annotations

import importlib
import warnings
import zlib
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from logforge.connectors.records.base import Connector, Head, look
from logforge.schemas.errors import UnknownName

ENTRY_POINTS = "logforge.connectors"
"""Other packages add a connector by an entry point of this group: NAME = "module:Class"."""

BUILT_IN = {
    "abcd": "logforge.connectors.dialogues.abcd:Abcd",
    "adk_evalset": "logforge.connectors.agents.adk_evalset:AdkEvalSet",
    "adk_session": "logforge.connectors.agents.adk:AdkSession",
    "adp_raw": "logforge.connectors.trajectories.adp_raw:AdpRaw",
    "adp_std": "logforge.connectors.trajectories.adp:AdpStd",
    "agentdojo": "logforge.connectors.benchmarks.agentdojo:AgentDojo",
    "anthropic_api": "logforge.connectors.chat.anthropic_api:AnthropicApi",
    "anthropic_managed": "logforge.connectors.chat.anthropic_events:AnthropicManaged",
    "atif": "logforge.connectors.trajectories.atif:Atif",
    "claude_code": "logforge.connectors.agents.claude_code:ClaudeCode",
    "codex_rollout": "logforge.connectors.agents.codex:CodexRollout",
    "gemini_cli": "logforge.connectors.agents.gemini_cli:GeminiCli",
    "inspect_eval": "logforge.connectors.benchmarks.inspect_log:InspectEval",
    "inspect_json": "logforge.connectors.benchmarks.inspect_log:InspectJson",
    "intercode": "logforge.connectors.benchmarks.intercode:Intercode",
    "intercode_human": "logforge.connectors.benchmarks.intercode:IntercodeHuman",
    "langfuse": "logforge.connectors.traces.langfuse:Langfuse",
    "langsmith_runs": "logforge.connectors.traces.langsmith:LangsmithRuns",
    "llamafactory_v1": "logforge.connectors.chat.llamafactory:LlamaFactory",
    "mini_swe_agent": "logforge.connectors.agents.mini_swe_agent:MiniSweAgent",
    "openai_messages": "logforge.connectors.chat.openai_messages:OpenAIMessages",
    "openai_requests": "logforge.connectors.chat.openai_requests:OpenAIRequests",
    "openai_stream": "logforge.connectors.chat.openai_stream:OpenAIStream",
    "openhands_events": "logforge.connectors.agents.openhands:OpenHandsEvents",
    "openhands_output": "logforge.connectors.agents.openhands:OpenHandsOutput",
    "otlp": "logforge.connectors.traces.otlp:Otlp",
    "rated_chat": "logforge.connectors.chat.rated_chat:RatedChat",
    "react_text": "logforge.connectors.trajectories.react_text:ReactText",
    "reflexion_prog": "logforge.connectors.benchmarks.reflexion:ReflexionProg",
    "reflexion_text": "logforge.connectors.benchmarks.reflexion:ReflexionText",
    "sharegpt_tools": "logforge.connectors.chat.sharegpt:ShareGPT",
    "star": "logforge.connectors.dialogues.star:Star",
    "step_table": "logforge.connectors.tables.step_table:StepTable",
    "swe_agent_traj": "logforge.connectors.agents.swe_agent:SweAgentTraj",
    "taskmaster4": "logforge.connectors.dialogues.taskmaster:Taskmaster4",
    "taskmaster_reward": "logforge.connectors.dialogues.taskmaster:TaskmasterReward",
    "tau2_bench": "logforge.connectors.benchmarks.tau2_bench:Tau2Bench",
    "tau_bench": "logforge.connectors.benchmarks.tau_bench:TauBench",
    "tau_bench_fewshot": "logforge.connectors.benchmarks.tau_bench_fewshot:TauBenchFewshot",
    "toolbench_dfs": "logforge.connectors.benchmarks.toolbench:ToolbenchDfs",
    "tooleval": "logforge.connectors.benchmarks.tooleval:Tooleval",
    "trl": "logforge.connectors.chat.trl:Trl",
}


class Claim(NamedTuple):
    """A connector's claim on a file."""

    connector: Connector
    confidence: float


@cache
def registry() -> dict[str, Connector]:
    """Every connector by name, sorted. A broken third-party one is a warning, not a crash."""
    found = {name: _load(target) for name, target in BUILT_IN.items()}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found[point.name] = _checked(point.load()(), point.name)
        except Exception as error:
            warnings.warn(f"connector {point.name!r} ({point.value}) cannot be loaded: {error}", stacklevel=2)
    return dict(sorted(found.items()))


def _checked(connector: Any, name: str) -> Connector:
    """A third-party connector, when it has what every one must have."""
    lacking = [
        part for part in ("name", "version", "record", "sniff", "read") if not hasattr(connector, part)
    ]
    if lacking:
        raise TypeError(f"it has no {', '.join(lacking)}")
    if connector.name != name:
        raise ValueError(f"its name is {connector.name!r}, its entry point's {name!r}")
    found: Connector = connector
    return found


def registry_version() -> int:
    """A number that changes when a connector is added, removed or bumped: files that none claimed are then looked at again."""
    known = ",".join(f"{name}={connector.version}" for name, connector in registry().items())
    return zlib.crc32(known.encode()) & 0x7FFFFFFF


def _load(target: str) -> Connector:
    module, _, name = target.partition(":")
    connector: Connector = getattr(importlib.import_module(module), name)()
    return connector


def get(name: str) -> Connector:
    """The connector of that name. Raises UnknownName, listing the valid ones."""
    connectors = registry()
    if name not in connectors:
        raise UnknownName("format", name, list(connectors))
    return connectors[name]


def detect(path: Path) -> list[Claim]:
    """The claims on a file, the surest first; empty when no connector knows it."""
    return claims(look(path))


def claims(head: Head, *more: Connector) -> list[Claim]:
    """The claims on a file of which the head was read already, by the registered connectors and some more."""
    found = [Claim(connector, _confidence(connector, head)) for connector in (*registry().values(), *more)]
    return sorted(
        (claim for claim in found if claim.confidence > 0), key=lambda c: (-c.confidence, c.connector.name)
    )


def _confidence(connector: Connector, head: Head) -> float:
    """What a connector claims. One that raises claims nothing, and that is said: the others are not to fall with it."""
    try:
        return connector.sniff(head)
    except Exception as error:
        warnings.warn(f"connector {connector.name!r} failed to look at {head.name}: {error}", stacklevel=2)
        return 0.0
