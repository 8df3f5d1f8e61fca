"""Records to episodes: the builder, calls and results, identity, outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.connectors.episodes.arguments import Absent, as_logged, parse_arguments
    from logforge.connectors.episodes.builder import Call, EpisodeBuilder, distinct_calls
    from logforge.connectors.episodes.content import (
        CALL_BLOCKS,
        Answer,
        Parts,
        Speech,
        Text,
        bad_part,
        bad_record,
        cost_or_none,
        count_or_none,
        first_text,
        from_millis,
        micros,
        object_or_empty,
        place_of,
        read_content,
        text_or_none,
    )
    from logforge.connectors.episodes.continuations import Continuations
    from logforge.connectors.episodes.cuts import cut_by, limit_met, stopped_by
    from logforge.connectors.episodes.decision_keys import INJECTED, keyed, with_decision_keys
    from logforge.connectors.episodes.feedback import Verdict, outcome_of, score_of
    from logforge.connectors.episodes.identity import (
        content_id,
        episode_id,
        instance_task,
        is_uuid,
        issue_in,
        native_or_content,
        run_task,
        task_group,
    )
    from logforge.connectors.episodes.judgements import (
        SCORE_KEYS,
        SUCCESS_KEYS,
        UNKNOWN,
        Outcome,
        amount_of,
        contradicted,
        failure_in,
        read_outcome,
        read_reward,
        truth_of,
    )
    from logforge.connectors.episodes.keyed_records import entry_keys, read_keyed
    from logforge.connectors.episodes.nested import InnerList, read_inner
    from logforge.connectors.episodes.outcome import ERROR_CLASSES, FINISHING, asks_user, classify_result
    from logforge.connectors.episodes.pairing import OpenCalls, is_unique
    from logforge.connectors.episodes.policies import prompt_suffix, prompt_version
    from logforge.connectors.episodes.rows import (
        close,
        first_bool,
        first_number,
        first_user_text,
        read_rows,
        read_table,
        reject,
    )
    from logforge.connectors.episodes.samples import Samples
    from logforge.connectors.episodes.soft_refusal import SOFT_REFUSAL
    from logforge.connectors.episodes.spoken import json_value, said_calls
    from logforge.connectors.episodes.text_calls import (
        answer,
        command_call,
        execute_calls,
        fenced,
        function_calls,
        interface,
    )
    from logforge.connectors.episodes.tool_names import KINDS, TOOL_PREFIX, bare_name, meant, tool_action
    from logforge.connectors.episodes.turns import Answered, Said, Transcript
    from logforge.connectors.episodes.unsupported_shapes import RULE, VOICE, unsupported
    from logforge.connectors.episodes.words import (
        Unknown,
        looks_like,
        may_hold_call,
        names_call,
        part_text,
        text_of,
        unknown_parts,
        unread_calls,
        unsaid,
        words_of,
    )

__all__ = [
    "CALL_BLOCKS", "ERROR_CLASSES", "FINISHING", "INJECTED", "KINDS", "RULE", "SCORE_KEYS",
    "SOFT_REFUSAL", "SUCCESS_KEYS", "TOOL_PREFIX", "UNKNOWN", "VOICE", "Absent", "Answer", "Answered",
    "Call", "Continuations", "EpisodeBuilder", "InnerList", "OpenCalls", "Outcome", "Parts", "Said",
    "Samples", "Speech", "Text", "Transcript", "Unknown", "Verdict", "amount_of", "answer", "as_logged",
    "asks_user", "bad_part", "bad_record", "bare_name", "classify_result", "close", "command_call",
    "content_id", "contradicted", "cost_or_none", "count_or_none", "cut_by", "distinct_calls",
    "entry_keys", "episode_id", "execute_calls", "failure_in", "fenced", "first_bool", "first_number",
    "first_text", "first_user_text", "from_millis", "function_calls", "instance_task", "interface",
    "is_unique", "is_uuid", "issue_in", "json_value", "keyed", "limit_met", "looks_like", "may_hold_call",
    "meant", "micros", "names_call", "native_or_content", "object_or_empty", "outcome_of",
    "parse_arguments", "part_text", "place_of", "prompt_suffix", "prompt_version", "read_content",
    "read_inner", "read_keyed", "read_outcome", "read_reward", "read_rows", "read_table", "reject",
    "run_task", "said_calls", "score_of", "stopped_by", "task_group", "text_of", "text_or_none",
    "tool_action", "truth_of", "unknown_parts", "unread_calls", "unsaid", "unsupported",
    "with_decision_keys", "words_of",
]  # fmt: skip

face(
    __name__,
    arguments="Absent as_logged parse_arguments",
    builder="Call EpisodeBuilder distinct_calls",
    content="Answer CALL_BLOCKS Parts Speech Text bad_part bad_record cost_or_none count_or_none "
    "first_text from_millis micros object_or_empty place_of read_content text_or_none",
    continuations="Continuations",
    cuts="cut_by limit_met stopped_by",
    decision_keys="INJECTED keyed with_decision_keys",
    feedback="Verdict outcome_of score_of",
    identity="content_id episode_id instance_task is_uuid issue_in native_or_content run_task task_group",
    judgements="Outcome SCORE_KEYS SUCCESS_KEYS UNKNOWN amount_of contradicted failure_in "
    "read_outcome read_reward truth_of",
    keyed_records="entry_keys read_keyed",
    nested="InnerList read_inner",
    outcome="ERROR_CLASSES FINISHING asks_user classify_result",
    pairing="OpenCalls is_unique",
    policies="prompt_suffix prompt_version",
    rows="close first_bool first_number first_user_text read_rows read_table reject",
    samples="Samples",
    soft_refusal="SOFT_REFUSAL",
    spoken="json_value said_calls",
    text_calls="answer command_call execute_calls fenced function_calls interface",
    tool_names="KINDS TOOL_PREFIX bare_name meant tool_action",
    turns="Answered Said Transcript",
    unsupported_shapes="RULE VOICE unsupported",
    words="Unknown looks_like may_hold_call names_call part_text text_of unknown_parts "
    "unread_calls unsaid words_of",
)
