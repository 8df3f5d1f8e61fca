"""What is wrong with a reward spec's data, in words for the person who wrote it: keys, types, ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from logforge.schemas.errors import UnknownName
from logforge.schemas.reward import (
    At,
    CameBack,
    Completeness,
    Detectors,
    Layer,
    Loop,
    NoProgress,
    Normalise,
    RewardSpec,
    Term,
)

_DETECTORS: dict[str, type[BaseModel]] = {
    "loop": Loop,
    "no_progress": NoProgress,
    "completeness": Completeness,
    "came_back": CameBack,
}
_CHOICES = {"at": At, "normalise": Normalise}


class Fault(NamedTuple):
    """What is wrong with one field of a spec."""

    what: str
    field: str


def faults(data: object) -> list[Fault]:
    """Everything that is wrong with a spec's data, expressions aside; empty when it is valid."""
    try:
        RewardSpec.model_validate(data)
    except ValidationError as error:
        return [_fault(dict(item)) for item in error.errors(include_url=False)]
    return []


def _fault(item: Mapping[str, Any]) -> Fault:
    place = [str(part) for part in item["loc"] if part != "[key]"]
    field, kind = ".".join(place), item["type"]
    if kind == "extra_forbidden":
        valid = list(_model(place[:-1]).model_fields)
        return Fault(str(UnknownName("key", place[-1], valid)), field)
    if kind == "literal_error":
        return Fault(str(UnknownName(place[-1], str(item["input"]), get_args(_CHOICES[place[-1]]))), field)
    if kind == "string_pattern_mismatch":
        return Fault("a name is lower-case letters, digits and _, beginning with a letter", field)
    if kind == "missing":
        return Fault(f"required key {place[-1]!r} is missing", field)
    if kind in ("model_type", "dict_type"):
        return Fault("must be a mapping" + (" such as {value: 1}" if len(place) > 1 else ""), field)
    what = item["msg"].removeprefix("Value error, ").replace("Input should", "must")
    whole = kind == "value_error" and not what.startswith("must ")  # a rule of the mapping, not of one value
    return Fault(what if whole else f"{what}, not {item['input']!r}", field)


def _model(place: list[str]) -> type[BaseModel]:
    """The model of the mapping at a place."""
    if not place:
        return RewardSpec
    if place[-2:-1] == ["terms"]:
        return Term
    if place[0] == "layers":
        return Layer
    return _DETECTORS.get(place[-1], Detectors)
