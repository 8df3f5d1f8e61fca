"""The reward spec: its words and what is valid.

Expressions are kept as canonical SQL text; logforge.rewards.spec reads and checks them, logforge.rewards.sql.query compiles them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import xxhash
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    StringConstraints,
    model_validator,
)

from logforge.schemas.errors import Problem
from logforge.schemas.reward_columns import COLUMNS as COLUMNS

LANGUAGE = 2
"""Part of every spec's hash; bump it when the same spec would come to mean something else."""

At = Literal["step", "end", "terminal"]
Normalise = Literal["spread", "none"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


def _condition(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError("must be a condition in SQL, or true or false")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    number = float(value) if abs(value) < 1e300 else math.inf
    if not abs(number) < 1e300:
        raise ValueError("must be a finite number")
    return number


def _value(value: object) -> float | str:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number or an SQL expression")
    return _number(value)


def _expression(value: object) -> str:
    if isinstance(value, bool | int | float):
        return str(value).upper() if isinstance(value, bool) else repr(_number(value))
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError("must be an SQL expression")


def _bounds(value: object) -> tuple[float | None, float | None]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("must be a list of two, [low, high], of which one may be null")
    low, high = (None if bound is None else _number(bound) for bound in value)
    if low is None and high is None:
        raise ValueError("must bound one side at least")
    if low is not None and high is not None and low > high:
        raise ValueError("its low bound lies above its high one")
    return low, high


def _scorer(value: object) -> dict[str, Any]:
    if isinstance(value, str) and value.strip():
        return {"name": value}
    plain = isinstance(value, dict) and all(
        isinstance(item, str | int | float | bool)
        or (isinstance(item, list) and all(isinstance(entry, str) for entry in item))
        for item in value.values()
    )
    if plain and isinstance(value, dict) and isinstance(value.get("name"), str):
        return dict(sorted(value.items()))
    raise ValueError("must be a scorer's name, or a mapping such as {name: rouge_l, text: said}")


Number = Annotated[float, PlainValidator(_number, json_schema_input_type=float)]
_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class Term(BaseModel):
    """One part of the reward: `value` wherever `when` holds, at the steps `at` names."""

    model_config = _STRICT

    when: Annotated[str, PlainValidator(_condition, json_schema_input_type=str | bool)] = "TRUE"
    """An SQL condition: the term pays where it holds and is 0 where it does not."""
    value: Annotated[float | str, PlainValidator(_value, json_schema_input_type=float | str)] = 1.0
    """What it pays: a number, or an SQL expression that gives one."""
    scorer: (
        Annotated[dict[str, Any], PlainValidator(_scorer, json_schema_input_type=str | dict[str, Any])] | None
    ) = None
    """A named scorer, whose score multiplies `value`: its name, or a mapping of `name` and parameters."""
    scale: Number = 1.0
    """Multiplies the value, before `clip`."""
    clip: (
        Annotated[
            tuple[float | None, float | None],
            PlainValidator(_bounds, json_schema_input_type=list[float | None]),
        ]
        | None
    ) = None
    """Bounds of the scaled value, [low, high]; one may be null."""
    at: At = "step"
    """`step`: every step; `end`: the last step of any episode; `terminal`: the last step of an episode that truly ended."""
    once: bool = False
    """Pay only at the first step where the term applies."""
    max_per_episode: Annotated[int, Field(ge=1)] | None = None
    """Pay at most so often in an episode."""
    diminishing: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Each further pay of an episode is this share of the one before."""
    potential: bool = False
    """Pay γΦ(after) − Φ(before) for the value Φ of a state: it changes no policy's rank."""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Multiplies the pay; in a layer, relative to the weights of its other terms."""
    optional: bool = False
    """Where an input is missing, leave the term out instead of making the reward null."""

    @model_validator(mode="after")
    def _words_that_exclude_each_other(self) -> Term:
        if self.once and self.max_per_episode is not None:
            raise ValueError("`once` and `max_per_episode` exclude each other")
        if self.potential and (self.at != "step" or self.limit is not None or self.diminishing is not None):
            raise ValueError(
                "a potential is a value of every state: `at`, `once`, `max_per_episode` and `diminishing` do not go with it"
            )
        if self.potential and (self.scorer is not None or self.optional):
            raise ValueError("a potential cannot be missing: `scorer` and `optional` do not go with it")
        return self

    @property
    def limit(self) -> int | None:
        """How often the term pays in one episode; None is without limit."""
        return 1 if self.once else self.max_per_episode

    @property
    def meaning(self) -> list[Any]:
        """What the term says, the same for every way of writing it."""
        numbers = [self.scale, self.clip, self.diminishing, self.weight]
        return [
            self.when, self.value, self.scorer, self.at, self.limit, self.potential, self.optional, *numbers,
        ]  # fmt: skip


Terms = dict[Name, Term]


class Layer(BaseModel):
    """Terms that share a weight. `spread`: each term is divided by the spread of its sum over the train episodes before its
    weight counts (one that pays at the end alone is centred as well), so that the weights say what each is worth."""

    model_config = _STRICT

    weight: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
    """What the layer is worth in the reward; the weights of all layers sum to 1."""
    normalise: Normalise = "spread"
    """`spread`: divide each term by its spread over the train episodes; `none`: leave it as it is."""
    terms: Annotated[Terms, Field(min_length=1)]
    """The layer's terms by name."""

    def share(self, name: str) -> float:
        """What a term of the layer is worth in the reward, before its normalisation: weights of a layer's terms are relative."""
        return self.weight * self.terms[name].weight / sum(term.weight for term in self.terms.values())


class Loop(BaseModel):
    """`loop`: how many steps back the same call may lie."""

    model_config = _STRICT
    within: Annotated[int, Field(ge=1)] = 3
    """How many steps back the same call may lie."""


class NoProgress(BaseModel):
    """`no_progress`: how many calls in a row must bring nothing new."""

    model_config = _STRICT
    calls: Annotated[int, Field(ge=1)] = 3
    """How many calls in a row must bring nothing new."""


class Completeness(BaseModel):
    """`completeness`: tools that must have worked, and arguments (of any tool) that must have been filled."""

    model_config = _STRICT
    tools: list[str] = []
    """Tools that must have worked."""
    slots: list[str] = []
    """Arguments, of any tool, that must have been filled."""

    @model_validator(mode="after")
    def _something(self) -> Completeness:
        if not self.tools and not self.slots:
            raise ValueError("needs `tools` or `slots`")
        return self


class CameBack(BaseModel):
    """`came_back`: how soon after the episode's end the user must begin another."""

    model_config = _STRICT
    within_s: Annotated[
        float, Field(gt=0, allow_inf_nan=False), PlainValidator(_number, json_schema_input_type=float)
    ]
    """Seconds after the episode's end."""


class Detectors(BaseModel):
    """Settings of the detectors that have some. `completeness` and `came_back` need theirs."""

    model_config = _STRICT
    loop: Loop = Loop()
    """The detector `loop`."""
    no_progress: NoProgress = NoProgress()
    """The detector `no_progress`."""
    completeness: Completeness | None = None
    """The detectors `completeness` and `done_so_far`, which need it."""
    came_back: CameBack | None = None
    """The detector `came_back`, which needs it."""


class Place(NamedTuple):
    """Where a field was written."""

    path: str
    line: int | None


class RewardSpec(BaseModel):
    """A discount and the terms whose sum is the reward. Made by `logforge.load_spec` and `logforge.rewards.parse_spec`."""

    model_config = _STRICT

    gamma: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
    """The discount, in (0, 1]."""
    include: list[str] = []
    """Other spec files, whose terms, layers, names and detectors are added."""
    let: dict[Name, Annotated[str, PlainValidator(_expression, json_schema_input_type=str)]] = {}
    """Names for shared SQL expressions; each may use those before it."""
    terms: Terms = {}
    """The terms by name; the reward of a step is their sum."""
    layers: dict[Name, Layer] = {}
    """Layers of terms that are normalised before they are weighted."""
    detectors: Detectors = Detectors()
    """Settings of the built-in detectors."""

    _places: dict[str, Place] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _whole(self) -> RewardSpec:
        if not self.terms and not self.layers:
            raise ValueError("a spec needs `terms` or `layers`")
        total = sum(layer.weight for layer in self.layers.values())
        if self.layers and not math.isclose(total, 1, abs_tol=1e-9):
            raise ValueError(f"the weights of the layers sum to {total:g}, they must sum to 1")
        names = [name for name, _, _ in self.entries()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"term {twice[0]!r} is there twice: a term's name is unique over all layers")
        return self

    def entries(self) -> Iterator[tuple[str, Term, str | None]]:
        """Every term with its name and its layer (None: none)."""
        yield from ((name, term, None) for name, term in self.terms.items())
        for layer, content in self.layers.items():
            yield from ((name, term, layer) for name, term in content.terms.items())

    @property
    def names(self) -> list[str]:
        """The terms' names in the order they are summed."""
        return sorted(name for name, _, _ in self.entries())

    def term(self, name: str) -> Term:
        """A term by its name, whatever layer it lies in."""
        return next(term for found, term, _ in self.entries() if found == name)

    def layer_of(self, name: str) -> str | None:
        """The layer a term lies in; None for one that lies in none."""
        return next(layer for found, _, layer in self.entries() if found == name)

    @property
    def normalised(self) -> list[str]:
        """The terms that need scales fitted on the train split."""
        return [
            name for name in self.names
            if (layer := self.layer_of(name)) is not None and self.layers[layer].normalise == "spread"
        ]  # fmt: skip

    @property
    def scored(self) -> list[str]:
        """The terms that have scorers."""
        return [name for name in self.names if self.term(name).scorer is not None]

    @property
    def hash(self) -> str:
        """Identifies what the spec means: the same for another layout, key order, comment, file or spelling of a default."""
        terms = {name: [term.meaning, layer] for name, term, layer in self.entries()}
        layers = {name: [layer.weight, layer.normalise] for name, layer in self.layers.items()}
        whole = [LANGUAGE, self.gamma, terms, layers, self.detectors.model_dump(mode="json")]
        return xxhash.xxh3_128_hexdigest(json.dumps(whole, sort_keys=True).encode())

    def written_in(self, places: Mapping[str, Place]) -> RewardSpec:
        """This spec, knowing the file and the line of each field, for errors found later."""
        self._places = dict(places)
        return self

    def field_of(self, name: str) -> str:
        """The field of a term: `terms.NAME`, or `layers.LAYER.terms.NAME`."""
        layer = self.layer_of(name)
        return f"terms.{name}" if layer is None else f"layers.{layer}.terms.{name}"

    def place_of(self, name: str) -> str:
        """Where a term was written, as file:line; its field where that is not known."""
        found = self.problem("", self.field_of(name))
        return f"{found.path}:{found.line}" if found.line is not None else f"$.{found.field}"

    def problem(self, what: str, field: str) -> Problem:
        """A problem with a field (`terms.NAME.when`), with file and line where they are known."""
        return problem_at(self._places, what, field)


def problem_at(places: Mapping[str, Place], what: str, field: str) -> Problem:
    """A problem with a field, at its place or at that of the nearest field around it."""
    around = field
    while around and around not in places:
        around = around.rpartition(".")[0]
    place = places.get(around, Place("", None))
    return Problem(what, place.path, place.line, field)
