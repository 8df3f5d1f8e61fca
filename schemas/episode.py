"""What a connector hands on: an episode with its messages and steps, and what it rejected or skipped.

The words are defined in docs/design.md §1. The types are msgspec structs, frozen dataclasses in all but
the cost of making one (0.1 µs instead of 4 µs; a big log has tens of millions of them).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant", "tool"]
StepKind = Literal["tool", "respond", "clarify"]
ResultStatus = Literal["ok", "error", "empty", "timeout", "refused", "missing"]
ArgumentsStatus = Literal["ok", "repaired", "invalid"]
Ending = Literal["terminal", "truncated"]
SourceKind = Literal["agent_log", "human_demo", "random_exploration", "synthetic", "counterfactual"]
PropensityKind = Literal["logged", "known", "estimated", "missing"]

RESPOND = "respond"
"""The action of speaking without calling a tool."""
CLARIFY = "clarify"
"""The action of asking the user something the agent needs to know."""

EQUAL_ROW = "equal_row"
"""In an episode's metadata: the how manieth of equal rows of its file it is. The first has none."""

RESULT_STATUSES: tuple[ResultStatus, ...] = ("ok", "error", "empty", "timeout", "refused", "missing")


class Message(msgspec.Struct, frozen=True, gc=False):
    """One text of an episode. `position` counts from 0 without gaps; times are microseconds since 1970, UTC.

    `flags` say what ingest found suspect in it, as `unicode:bidi` or `injection:ignore_previous` (None: nothing).
    """

    position: int
    role: str
    content: str | None
    locator: str
    thought: str | None = None
    created_at: int | None = None
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    flags: list[str] | None = None


class Step(msgspec.Struct, frozen=True, gc=False):
    """One decision of the agent. `position` is that of the assistant message that took it.

    `result_position` is the position of the tool message that brought the result (None: no result was logged).
    Everything the agent knew when it decided lies at positions below `position`, and, within a parallel
    group, in the names and arguments of the group's earlier steps.
    `repair` names what was mended in the arguments and the name (kinds joined by `+`); `logged_arguments` is the damaged
    text, which no table holds. `decision_key` names the decision wherever it is logged: a session that resumes another
    carries its decisions along, and they count once (None: the log has no ids that stay the same).
    `tools` are those offered at this decision, where they are not the episode's (None: they are). `danger` says how the action
    is dangerous (None: it is not, or nobody looked).
    """

    step: int
    position: int
    kind: StepKind
    action: str
    locator: str
    arguments: str = "{}"
    arguments_status: ArgumentsStatus = "ok"
    action_valid: bool = True
    tool_call_id: str | None = None
    result: str | None = None
    result_status: ResultStatus | None = None
    result_position: int | None = None
    error_class: str | None = None
    latency_s: float | None = None
    parallel_group: int | None = None
    proposed_action: str | None = None
    policy_id: str | None = None
    propensity: float | None = None
    propensity_kind: PropensityKind = "missing"
    logged_reward: float | None = None
    result_locator: str | None = None
    repair: str | None = None
    logged_arguments: str | None = None
    decision_key: str | None = None
    tools: list[str] | None = None
    danger: str | None = None


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one agent on one task. `records` is how many of the source's records went into it.

    `tools` are those offered at the first decision, and at all others that have no list of their own (None: the log does
    not say). `cost_usd` is in US dollars, as logged. `outcome_from` names the fields of the log that gave success and score;
    `outcome_unknown` says why a run has neither that might have had one. `trial`, `attack` and `injection` tell runs of one
    task apart.
    """

    episode_id: str
    format: str
    locator: str
    ending: Ending
    ending_reason: str
    messages: list[Message]
    steps: list[Step]
    records: int = 1
    native_id: str | None = None
    task_id: str | None = None
    task: str | None = None
    group_id: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    parent_episode_id: str | None = None
    continues_episode_id: str | None = None
    source_kind: SourceKind = "agent_log"
    policy_id: str | None = None
    model: str | None = None
    temperature: float | None = None
    prompt_version: str | None = None
    tools: list[str] | None = None
    started_at: int | None = None
    ended_at: int | None = None
    success: bool | None = None
    score: float | None = None
    outcome_from: str | None = None
    outcome_unknown: str | None = None
    cost_usd: float | None = None
    trial: str | None = None
    attack: str | None = None
    injection: str | None = None
    reference: str | None = None
    metadata: str = "{}"

    @property
    def offered(self) -> list[list[str] | None]:
        """The tools offered at each decision and, last, after them: those of the last decision, as far as a log tells."""
        lists = [self.tools if step.tools is None else step.tools for step in self.steps]
        return [*lists, lists[-1] if lists else self.tools]


class Reject(msgspec.Struct, frozen=True, kw_only=True):
    """Something set aside. Only `level = "record"` counts in the conservation law; a part lies inside a kept record."""

    locator: str
    reason: str
    rule: str
    detail: str = ""
    excerpt: str = ""
    level: Literal["record", "part"] = "record"
    episode_id: str | None = None
    records: int = 1


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """Records that hold no part of an episode by their nature (a summary line, a licence file), with a named reason."""

    reason: str
    records: int = 1


class Duplicate(msgspec.Struct, frozen=True, kw_only=True):
    """Records that repeat, within one source, a record already read."""

    records: int = 1


Reading = Episode | Reject | Skip | Duplicate
"""What a connector's reader yields."""
