"""Stage `choose`: which episodes of the store a dataset is made of, and why the others are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from logforge.core import Episodes, EpisodeSpool, from_summary, per_episode, stage
from logforge.dataset.actions import renamed, resolve_aliases
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.build.exclusion import excluded, held_out, read_conditions
from logforge.dataset.build.plan import Plan
from logforge.dataset.build.report import LeftOut
from logforge.schemas import Episode, UnknownName
from logforge.shards import read_licences
from logforge.store import Store


@dataclass(frozen=True, slots=True)
class Chosen:
    """The store's episodes that a dataset is made of, ordered by id, under the names that tools bear today; they lie in a
    scratch file. `aliases` lead from earlier names to these, and `held_out` are the ids of those that met `--hold-out`."""

    episodes: Episodes
    left_out: Mapping[str, LeftOut]
    aliases: Mapping[str, str]
    held_out: frozenset[str]


@stage(
    per_episode("conditions and flags that leave an episode out, or hold it out"),
    from_summary(
        "that the tools and formats named are there", "their names: one for each tool, one for each format"
    ),
    from_summary("names of tools that were renamed", "names of tools: one for each"),
)
def choose(plan: Plan) -> Chosen:
    """The episodes of a build. The store is read once, into a scratch file beside the dataset.

    Raises UnknownName for a retryable tool, a licence's format or an alias that no episode has.
    """
    held = held_out(plan.store, plan.config.hold_out)
    episodes, left_out = _chosen(plan.store, plan.config, plan.out)
    aliases = resolve_aliases(plan.config.action_aliases, episodes, plan.earlier.vocabulary)
    today = episodes.spool.changed(lambda episode: renamed(episode, aliases))
    return Chosen(Episodes(today, episodes.ids), left_out, aliases, held)


def _chosen(store: Store, config: BuildConfig, folder: Path) -> tuple[Episodes, dict[str, LeftOut]]:
    """The store's episodes, spooled in `folder`, without those that flags and conditions leave out; and these."""
    meeting = excluded(store, read_conditions(config.exclude_where))
    spool, ids = EpisodeSpool(folder), []
    flagged, used, formats = dict[str, LeftOut](), set[str](), set[str]()
    for episode in store.episodes():
        formats.add(episode.format)
        flag = _flagged(episode, config.exclude_flags)
        if flag is not None:
            flagged[episode.episode_id] = flag
        elif episode.episode_id not in meeting:
            used.update(step.action for step in episode.steps if step.kind == "tool")
            spool.add(episode)
            ids.append(episode.episode_id)
    for tool in config.retryable:
        if tool not in used:
            raise UnknownName("tool", tool, sorted(used))
    read_licences(config.licences, formats)
    return Episodes(spool, ids), flagged | meeting


def _flagged(episode: Episode, wanted: Sequence[str]) -> LeftOut | None:
    """Why an episode with a message that bears one of the flags is left out; `injection` stands for every `injection:KIND`."""
    for message in episode.messages:
        for flag in message.flags or ():
            named = next((name for name in wanted if flag == name or flag.startswith(f"{name}:")), None)
            if named is not None:
                return LeftOut("flagged", f"a message is flagged {named}", None, message.locator)
    return None
