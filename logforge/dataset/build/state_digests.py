"""What the states of an episode are made from, as one digest of each, by which a later build knows those that it need not make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import polars as pl
import xxhash

from logforge.core import Episodes
from logforge.dataset.actions import ActionSpace
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.build.manifest import package_versions
from logforge.texts import Encoder, Pca

STATES_VERSION: Final = 2
"""To be raised by whoever changes what symbols, keys, vectors or the reduction come out as."""


@dataclass(frozen=True, eq=False)
class StatesId:
    """What decides the states of a build. `digests` (episode_id, digest; ordered by id) say for each episode all that does but the
    PCA; `hash` is over all of it that decides a PCA that is fitted, and `reduction` is the hash of one that is given, or empty.
    """

    digests: pl.DataFrame
    hash: str
    reduction: str = ""

    @classmethod
    def of(
        cls,
        episodes: Episodes,
        splits: Mapping[str, str],
        formats: Mapping[str, str],
        config: BuildConfig,
        space: ActionSpace,
        encoder: Encoder,
        reduction: Pca | None,
    ) -> StatesId:
        """The id of the states of these episodes, copies included; `splits` and `formats` name those of each.

        The second level of actions is in no state, nor are the counts of rare tools.
        """
        settings = _settings(config, space, encoder)
        seeds = {name: _seed(settings, space, name) for name in sorted(set(formats.values()))}
        every = xxhash.xxh3_128(msgspec.json.encode(config.text_size))
        digests = []
        for name in episodes.ids:
            told = xxhash.xxh3_128_hexdigest(seeds[formats[name]] + episodes.spool.digest(name))
            every.update(msgspec.msgpack.encode((name, splits[name], told)))
            digests.append(told)
        frame = pl.DataFrame(
            {"episode_id": episodes.ids, "digest": digests}, {"episode_id": pl.String, "digest": pl.String}
        )
        return cls(frame, every.hexdigest(), reduction.hash if reduction else "")

    def as_dict(self) -> dict[str, str]:
        """What the store keeps of it beside the digests."""
        return {"hash": self.hash, "reduction": self.reduction}


def _settings(config: BuildConfig, space: ActionSpace, encoder: Encoder) -> bytes:
    """What decides the states of every episode alike."""
    vocabulary = space.vocabulary
    settings = {
        "version": STATES_VERSION,
        "packages": package_versions(),
        "state": config.state.to_dict(),
        "encoder": [encoder.name, encoder.revision],
        "actions": list(vocabulary.actions),
        "aliases": dict(vocabulary.aliases),
        "others": sorted(vocabulary.others),
    }
    return msgspec.json.encode(settings, order="sorted")


def _seed(settings: bytes, space: ActionSpace, format_name: str) -> bytes:
    """With what masks are inferred from in the logs of one format."""
    tools = sorted(space.tools_by_format.get(format_name, ()))
    return xxhash.xxh3_128_digest(settings + msgspec.json.encode(tools))
