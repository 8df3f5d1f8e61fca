"""The reward spec: its words, the columns its expressions may use, and what is valid.

Expressions are kept as canonical SQL text; logforge.rewards reads, checks and compiles them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args

import xxhash
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from logforge.schemas.errors import Problem, UnknownName

LANGUAGE = 1
"""Part of every spec's hash; bump it when the same spec would come to mean something else."""


class Input(NamedTuple):
    """A column an expression may use."""

    name: str
    type: str
    meaning: str


def _inputs(text: str) -> tuple[Input, ...]:
    return tuple(Input(*line.split(None, 2)) for line in text.strip().splitlines())


COLUMNS = _inputs("""
    step                INTEGER  the step's number in its episode, from 0
    kind                VARCHAR  `tool`, `respond` or `clarify`
    action              VARCHAR  the tool's name, `respond` or `clarify`
    arguments           VARCHAR  canonical JSON text of the call's arguments; the raw text when they are invalid
    arguments_status    VARCHAR  `ok`, `repaired` or `invalid`
    action_valid        BOOLEAN  false when the tool was not among those offered
    result              VARCHAR  what the tool answered; empty text where the step has no tool, null where no answer was logged
    result_status       VARCHAR  `ok`, `error`, `empty`, `timeout`, `refused` or `missing`; `none` where the step has no tool
    error_class         VARCHAR  typed error; `none` where the step has no tool or no error, null where the log does not tell
    latency_s           DOUBLE   seconds from call to result; null where the log does not tell
    logged_reward       DOUBLE   the per-step reward the log carries; null where it carries none
    prev_action         VARCHAR  action of the step before; `none` at step 0
    prev_arguments      VARCHAR  arguments of the step before; `none` at step 0
    prev_result_status  VARCHAR  result_status of the step before; `none` at step 0
    prev_error_class    VARCHAR  error_class of the step before; `none` at step 0
    repeats             BIGINT   earlier steps of the episode with the same action and arguments
    errors_so_far       BIGINT   earlier steps of the episode whose result_status is `error` or `timeout`
    is_last             BOOLEAN  true on the episode's last step
    success             BOOLEAN  the episode's logged outcome; null when there is none
    score               DOUBLE   the episode's logged final score; null when there is none
    format              VARCHAR  the connector that read the episode
    source_kind         VARCHAR  `agent_log`, `human_demo`, `random_exploration`, `synthetic` or `counterfactual`
    ending              VARCHAR  `terminal` or `truncated`
    ending_reason       VARCHAR  the evidence for it
    task_id             VARCHAR  the log's id of the task; null when it has none
    model               VARCHAR  the model's name; null when the log does not tell
    policy_id           VARCHAR  who decided; the step's own where it differs from the episode's
    n_steps             BIGINT   how many steps the episode has
""")
"""Every column an expression may use."""

At = Literal["step", "end", "terminal"]


def _condition(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError("must be a condition in SQL, or true or false")


def _value(value: object) -> float | str:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number or an SQL expression")
    number = float(value) if abs(value) < 1e300 else float("inf")
    if not abs(number) < 1e300:
        raise ValueError("must be a finite number")
    return number


class Term(BaseModel):
    """One part of the reward: `value` wherever `when` holds, at the steps `at` names."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    when: Annotated[str, PlainValidator(_condition)] = "TRUE"
    value: Annotated[float | str, PlainValidator(_value)] = 1.0
    at: At = "step"
    once: bool = False
    max_per_episode: Annotated[int, Field(ge=1)] | None = None
    optional: bool = False

    @model_validator(mode="after")
    def _one_limit(self) -> Term:
        if self.once and self.max_per_episode is not None:
            raise ValueError("`once` and `max_per_episode` exclude each other")
        return self

    @property
    def limit(self) -> int | None:
        """How often the term pays in one episode; None is without limit."""
        return 1 if self.once else self.max_per_episode


class RewardSpec(BaseModel):
    """A discount and the terms whose sum is the reward. Made by `logforge.rewards.load_spec` and `parse_spec`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    gamma: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
    terms: Annotated[
        dict[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")], Term], Field(min_length=1)
    ]

    _path: str = PrivateAttr(default="")
    _lines: dict[str, int] = PrivateAttr(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The terms' names in the order they are summed."""
        return sorted(self.terms)

    @property
    def hash(self) -> str:
        """Identifies what the spec means: the same for another layout, key order, comment or spelling of a default."""
        terms = {
            name: [term.when, term.value, term.at, term.limit, term.optional]
            for name, term in self.terms.items()
        }
        text = json.dumps([LANGUAGE, self.gamma, terms], sort_keys=True)
        return xxhash.xxh3_128_hexdigest(text.encode())

    def written_in(self, path: str, lines: Mapping[str, int]) -> RewardSpec:
        """This spec, knowing the file and the line of each field, for errors found later."""
        self._path, self._lines = path, dict(lines)
        return self

    def problem(self, what: str, field: str) -> Problem:
        """A problem with a field (`terms.NAME.when`), with file and line where they are known."""
        return Problem(what, self._path, line_of(self._lines, field), field)


def line_of(lines: Mapping[str, int], field: str) -> int | None:
    """The line of a field, or of the nearest field around it."""
    while field and field not in lines:
        field = field.rpartition(".")[0]
    return lines.get(field)


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
        model = RewardSpec if len(place) == 1 else Term
        return Fault(str(UnknownName("key", place[-1], list(model.model_fields))), field)
    if kind == "literal_error":
        return Fault(str(UnknownName(place[-1], str(item["input"]), get_args(At))), field)
    if kind == "string_pattern_mismatch":
        return Fault("a term's name is lower-case letters, digits and _, beginning with a letter", field)
    if kind == "missing":
        return Fault(f"required key {place[-1]!r} is missing", field)
    if kind in ("model_type", "dict_type"):
        return Fault("must be a mapping" + (" such as {value: 1}" if len(place) > 1 else ""), field)
    what = item["msg"].removeprefix("Value error, ").replace("Input should", "must")
    return Fault(f"{what}, not {item['input']!r}" if kind != "value_error" or len(place) > 2 else what, field)
