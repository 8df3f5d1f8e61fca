"""One turn of a mapped log, gathered from as many messages or rows as share its `turn` value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from logforge.connectors.episodes import Call, EpisodeBuilder
from logforge.connectors.traces import with_rewards
from logforge.schemas import Episode, StepKind

_T = TypeVar("_T")
Rewards = dict[tuple[int, int], float]
"""Rewards by the position of the turn and the number of the decision in it."""


@dataclass
class Turn:
    """What one turn says and calls."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    place: str = ""
    kind: StepKind | None = None
    arguments: Any = None
    rewards: dict[int, float] = field(default_factory=dict)

    def say(self, text: str | None, thought: str | None, place: str) -> None:
        """Add a text and a thought. The turn stands where its first text does, else where it begins."""
        if (text and not any(self.texts)) or not self.place:
            self.place = place
        self.texts += [] if text is None else [text]
        self.thoughts += [] if thought is None else [thought]

    def pay(self, reward: float | None) -> None:
        """Add to the reward of the latest decision in it: words that go with a call and the call may earn something each."""
        if reward is not None:
            latest = max(len(self.calls) - 1, 0)
            self.rewards[latest] = self.rewards.get(latest, 0.0) + reward

    @property
    def text(self) -> str | None:
        """The texts, joined by line breaks."""
        return "\n".join(self.texts) if self.texts else None

    @property
    def thought(self) -> str | None:
        """The thoughts, joined by line breaks."""
        return "\n".join(self.thoughts) if self.thoughts else None

    def add(self, builder: EpisodeBuilder, rewards: Rewards, **more: Any) -> None:
        """Add it to the builder."""
        position = builder.turn(
            self.text,
            self.calls,
            self.place,
            kind=self.kind,
            arguments=self.arguments,
            thought=self.thought,
            **more,
        )
        rewards |= {(position, index): reward for index, reward in self.rewards.items()}


def rewarded(episode: Episode, rewards: Rewards) -> Episode:
    """The episode with the rewards of its decisions."""
    first = {step.position: step.step for step in reversed(episode.steps)}
    given = {first[at] + index: reward for (at, index), reward in rewards.items() if at in first}
    return with_rewards(episode, given)


def first_of(read: Callable[[Any], _T | None], items: Iterable[Any]) -> _T | None:
    """What the first of these items that has it says."""
    return next((value for item in items if (value := read(item)) is not None), None)
