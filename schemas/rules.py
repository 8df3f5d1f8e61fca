"""The catalogue of rules: why ingest sets something aside or skips it, what that means, and what to do about it.

A rule is the short stable name in `quarantine.rule` and in the keys of `sources.skip_reasons`. The rules of a dataset's
transitions are those of schemas/transition.py. A connector of another package brings rules of its own, which are not here:
`remedy_of` then sends its reader to the connector.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from logforge.schemas.transition import RULES as TRANSITION_RULES

Level = Literal["record", "part", "skip", "transition"]

LEAVE = "Leave it: it holds no decision of the agent."
"""The remedy of most skips."""
FOREIGN = "Look it up in the documentation of the connector that names it."
"""The remedy of a rule that is not in the catalogue."""
BROKEN = "Look at the step with `logforge explain EPISODE:STEP`, mend what gave it, then build again."
"""The remedy of a transition that breaks a rule."""


class Rule(NamedTuple):
    """One rule. `level` is the usual one; a row of the quarantine carries its own.

    record: a record is lost, and counts. part: a part of a kept record is lost. skip: the record holds nothing to keep.
    transition: a row or an episode of a dataset is left out.
    """

    name: str
    level: Level
    meaning: str
    remedy: str


def _rules(level: Level, text: str) -> Iterator[Rule]:
    """One rule from each line `name | meaning | remedy`; without a remedy there is nothing to do."""
    for line in text.strip().splitlines():
        name, meaning, *remedy = (part.strip() for part in line.split("|"))
        yield Rule(name, level, meaning, remedy[0] if remedy else LEAVE)


_FILES = """
    unknown_shape       | no connector knows the shape of this file                        | Let `logforge inspect FILE --write-mapping M.yaml` describe it, or name its --format.
    unsupported_shape   | the shape is known and holds no turns that could be read         | Export the run in a format with turns (`logforge formats` lists those).
    not_json            | named like a log, but it does not begin like JSON                | Mend its first lines, name its format with --format, or take it out of the folder.
    utf16_text          | the file is UTF-16 text, as Windows' `>` writes it               | Convert it (`iconv -f UTF-16 -t UTF-8 FILE > NEW`), then ingest the new file.
    empty_file          | the file is named like a log and holds nothing                   | Look why the program that writes it wrote nothing, then ingest it again.
    no_records          | the file's format is known, and it holds no record               | Look whether the file is whole; with --format, whether that is its format.
    unreadable_file     | the file cannot be opened or read                                | Look why (its permissions, its disk), give the right to read it, then replay.
    secret_in_path      | the name of the file or of its folder holds a secret               | Rename it, then ingest it again; --allow-secret lets a known sample key stay.
    database_busy       | another program wrote to a database while it was read             | Close that program, then ingest the file again.
    unreadable_folder   | the folder cannot be entered or listed                           | Look why (its permissions, its disk), give the right to enter it, then replay.
    connector_failed    | a connector broke off; what follows in the file was not read     | Report it with the detail shown here, and replay with a version that mends it.
    missing_extra       | reading this needs an optional package                           | Install the package with the pip command in the reason, then replay.
"""

_PACKED = """
    damaged_archive     | an archive is damaged or cut off; what follows was not read      | Make or download it again; `zip -FF` or `tar --ignore-zeros` may save the rest.
    damaged_member      | a member of an archive is damaged; what came before was read     | Pack or download the archive again, then ingest it.
    damaged_stream      | a compressed file is damaged; what came before was read          | Compress or download it again, then ingest it.
    encrypted_member    | a member of an archive is encrypted                              | Unpack the archive with its password, then ingest the folder.
    unsupported_compression | packed in a way that is not read                             | Unpack it, then ingest the folder, or pack it as .zip, .tar.gz or .zst.
    unsafe_member_name  | the name of a member leads out of its archive, or can be no file | Unpack it by hand if you trust it, then ingest the folder.
    duplicate_member    | a member of an archive has the name of another                   | Pack it again under another name; the last of that name is read.
    overlapping_members | members of a zip archive share bytes, as in a bomb               | Pack it again if it is yours; else throw it away.
    unpack_limit        | a packed file unfolds to more bytes than allowed                 | Raise --max-unpacked if you trust it and have the room, then ingest it.
    unpack_ratio        | a packed file unfolds to too many times its size, as a bomb does | Raise --max-ratio if you trust it, then ingest it.
    unpack_members      | a packed file holds more files than allowed                      | Unpack it, then ingest the folder.
    unpack_depth        | an archive lies too deep in other archives                       | Unpack the outer ones, then ingest the folder.
"""

_RECORDS = """
    malformed_record    | not valid JSON, text or table: cut off or damaged | Mend or remove it, then replay; if the log is still being written, ingest it when it is done.
    line_too_long       | a line of more bytes than may be held at once                    | Raise --max-record if the memory is there (about 5 times it), or cut the line; then ingest.
    element_too_long    | an element of an array or object of more bytes than may be held  | Raise --max-record if the memory is there (about 5 times as much); then ingest.
    document_too_long   | a file that is one record of more bytes than may be held at once | Raise --max-record if the memory is there (about 5 times it), or export it as JSON lines.
    nested_too_deep     | objects and lists hold one another more than 200 levels deep     | Leave it: no agent writes that. Else flatten the value in the log, then replay.
    number_too_long     | an integer of more than 4,300 digits                             | Write the number as text in the log, then replay.
    several_documents   | one JSON document directly behind another                        | Write each on a line of its own (`jq -c . FILE > FILE.jsonl`), then ingest that file.
    not_a_conversation  | the record lacks the list or the fields that its format is made of | Look whether the file mixes formats; if so split it, else describe it with --mapping.
    no_message          | none of the record's messages can be kept                        | Look at the parts set aside under the same place: they say why.
    unfit_value         | a value is of a type that no table takes                         | Mend the value in the log, or report the connector with the detail shown here.
    not_a_session_line  | a line of a managed session that is no event                     | Mend or remove the line, then replay.
    not_an_object       | a line that is JSON, but no object                               | Mend or remove the line, then replay.
    no_type             | a line or an item that does not say of what type it is           | Give it its `type` or remove it, then replay.
    conflicting_uuid    | another message under an id that the file has used already       | Keep one of the two lines, then replay.
    not_a_rollout_line  | a line that is no line of a Codex session                        | Mend or remove the line, then replay.
    not_a_session       | a record that is no session, message or change of Gemini CLI     | Mend or remove it, then replay.
    not_a_trial_result  | a result.json beside a run that is no result of its trial        | Put the trial's own result.json there, then replay.
    not_a_chunk         | a line of a stream that is no chunk                              | Mend or remove the line, then replay.
    chunk_without_id    | a chunk of a stream that names no answer                         | Give it the `id` of its answer or remove it, then replay.
    not_a_span          | a record that is no span, score or trace                         | Export the spans again, whole, then replay.
    conflicting_span    | another span under an id that the source has used already        | Keep one of the two spans, then replay.
    verdict_without_run | a score or a verdict whose run is not in this source             | Export the run together with its scores, then ingest that file.
    unmatched_label     | a row of outcomes whose ids name no stored episode or step       | Ingest the log of that run, or correct the id; then run `logforge outcomes` again.
    ambiguous_label     | a row of outcomes whose ids name several episodes                | Name the episode by `episode_id` or add `trial`; then run `logforge outcomes` again.
    nameless_label      | a row of outcomes without an id                                  | Name the episode in it, or the column of ids with --id; then run it again.
    not_a_step          | a row that is no step of a table                                 | Mend or remove the row, then replay.
"""

_PARTS = """
    orphan_result       | a result without a call it could answer                          | Look whether the log begins late or lost the call; nothing else of the record is lost.
    ambiguous_result    | a result without a call id that could answer several calls       | Log each result with its call's id, or those of all calls of a turn in order, then replay.
    cut_attribute       | messages of a trace that a limit of length cut off               | Raise OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT (or the exporter's limit) and log again.
    nameless_call       | a call without the name of a tool                                | Mend the call in the log, then replay; without a name it is no decision.
    unknown_role        | a message or turn of a role its format does not know             | Look whether the role was renamed; say what it means in a --mapping, then replay.
    unparsed_call       | a turn whose text holds a call that cannot be read for certain     | Parse the calls with the model's own tool parser, or write them as `tool_calls`, then replay.
    lost_call           | a call whose name and arguments the log itself has lost          | Use a log of the same runs that holds the calls, if there is one.
    bad_content         | content that is neither text nor a list of parts                 | Mend the content in the log, then replay.
    bad_block           | a block of content that is no object or has no type              | Mend the block in the log, then replay.
    bad_part            | a part of content that is no object                              | Mend the part in the log, then replay.
    bad_message         | a message that is no object                                      | Mend the message in the log, then replay.
    bad_turn            | a turn that is no object or lacks its role or content            | Mend the turn in the log, then replay.
    bad_event           | an event that is no object, or neither action nor observation    | Mend the event in the log, then replay.
    bad_item            | an item that is neither an action nor an observation             | Mend the item in the log, then replay.
    bad_step            | a step that is no object or does not say whose it is             | Mend the step in the log, then replay.
    bad_action          | a turn without an action                                         | Mend the turn in the log, then replay.
    bad_call            | a call that cannot be read                                       | Mend the call in the log, then replay.
    bad_tool_calls      | tool_calls that are no list                                      | Make `tool_calls` a list in the log, then replay.
    bad_fragment        | a fragment of a streamed call that is no object                  | Mend the fragment in the log, then replay.
    bad_choice          | a choice of a streamed answer that is no object                  | Mend the choice in the log, then replay.
    bad_response        | a response of a tool that is no object                           | Mend the response in the log, then replay.
    bad_answer          | what stands in a response's place and is no object                | Look whether the proxy logs errors or streams as text; then mend the response.
    bad_result          | a result that is no object                                       | Mend the result in the log, then replay.
    bad_observation     | an observation without results                                   | Mend the observation in the log, then replay.
    bad_node            | a node of a search tree that is no object or out of place        | Mend the node in the log, then replay.
    bad_subagent        | a sub-agent's run without steps                                  | Mend the sub-agent's run in the log, then replay.
    bad_value           | a value that is not what the mapping says it is                  | Correct the field in the mapping, or the value in the log, then replay with --mapping.
    bad_flag            | an end mark of a step table that is no truth value               | Write true or false there, then replay.
    bad_reward          | a reward that is no finite number, or belongs to no action       | Write a number there or leave it empty, then replay.
    unreadable_outcome  | a verdict or a score that is an object, a list, NaN or a word nobody knows | Write true or false, or one number, there (a reward of parts: their sum), then replay.
    conflicting_outcome | a second verdict on the run that says the opposite of the first          | Look which is right, and say so with `logforge outcomes FILE`, or mend the log and replay.
    contradicted_outcome | a success that the log contradicts: nothing was called, and something had to change | Look at the run; where the verdict is wrong, say so with `logforge outcomes FILE`.
    packed_column       | a column of RLlib's that holds pickled data                        | Write it with `compress_columns=[]` (`output_compress_columns=[]` in the config), then ingest.
    bad_column          | a column of a batch without a value for each step                | Write one value for each step, then replay.
    bad_propensity      | a propensity that is no number above 0 and up to 1                | Write the probability of the action there or leave it out, then replay.
    no_action           | a row of a mapped step table without an action                   | Correct `action` in the mapping, or fill it in the log, then replay with --mapping.
    nameless_run        | a run without an id                                              | Export the runs again with their ids, then replay.
    unknown_part        | a part that logforge does not understand; where a decision may lie in it, its record | Look at its keys and the format named in the detail: use that format's export, or a --mapping.
    no_words            | a message that has no words where they are read                  | Look whether they stand under another key; if so, use --mapping or a connector of your own.
    reward_without_step | a reward of a turn that says and calls nothing                   | Look whether the turn's content lies under another key; a reward needs a decision.
    unknown_event       | an event of a kind its format does not know                      | Report it with the excerpt shown here; a later version may read it.
    unknown_annotation  | an annotation of a kind its format does not know                 | Report it with the excerpt shown here; a later version may read it.
    orphan_input        | an action's input without the action                             | Mend the text in the log, then replay.
    text_after_action   | text between an action and its input                             | Leave it: the decision is kept without it.
    cut_action          | an action that the log shows only in part                        | Use a log that holds the whole action, if there is one.
    unasked_tool_run    | a tool ran that no captured turn asked for                       | Record the content of model calls too, so that their turns are in the log.
    other_candidate     | a further candidate of the same turn                             | Leave it: the candidate that the agent went on with is kept.
    other_choice        | a piece of another answer to the same request                    | Leave it: the first choice is kept.
    other_branch        | a branch of a search tree beside the one taken                   | Leave it: the branch that was taken last is kept.
    copy_gone           | the file that held the only copy left of an episode is gone      | Put the file back and ingest it, or leave it: the episode is lost.
    diverging_copy      | a copy holds messages that the stored copy of its episode lacks   | Compare the two files (`copies` names them); remove the session from the wrong one.
"""

_SKIPPED_FILES = """
    not_a_log           | a file that is no log                                            | Leave it; if it is a log, name its format with --format.
    empty_archive       | an archive without files
    tool_folder         | a folder of another program (.git, .venv, node_modules, …)       | Leave it; if it holds logs, name the folder itself to `logforge ingest`.
    forgotten           | a source or an episode that was forgotten (`logforge forget`)     | Leave it, or lift it: `logforge forget … --revoke`, then ingest again.
    own_output          | a dataset or a run that logforge wrote                           | Leave it: it is made from the store.
    broken_link         | a link to nothing                                                | Mend or remove the link.
    link_loop           | a link that leads to itself or to a folder it lies in            | Leave it, or remove the link: what it leads to is read where it lies.
    not_a_regular_file  | a pipe, socket or device; in an archive, a link too                                     | Leave it, or write what it gives into a file.
"""

_SKIPS = """
    no_outcome          | a row of outcomes that says none: what is unknown stays unknown  | Leave it until somebody knows; then run `logforge outcomes` again.
    empty_conversation  | a conversation without a message
    no_conversation     | a run that holds no conversation
    no_content          | a message without content
    empty_document      | a document without entries
    empty_batch         | a batch without spans
    bubble_without_conversation | a message of Cursor's whose conversation was deleted
    no_samples          | an evaluation without samples
    no_simulations      | a results file without simulations
    superseded_member   | a member of an archive that a later one replaces
    trial_result_without_run | a trial's result without its run                            | Put the trial's trajectory beside it, then ingest again.
    skipped_by_the_mapping | a record that the mapping's `skip` names                      | Leave it, or correct `skip` in the mapping.
    summary_line        | a session's summary
    system_line         | a note of the program
    progress_line       | a note of progress
    attachment_line     | an attachment
    file-history-snapshot_line | a snapshot of edited files
    queue-operation_line | a queued prompt, which comes again when it is sent
    ai-title_line       | a title made for the session
    custom-title_line   | a title given to the session
    meta_line           | a line that the program wrote for itself
    synthetic_line      | a message of the program in the model's name
    compacted_line      | a summary that takes the place of earlier turns
    other_line          | a line of a type that holds no message
    event_repeats_item  | an event that repeats an item of the session
    repeated_event      | an event that was sent before
    sent_event          | an event as it was sent; the session lists it again
    span_or_thread_event | an event about spans or threads
    other_event         | an event that holds no message
    other_call          | a call of the API that sends or lists no event
    other_item          | an item that is no message and no call
    encrypted_reasoning | reasoning that only the vendor can read
    hidden_thinking     | thinking that the log does not show
    rewound             | messages that the user took back
    text_after_the_last_question | text after the last question
    no_agent_attributes | a span of something else than an agent                           | Leave it; if it is an agent's, record it under the GenAI or OpenInference conventions.
    nameless_tool_span  | a span of a tool that does not name it                           | Record the tool's name (`gen_ai.tool.name`) in later logs.
    trace_without_observations | a trace that holds no observation                         | Export its observations too, then ingest again.
    score_of_a_dataset_run | a score of a run over a dataset, not of a trace
    score_of_a_session_of_several_traces | a score of a session of several traces: whose it is cannot be told
    llm_span            | a model call outside a run
    agent_span          | an agent's span that belongs to no run
    tool_span           | a tool's run outside a run
    chain_span          | a step of a workflow
    embedding_span      | a span that embeds text
    retriever_span      | a span that looks up documents
    reranker_span       | a span that ranks documents
    guardrail_span      | a span that checks texts
    evaluator_span      | a span that judges
    prompt_span         | a span that fills a prompt
    chat_model_span     | a model call outside a run
    parser_span         | a span that takes a text to pieces
    memory_span         | a span that reads or writes a memory
    workflow_span       | a step of a workflow
    task_span           | a step of a workflow
    unknown_span        | a span whose type was not told
    invoke_agent_span   | an agent's span that belongs to no run
    execute_tool_span   | a tool's run outside a run
    invoke_workflow_span | a step of a workflow
    embeddings_span     | a span that embeds text
    retrieval_span      | a span that looks up documents
    create_agent_span   | a span that sets up an agent
    plan_span           | a span that plans
    other_traffic       | an exchange with a server that is no model
    other_span          | a span of a kind that holds no message
    other_log_record    | a log record that is no GenAI event
    span_observation    | a span without a model call, an agent or a tool's run
    chain_observation   | a step of a chain
    event_observation   | an event of the application
    generation_observation | a model call outside a run
    agent_observation   | an agent's observation that belongs to no run
    tool_observation    | a tool's run that does not name the tool
    retriever_observation | an observation that looks up documents
    evaluator_observation | an observation that judges
    embedding_observation | an observation that embeds text
    guardrail_observation | an observation that checks texts
    other_observation   | an observation of a type that holds no message
"""

_LEFT_OUT = """
    no_decision         | an episode in which the agent decides nothing                    | Leave it: there is nothing to learn from it.
    flagged             | an episode with a message whose flag --exclude-flag names        | Look at `messages.flags`; leave --exclude-flag out to keep it.
    excluded            | an episode that meets a condition of --exclude-where               | Leave it, or build without the condition to keep it.
    null_reward         | a reward whose required term is null                             | Make the term `optional: true` in the reward spec, or give the log what it needs.
    conflict            | an episode that a conflict contradicts, with --conflicts KIND=filter | Look at it with `logforge conflicts` in a build that flags; with `KIND=weight` it stays.
"""

CATALOGUE: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        *_rules("record", _FILES),
        *_rules("record", _PACKED),
        *_rules("record", _RECORDS),
        *_rules("part", _PARTS),
        *_rules("skip", _SKIPPED_FILES),
        *_rules("skip", _SKIPS),
        *_rules("transition", _LEFT_OUT),
        *(Rule(name, "transition", meaning, BROKEN) for name, meaning in TRANSITION_RULES.items()),
    )
}
"""Every rule of logforge itself, by name."""


def remedy_of(name: str) -> str:
    """What to do about a rule, in one sentence."""
    return CATALOGUE[name].remedy if name in CATALOGUE else FOREIGN


def meaning_of(name: str) -> str:
    """What a rule means; empty for one that is not in the catalogue."""
    return CATALOGUE[name].meaning if name in CATALOGUE else ""
