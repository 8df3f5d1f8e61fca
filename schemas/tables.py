"""The store's tables: every column with its DuckDB type and meaning. The one source of the DDL, of docs/tables.md
and of the Arrow schemas that connectors' rows are written through."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """One column: its name, DuckDB type and what it means."""

    name: str
    type: str
    meaning: str


class Table(NamedTuple):
    """One table: its name, what a row is and its columns."""

    name: str
    row: str
    columns: tuple[Column, ...]


def _columns(text: str) -> tuple[Column, ...]:
    rows = (line.split(None, 2) for line in text.strip().splitlines())
    return tuple(Column(name, kind.replace("~", " "), meaning.strip()) for name, kind, meaning in rows)


SOURCES = Table(
    "sources",
    "one source: a file, or a group of files that a connector claims together",
    _columns("""
        source_id          VARCHAR    hash of the path
        path               VARCHAR    where it was read, relative to the store's folder when below it; `archive!member` in an archive
        format             VARCHAR    the connector that read it; null when none claimed it; `archive` for what of an archive is no member's; `outcomes` and `rule` for what brought labels
        connector_version  INTEGER    part of the re-ingest key
        bytes              UBIGINT    size, of what is compressed the unpacked one
        sha256             VARCHAR    of the bytes as they lie there; of an archive's member, of the archive's hash and the member's name
        settings           VARCHAR    redaction and other ingest settings, part of the re-ingest key; and the mapping's text (`mapping`) or the format (`read_as`) that later runs read it with
        records            UBIGINT    what the source holds = kept + duplicates + quarantined + skipped
        kept               UBIGINT    records that went into stored episodes
        duplicates         UBIGINT    records whose content is already stored
        quarantined        UBIGINT    records set aside with a reason
        skipped            UBIGINT    records that are no part of an episode, by a named reason
        skip_reasons       MAP(VARCHAR,UBIGINT)  how many records for each reason
        redactions         UBIGINT    secrets replaced in what was read of it
        ingested_at        TIMESTAMP  UTC
    """),
)

COPIES = Table(
    "copies",
    "one appearance of an episode in a source; the stored rows come from the copy that owns it",
    _columns("""
        episode_id  VARCHAR    the episode
        source_id   VARCHAR    the source it appears in
        started_at  TIMESTAMP  the copy's first timestamp; with records, sha256 and path it decides who owns the episode
        sha256      VARCHAR    of the source
        path        VARCHAR    of the source
        records     UBIGINT    records this copy takes in its source
        owner       BOOLEAN    true for the one copy whose rows are stored
    """),
)

EPISODES = Table(
    "episodes",
    "one run of one agent (or person) on one task",
    _columns("""
        episode_id            VARCHAR    hash of format and native id, or of the canonical record
        source_id             VARCHAR    the source that owns it
        native_id             VARCHAR    the id the log gives it
        format                VARCHAR    the connector
        task_id               VARCHAR    the log's id of the task
        task                  VARCHAR    the initial instruction, as the agent saw it
        group_id              VARCHAR    trials of one task share it; splits keep a group together
        session_id            VARCHAR    the log's session
        user_id               VARCHAR    the user served
        parent_episode_id     VARCHAR    the episode that started this one (a sub-agent's parent)
        continues_episode_id  VARCHAR    the episode this one resumes
        source_kind           VARCHAR    agent_log, human_demo, random_exploration, synthetic or counterfactual
        policy_id             VARCHAR    who decided: model, temperature and prompt version (model@t=0.7#prompt:ab12cd34), as far as logged
        model                 VARCHAR    the model's name
        temperature           DOUBLE     sampling temperature
        prompt_version        VARCHAR    the log's name of the system prompt, or the hash of its text without dates, ids and the like
        tools                 VARCHAR[]  the tools offered at the first decision; null when the log does not say
        started_at            TIMESTAMP  first timestamp, UTC
        ended_at              TIMESTAMP  last timestamp, UTC
        ending                VARCHAR    terminal (it truly ended) or truncated (the log stops, the world did not)
        ending_reason         VARCHAR    the evidence
        success               BOOLEAN    the outcome, as logged or as the `labels` that count say; null when there is none
        score                 DOUBLE     the final score, likewise
        outcome_from          VARCHAR    the field of the log, or the label, that gave success and score (two, joined by +, where each has its own)
        outcome_unknown       VARCHAR    why one is missing that might be there: a failure stopped the run, nobody judged it, labels disagree
        cost_usd              DOUBLE     US dollars, as logged: the run's own figure, else the sum of its messages'
        trial                 VARCHAR    which of the runs of its task it is, as the log counts them
        attack                VARCHAR    how its environment was attacked; null when it was not
        injection             VARCHAR    the task that the attack wanted done; null when there was none
        reference             VARCHAR    a reference answer (never part of a state)
        metadata              JSON       what else the log says of the episode (never part of a state)
        locator               VARCHAR    where it lies: path:line or path#/json/pointer
    """),
)

LABELS = Table(
    "labels",
    "what one row of a file of outcomes, or one rule, says of an episode or a step; and what the log itself said of those",
    _columns("""
        episode_id       VARCHAR  the episode
        step             INTEGER  the step that `reward` is of; null: none
        decision_key     VARCHAR  names that step wherever it is logged, as in `steps`; null without stable ids
        source_id        VARCHAR  the file or the rule; of what the log said, the source of the episode
        kind             VARCHAR  file, rule or log
        precedence       INTEGER  of labels that disagree the highest counts; of equal ones none does
        success          BOOLEAN  whether the run succeeded; null: says nothing
        score            DOUBLE   how good the run was
        reward           DOUBLE   what the step was worth
        comment          VARCHAR  why, in words
        outcome_from     VARCHAR  file and field, or rule, that said so; of what the log said, its field
        outcome_unknown  VARCHAR  why the log said nothing
        locator          VARCHAR  where it lies
    """),
)

MESSAGES = Table(
    "messages",
    "one text of an episode, in order",
    _columns("""
        episode_id  VARCHAR    the episode
        position    INTEGER    from 0, without gaps
        role        VARCHAR    system, developer, user, assistant or tool
        content     VARCHAR    the text; null where the log has null
        thought     VARCHAR    reasoning kept apart from the text
        created_at  TIMESTAMP  UTC
        model       VARCHAR    the model that wrote it
        tokens_in   INTEGER    tokens read
        tokens_out  INTEGER    tokens written
        cost_usd    DOUBLE     US dollars that the model call which wrote it cost, as logged
        locator     VARCHAR    where it lies
        flags       VARCHAR[]  what is suspect: unicode:KIND (characters taken out) and injection:KIND; null when nothing is
    """),
)

STEPS = Table(
    "steps",
    "one decision of the agent: a tool call, or an assistant turn without one",
    _columns("""
        episode_id        VARCHAR  the episode
        step              INTEGER  from 0
        position          INTEGER  of the assistant message that took the decision; the state ends before it
        kind              VARCHAR  tool, respond or clarify
        action            VARCHAR  the tool's name, respond or clarify
        action_valid      BOOLEAN  false when the tool was not among those offered
        tool_call_id      VARCHAR  the log's id; may repeat within an episode
        arguments         VARCHAR  canonical JSON text; the raw text when they are invalid
        arguments_status  VARCHAR  ok, repaired or invalid
        repair            VARCHAR  what was mended in the arguments and the name, kinds joined by +; null when nothing was
        result            VARCHAR  what the tool answered
        result_status     VARCHAR  ok, error, empty, timeout, refused or missing; null where there is no tool
        result_position   INTEGER  position of the tool message that brought the result
        error_class       VARCHAR  typed error; soft_refusal where the tool itself refused in words, which is no error
        latency_s         DOUBLE   seconds from call to result
        parallel_group    INTEGER  calls of one turn share it
        proposed_action   VARCHAR  what was proposed, where something else was executed; the name as called, where it was mended
        policy_id         VARCHAR  who decided, where it differs from the episode's
        propensity        DOUBLE   probability of the action under the behaviour policy
        propensity_kind   VARCHAR  logged, known, estimated or missing
        logged_reward     DOUBLE   a per-step reward that the log, or a label that counts, carries
        locator           VARCHAR  where the call lies
        result_locator    VARCHAR  where the result lies
        decision_key      VARCHAR  names the decision wherever it is logged (resumed sessions carry it along); null without stable ids
        tools             VARCHAR[]  the tools offered at this decision, where they are not the episode's; null where they are
        danger            VARCHAR  how the action is dangerous: delete, pay, send, …; null when it is not
    """),
)

COPIED_DECISIONS = Table(
    "copied_decisions",
    "a decision that an episode (a resumed or forked session) holds too, and that counts in another one",
    _columns("""
        decision_key       VARCHAR  the decision
        episode_id         VARCHAR  the episode it was dropped from; without decisions of its own it is in no other table
        source_id          VARCHAR  the source of that episode
        keeper_episode_id  VARCHAR  the episode it counts in
    """),
)

SECRETS = Table(
    "secrets",
    "one secret that was taken out of the texts of an episode, or of a row of quarantine",
    _columns("""
        source_id   VARCHAR  the source
        episode_id  VARCHAR  the episode, where there is one
        kind        VARCHAR  the placeholder that stands in its place, without the brackets
        rule        VARCHAR  what found it; `allowed` for one that stays because the user said so
        keyed_hash  VARCHAR  the same secret has the same hash; the key lies beside the store
        count       UBIGINT  how often it was replaced, a text that stands several times counted once
        locator     VARCHAR  where it lies first
    """),
)

QUARANTINE = Table(
    "quarantine",
    "one thing set aside, with its reason",
    _columns("""
        level       VARCHAR  record (counts in the conservation law), part (inside a kept record) or transition
        source_id   VARCHAR  the source
        dataset     VARCHAR  the dataset, for transitions
        episode_id  VARCHAR  the episode, where there is one
        step        INTEGER  the step, for transitions
        locator     VARCHAR  where it lies
        reason      VARCHAR  what is wrong, in words
        rule        VARCHAR  the rule's short name
        detail      VARCHAR  what was found
        excerpt     VARCHAR  the beginning of it
        records     UBIGINT  records it takes
    """),
)

DATASETS = Table(
    "datasets",
    "one build",
    _columns("""
        dataset     VARCHAR    NAME
        hash        VARCHAR    of everything the shards hold
        spec_hash   VARCHAR    of the reward spec
        config      JSON       the build configuration, the file of the reward spec, and what the states are known by
        created_at  TIMESTAMP  UTC
        path        VARCHAR    folder of the shards
    """),
)

TRANSITIONS = Table(
    "transitions",
    "one step of one dataset: (s, a, r, s′) with its lineage",
    _columns("""
        dataset              VARCHAR               the build
        episode_id           VARCHAR               the episode; augmented ones have an id of their own
        step                 INTEGER               from 0
        split                VARCHAR               train, validation, test or held_out
        state_key            VARCHAR               hash of the state's symbols
        state_key_canonical  VARCHAR               the same with numbers, ids, dates and names masked
        action               VARCHAR               the action's name
        action_id            INTEGER               its id in the manifest's vocabulary
        action_valid         BOOLEAN               false: outside the mask (a hallucinated tool), its id is `invalid`
        reward               DOUBLE                sum of the terms
        reward_terms         MAP(VARCHAR,~DOUBLE)  each term's own value
        return_to_go         DOUBLE                discounted sum of the rewards from here on
        return_is_partial    BOOLEAN               the episode was truncated: the sum is a part of the return
        terminal             BOOLEAN               the episode truly ended with this step
        timeout              BOOLEAN               the log stops with this step, the world did not
        weight               DOUBLE                sample weight: the product of its parts
        weight_parts         MAP(VARCHAR,~DOUBLE)  each part that is not 1 (docs/weights.md); none outside train
        success              BOOLEAN               the episode's outcome
        source_kind          VARCHAR               agent_log, human_demo, …
        policy_id            VARCHAR               the behaviour policy
        proposed_action      VARCHAR               what the agent proposed, where another action was executed
        argument_template    INTEGER               place in the manifest's argument_templates; null where there is no second level
        argument_numbers     MAP(VARCHAR,~DOUBLE)  numeric arguments by tool.argument, those that the manifest names
        propensity           DOUBLE                its probability of the action
        propensity_kind      VARCHAR               logged, known, estimated or missing
        mask                 BOOLEAN[]             which actions were allowed, in vocabulary order
        mask_kind            VARCHAR               logged, or inferred from what is seen in the format
        locator              VARCHAR               where the decision lies
        parent_id            VARCHAR               episode_id/step this row was made from; null for logged rows
        augmenter            VARCHAR               what made it
        augment_seed         BIGINT                with which seed
    """),
)

ARGUMENT_CANDIDATES = Table(
    "argument_candidates",
    "one logged call that stands for an argument template: its arguments, in `steps`, turn the template back into a call",
    _columns("""
        dataset     VARCHAR  the build
        template    INTEGER  place in the manifest's argument_templates
        action      VARCHAR  the tool
        rank        INTEGER  from 0, the most frequent arguments first
        count       BIGINT   how many decisions of the train split have these very arguments
        episode_id  VARCHAR  the first episode of them
        step        INTEGER  its step
    """),
)

DIFFICULTY = Table(
    "difficulty",
    "how hard one episode of a dataset is, and what that is made of",
    _columns("""
        dataset     VARCHAR  the build
        episode_id  VARCHAR  the episode
        stage       INTEGER  1 (one turn), 2 (several turns or tools) or 3 (errors, or long): the stage of the curriculum
        difficulty  INTEGER  turns and tools beyond the first, twice the errors, and the ambiguity, added up
        turns       INTEGER  messages of the user
        tools       INTEGER  distinct tools called
        errors      INTEGER  calls that failed, timed out, were refused, or for a tool that was not offered
        ambiguity   INTEGER  how often the agent had to ask back
    """),
)

SPLITS = Table(
    "splits",
    "the split of each episode of a dataset",
    _columns("""
        dataset     VARCHAR  the build
        episode_id  VARCHAR  the episode
        group_key   VARCHAR  smallest key of its group; the split is a hash of it and the seed, or goes by time
        split       VARCHAR  train, validation, test or held_out
        reason      VARCHAR  what joined the group
    """),
)

STATE_DIGESTS = Table(
    "state_digests",
    "what the states of an episode of a dataset are made from, so that a later build knows those that it need not make",
    _columns("""
        dataset     VARCHAR  the build
        episode_id  VARCHAR  the episode; augmented ones too
        digest      VARCHAR  of its content and of the settings, actions, encoder and versions that decide its states, but the PCA
    """),
)

NEAR_DUPLICATES = Table(
    "near_duplicates",
    "a verified pair of near-duplicate episodes; each cluster is a tree of pairs",
    _columns("""
        dataset     VARCHAR  the build
        episode_a   VARCHAR  the one with the smaller id
        episode_b   VARCHAR  the other
        similarity  DOUBLE   Jaccard similarity of their word triples, boilerplate left out; 0.8 to 1
        shingles    BIGINT   how many word triples they share
    """),
)

CONFLICTS = Table(
    "conflicts",
    "one pair of actions in one state (or trajectory) that disagree, with an example of both sides",
    _columns("""
        dataset        VARCHAR  the build
        kind           VARCHAR  outcome (same action, different outcome), contrast (different actions and returns), label (equal trajectories, contradicting labels) or demonstration (an agent left what was demonstrated)
        level          VARCHAR  exact, canonical or near
        state_key      VARCHAR  the shared key, of that level: near states go by their leader's, labels by their trajectory's
        action_a       VARCHAR  one action: the better one, or the demonstrated
        action_b       VARCHAR  the other (the same for kinds outcome and label)
        count_a        UBIGINT  rows on side a (episodes for kind label)
        count_b        UBIGINT  rows on side b
        mean_return_a  DOUBLE   their mean return
        mean_return_b  DOUBLE   their mean return
        episode_a      VARCHAR  the example of side a
        step_a         INTEGER  its step
        episode_b      VARCHAR  the example of side b
        step_b         INTEGER  its step
        detail         VARCHAR  why it is one
    """),
)

EMBEDDINGS = Table(
    "embeddings",
    "one text's vector, cached",
    _columns("""
        encoder    VARCHAR  the encoder's name
        revision   VARCHAR  hash of its weights or settings
        text_hash  VARCHAR  xxh3-128 of the text
        vector     BLOB     little-endian float16
    """),
)

SCORER_RESULTS = Table(
    "scorer_results",
    "what one scorer gave for one text, cached",
    _columns("""
        scorer     VARCHAR    the scorer's name
        version    VARCHAR    hash of its code version, its parameters and what it was fitted on
        text_hash  VARCHAR    xxh3-128 of all texts it read, in their order
        texts      VARCHAR[]  the hash of each of them
        value      DOUBLE     from 0 to 1; null when it could not be scored
        spread     DOUBLE     standard deviation of repeated scores; null where there are none
        reason     VARCHAR    why the value is null
        source     VARCHAR    the model that an endpoint said it is; null for all other scorers
    """),
)

CREDIT = Table(
    "credit",
    "what one method of credit gave one step of a dataset",
    _columns("""
        dataset     VARCHAR  the build
        hash        VARCHAR  its hash: credit of an earlier build of that name is dropped when new credit is kept
        split       VARCHAR  train, validation, test or held_out
        episode_id  VARCHAR  the episode
        step        INTEGER  from 0
        method      VARCHAR  counterfactual, gae, decomposition, uniform, … (docs/returns.md)
        policy      VARCHAR  whose values it was reckoned with; null for methods without values
        settings    JSON     the method's options; with values, the hash of the policy's weights and of the fit's options
        credit      DOUBLE   the credit; null where it is unknown
        spread      DOUBLE   its standard deviation over the members of the fit of values; null for methods without values
        support     INTEGER  in how many of the nearest train decisions the same action was taken, up to 20; with 0 nothing logged speaks for it
    """),
)

FORGOTTEN = Table(
    "forgotten",
    "one name that was forgotten, as a hash: what bears it is not read again",
    _columns("""
        request       VARCHAR    key of what the user named; the other rows of a request follow from it
        kind          VARCHAR    session, source, episode, user, decision, holder (a path) or path
        key           VARCHAR    SHA-256 of kind/name
        forgotten_at  TIMESTAMP  UTC
        episodes      UBIGINT    how many episodes the request took, in its first row (whose key is the request); else null
        pending       BOOLEAN    true while rows, shards or freed pages of it may be left: the next forget or ingest goes on
    """),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        SOURCES,
        COPIES,
        EPISODES,
        LABELS,
        MESSAGES,
        STEPS,
        COPIED_DECISIONS,
        QUARANTINE,
        SECRETS,
        DATASETS,
        TRANSITIONS,
        ARGUMENT_CANDIDATES,
        DIFFICULTY,
        SPLITS,
        STATE_DIGESTS,
        NEAR_DUPLICATES,
        CONFLICTS,
        EMBEDDINGS,
        SCORER_RESULTS,
        CREDIT,
        FORGOTTEN,
    )
}
"""Every table of the store, by name."""

LONG_TEXTS = frozenset(
    {"content", "thought", "arguments", "result", "task", "reference", "metadata", "detail", "excerpt"}
)
"""Columns that hold whole texts. The store compresses them with zstd: a third of the size, and half the cost of writing."""
