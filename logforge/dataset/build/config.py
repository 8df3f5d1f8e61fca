"""The settings of a build, and the gates that may stop it. Loads nothing heavy: the command line reads it for its options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from logforge.core import option, told
from logforge.dataset.states import StateConfig
from logforge.ingestion.sources import bytes_of

if TYPE_CHECKING:
    from logforge.dataset.weights import Weights
    from logforge.schemas import ObservationDtype

ActionLevel = Literal["tool", "tool+template"]


def _read_aliases(given: Iterable[str]) -> Mapping[str, str]:
    from logforge.dataset.actions import read_aliases

    return read_aliases(given)


def _read_weights(files: Iterable[str]) -> Weights:
    from logforge.dataset.weights import load_weights

    return load_weights(files)


def _usual_weights() -> Weights:
    from logforge.dataset.weights import Weights

    return Weights()


@dataclass(frozen=True)
class BuildConfig:
    """What decides a dataset besides the logs and the reward spec. All of it is in the manifest."""

    encoder: str = option(
        "minilm-onnx",
        "minilm-onnx, minilm, hashing, a local sentence-transformers folder, onnx:FOLDER, or openai:MODEL@URL.",
    )
    text_size: int = option(32, "Size of a text's vector after PCA.")
    seed: int = option(0, "Seed of splits and augmenters.")
    fractions: tuple[float, float, float] = (0.7, 0.15, 0.15)
    split_by: str = option(
        "group",
        "group (a hash of its key), or time: train is over before what is tested begins.",
        choices=("group", "time"),
    )
    augment: tuple[str, ...] = option((), "An augmenter (paraphrase, tool_failure); may be given again.")
    retryable: tuple[str, ...] = option((), "A tool that tool_failure may let fail; may be given again.")
    epsilon: float = option(0.5, "Returns further apart than this disagree (conflicts).")
    near_threshold: float = option(
        0.98,
        "Cosine at which differently worded states count as one (conflicts); 1: never.",
        least=0,
        most=1,
        above=True,
    )
    conflicts: tuple[str, ...] = option(
        (),
        "flag, weight (halve) or filter (leave out) what conflicts contradict. Without KIND: all but contrast. "
        "Default: flag. May be given again.",
        metavar="[KIND=]POLICY",
    )
    exclude_flags: tuple[str, ...] = option(
        (),
        "Leave out episodes with such a message (injection, unicode:bidi); may be given again.",
        "--exclude-flag",
        metavar="FLAG",
    )
    exclude_where: tuple[str, ...] = option(
        (),
        "Leave out episodes that meet an SQL condition on the columns of `episodes`; may be given again.",
        metavar="CONDITION",
    )
    hold_out: tuple[str, ...] = option(
        (),
        "Put episodes that meet a condition, with their groups, into a split of their own; may be given again.",
        metavar="CONDITION",
    )
    action_aliases: Mapping[str, str] = field(
        default_factory=dict,
        metadata=told(
            "A tool that was renamed and keeps one id, or a YAML file of such pairs; may be given again.",
            "--action-alias",
            given=(),
            read=_read_aliases,
            metavar="OLD=NEW",
        ),
    )
    min_action_count: int = option(
        0,
        "Tools that the train split calls less often share the action `<other>`, which no policy chooses.",
        least=0,
        metavar="N",
    )
    action_level: ActionLevel = option(
        "tool",
        "tool+template adds each call's argument template and its numeric arguments as arrays.",
        choices=("tool", "tool+template"),
    )
    estimate_propensity: bool = option(
        False,
        "Estimate the propensities that the log lacks, by a calibrated model of who chose what (docs/actions.md).",
    )
    weights: Weights = field(
        default_factory=_usual_weights,
        metadata=told(
            "Settings of sample weights (YAML), or the up-weight.yaml of `badcases`; may be given again.",
            given=(),
            read=_read_weights,
            path="any",
        ),
    )
    curriculum: bool = option(False, "Write stages.json: the episodes of each stage, easy ones first.")
    replay_fraction: float = option(
        0.1,
        "The share of a stage's episodes that are of earlier stages (curriculum).",
        least=0,
        most=1,
        below=True,
    )
    observation_dtype: ObservationDtype = option(
        "float32",
        "How observations are stored; float16 takes half the disk and is read as float32.",
        choices=("float32", "float16"),
    )
    part_bytes: int = option(
        2 << 30,
        "Observations and masks beyond this lie in several files.",
        "--part-size",
        given="2GB",
        read=bytes_of,
    )
    licences: tuple[str, ...] = option(
        (),
        "The licence of the sources of a format, for the dataset card; may be given again.",
        "--licence",
        metavar="FORMAT=TEXT",
    )
    state: StateConfig = field(default_factory=StateConfig)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**asdict(self), "weights": self.weights.as_dict(), "state": self.state.to_dict()}


def _gate(help: str) -> float | None:
    return option(None, help, least=0, most=1, metavar="SHARE")


@dataclass(frozen=True)
class Gates:
    """The thresholds of the gates (logforge/dataset/quality/gates.py); one without a threshold is not looked at."""

    min_failure_share: float | None = _gate(
        "Fail unless this share of the known outcomes, or more, are failures."
    )
    max_conflict_rate: float | None = _gate(
        "Fail when a larger share of decisions lies in states whose logs contradict each other."
    )
    min_coverage: float | None = _gate(
        "Fail unless this share of the states seen twice, or more, saw two actions."
    )
    max_leak_auc: float | None = _gate("Fail when the first state predicts success better than this (AUC).")
