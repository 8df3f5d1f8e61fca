"""Twins of logged episodes for the train split: each names its parent, its maker and its seed, and says what changed.

    paraphrase    changes observations alone: the user says the same in other words
    tool_failure  changes dynamics, honestly: a call fails, then the same call is made again with its real result

A twin carries no return and no reward of its own making: the reward spec scores it like any other episode.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import xxhash
from msgspec.structs import replace

from logforge.connectors.episodes import classify_result
from logforge.dataset.augmentation.paraphrase import paraphrase, synonyms
from logforge.schemas import Episode, Message, Step, UnknownName, UsageError

Change = Literal["observation", "dynamics"]


@dataclass(frozen=True)
class Augmented:
    """A twin, and for each of its steps the step of the parent that it was made from."""

    episode: Episode
    parents: list[int]


class Augmenter(Protocol):
    """Makes twins. The same episode and seed give the same twin; None when there is nothing to change."""

    @property
    def name(self) -> str:
        """Its name in AUGMENTERS and in the rows it makes."""

    @property
    def changes(self) -> Change:
        """What differs in its twins: what the agent sees, or also how the world answers."""

    def augment(self, episode: Episode, seed: int) -> Augmented | None:
        """A twin of the episode."""


def twin_id(episode_id: str, augmenter: str, seed: int) -> str:
    """The id of the twin that an augmenter makes of an episode with a seed."""
    return xxhash.xxh3_128_hexdigest(f"{episode_id}\x1f{augmenter}\x1f{seed}".encode())


def _twin(episode: Episode, augmenter: str, seed: int, **changes: Any) -> Episode:
    return replace(
        episode,
        episode_id=twin_id(episode.episode_id, augmenter, seed),
        source_kind="synthetic",
        parent_episode_id=episode.episode_id,
        **changes,
    )


@dataclass(frozen=True)
class Paraphrase:
    """Other words for the user's, from a table of synonyms; everything else of the episode stays as it is.

    A word is treated alike throughout an episode, so the task and the message that states it stay equal. `rate` is
    the share of the listed words that change.
    """

    rate: float = 0.7
    name: str = field(default="paraphrase", init=False)
    changes: Change = field(default="observation", init=False)

    def __post_init__(self) -> None:
        _check_rate(self.name, self.rate)

    def augment(self, episode: Episode, seed: int) -> Augmented | None:
        """The episode with its user messages and task reworded; None when no word changes."""
        choose = self._chooser(twin_id(episode.episode_id, self.name, seed))
        messages = [
            replace(message, content=paraphrase(message.content, choose))
            if message.role == "user" and message.content
            else message
            for message in episode.messages
        ]
        task = paraphrase(episode.task, choose) if episode.task else episode.task
        if messages == episode.messages and task == episode.task:
            return None
        twin = _twin(episode, self.name, seed, messages=messages, task=task)
        return Augmented(twin, [step.step for step in episode.steps])

    def _chooser(self, key: str) -> Callable[[str], str | None]:
        def choose(word: str) -> str | None:
            random_number = xxhash.xxh3_64_intdigest(f"{key}\x1f{word}".encode())
            others = synonyms()[word]
            wanted = (random_number >> 32) / 2**32 < self.rate
            return others[random_number % len(others)] if wanted else None

        return choose


FAILURES: tuple[str, ...] = (
    "Request timed out after 30 seconds.",
    "Error: rate limit exceeded, too many requests. Try again later.",
    "Error: 500 internal error.",
    "Error: 502 bad gateway: the connection was closed.",
    "Error: 503 service unavailable.",
)
"""What a failing tool answers: passing faults, after which trying again is right."""


@dataclass(frozen=True)
class ToolFailure:
    """One call fails and is made again: same call, failure text, then the same call with its real result.

    Only tools named in `retryable` fail (a call that changes the world must not be repeated lightly), only calls with
    a logged ok result, and none of a parallel group. `rate` is the share of such episodes that get a failure; `first`
    takes the earliest such call instead of any.

    What the agent said and thought goes with the first attempt, where it was said; the retry says nothing, since a
    text said twice would never have been logged. The attempt was decided in the logged state and keeps the logged
    propensity; the retry's is unknown. The attempt's `logged_reward` is null, since nothing was logged for it (a spec
    that needs it then scores the twin as it scores any episode with a gap); the retry, which has the real result,
    keeps its own. Inserted messages have no time, and locators lead to the call they were made from.
    """

    retryable: tuple[str, ...]
    rate: float = 1.0
    first: bool = False
    name: str = field(default="tool_failure", init=False)
    changes: Change = field(default="dynamics", init=False)

    def __post_init__(self) -> None:
        _check_rate(self.name, self.rate)
        given: object = self.retryable  # a config file may hold one name, or a list
        if isinstance(given, str):
            raise UsageError("retryable is one text", "give a list of tool names")
        object.__setattr__(self, "retryable", tuple(self.retryable))

    def augment(self, episode: Episode, seed: int) -> Augmented | None:
        """The episode with one failed attempt; None when no call may fail or the seed spares it."""
        generator = random.Random(twin_id(episode.episode_id, self.name, seed))
        spared = generator.random() >= self.rate
        able = [step for step in episode.steps if self._may_fail(step)]
        if spared or not able:
            return None
        step = able[0] if self.first else generator.choice(able)
        return self._fail(episode, step, generator.choice(FAILURES), seed)

    def _may_fail(self, step: Step) -> bool:
        logged = step.kind == "tool" and step.result_status == "ok" and step.result_position is not None
        return logged and step.action in self.retryable and step.parallel_group is None

    def _fail(self, episode: Episode, step: Step, answer: str, seed: int) -> Augmented:
        at = step.position
        status, error = classify_result(answer)
        attempt = replace(
            step,
            tool_call_id=f"failed-{twin_id(episode.episode_id, self.name, seed)[:16]}",
            result=answer,
            result_status=status,
            result_position=at + 1,
            error_class=error,
            latency_s=None,
            logged_reward=None,
            result_locator=None,
        )
        retry = replace(_moved(step, at), step=step.step + 1, propensity=None, propensity_kind="missing")
        before = [_moved(s, at) for s in episode.steps[: step.step]]
        after = [replace(_moved(s, at), step=s.step + 1) for s in episode.steps[step.step + 1 :]]
        messages = _with_attempt(episode.messages, at, answer, step.locator)
        twin = _twin(episode, self.name, seed, messages=messages, steps=[*before, attempt, retry, *after])
        parents = [*range(step.step + 1), *range(step.step, len(episode.steps))]
        return Augmented(twin, parents)


def _moved(step: Step, at: int) -> Step:
    """The step in an episode with two more messages before position `at`."""
    result = step.result_position
    return replace(
        step,
        position=step.position + 2 * (step.position >= at),
        result_position=None if result is None else result + 2 * (result >= at),
    )


def _with_attempt(messages: list[Message], at: int, answer: str, locator: str) -> list[Message]:
    turn = messages[at]
    said = replace(turn, created_at=None, tokens_in=None, tokens_out=None)
    failed = Message(at + 1, "tool", answer, locator)
    again = replace(turn, position=at + 2, content=None, thought=None)
    return [
        *messages[:at],
        said,
        failed,
        again,
        *(replace(m, position=m.position + 2) for m in messages[at + 1 :]),
    ]


AUGMENTERS: dict[str, Callable[..., Augmenter]] = {"paraphrase": Paraphrase, "tool_failure": ToolFailure}
"""Every augmenter, by name."""


def make_augmenter(name: str, options: Mapping[str, Any] | None = None) -> Augmenter:
    """The augmenter of that name with its options."""
    if name not in AUGMENTERS:
        raise UnknownName("augmenter", name, sorted(AUGMENTERS))
    options = dict(options or {})
    known = inspect.signature(AUGMENTERS[name]).parameters
    for option in options:
        if option not in known:
            raise UnknownName(f"option of {name}", option, sorted(known))
    missing = [key for key, option in known.items() if option.default is option.empty and key not in options]
    if missing:
        raise UsageError(f"{name} needs its options {', '.join(missing)}", f"it takes {', '.join(known)}")
    augmenter = AUGMENTERS[name](**options)
    if augmenter.changes not in get_args(Change):
        raise UsageError(
            f"augmenter {name!r} does not say what it changes", f"one of {', '.join(get_args(Change))}"
        )
    return augmenter


def _check_rate(name: str, rate: float) -> None:
    if not 0 < rate <= 1:
        raise UsageError(f"rate {rate} of {name} is no share", "give a number above 0 and up to 1")
