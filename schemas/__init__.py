"""What a record is and what is valid: no I/O, no engine, no learning library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.schemas import episode
    from logforge.schemas.episode import (
        CLARIFY,
        EQUAL_ROW,
        RESPOND,
        RESULT_STATUSES,
        ArgumentsStatus,
        Duplicate,
        Ending,
        Episode,
        Message,
        Reading,
        Reject,
        ResultStatus,
        Skip,
        SourceKind,
        Step,
        StepKind,
    )
    from logforge.schemas.errors import (
        CheckFailed,
        InputError,
        LogforgeError,
        Mismatch,
        MissingExtra,
        Problem,
        SpecError,
        StoreError,
        UnknownName,
        UsageError,
    )
    from logforge.schemas.manifest import (
        INVALID,
        OTHER,
        ArgumentTemplate,
        DataContract,
        EncoderRef,
        FeatureSlice,
        Manifest,
        ObservationDtype,
        SideNames,
        SourceRef,
        SplitSummary,
        Vocabulary,
        digest,
        unsafe_file_names,
    )
    from logforge.schemas.reward import Detectors, Place, RewardSpec, Term, problem_at
    from logforge.schemas.reward_columns import COLUMNS, KNOWN
    from logforge.schemas.reward_faults import faults
    from logforge.schemas.rules import BROKEN, CATALOGUE, meaning_of, remedy_of
    from logforge.schemas.tables import (
        ARGUMENT_CANDIDATES,
        CONFLICTS,
        COPIED_DECISIONS,
        COPIES,
        EPISODES,
        FORGOTTEN,
        LABELS,
        LONG_TEXTS,
        MESSAGES,
        QUARANTINE,
        SCORER_RESULTS,
        SECRETS,
        SOURCES,
        STEPS,
        TABLES,
        TRANSITIONS,
        Column,
        Table,
    )
    from logforge.schemas.transition import (
        ALLOWED,
        DRAWN_SPLITS,
        HELD_OUT,
        NULLABLE,
        PROPENSITY_KINDS,
        RULES,
        SPLIT_NAMES,
    )
    from logforge.schemas.yamltext import MAX_BYTES, Marked, parse

__all__ = [
    "ALLOWED", "ARGUMENT_CANDIDATES", "BROKEN", "CATALOGUE", "CLARIFY", "COLUMNS", "CONFLICTS",
    "COPIED_DECISIONS", "COPIES", "DRAWN_SPLITS", "EPISODES", "EQUAL_ROW", "FORGOTTEN", "HELD_OUT",
    "INVALID", "KNOWN", "LABELS", "LONG_TEXTS", "MAX_BYTES", "MESSAGES", "NULLABLE", "OTHER",
    "PROPENSITY_KINDS", "QUARANTINE", "RESPOND", "RESULT_STATUSES", "RULES", "SCORER_RESULTS", "SECRETS",
    "SOURCES", "SPLIT_NAMES", "STEPS", "TABLES", "TRANSITIONS", "ArgumentTemplate", "ArgumentsStatus",
    "CheckFailed", "Column", "DataContract", "Detectors", "Duplicate", "EncoderRef", "Ending", "Episode",
    "FeatureSlice", "InputError", "LogforgeError", "Manifest", "Marked", "Message", "Mismatch",
    "MissingExtra", "ObservationDtype", "Place", "Problem", "Reading", "Reject", "ResultStatus",
    "RewardSpec", "SideNames", "Skip", "SourceKind", "SourceRef", "SpecError", "SplitSummary", "Step",
    "StepKind", "StoreError", "Table", "Term", "UnknownName", "UsageError", "Vocabulary", "digest",
    "episode", "faults", "meaning_of", "parse", "problem_at", "remedy_of", "unsafe_file_names",
]  # fmt: skip

face(
    __name__,
    episode="ArgumentsStatus CLARIFY Duplicate EQUAL_ROW Ending Episode Message RESPOND "
    "RESULT_STATUSES Reading Reject ResultStatus Skip SourceKind Step StepKind",
    errors="CheckFailed InputError LogforgeError Mismatch MissingExtra Problem SpecError "
    "StoreError UnknownName UsageError",
    manifest="ArgumentTemplate DataContract EncoderRef FeatureSlice INVALID Manifest OTHER "
    "ObservationDtype SideNames SourceRef SplitSummary Vocabulary digest "
    "unsafe_file_names",
    reward="Detectors Place RewardSpec Term problem_at",
    reward_columns="COLUMNS KNOWN",
    reward_faults="faults",
    rules="BROKEN CATALOGUE meaning_of remedy_of",
    tables="ARGUMENT_CANDIDATES CONFLICTS COPIED_DECISIONS COPIES Column EPISODES FORGOTTEN LABELS "
    "LONG_TEXTS MESSAGES QUARANTINE SCORER_RESULTS SECRETS SOURCES STEPS TABLES TRANSITIONS "
    "Table",
    transition="ALLOWED DRAWN_SPLITS HELD_OUT NULLABLE PROPENSITY_KINDS RULES SPLIT_NAMES",
    yamltext="MAX_BYTES Marked parse",
)
