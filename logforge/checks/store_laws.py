"""What must hold in a store at any time, as queries that return the rows which break it: no row, no fault.

Every query gives two columns: `place` (a log line, a source or an episode) and `detail` (what was found). STORE_LAWS look at the
whole store, DATASET_LAWS at the dataset `$dataset`. docs/check.md lists them.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

from logforge.schemas import TABLES
from logforge.schemas import episode as words
from logforge.splits import THRESHOLD

_FRESH = "ingest the logs into a fresh store: rows were changed or lost by something else than logforge"
_INGEST = "run `logforge ingest` on the logs again: it completes what a run left undone"
_BUILD = "build the dataset again"


class StoreLaw(NamedTuple):
    """A law: its rule's short name, what it demands, the query for the rows that break it, and what to do then."""

    rule: str
    meaning: str
    query: str
    remedy: str = _FRESH


def _of_episode(table: str, having: str, detail: str) -> str:
    """The episodes whose rows in a table, together, break a condition."""
    return f"""
SELECT coalesce(any_value(e.locator), t.episode_id) AS place, {detail} AS detail
FROM {table} t LEFT JOIN episodes e USING (episode_id) GROUP BY t.episode_id HAVING {having} ORDER BY t.episode_id"""


def _counts(column: str) -> tuple[str, str]:
    broken = f"min({column}) <> 0 OR max({column}) <> count(*) - 1 OR count(DISTINCT {column}) <> count(*)"
    return broken, f"format('{{}} rows, numbered {{}} to {{}}', count(*), min({column}), max({column}))"


def _sum(column: str, total: str) -> str:
    """Sources whose count is not the sum of what it counts: `total` gives source_id and n."""
    return f"""
SELECT path AS place, format('{column} {{}}, rows for {{}}', {column}, coalesce(n, 0)) AS detail
FROM sources LEFT JOIN ({total}) USING (source_id) WHERE {column}::HUGEINT <> coalesce(n, 0) ORDER BY path"""


def _word(table: str, column: str, kind: object) -> str:
    allowed = ", ".join(f"'{word}'" for word in get_args(kind))
    return (
        f"SELECT locator AS place, format('{table}.{column} is {{}}', {column}) AS detail "
        f"FROM {table} WHERE {column} NOT IN ({allowed})"
    )


def _lost(table: str, key: str, into: str, given: str = "true", place: str = "") -> str:
    """Rows of a table whose key names nothing in another one."""
    return (
        f"SELECT DISTINCT {place or key} AS place, format('{table}.{key} {{}} is not in {into}', {key}) AS detail "
        f"FROM {table} ANTI JOIN {into} USING ({key}) WHERE {key} IS NOT NULL AND {given}"
    )


_WORDS = (
    ("messages", "role", words.Role),
    ("steps", "kind", words.StepKind),
    ("steps", "arguments_status", words.ArgumentsStatus),
    ("steps", "result_status", words.ResultStatus),
    ("steps", "propensity_kind", words.PropensityKind),
    ("episodes", "source_kind", words.SourceKind),
    ("episodes", "ending", words.Ending),
)
_OF_SOURCES = ("episodes", "copies", "quarantine", "secrets", "copied_decisions", "labels")
_OF_DATASETS = [
    table.name
    for table in TABLES.values()
    # a failed build's rows in quarantine have no dataset yet
    if "dataset" in {column.name for column in table.columns} and table.name not in ("datasets", "quarantine")
]


def _union(*queries: str) -> str:
    return f"SELECT * FROM ({' UNION ALL '.join(queries)}) ORDER BY ALL"


STORE_LAWS: tuple[StoreLaw, ...] = (
    StoreLaw(
        "conservation",
        "the records of a source are those kept, the duplicates, those quarantined and those skipped",
        """
SELECT path AS place, format('{} records, {} kept + {} duplicates + {} quarantined + {} skipped', records, kept, duplicates,
  quarantined, skipped) AS detail
FROM sources WHERE records::HUGEINT <> kept::HUGEINT + duplicates + quarantined + skipped ORDER BY path""",
    ),
    StoreLaw(
        "kept_counted",
        "a source keeps the records of the episodes that it owns, or the labels that it brought",
        _sum(
            "kept",
            "SELECT source_id, sum(records) AS n FROM (SELECT source_id, records FROM copies WHERE owner "
            "UNION ALL SELECT source_id, 1 FROM labels WHERE kind <> 'log') GROUP BY 1",
        ),
    ),
    StoreLaw(
        "quarantine_counted",
        "a source has as many quarantined records as the rows of quarantine at level `record` take",
        _sum(
            "quarantined",
            "SELECT source_id, sum(records) AS n FROM quarantine WHERE level = 'record' GROUP BY 1",
        ),
    ),
    StoreLaw(
        "skips_counted",
        "a source has skipped as many records as its reasons count",
        "SELECT path AS place, format('{} skipped, reasons for {}', skipped, "
        "coalesce(list_sum(map_values(skip_reasons)), 0)) AS detail "
        "FROM sources WHERE skipped <> coalesce(list_sum(map_values(skip_reasons)), 0) ORDER BY path",
    ),
    StoreLaw(
        "one_source",
        "a source is there once, and whatever names a source names one that is there",
        _union(
            "SELECT any_value(path) AS place, format('{} rows of this source', count(*)) AS detail FROM sources "
            "GROUP BY source_id HAVING count(*) > 1",
            *(_lost(table, "source_id", "sources") for table in _OF_SOURCES),
        ),
    ),
    StoreLaw(
        "one_owner",
        "an episode is stored once, from the one copy that owns it, and an owned copy is stored",
        """
WITH owned AS (
  SELECT episode_id, count(*) AS owners, any_value(source_id) AS source_id, any_value(path) AS path FROM copies WHERE owner GROUP BY 1
), stored AS (
  SELECT episode_id, count(*) AS rows, any_value(source_id) AS source_id, any_value(locator) AS locator FROM episodes GROUP BY 1
)
SELECT coalesce(locator, path) AS place, format('episode {}: {} rows, {} owning copies{}', episode_id, coalesce(rows, 0),
  coalesce(owners, 0), CASE WHEN s.source_id <> o.source_id THEN ', of another source' ELSE '' END) AS detail
FROM stored s FULL JOIN owned o USING (episode_id)
WHERE coalesce(rows, 0) <> 1 OR coalesce(owners, 0) <> 1 OR s.source_id <> o.source_id ORDER BY ALL""",
    ),
    StoreLaw(
        "copy_once",
        "an episode has one copy in a source",
        "SELECT any_value(path) AS place, format('episode {}: {} copies', episode_id, count(*)) AS detail FROM copies "
        "GROUP BY episode_id, source_id HAVING count(*) > 1 ORDER BY ALL",
    ),
    StoreLaw(
        "no_owner",
        "one of an episode's copies owns it, unless other episodes hold its decisions or the file that held it is gone",
        """
SELECT any_value(path) AS place, format('episode {}: {} copies, no owner', episode_id, count(*)) AS detail FROM copies
WHERE episode_id NOT IN (SELECT episode_id FROM copied_decisions)
  AND episode_id NOT IN (SELECT episode_id FROM quarantine WHERE rule = 'copy_gone' AND episode_id IS NOT NULL)
GROUP BY episode_id HAVING NOT bool_or(owner) ORDER BY ALL""",
        _INGEST,
    ),
    StoreLaw(
        "decision_once",
        "a decision that several sessions hold counts in one episode",
        "SELECT min(locator) AS place, format('decision {} in {} episodes', decision_key, count(DISTINCT episode_id)) AS detail "
        "FROM steps WHERE decision_key IS NOT NULL GROUP BY decision_key HAVING count(DISTINCT episode_id) > 1 ORDER BY ALL",
        _INGEST,
    ),
    StoreLaw(
        "belongs",
        "every message and step belongs to an episode, and every episode has a message",
        _union(
            _lost("messages", "episode_id", "episodes", place="locator"),
            _lost("steps", "episode_id", "episodes", place="locator"),
            "SELECT locator AS place, 'an episode without messages' AS detail FROM episodes ANTI JOIN messages USING (episode_id)",
        ),
    ),
    StoreLaw(
        "positions", "messages count from 0 without gaps", _of_episode("messages", *_counts("position"))
    ),
    StoreLaw("steps", "steps count from 0 without gaps", _of_episode("steps", *_counts("step"))),
    StoreLaw(
        "steps_in_order",
        "steps come in the order of their messages, and each was decided in a message of the assistant",
        """
WITH ordered AS (SELECT *, lag(position) OVER (PARTITION BY episode_id ORDER BY step) AS before FROM steps)
SELECT s.locator AS place, format('step {} at position {} ({})', step, s.position,
  CASE WHEN before > s.position THEN 'the step before lies later' ELSE coalesce(role, 'no message') END) AS detail
FROM ordered s LEFT JOIN messages m USING (episode_id, position)
WHERE before > s.position OR role IS DISTINCT FROM 'assistant' ORDER BY ALL""",
    ),
    StoreLaw(
        "no_future",
        "a result lies after the call that it answers",
        "SELECT locator AS place, format('step {} at position {}, its result at {}', step, position, result_position) AS detail "
        "FROM steps WHERE result_position <= position ORDER BY ALL",
    ),
    StoreLaw(
        "result_text",
        "a step's result is the text of the tool message at its result position; without one it has neither",
        """
SELECT s.locator AS place, format('step {}: result at position {} ({})', step, coalesce(result_position::VARCHAR, 'none'),
  CASE WHEN (result IS NULL) <> (result_position IS NULL) THEN 'text and position do not go together'
    WHEN role IS NULL THEN 'no message' WHEN role <> 'tool' THEN role ELSE 'another text' END) AS detail
FROM steps s LEFT JOIN messages m ON m.episode_id = s.episode_id AND m.position = s.result_position
WHERE (result IS NULL) <> (result_position IS NULL)
  OR result_position IS NOT NULL AND (role IS DISTINCT FROM 'tool' OR content IS DISTINCT FROM result) ORDER BY ALL""",
    ),
    StoreLaw(
        "result_status",
        "a step has a result status exactly when it calls a tool, and is named by its kind when it does not",
        "SELECT locator AS place, format('step {} of kind {}: action {}, status {}', step, kind, action, "
        "coalesce(result_status, 'none')) AS detail FROM steps "
        "WHERE (result_status IS NULL) <> (kind <> 'tool') OR kind <> 'tool' AND action <> kind ORDER BY ALL",
    ),
    StoreLaw(
        "pairing",
        "a result belongs to the nearest preceding call of its id that waited for one",
        """
SELECT a.locator AS place, format('step {} has the result at {}, step {} waited for it', a.step, a.result_position, b.step) AS detail
FROM steps a JOIN steps b ON b.episode_id = a.episode_id AND b.tool_call_id = a.tool_call_id
  AND a.position < b.position AND b.position < a.result_position
  AND (b.result_position IS NULL OR b.result_position > a.result_position) ORDER BY ALL""",
    ),
    StoreLaw(
        "stored_propensity",
        "a propensity lies in (0, 1], and is there exactly when its kind is not `missing`",
        "SELECT locator AS place, format('step {}: {} of kind {}', step, coalesce(propensity::VARCHAR, 'none'), propensity_kind) "
        "AS detail FROM steps WHERE (propensity IS NULL) <> (propensity_kind = 'missing') "
        "OR NOT (propensity > 0 AND propensity <= 1) ORDER BY ALL",
    ),
    StoreLaw("words", "columns of few words hold one of them", _union(*(_word(*given) for given in _WORDS))),
    StoreLaw(
        "locators",
        "every episode, message and step says where it lies: `path:line` or `path#/pointer`",
        _union(
            *(
                f"SELECT coalesce(nullif(locator, ''), episode_id) AS place, 'no locator of {table}' AS detail FROM {table} "
                r"WHERE NOT coalesce(regexp_matches(locator, '.(#|:\d+)'), false)"
                for table in ("episodes", "messages", "steps")
            )
        ),
    ),
    StoreLaw(
        "quarantine_rows",
        "a row of quarantine says its rule and reason, and takes records exactly at level `record`",
        "SELECT coalesce(locator, source_id, dataset) AS place, format('level {}, rule {}, {} records', level, "
        "coalesce(rule, 'none'), records) AS detail FROM quarantine WHERE level NOT IN ('record', 'part', 'transition') "
        "OR coalesce(rule, '') = '' OR coalesce(reason, '') = '' OR (level = 'record') <> (records > 0) ORDER BY ALL",
    ),
    StoreLaw(
        "secret_rows",
        "a row of secrets bears a keyed hash and a placeholder's name, never a text, and belongs to a stored episode if to any",
        _union(
            "SELECT locator AS place, format('kind {}, {} times', kind, count) AS detail FROM secrets "
            "WHERE NOT coalesce(regexp_full_match(keyed_hash, '[0-9a-f]{16,}') AND regexp_full_match(kind, '[A-Z0-9_]+') "
            "AND count > 0, false)",
            _lost("secrets", "episode_id", "episodes", place="locator"),
        ),
    ),
    StoreLaw(
        "embedding_size",
        "the vectors of one encoder and revision have one size, and a text has one vector",
        """
SELECT encoder || '/' || revision AS place, format('vectors of {} bytes', string_agg(DISTINCT octet_length(vector)::VARCHAR, ', '))
  AS detail
FROM embeddings GROUP BY encoder, revision
HAVING count(DISTINCT octet_length(vector)) > 1 OR min(octet_length(vector)) < 2 OR bool_or(octet_length(vector) % 2 = 1)
UNION ALL
SELECT encoder || '/' || revision, format('text {} has {} vectors', text_hash, count(*)) FROM embeddings
GROUP BY encoder, revision, text_hash HAVING count(*) > 1 ORDER BY ALL""",
        "delete the rows of that encoder (DELETE FROM embeddings WHERE encoder = …): the next build encodes those texts again",
    ),
    StoreLaw(
        "scorer_range",
        "a scorer's result lies in [0, 1], or says why there is none",
        "SELECT scorer || ' of ' || text_hash AS place, format('{}, reason {}', coalesce(value::VARCHAR, 'no value'), "
        "coalesce(reason, 'none')) AS detail FROM scorer_results "
        "WHERE NOT (value BETWEEN 0 AND 1) OR isnan(value) OR value IS NULL AND reason IS NULL ORDER BY ALL",
        "delete these rows of scorer_results: the next build scores those texts again",
    ),
    StoreLaw(
        "forgotten",
        "what was forgotten is gone",
        """
WITH named AS (
  SELECT locator, 'episode/' || episode_id AS name FROM episodes UNION ALL
  SELECT locator, 'session/' || session_id FROM episodes UNION ALL SELECT locator, 'session/' || native_id FROM episodes UNION ALL
  SELECT locator, 'user/' || user_id FROM episodes UNION ALL SELECT locator, 'decision/' || decision_key FROM steps
)
SELECT locator AS place, format('the {} was forgotten', split_part(name, '/', 1)) AS detail
FROM named WHERE sha256(name) IN (SELECT key FROM forgotten)
UNION ALL SELECT 'forgotten', 'a forget was cut short' FROM forgotten WHERE pending ORDER BY ALL""",
        "run `logforge forget` for it again, or `logforge ingest`: both complete it",
    ),
    StoreLaw(
        "dataset_known",
        "a dataset is listed once, and whatever names one names one of the list",
        _union(
            "SELECT dataset AS place, format('{} rows in datasets', count(*)) AS detail FROM datasets GROUP BY 1 HAVING count(*) > 1",
            *(_lost(table, "dataset", "datasets") for table in _OF_DATASETS),
        ),
        _BUILD,
    ),
)
"""The laws of the whole store."""

_ROWS = "(SELECT * FROM transitions WHERE dataset = $dataset)"
_SPLITS = "(SELECT * FROM splits WHERE dataset = $dataset)"

DATASET_LAWS: tuple[StoreLaw, ...] = (
    StoreLaw(
        "every_episode",
        "an episode that has a split has rows, or stands in quarantine with the reason; never both",
        f"""
WITH gone AS (SELECT DISTINCT episode_id FROM quarantine WHERE dataset = $dataset AND level = 'transition'),
  here AS (SELECT DISTINCT episode_id FROM {_ROWS} WHERE parent_id IS NULL)
SELECT episode_id AS place, 'it has a split, and neither rows nor a reason' AS detail
FROM {_SPLITS} ANTI JOIN here USING (episode_id) ANTI JOIN gone USING (episode_id)
UNION ALL SELECT episode_id, 'it has rows, and a reason to be left out' FROM here SEMI JOIN gone USING (episode_id)
UNION ALL SELECT episode_id, 'it has rows, and no split' FROM here ANTI JOIN {_SPLITS} s USING (episode_id) ORDER BY ALL""",
        _BUILD,
    ),
    StoreLaw(
        "split_of_rows",
        "rows lie in the split of their episode, augmented ones in that of the episode they were made from",
        f"""
SELECT any_value(t.locator) AS place, format('episode {{}}: rows in {{}}, split {{}}', t.episode_id, t.split, s.split) AS detail
FROM {_ROWS} t JOIN {_SPLITS} s ON s.episode_id = coalesce(split_part(t.parent_id, '/', 1), t.episode_id)
WHERE t.split <> s.split GROUP BY t.episode_id, t.split, s.split ORDER BY ALL""",
        _BUILD,
    ),
    StoreLaw(
        "near_pairs",
        f"near-duplicates are alike by {THRESHOLD:g} to 1, are named in the order of their ids, and lie in one group",
        f"""
SELECT n.episode_a || ' ~ ' || n.episode_b AS place, format('similarity {{}}, groups {{}} and {{}}', similarity,
  coalesce(a.group_key, 'none'), coalesce(b.group_key, 'none')) AS detail
FROM near_duplicates n LEFT JOIN {_SPLITS} a ON a.episode_id = n.episode_a LEFT JOIN {_SPLITS} b ON b.episode_id = n.episode_b
WHERE n.dataset = $dataset AND (NOT (similarity BETWEEN {THRESHOLD} AND 1) OR n.episode_a >= n.episode_b
  OR a.group_key IS DISTINCT FROM b.group_key OR a.group_key IS NULL) ORDER BY ALL""",
        _BUILD,
    ),
    StoreLaw(
        "conflict_sides",
        "both examples of a conflict are rows of the dataset that did what it says, in its state",
        f"""
WITH sides AS (
  SELECT kind, level, state_key, 'a' AS side, action_a AS action, count_a AS count, episode_a AS episode_id, step_a AS step
  FROM conflicts WHERE dataset = $dataset
  UNION ALL SELECT kind, level, state_key, 'b', action_b, count_b, episode_b, step_b FROM conflicts WHERE dataset = $dataset
)
SELECT coalesce(t.locator, c.episode_id || '/' || c.step) AS place, format('{{}} ({{}}) in {{}}, side {{}}: {{}}, {{}}', kind, level,
  c.state_key, side, c.action, CASE WHEN t.episode_id IS NULL THEN 'no such row' WHEN c.count = 0 THEN 'no rows counted'
  WHEN t.action <> c.action THEN 'the row did ' || t.action ELSE 'the row is in another state' END) AS detail
FROM sides c LEFT JOIN {_ROWS} t USING (episode_id, step)
WHERE t.episode_id IS NULL OR c.count = 0 OR t.action <> c.action OR kind <> 'label'
  AND c.state_key <> CASE level WHEN 'exact' THEN t.state_key WHEN 'canonical' THEN t.state_key_canonical ELSE c.state_key END
ORDER BY ALL""",
        _BUILD,
    ),
    StoreLaw(
        "conflict_kinds",
        "outcomes and labels are of one action, contrasts and demonstrations of two, and a pair is told once at a level",
        """
SELECT state_key AS place, format('{} ({}) of {} and {}, {} rows', kind, level, action_a, action_b, count(*)) AS detail
FROM conflicts WHERE dataset = $dataset GROUP BY kind, level, state_key, action_a, action_b
HAVING count(*) > 1 OR (action_a = action_b) <> (kind IN ('outcome', 'label')) ORDER BY ALL""",
        _BUILD,
    ),
    StoreLaw(
        "credit_rows",
        "credit was given to rows of the dataset, of the build that it names",
        f"""
SELECT episode_id || '/' || step AS place, format('credit by {{}} of build {{}}', method, c.hash) AS detail
FROM credit c LEFT JOIN {_ROWS} t USING (episode_id, step) JOIN datasets d ON d.dataset = c.dataset
WHERE c.dataset = $dataset AND (t.episode_id IS NULL OR c.hash <> d.hash) ORDER BY ALL""",
        "reckon the credit again: `logforge credit`",
    ),
)
"""The laws of one dataset's rows among themselves; schemas/transition.py has those of single transitions."""
