"""What a dataset folder says of itself: the action vocabulary, the feature layout and the manifest that holds both.

Nothing in a manifest depends on time or place, so the same inputs give the same text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from logforge.schemas.episode import CLARIFY, RESPOND
from logforge.schemas.errors import CheckFailed, InputError, Mismatch, Problem, UnknownName

SCHEMA_VERSION: Final = 3
_AGAIN = "build the dataset again"
INVALID: Final = "<invalid>"
"""The id of every logged action outside its mask (a hallucinated tool); no policy may choose it."""
OTHER: Final = "<other>"
"""The id of all tools too rare for one of their own. No policy may choose it either: nobody could say which is meant."""


@dataclass(frozen=True)
class Vocabulary:
    """The actions of a dataset; an action's id is its place.

    `aliases` are earlier names of tools, each with the name whose id it shares, and `others` the rare tools that share the id
    `<other>`, with how many decisions fell into it.
    """

    actions: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needed = (RESPOND, CLARIFY, INVALID, *((OTHER,) if self.others else ()))
        problems = [f"{name!r} is there twice" for name in _repeated(self.actions)]
        problems += [f"{name!r} is missing" for name in needed if name not in self.actions]
        problems += [
            f"{old!r} is an alias of {new!r}, which has no id"
            for old, new in self.aliases.items()
            if new not in self.actions and new not in self.others
        ]
        if problems:
            found = [Problem(what, field="actions") for what in problems]
            raise CheckFailed(
                "not an action vocabulary", found, "name the folder of a dataset that holds one"
            )

    @classmethod
    def build(
        cls,
        tools: Iterable[str],
        earlier: Vocabulary | None = None,
        aliases: Mapping[str, str] | None = None,
        others: Mapping[str, int] | None = None,
    ) -> Vocabulary:
        """`respond`, `clarify`, the tools by name, `<other>` where some are rare, `<invalid>`. With `earlier`, its ids stay, a
        renamed tool's under the new name, and new tools follow.

        A tool that bears one of the reserved names shares that name's id. `aliases` lead to names that are no aliases.
        """
        renamed, rare = dict(aliases or {}), dict(others or {})
        named = {renamed.get(tool, tool) for tool in tools} - rare.keys() - {RESPOND, CLARIFY, INVALID, OTHER}
        if earlier is None:
            other = (OTHER,) if rare else ()
            return cls((RESPOND, CLARIFY, *sorted(named), *other, INVALID), renamed, rare)
        actions = list(earlier.actions)
        for place, name in enumerate(actions):
            if renamed.get(name, name) not in actions:
                actions[place] = renamed[name]
        added = sorted(named | ({OTHER} if rare else set()))
        fresh = [name for name in added if name not in actions]
        return cls((*actions, *fresh), renamed, rare)

    @cached_property
    def _ids(self) -> dict[str, int]:
        places = {action: place for place, action in enumerate(self.actions)}
        return places | {name: places[self.name(name)] for name in (*self.others, *self.aliases)}

    def id(self, action: str) -> int:
        """The action's id, under any of its names."""
        try:
            return self._ids[action]
        except KeyError:
            raise UnknownName("action", action, self.actions) from None

    def name(self, action: str) -> str:
        """The name that the action's id goes by; what has none keeps its own."""
        found = self.aliases.get(action, action)
        return OTHER if found in self.others else found

    def renamed(self, actions: Sequence[str]) -> list[str]:
        """The vocabulary that something was made for, each name as it is today where its id is still the same."""
        today = [*self.actions, *actions[self.size :]]
        return [
            new if self.aliases.get(old) == new else old for old, new in zip(actions, today, strict=False)
        ]

    def __contains__(self, action: object) -> bool:
        return action in self._ids

    @property
    def invalid(self) -> int:
        """The id of `<invalid>`."""
        return self._ids[INVALID]

    @property
    def other(self) -> int | None:
        """The id of `<other>`, where there is one."""
        return self._ids.get(OTHER)

    @property
    def unplayable(self) -> list[int]:
        """The ids that no policy can act by: `<invalid>`, and `<other>`, which stands for several tools."""
        return [self._ids[name] for name in (INVALID, OTHER) if name in self._ids]

    @property
    def size(self) -> int:
        """How many actions there are, `<invalid>` included."""
        return len(self.actions)


class FeatureSlice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named block of an observation: columns `start` up to, not including, `stop`."""

    name: str
    start: int
    stop: int
    meaning: str = ""


class SourceRef(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A log the dataset was made from, by its bytes."""

    sha256: str
    format: str


class EncoderRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What turned texts into vectors, and the size PCA left of them."""

    name: str
    revision: str
    dim: int
    reduced_dim: int | None = None


class ArgumentTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the arguments of many calls of one action have in common: the second level of an action."""

    action: str
    template: str


class SideNames(NamedTuple):
    """What the arrays beside the actions number: argument templates, numeric arguments (`tool.argument`), policies."""

    templates: tuple[ArgumentTemplate, ...] = ()
    numbers: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()


class SplitSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The counts of one split."""

    episodes: int
    transitions: int
    terminals: int
    timeouts: int
    successes: int


ObservationDtype = Literal["float32", "float16"]


class DataContract(Protocol):
    """What whoever was made for a dataset holds of it: manifests and the cards of policies."""

    @property
    def actions(self) -> tuple[str, ...]:
        """The action vocabulary."""

    @property
    def layout(self) -> tuple[FeatureSlice, ...]:
        """The blocks of an observation."""

    @property
    def encoder(self) -> EncoderRef | None:
        """What made vectors of texts."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """All a reader of the shards has to know. The last six fields are the writer's: `sealed` fills them.

    `observation_dtype` is how observations are stored (they are read as float32), and `licences` those of the sources, by
    format, as far as the build was told. `golden_states` are the digests of the vectors in golden_states.json, `action_texts`
    what the vectors in action_texts.npy, made by `encoder`, are of: a text per action. `thoughts` counts the tool `calls` of logged
    episodes whose state holds a thought, and those that it has `named`. `text_variance` is the share of variance that
    the reduction keeps of the texts it was fitted on. `forgotten` counts the episodes that were taken out since the build, and `replaces` is the hash that it had before.
    """

    dataset: str
    actions: tuple[str, ...]
    layout: tuple[FeatureSlice, ...]
    observation_size: int
    gamma: float
    spec_hash: str
    config: dict[str, Any]
    reward: dict[str, Any] = {}
    sources: tuple[SourceRef, ...] = ()
    encoder: EncoderRef | None = None
    mask_kinds: dict[str, int] = {}
    action_aliases: dict[str, str] = {}
    other_actions: dict[str, int] = {}
    argument_templates: tuple[ArgumentTemplate, ...] = ()
    argument_numbers: tuple[str, ...] = ()
    behaviour_policies: tuple[str, ...] = ()
    propensity_kinds: dict[str, int] = {}
    propensity_model: dict[str, Any] = {}
    seed: int = 0
    packages: dict[str, str] = {}
    observation_dtype: ObservationDtype = "float32"
    licences: dict[str, str] = {}
    golden_states: tuple[str, ...] = ()
    action_texts: tuple[str, ...] = ()
    thoughts: dict[str, int] = {}
    text_variance: float | None = None
    forgotten: int = 0
    replaces: str = ""
    schema_version: int = SCHEMA_VERSION
    config_hash: str = ""
    splits: dict[str, SplitSummary] = {}
    return_range: tuple[float, float] | None = None
    checksums: dict[str, str] = {}
    hash: str = ""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise CheckFailed("not a sound manifest", problems, _AGAIN)
        # What is written must be what is read back, or the hash would not hold.
        self._normalise("gamma", float(self.gamma))
        self._normalise("config", json.loads(_text(self.config)))
        self._normalise("reward", json.loads(_text(self.reward)))
        self._normalise("sources", tuple(sorted(set(self.sources))))
        if self.return_range is not None:
            self._normalise("return_range", (float(self.return_range[0]), float(self.return_range[1])))

    def _normalise(self, field: str, value: object) -> None:
        msgspec.structs.force_setattr(self, field, value)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The actions with their ids."""
        return Vocabulary(self.actions, self.action_aliases, self.other_actions)

    @property
    def side_names(self) -> SideNames:
        """What the arrays beside the actions number."""
        return SideNames(self.argument_templates, self.argument_numbers, self.behaviour_policies)

    def sealed(
        self,
        splits: Mapping[str, SplitSummary],
        return_range: tuple[float, float] | None,
        checksums: Mapping[str, str],
    ) -> Manifest:
        """This manifest with what only the writer knows: counts, checksums and the hash over the content."""
        filled = msgspec.structs.replace(
            self,
            config_hash=digest(self.config),
            splits=dict(splits),
            return_range=return_range,
            checksums=dict(checksums),
        )
        return msgspec.structs.replace(filled, hash=filled.content_hash())

    def refuse_unlike(self, expected: DataContract, path: str) -> None:
        """Raise Mismatch where the actions, the feature layout or the encoder are not the expected ones."""
        for what, asked, found in (
            ("action vocabulary", self.vocabulary.renamed(expected.actions), list(self.actions)),
            ("feature layout", _places(expected.layout), _places(self.layout)),
            ("encoder", _named(expected.encoder), _named(self.encoder)),
        ):
            if asked != found:
                remedy = "build it with the same settings, and with --vocabulary the other's folder"
                raise Mismatch(f"{path}: {what}", asked, found, remedy)

    def content_hash(self) -> str:
        """Hash over files, config, vocabulary, layout, encoder and reward: the dataset's identity, whatever its name."""
        return digest({key: msgspec.to_builtins(getattr(self, key)) for key in _IDENTITY})

    def to_json(self) -> str:
        """Deterministic text: sorted keys, two spaces, a newline at the end."""
        return _text(msgspec.to_builtins(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, path: str = "manifest.json") -> Manifest:
        """The manifest of a sealed dataset; other versions, malformed and altered ones are refused."""
        try:
            version = msgspec.json.decode(text, type=_Versioned).schema_version
            if version != SCHEMA_VERSION:
                raise Mismatch(f"{path}: schema version", SCHEMA_VERSION, version, _AGAIN)
            manifest = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(path, f"not a manifest: {error}", remedy=_AGAIN) from error
        except CheckFailed as error:
            raise InputError(path, error.message, remedy=_AGAIN) from error
        if manifest.hash != manifest.content_hash():
            raise Mismatch(
                f"{path}: hash", manifest.content_hash(), manifest.hash or "none", f"{_AGAIN}: it was altered"
            )
        return manifest

    def _problems(self) -> Iterator[Problem]:
        yield from unsafe_file_names([*self.checksums, *self.splits])
        if not self.dataset:
            yield Problem("no name", field="dataset")
        if not 0 <= self.gamma <= 1:
            yield Problem(f"{self.gamma} is not in [0, 1]", field="gamma")
        try:
            self.vocabulary  # noqa: B018
            _text(self.config).encode()
        except CheckFailed as error:
            yield from error.failures
        except (TypeError, ValueError) as error:
            yield Problem(f"JSON cannot hold it: {error}", field="config")
        yield from _layout_problems(self.layout, self.observation_size)


_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*", re.ASCII)
"""No part begins with a dot; no backslash, colon, blank or control character."""

_IDENTITY = (
    "schema_version", "actions", "action_aliases", "argument_templates", "argument_numbers", "behaviour_policies", "layout",
    "gamma", "spec_hash", "config", "encoder", "checksums",
)  # fmt: skip


class _Versioned(msgspec.Struct):
    schema_version: int


def manifest_schema() -> dict[str, Any]:
    """The JSON schema of a sealed manifest, for readers in any language."""
    found = msgspec.json.schema(Manifest)
    body = found["$defs"]["Manifest"]
    body["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    body["properties"]["hash"] = body["properties"]["config_hash"] = {"type": "string", "minLength": 1}
    body["required"] = sorted({*body["required"], "schema_version", "checksums", "hash"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def digest(value: object) -> str:
    """Hash of a JSON value, whatever the order of its keys."""
    return hashlib.blake2b(_text(value).encode(), digest_size=16).hexdigest()


def _text(value: object, indent: int | None = None) -> str:
    return json.dumps(value, sort_keys=True, indent=indent, ensure_ascii=False, allow_nan=False)


def unsafe_file_names(names: Iterable[str]) -> Iterator[Problem]:
    """Names of files in a folder that lead, or may lead, out of it, or that some system takes for something else."""
    for name in names:
        if not _FILE_NAME.fullmatch(name):
            yield Problem(f"{name!r} is no plain name of a file in its folder", rule="unsafe_file_name")


def _layout_problems(layout: tuple[FeatureSlice, ...], size: int) -> Iterator[Problem]:
    for name in _repeated(tuple(part.name for part in layout)):
        yield Problem(f"{name!r} is there twice", field="layout")
    end = 0
    for place, part in enumerate(layout):
        if part.start != end or part.stop < part.start:
            found = f"{part.name!r} is {part.start}:{part.stop}"
            yield Problem(f"{found}, the block before it ends at {end}", field=f"layout[{place}]")
        end = part.stop
    if end != size or size < 1:
        yield Problem(f"it is {size}, the layout ends at {end}", field="observation_size")


def _places(layout: tuple[FeatureSlice, ...]) -> list[str]:
    return [f"{part.name} {part.start}:{part.stop}" for part in layout]


def _named(encoder: EncoderRef | None) -> str:
    if encoder is None:
        return "none"
    return f"{encoder.name} {encoder.revision}, {encoder.dim} numbers, reduced to {encoder.reduced_dim}"


def _repeated(names: tuple[str, ...]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)
