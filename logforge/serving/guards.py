"""What stands between a policy and the world: the guards of a live session, in their order, and the gate that asks a person.

    1 clean      characters that hide are taken out of each text           Session (ingestion's hygiene)
    2 redact     secrets are taken out of the clean text                   Session
    3 flag       orders in what a user or a tool says are flagged          Session.injections
    4 mask       only what is on offer can be chosen                       Session.observe
    5 support    does the log show the action in such states?              Decision.supported
    6 plausible  is the decision like the policy?                          plausibility.py
    7 confirm    what is dangerous, repeated, or doubted by 3, 5 or 6, is held until somebody says yes

Holding is a result, not an exception: `Guarded.action` is None, and `reasons` say why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.connectors.episodes import bare_name
from logforge.learning.policies import Decision, PolicyBundle
from logforge.schemas import CLARIFY, RESPOND, UnknownName
from logforge.serving.plausibility import Doubt, Watch
from logforge.serving.session import Observation, Session

Kind = Literal["injection", "not_offered", "unsupported", "implausible", "repeated", "danger"]
KINDS: Final[tuple[Kind, ...]] = (
    "injection",
    "not_offered",
    "unsupported",
    "implausible",
    "repeated",
    "danger",
)
"""In the order of the guards."""
_FINAL: Final = "not_offered"
"""What nobody can say yes to."""
_OFTEN: Final = "repeated"
_SPEAKING: Final = frozenset({RESPOND, CLARIFY})


class Reason(NamedTuple):
    """Why an action is not simply taken: which guard, and what it saw (`delete`, `ignore_previous`, …)."""

    kind: Kind
    what: str


@dataclass(frozen=True, eq=False)
class Guarded:
    """What the guards made of a proposed action.

    `action` may be taken; None: it is held. It is what was `proposed`, or the fallback instead of it; `reasons` are about what was
    proposed (None: the policy gave no numbers to go by). `arguments` are those it was judged with (None: they are not known yet).
    `decision` is the policy's, of `action` where one may be taken, else of what was proposed (None: it is no policy's).
    """

    action: str | None
    proposed: str | None
    reasons: tuple[Reason, ...] = ()
    confirmed: bool = False
    arguments: str | None = None
    decision: Decision | None = None

    @property
    def is_held(self) -> bool:
        """Whether nothing may be done."""
        return self.action is None


Confirm = Callable[[Guarded], bool]
"""Shows a held action with its reasons to somebody; True lets it through."""


class Gate:
    """The guards 4 to 7 of one session with one policy.

    `confirm` is asked of what is held, last and once; without it what is held stays held. `fallback`: instead of a held action the
    policy's best one that is supported and not dangerous, by its name and its likeliest arguments, is taken, in a contaminated session only
    to speak, and none where the decision itself is implausible. `holds` are the kinds of reasons that hold an action; others are told
    alone.
    """

    def __init__(
        self,
        policy: PolicyBundle,
        session: Session,
        *,
        confirm: Confirm | None = None,
        fallback: bool = False,
        holds: Collection[Kind] = KINDS,
        watch: Watch | None = None,
    ) -> None:
        for kind in holds:
            if kind not in KINDS:
                raise UnknownName("kind of reason", kind, KINDS)
        self.policy, self.session, self.watch = policy, session, watch or Watch(policy)
        self._confirm, self._fallback, self._holds = confirm, fallback, frozenset(holds) | {_FINAL}

    def decide(self, *, parallel: bool = False) -> Guarded:
        """The policy's decision in the session's state, or why it is held. `parallel`: as Session.observe has it.

        That the same call was made again and again is told alone: whether the next is the same its arguments say, which `call` judges.
        """
        seen = self.session.observe(parallel=parallel)
        if doubts := self.watch.before(seen.observation):
            return self._settled(Guarded(None, None, self._injected() + _doubted(doubts)))
        decision = self.policy.act(*seen)
        name = decision.name
        doubts = self.watch.see(decision, seen.mask)
        reasons = (
            self._injected()
            + _unsupported(decision)
            + _doubted(doubts)
            + self._often(name)
            + self._dangerous(name, decision.template)
        )
        found = self._settled(Guarded(None, name, reasons, decision=decision), told_alone=_OFTEN)
        return self._instead(found, seen, decision) if found.is_held and self._fallback else found

    def call(self, action: str, arguments: str = "{}") -> Guarded:
        """An action with its arguments (JSON text) before it is taken, whoever proposed it: what a shell is to run stands only there.
        `action` is the name as the dataset has it, or an earlier one; a rare tool's is its own."""
        missing = () if self.session.offers(action) else (Reason("not_offered", action),)
        about = () if action in _SPEAKING else self._about_tool(action, bare_name(action), arguments)
        return self._settled(Guarded(None, action, self._injected() + missing + about, arguments=arguments))

    def _about_tool(self, action: str, name: str, arguments: str) -> tuple[Reason, ...]:
        latest = self.session.latest or action  # what is repeated, by its name of today
        doubted = _doubted(self.watch.call(latest, self.session.times(name, arguments)))
        kind = self.session.danger_of(name, arguments)
        return doubted if kind is None else (*doubted, Reason("danger", kind))

    def _often(self, action: str) -> tuple[Reason, ...]:
        """What was just called as often as it may be."""
        times = self.session.repeats if self.session.latest == action else 0
        if times < self.watch.most_in_a_row(action):
            return ()
        return (Reason(_OFTEN, f"{action} was called {times} times in a row with the same arguments"),)

    def _injected(self) -> tuple[Reason, ...]:
        return tuple(Reason("injection", name) for name in self.session.injections)

    def _dangerous(self, action: str, template: str | None = None) -> tuple[Reason, ...]:
        """By the action's name, and by the template of its arguments where the policy chose one."""
        kind = None if action in _SPEAKING else self.session.danger_list.of_action(action, template or "{}")
        return () if kind is None else (Reason("danger", kind),)

    def _settled(self, held: Guarded, told_alone: Kind | None = None) -> Guarded:
        """Through, where no reason holds it or somebody says yes."""
        if held.proposed is None:
            return held
        holding = {reason.kind for reason in held.reasons if reason.kind != told_alone} & self._holds
        if not holding:
            return replace(held, action=held.proposed)
        if _FINAL in holding or self._confirm is None or not self._confirm(held):
            return held
        return replace(held, action=held.proposed, confirmed=True)

    def _instead(self, held: Guarded, seen: Observation, decision: Decision) -> Guarded:
        """The best action that nobody needs to be asked about."""
        if any(reason.kind == "implausible" for reason in held.reasons):
            return held
        observations, masks, names = seen.observation[None], seen.mask[None], self.policy.card.actions
        support, templates = self.policy.support(observations, masks), self._templates(observations)
        fit = self.policy.choosable(observations, masks)[0] & self._harmless(templates)
        if support is not None:
            fit &= support[0] >= self.policy.card.support_floor
        if not fit.any():
            return held
        action = int(np.where(fit, decision.scores, -np.inf).argmax())
        share = None if support is None else float(support[0, action])
        supported = None if share is None else True
        chosen = replace(
            decision,
            action=action,
            name=names[action],
            support=share,
            supported=supported,
            template=templates[action],
        )
        return replace(held, action=names[action], decision=chosen)

    def _harmless(self, templates: Sequence[str | None]) -> NDArray[np.bool_]:
        """What of all actions [A], each with these arguments, nobody needs to be asked about; in a contaminated session only to speak."""
        tainted = bool(self.session.injections) and "injection" in self._holds
        pairs = zip(self.policy.card.actions, templates, strict=True)
        return np.array(
            [
                not self._dangerous(name, template) and (not tainted or name in _SPEAKING)
                for name, template in pairs
            ]
        )

    def _templates(self, observations: NDArray[Any]) -> list[str | None]:
        """The likeliest arguments of every action [A] in one state [1, D]; None where it has no templates."""
        every = np.arange(len(self.policy.card.actions))
        places = self.policy.templates(np.repeat(observations, len(every), axis=0), every)
        return [None if place < 0 else self.policy.card.templates[place].template for place in places]


def _unsupported(decision: Decision) -> tuple[Reason, ...]:
    return (Reason("unsupported", f"{decision.support:.3f}"),) if decision.supported is False else ()


def _doubted(doubts: tuple[Doubt, ...]) -> tuple[Reason, ...]:
    return tuple(Reason(_OFTEN if doubt.check == _OFTEN else "implausible", str(doubt)) for doubt in doubts)
