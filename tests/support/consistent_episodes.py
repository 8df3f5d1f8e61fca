"""Whether an episode's messages and steps fit together, said independently of what made them."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.schemas.episode import Episode, Step
from logforge.schemas.errors import CheckFailed, Problem


def check_episode(episode: Episode) -> None:
    """Raise CheckFailed, with every problem, unless messages and steps of an episode fit together."""
    problems = [Problem(what, episode.locator) for what in _faults(episode)]
    if problems:
        remedy = "report the connector or the augmenter that made this episode"
        raise CheckFailed(f"episode {episode.episode_id} is not consistent", problems, remedy)


def _faults(episode: Episode) -> Iterator[str]:
    roles = dict(enumerate(message.role for message in episode.messages))
    if [message.position for message in episode.messages] != list(roles):
        yield "message positions do not count from 0 without gaps"
    if [step.step for step in episode.steps] != list(range(len(episode.steps))):
        yield "steps do not count from 0 without gaps"
    answered: set[int] = set()
    for previous, step in zip([None, *episode.steps], episode.steps, strict=False):
        yield from (f"step {step.step}: {what}" for what in _step_faults(step, previous, roles))
        if step.result_position in answered and not _shares(step, previous):
            yield f"step {step.step}: another step has the same result"
        answered |= set() if step.result_position is None else {step.result_position}


def _shares(step: Step, previous: Step | None) -> bool:
    """One message may answer several calls of a turn; then it is the same answer."""
    if previous is None or step.parallel_group is None:
        return False
    return (step.parallel_group, step.result_position, step.result) == (
        previous.parallel_group,
        previous.result_position,
        previous.result,
    )


def _step_faults(step: Step, previous: Step | None, roles: dict[int, str]) -> Iterator[str]:
    if roles.get(step.position) != "assistant":
        yield f"position {step.position} is no assistant message"
    if previous is not None:
        together = step.parallel_group is not None and step.parallel_group == previous.parallel_group
        if (step.position == previous.position) != together or step.position < previous.position:
            yield f"position {step.position} does not follow {previous.position}, or follows outside a parallel group"
    result = step.result_position
    if result is not None and (result <= step.position or roles.get(result) != "tool"):
        yield f"result position {result} is no later tool message"
    if step.kind != "tool" and (
        step.action != step.kind or step.result_status is not None or result is not None
    ):
        yield f"a {step.kind} step with action {step.action!r} or a result"
    if step.kind == "tool" and (step.result_status in (None, "missing")) != (result is None):
        yield f"result status {step.result_status!r} does not fit result position {result}"
