"""The masked learners: what each minimises, over several members at once.

    cql    conservative Q-learning, CQL(H) for discrete actions (Kumar et al. 2020), on double DQN
    dqn    double DQN (van Hasselt et al. 2016): CQL without the conservative term
    bcq    discrete BCQ (Fujimoto et al. 2019): only actions that the behaviour takes often enough compete
    iql    implicit Q-learning (Kostrikov et al. 2022): expectile values, and a policy weighted by advantage
    bc     behaviour cloning
    text_q CQL(H) whose network scores an action by the vector of its text (text_q.py)

In all of them an action that was not on offer takes no part: not in a target's maximum, not in a log-sum-exp, not among
the alternatives that cloning weighs. A logged action outside its mask is learnt from as what it was, and never chosen.
Targets are clipped to the range that a return can have (docs/design.md, §9): without that, small α diverges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from logforge.core import Span
from logforge.learning.policies import Layers, forward, make_network, member_layers, stacked
from logforge.learning.training.experience import Drawn

if TYPE_CHECKING:
    import torch

    from logforge.learning.policies import Network
    from logforge.learning.training.template_head import TemplateHead
    from logforge.learning.training.text_q import SideTensors

    Networks = dict[str, Network]
    Losses = dict[str, torch.Tensor]

MAX_ADVANTAGE_WEIGHT: Final = 100.0
"""Of IQL's policy: exp(β · advantage) is cut here, as its authors do."""


@dataclass(frozen=True)
class Rules:
    """What a learner is told besides its data: discount, the range of returns, and the settings of each method.

    `alpha` weighs CQL's conservative term, `threshold` is BCQ's share of the most likely action's chance, `expectile` and
    `beta` are IQL's, `penalty` holds the logits of cloning down. `side` is what a network over texts sees beside a state.
    """

    gamma: float
    span: Span
    alpha: float = 1.0
    threshold: float = 0.3
    expectile: float = 0.9
    beta: float = 3.0
    penalty: float = 0.01
    side: SideTensors | None = None


class Learner(NamedTuple):
    """Its networks (name → one output, one per action, or one per vector of an action), those that have a slowly following copy, the loss of each member
    [members] by name, the network that acts and what its scores are, and the one that tells the behaviour, if any."""

    networks: dict[str, Literal["action", "value", "text"]]
    followed: tuple[str, ...]
    losses: Callable[[Networks, Networks, Drawn, Rules], Losses]
    acts: str
    kind: Literal["q", "logits"]
    behaviour: str | None = None


def masked(scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Scores with −∞ for what is not allowed."""
    return scores.masked_fill(~allowed, float("-inf"))


def _scores(network: Network, observations: torch.Tensor, batch: Drawn, rules: Rules) -> torch.Tensor:
    """One score per action."""
    if rules.side is None:
        return forward(network, observations)
    return rules.side.scores(network, observations, batch.policies)


def _picked(scores: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    return scores.gather(2, actions[:, :, None])[:, :, 0]


def _mean(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Per member, each row by its sample weight."""
    return (values * weights).mean(dim=1)


def _goal(value: torch.Tensor, batch: Drawn, rules: Rules) -> torch.Tensor:
    """The one-step target: a true end pays its reward alone, a truncated episode goes on from its final observation."""
    return (batch.rewards + rules.gamma * batch.goes_on * value).clamp(*rules.span)


def _error(guess: torch.Tensor, goal: torch.Tensor, batch: Drawn) -> torch.Tensor:
    from torch.nn.functional import huber_loss

    return _mean(huber_loss(guess, goal, reduction="none"), batch.weights)


def _double_q(
    online: Networks, target: Networks, batch: Drawn, rules: Rules, allowed: torch.Tensor
) -> torch.Tensor:
    """Double DQN's target: the online network chooses among what is allowed, the following one tells the worth. Q of a policy goes on
    with what that policy did (SARSA), and where the log breaks off, or another policy takes over, with the best."""
    import torch

    later = batch.next_observations
    with torch.no_grad():
        choice = masked(_scores(online["q"], later, batch, rules), allowed).argmax(dim=2)
        if rules.side is not None and rules.side.conditioned:
            choice = torch.where(batch.next_actions < 0, choice, batch.next_actions)
        value = _picked(_scores(target["q"], later, batch, rules), choice)
        return _goal(value, batch, rules)


def _cql(online: Networks, target: Networks, batch: Drawn, rules: Rules) -> Losses:
    scores = _scores(online["q"], batch.observations, batch, rules)
    taken = _picked(scores, batch.actions)
    goal = _double_q(online, target, batch, rules, batch.next_allowed)
    gap = masked(scores, batch.known).logsumexp(dim=2) - taken
    return {"td": _error(taken, goal, batch), "conservative": rules.alpha * _mean(gap, batch.weights)}


def _dqn(online: Networks, target: Networks, batch: Drawn, rules: Rules) -> Losses:
    taken = _picked(forward(online["q"], batch.observations), batch.actions)
    return {"td": _error(taken, _double_q(online, target, batch, rules, batch.next_allowed), batch)}


def _bcq(online: Networks, target: Networks, batch: Drawn, rules: Rules) -> Losses:
    import torch

    taken = _picked(forward(online["q"], batch.observations), batch.actions)
    with torch.no_grad():
        logits = masked(forward(online["behaviour"], batch.next_observations), batch.next_allowed)
        likely = logits - logits.amax(dim=2, keepdim=True) > torch.log(torch.tensor(rules.threshold))
    goal = _double_q(online, target, batch, rules, likely & batch.next_allowed)
    return {"td": _error(taken, goal, batch), **_clone(online["behaviour"], batch, rules, batch.weights)}


def _bc(online: Networks, target: Networks, batch: Drawn, rules: Rules) -> Losses:
    return _clone(online["policy"], batch, rules, batch.weights)


def _clone(network: Network, batch: Drawn, rules: Rules, weights: torch.Tensor) -> Losses:
    logits = forward(network, batch.observations)
    unlikely = masked(logits, batch.known).logsumexp(dim=2) - _picked(logits, batch.actions)
    held = (logits**2).mean(dim=2)
    return {"clone": _mean(unlikely, weights), "penalty": rules.penalty * held.mean(dim=1)}


def _iql(online: Networks, target: Networks, batch: Drawn, rules: Rules) -> Losses:
    import torch

    value = forward(online["value"], batch.observations)[:, :, 0]
    with torch.no_grad():
        followed = _picked(forward(target["q"], batch.observations), batch.actions)
        goal = _goal(forward(online["value"], batch.next_observations)[:, :, 0], batch, rules)
    error = followed - value
    side = torch.where(error > 0, rules.expectile, 1 - rules.expectile)
    taken = _picked(forward(online["q"], batch.observations), batch.actions)
    advantage = (rules.beta * error.detach()).exp().clamp(max=MAX_ADVANTAGE_WEIGHT)
    return {
        "value": _mean(side * error**2, batch.weights),
        "td": _error(taken, goal, batch),
        **_clone(online["policy"], batch, rules, batch.weights * advantage),
    }


LEARNERS: Final[dict[str, Learner]] = {
    "cql": Learner({"q": "action"}, ("q",), _cql, "q", "q"),
    "dqn": Learner({"q": "action"}, ("q",), _dqn, "q", "q"),
    "bcq": Learner({"q": "action", "behaviour": "action"}, ("q",), _bcq, "q", "q", "behaviour"),
    "iql": Learner({"q": "action", "value": "value", "policy": "action"}, ("q",), _iql, "policy", "logits"),
    "bc": Learner({"policy": "action"}, (), _bc, "policy", "logits"),
    "text_q": Learner({"q": "text"}, ("q",), _cql, "q", "q"),
}
"""Every learner, by the name that `--algo` takes."""
CONSERVATIVE: Final = frozenset(name for name, learner in LEARNERS.items() if learner.losses is _cql)
"""Those that have CQL's conservative term, and with it α."""


class Penalty(Protocol):
    """What else the acting network is to minimise, by the name of each loss [members]."""

    def losses(self, acting: Network, batch: Drawn) -> dict[str, torch.Tensor]:
        """The losses of a batch."""
        ...


class Fit:
    """The members of one learner in training: one seed each, whose result does not depend on the others."""

    def __init__(
        self,
        learner: Learner,
        rules: Rules,
        seeds: tuple[int, ...],
        sizes: tuple[int, ...],
        learning_rate: float,
        target_rate: float,
        device: str = "cpu",
        head: TemplateHead | None = None,
    ) -> None:
        """`sizes` are the columns of an observation, the hidden layers, and the number of actions; `head` is a second output of
        the acting network."""
        import torch

        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.learner, self.rules, self.target_rate, self.device = learner, rules, target_rate, device
        self.online: Networks = {}
        for name, outputs in learner.networks.items():
            made = make_network(_shape(outputs, sizes, rules.side), generators)
            self.online[name] = [part.to(device).requires_grad_() for part in made]
        self.target: Networks = {
            name: [part.detach().clone() for part in self.online[name]] for name in learner.followed
        }
        self.head = head
        self.anchor: Penalty | None = None
        parameters = [part for network in self.online.values() for part in network]
        parameters += head.parameters if head is not None else []
        self.learning_rate = learning_rate
        self.optimiser = torch.optim.Adam(parameters, lr=learning_rate)

    def anneal(self, done: float) -> None:
        """Lower the learning rate in a straight line: `done` is the share of the run that lies behind, from 0 to 1."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate * (1 - done)

    def update(self, batch: Drawn) -> Losses:
        """One step of every member. Returns the losses of each, by name [members]."""
        import torch

        losses = self.learner.losses(self.online, self.target, batch, self.rules)
        for side in (self.head, self.anchor):
            if side is not None:
                losses |= side.losses(self.online[self.learner.acts], batch)
        self.optimiser.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        self.optimiser.step()
        with torch.no_grad():
            for name, followed in self.target.items():
                torch._foreach_lerp_(
                    followed, [part.detach() for part in self.online[name]], self.target_rate
                )
        return {name: value.detach() for name, value in losses.items()}

    def scores(self, observations: NDArray[np.float32], member: int) -> NDArray[np.float32]:
        """What a member's acting network makes of observations [rows, features]: one score per action."""
        import torch

        network, side = self.online[self.learner.acts], self.rules.side
        with torch.no_grad():
            given = torch.from_numpy(observations).to(self.device)
            found = forward(network, given) if side is None else side.best(network, given)
        rows: NDArray[np.float32] = found[member].cpu().numpy()
        return rows

    def layers(self, network: str, member: int) -> Layers:
        """A member's layers in numpy."""
        return member_layers(self.online[network], member)

    def start(self, network: str, members: Sequence[Layers]) -> None:
        """Begin with these weights, one set for each member; a slowly following copy begins there too."""
        import torch

        with torch.no_grad():
            for copies in (self.online, self.target):
                if network in copies:
                    for part, given in zip(copies[network], stacked(members), strict=True):
                        part.copy_(given)


def _shape(outputs: str, sizes: tuple[int, ...], side: SideTensors | None) -> tuple[int, ...]:
    """The layers of a network by what it puts out."""
    inputs, *hidden, actions = sizes
    if outputs != "text":
        return inputs, *hidden, actions if outputs == "action" else 1
    assert side is not None
    return inputs + side.inputs.columns, *hidden, 1
