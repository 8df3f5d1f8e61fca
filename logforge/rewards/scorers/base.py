"""What a scorer is: parameters that a spec gives it, the texts it reads, and a score from 0 to 1 for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import duckdb
import msgspec
import xxhash
from pydantic import AfterValidator, BaseModel, ConfigDict

from logforge.rewards.scorers.inputs import INPUTS
from logforge.schemas import UnknownName, UsageError
from logforge.texts import check_encoder

Reads = Literal["own words", "outcome", "world"]
"""What decides a score: the agent's own words alone, the logged outcome, or what the world answered."""
Texts = tuple[str, ...]
"""The texts of one step, in the order of a scorer's `inputs`; none is blank."""


class Score(NamedTuple):
    """What a scorer gives for one step: a value from 0 to 1, or null with a reason."""

    value: float | None
    spread: float | None = None
    """Standard deviation of repeated scores."""
    reason: str | None = None
    source: str | None = None
    """The model that an endpoint said it is."""


@dataclass(frozen=True)
class Ready:
    """A scorer made ready: models loaded, fitted on the train split."""

    version: str
    """Changes whenever its scores may: part of the cache's key."""
    score: Callable[[Sequence[Texts]], Iterable[tuple[int, Score]]]
    """Yields the number and the score of each item, in any order."""
    kept_together: int = 1024
    """After how many scores they are written into the store."""
    unready: str | None = None
    """Why nothing can be scored, if so; such scores are not kept."""


@dataclass(frozen=True)
class Example:
    """A text of the train split with what is known of its episode."""

    text: str
    success: bool | None
    score: float | None
    episode_id: str


@dataclass(frozen=True)
class Resources:
    """What scorers may use when they are made ready."""

    con: duckdb.DuckDBPyConnection
    """The store's connection, for the cache of vectors."""
    examples: tuple[Example, ...] = ()
    """The train split's texts, for scorers that are fitted."""


def _input(name: str) -> str:
    if name not in INPUTS:
        raise ValueError(str(UnknownName("text", name, list(INPUTS))))
    return name


def _encoder(name: str) -> str:
    try:
        check_encoder(name)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return name


InputName = Annotated[str, AfterValidator(_input)]
"""A parameter that names one of the texts of `inputs.INPUTS`."""
EncoderName = Annotated[str, AfterValidator(_encoder)]
"""A parameter that names an encoder."""


class Scorer(BaseModel):
    """A scorer with its parameters. Subclasses say their `name`, `inputs` and how they are made ready.

    `reads` is None where the text decides it. `fitted` scorers get all the train split's texts of the kind `learns_from`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: ClassVar[str]
    code_version: ClassVar[int] = 1
    """Bump it when the same text would come to score otherwise."""
    reads: ClassVar[Reads | None] = None
    fitted: ClassVar[bool] = False
    neutral: ClassVar[frozenset[str]] = frozenset()
    """Parameters that change how scores are got, not what they are."""

    text: InputName = "said"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the texts it reads, the one that is scored first."""
        return (self.text,)

    @property
    def learns_from(self) -> str:
        """The name of the texts that a fitted scorer learns from."""
        return self.text

    @property
    def judged_by(self) -> Reads:
        """What decides a score with these parameters."""
        if self.reads is not None:
            return self.reads
        return "own words" if INPUTS[self.text].by == "agent" else "world"

    def ready(self, resources: Resources) -> Ready:
        """The scorer, made ready to score."""
        raise NotImplementedError

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that decide a score, defaults included."""
        return self.model_dump(mode="json", exclude=set(self.neutral))

    def version(self, *more: object) -> str:
        """The hash of the code's version, the parameters and what else decides a score."""
        whole = [self.name, self.code_version, self.parameters, *more]
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode(whole, order="sorted"))


class ReferenceScorer(Scorer):
    """A scorer that compares a text with another, by a pure function of the two."""

    reference: InputName = "reference"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The text and its reference."""
        return (self.text, self.reference)


def each(function: Callable[[Texts], Score]) -> Callable[[Sequence[Texts]], Iterator[tuple[int, Score]]]:
    """The `Ready.score` of a function that scores one item."""

    def score(items: Sequence[Texts]) -> Iterator[tuple[int, Score]]:
        return ((index, function(item)) for index, item in enumerate(items))

    return score
