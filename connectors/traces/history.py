"""Puts one conversation together from spans that each repeat what went before: every message once, in its order.

What a model was sent is compared with what is known already, as sequences; only the rest is new. A tool's result is what
the next prompt shows of it (that is what the agent saw); its span adds duration and failure, and the text where no
prompt shows one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

import msgspec

from logforge.connectors.episodes import (
    Answer,
    Call,
    EpisodeBuilder,
    Text,
    Verdict,
    bad_part,
    parse_arguments,
    score_of,
    text_or_none,
)
from logforge.connectors.traces.messages import Atom, Said, answer_atom, atoms
from logforge.connectors.traces.spans import Span, ToolRun
from logforge.schemas import Episode, Reject, ResultStatus

_PAIRS = 4_000_000
"""Longer sequences are compared in one pass instead of by their longest common runs."""


def fresh(known: list[Atom], heard: list[Atom]) -> list[int]:
    """Which of the messages heard are not among those known, comparing the two as sequences."""
    same = next(
        (i for i, (a, b) in enumerate(zip(known, heard, strict=False)) if a != b), min(len(known), len(heard))
    )
    if same == len(known) or same == len(heard):
        return list(range(same, len(heard)))
    old, new = known[same:], heard[same:]
    if len(old) * len(new) > _PAIRS:
        seen = set(old)
        return [same + index for index, atom in enumerate(new) if atom not in seen]
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    repeated = {index for block in blocks for index in range(block.b, block.b + block.size)}
    return [same + index for index in range(len(new)) if index not in repeated]


@dataclass
class _Waiting:
    """A call of the latest turn that has no result yet, and the span of its run, if there is one."""

    call: Call
    run: Span | None


@dataclass
class History:
    """One conversation: its model spans in order, the runs of its tools, and what they come to."""

    models: list[Span] = field(default_factory=list)
    runs: list[Span] = field(default_factory=list)
    known: list[Atom] = field(default_factory=list)
    builder: EpisodeBuilder = field(default_factory=EpisodeBuilder)
    judged: list[tuple[int, Verdict]] = field(default_factory=list)
    """Verdicts on single decisions, by the position of the turn or of the result."""
    decided: dict[int, Span] = field(default_factory=dict)
    """The model call that wrote a turn, by the turn's position; none for a turn that only later prompts show."""
    _waiting: list[_Waiting] = field(default_factory=list)
    _answered: set[str] = field(default_factory=set)
    _run_of: dict[int, Span] = field(default_factory=dict)
    """The run of a call, by the call's identity."""
    _extra: dict[int, list[Span]] = field(default_factory=dict)
    """Runs that are calls themselves, by the index of the model span they follow (-1: none)."""

    @property
    def systems(self) -> set[Atom]:
        """The system prompts of it."""
        return {atom for atom in self.known if atom.role in ("system", "developer")}

    def take(self, span: Span) -> None:
        """Add a model span; its messages are known from then on."""
        self.models.append(span)
        heard = [atom for atom, _, _ in span.pieces]
        self.known += [heard[index] for index in fresh(self.known, heard)]
        self.known += [atom for atom, _, _ in atoms(span.replies[:1])]

    def wants(self, span: Span) -> bool:
        """True when it goes on with this conversation: it shows its decisions or results, or no other system prompt."""
        heard = [atom for atom, _, _ in span.pieces]
        own = {atom for atom in heard if atom.role in ("system", "developer")}
        if not own or not self.systems or own & self.systems:
            return True
        done = {atom for atom in self.known if atom.role in ("assistant", "tool")}
        return any(atom in done for atom in heard)

    def build(self) -> None:
        """Fill the builder."""
        self._match_runs()
        self.known = []
        self._add_runs(-1, None, [])
        for index, span in enumerate(self.models):
            self.builder.rejects += span.rejects
            self._hear(span)
            self._reply(index, span)
        self._settle(None, 0, set())
        for run in self.runs:
            self.builder.rejects += run.rejects

    # --- which run belongs to which call ---

    def _match_runs(self) -> None:
        made = [call for span in self.models for said in span.replies[:1] for call in said.calls]
        free, told = list(made), self._told() if self.runs else []
        for run in self.runs:
            tool = run.run
            if tool is None:
                continue
            found = _matching(tool, free)
            if found is not None:
                free = [call for call in free if call is not found]
            elif not any(_agrees(tool, call) for call in made):
                found = _matching(tool, [call for call in told if id(call) not in self._run_of])
            else:
                found = None
            if found is not None:
                self._run_of[id(found)] = run
            else:
                self._extra.setdefault(self._model_before(run), []).append(run)

    def _told(self) -> list[Call]:
        """The calls that prompts show, each where it is shown first."""
        first: dict[tuple[str | None, str, str], Call] = {}
        for span in self.models:
            for said in span.heard:
                for call in said.calls:
                    first.setdefault((call.call_id, call.name, str(call.arguments)), call)
        return list(first.values())

    def _model_before(self, run: Span) -> int:
        before = [
            i
            for i, m in enumerate(self.models)
            if m.start is None or run.start is None or m.start <= run.start
        ]
        return before[-1] if before else -1

    # --- what a model was sent ---

    def _hear(self, span: Span) -> None:
        heard = span.pieces
        new = [heard[index] for index in fresh(self.known, [atom for atom, _, _ in heard])]
        answers = [answer for _, _, answer in new if answer is not None]
        named: set[str | None] = {a.call_id for a in answers if a.call_id is not None}
        self._settle(span.start, sum(answer.call_id is None for answer in answers), named)
        for atom, said, answer in new:
            self.known.append(atom)
            if answer is not None:
                self._answer(answer)
            elif said.role == "assistant":
                self._turn(said, [], span)
            elif said.text is not None or not said.calls:
                role = said.role if said.role != "tool" else "user"
                self.builder.note(said.unknown, decides=said.text is None)
                self.builder.message(role, said.text, said.place, created_at=span.start)

    def _settle(self, before: int | None, positional: int, named: set[str | None]) -> None:
        """Answer waiting calls from their runs, where the coming prompt does not show the answer itself."""
        for waiting in list(self._waiting)[positional if before is not None else 0 :]:
            run = waiting.run
            late = before is not None and run is not None and run.end is not None and run.end > before
            if run is None or late or waiting.call.call_id in named or waiting not in self._waiting:
                continue
            if waiting.call.call_id is None and self._waiting[0] is not waiting:
                continue  # without ids the order pairs, so an unanswered earlier call comes first
            result = run.run.result if run.run else None
            if run.failed and run.error and not (result and result.text.strip()):
                result = Text(run.error, run.error_at)
            if result is None and not run.failed:
                continue
            text, where = result or (None, run.locator)
            answer = Answer(waiting.call.call_id, text, run.failed is True, where)
            self.known.append(answer_atom(answer))
            self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        if answer.call_id is not None and answer.call_id in self._answered:
            return  # the prompt's copy of a result that its span gave already
        waiting = next(
            (w for w in self._waiting if answer.call_id is None or w.call.call_id == answer.call_id), None
        )
        run = waiting.run if waiting else None
        if waiting is not None:
            self._waiting.remove(waiting)
        failed = True if answer.failed or (run is not None and run.failed) else None
        status: ResultStatus | None = "timeout" if run is not None and run.error_type == "timeout" else None
        done = self.builder.result(
            answer.call_id,
            answer.text,
            answer.locator,
            failed=failed,
            status=status,
            latency_s=run.seconds if run else None,
            created_at=run.end if run else None,
        )
        if done and answer.call_id is not None:
            self._answered.add(answer.call_id)
        if done and run is not None:
            self._judge(run)

    # --- what it answered ---

    def _reply(self, index: int, span: Span) -> None:
        for other in span.replies[1:]:
            self.builder.rejects.append(
                bad_part(other.place, "a further candidate of the same turn", "other_candidate", other.text)
            )
        said = span.replies[0] if span.replies else None
        if said is not None:
            self.known += [atom for atom, _, _ in atoms([said])]
        self._add_runs(index, span, [said] if said is not None else [])

    def _add_runs(self, index: int, span: Span | None, replies: list[Said]) -> None:
        """The turn, with the runs after it that no captured call asked for: they are its calls when it has none."""
        extra, calls = self._extra.get(index, []), [call for said in replies for call in said.calls]
        if calls:
            for run in extra:
                reason = "a tool ran that no captured turn asked for"
                self.builder.rejects.append(bad_part(run.locator, reason, "unasked_tool_run", run.name))
            extra = []
        if span is None:
            for run in extra:
                self._turn(Said("assistant", run.locator), [run], None)
        elif replies or extra:
            self._turn(replies[0] if replies else Said("assistant", span.locator), extra, span, own=True)

    def _turn(self, said: Said, extra: list[Span], span: Span | None, *, own: bool = False) -> None:
        made = [(_call_of(run), run) for run in extra if run.run is not None]
        calls = [*said.calls, *(call for call, _ in made)]
        for call, run in made:
            self._run_of[id(call)] = run
        more: dict[str, Any] = {"thought": said.thought}
        self.builder.note(said.unknown, decides=True)
        if own and span is not None:
            more |= {
                "created_at": span.end,
                "model": span.model,
                "tokens_in": span.tokens_in,
                "tokens_out": span.tokens_out,
                "cost_usd": span.cost,
            }
        if not calls and not said.texts and (said.thoughts or (said.finish is None and not own)):
            self.builder.message("assistant", None, said.place, **more)
            return
        self.builder.offer(span.tools if span is not None else None)
        position = self.builder.turn(said.text, calls, said.place, **more)
        if own and span is not None:
            self.decided[position] = span
            self._judge(span)
        if calls:
            self._waiting = [_Waiting(call, self._run_of.get(id(call))) for call in calls]
            self._answered -= {call.call_id for call in calls if call.call_id is not None}

    def _judge(self, span: Span) -> None:
        position = len(self.builder.messages) - 1
        self.judged += [(position, verdict) for verdict in span.verdicts if verdict.scope == "span"]

    def rewarded(self, episode: Episode) -> Episode:
        """The episode with the score of each decision that was judged by itself."""
        by_step: dict[int, list[Verdict]] = {}
        for position, verdict in self.judged:
            if (step := step_at(episode, position)) is not None:
                by_step.setdefault(step, []).append(verdict)
        scores = {step: score for step, said in by_step.items() if (score := score_of(said)) is not None}
        return with_rewards(episode, scores)


def step_at(episode: Episode, position: int) -> int | None:
    """The step that a message belongs to: the one it is the result of, else the last that its turn took."""
    of = [s.step for s in episode.steps if position in (s.position, s.result_position)]
    return of[-1] if of else None


def with_rewards(episode: Episode, rewards: dict[int, float]) -> Episode:
    """The episode with rewards by step."""
    if not rewards:
        return episode
    steps = [
        msgspec.structs.replace(step, logged_reward=rewards[step.step]) if step.step in rewards else step
        for step in episode.steps
    ]
    return msgspec.structs.replace(episode, steps=steps)


def _call_of(run: Span) -> Call:
    tool = run.run
    assert tool is not None
    return Call(tool.name, tool.arguments, text_or_none(tool.call_id), run.locator)


def _agrees(tool: ToolRun, call: Call) -> bool:
    if tool.call_id is not None and call.call_id is not None:
        return tool.call_id == call.call_id
    if tool.name != call.name:
        return False
    return tool.arguments is None or parse_arguments(tool.arguments)[0] == parse_arguments(call.arguments)[0]


def _matching(tool: ToolRun, calls: list[Call]) -> Call | None:
    return next((call for call in calls if _agrees(tool, call)), None)


def lost(span: Span, reason: str, rule: str) -> Reject:
    """A span set aside as a whole."""
    return Reject(locator=span.locator, reason=reason, rule=rule, records=span.records)
