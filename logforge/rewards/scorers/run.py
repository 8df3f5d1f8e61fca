"""Runs the scorers of a spec over the steps that need them: batched, each text once, cached in the store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import polars as pl

from logforge.core import Tables, Tick, silent
from logforge.rewards.scorers.base import Example, Ready, Resources, Score, Scorer, Texts
from logforge.rewards.scorers.cache import ScorerCache, key_of
from logforge.rewards.scorers.cross_fit import Models, fitted
from logforge.rewards.scorers.inputs import INPUTS, texts
from logforge.rewards.scorers.registry import make_scorer
from logforge.schemas import Detectors, RewardSpec, Term
from logforge.texts import is_blank

_SCHEMA = {
    "term": pl.String,
    "episode_id": pl.String,
    "step": pl.Int32,
    "value": pl.Float64,
    "reason": pl.String,
}


def ready_scorers(
    spec: RewardSpec,
    con: duckdb.DuckDBPyConnection,
    train: Tables | None = None,
    groups: Mapping[str, str] | None = None,
) -> dict[str, Models]:
    """The scorers of a spec made ready, by term. Those that learn do so from `train`, the tables of the train split,
    cross-fitted by `groups`, the split groups of its episodes."""
    found = {}
    for name, term in _calls(spec).items():
        scorer, resources = make_scorer(term.scorer or {}), Resources(con)
        if scorer.fitted and train is not None:
            found[name] = fitted(scorer, resources, _examples(scorer, train), groups)
        else:
            found[name] = Models(scorer.ready(resources))
    return found


def run_scorers(
    spec: RewardSpec,
    tables: Tables,
    con: duckdb.DuckDBPyConnection,
    progress: Tick = silent,
    ready: Mapping[str, Models] | None = None,
) -> pl.DataFrame | None:
    """What the spec's scorers give: term, episode_id, step, value (null: not scored), reason. None when it has no scorers.

    Only the steps at which a term may pay are scored. `ready` are those of `ready_scorers`; without them, scorers that are
    fitted give null. `con` is the store's connection, where scores are kept.
    """
    calls = _calls(spec)
    if not calls:
        return None
    ready = ready_scorers(spec, con) if ready is None else ready
    rows = [
        row
        for name, term in calls.items()
        for row in _term_rows(name, term, spec.detectors, tables, con, ready[name], progress)
    ]
    return pl.DataFrame(rows, _SCHEMA, orient="row")


def scorer_record(
    spec: RewardSpec,
    ready: Mapping[str, Models] | None = None,
    con: duckdb.DuckDBPyConnection | None = None,
) -> list[dict[str, Any]]:
    """The scorers of a spec with what decides their values: term, name, version, parameters, and the models that answered."""
    records = []
    for name, term in sorted(_calls(spec).items()):
        scorer = make_scorer(term.scorer or {})
        record: dict[str, Any] = {"term": name, "scorer": scorer.name, "parameters": scorer.parameters}
        if ready is not None:
            models = ready[name]
            record["version"] = models.whole.version
            record |= {"folds": [model.version for model in models.folds]} if models.folds else {}
            sources = ScorerCache(con, scorer.name, models.whole.version).sources() if con is not None else []
            record |= {"answered_by": sources} if sources else {}
            record |= {"unready": models.unready} if models.unready else {}
        records.append(record)
    return records


def _calls(spec: RewardSpec) -> dict[str, Term]:
    return {name: term for name, term, _ in spec.entries() if term.scorer is not None}


def _examples(scorer: Scorer, train: Tables) -> tuple[Example, ...]:
    """The train split's texts of the input that the scorer learns from, ordered by episode and step."""
    source = scorer.learns_from
    everywhere = Term(at="end" if INPUTS[source].known == "end" else "step")
    frame = texts(everywhere, [source], train, Detectors())
    rated = pl.DataFrame(train.episodes.select(["episode_id", "success", "score"]))
    rows = frame.join(rated, on="episode_id", how="left", maintain_order="left").select(
        source, "success", "score", "episode_id"
    )
    return tuple(Example(*row) for row in rows.iter_rows() if not is_blank(row[0]))


def _term_rows(
    name: str,
    term: Term,
    detectors: Detectors,
    tables: Tables,
    con: duckdb.DuckDBPyConnection,
    models: Models,
    progress: Tick,
) -> Iterator[tuple[str, str, int, float | None, str | None]]:
    scorer = make_scorer(term.scorer or {})
    steps = list(texts(term, scorer.inputs, tables, detectors).iter_rows())
    parents = dict(pl.DataFrame(tables.episodes.select(["episode_id", "parent_episode_id"])).iter_rows())
    chosen = [models.of(episode, parents.get(episode)) for episode, *_ in steps]
    wanted: dict[str, tuple[Ready, set[Texts]]] = {}
    for model, (_, _, *read) in zip(chosen, steps, strict=True):
        if not any(map(is_blank, read)):
            wanted.setdefault(model.version, (model, set()))[1].add(tuple(read))
    scores = {
        version: {} if models.unready else _scores(scorer, model, sorted(items), con, progress)
        for version, (model, items) in wanted.items()
    }
    for model, (episode, step, *read) in zip(chosen, steps, strict=True):
        if missing := [item for item, text in zip(scorer.inputs, read, strict=True) if is_blank(text)]:
            score = Score(None, reason=f"missing {', '.join(missing)}")
        else:
            score = scores[model.version].get(tuple(read)) or Score(None, reason=models.unready)
        yield name, episode, step, score.value, score.reason


def _scores(
    scorer: Scorer, ready: Ready, items: list[Texts], con: duckdb.DuckDBPyConnection, progress: Tick
) -> dict[Texts, Score]:
    """The scores of distinct texts: those that are kept, and the others made and kept as they come."""
    cache = ScorerCache(con, scorer.name, ready.version)
    keys = {item: key_of(item) for item in items}
    found = cache.find(list(keys.values()))
    scores = {item: found[key] for item, key in keys.items() if key in found}
    missing = [item for item in items if item not in scores]
    fresh: dict[str, tuple[Texts, Score]] = {}
    try:
        for index, score in ready.score(missing) if missing else ():
            item = missing[index]
            scores[item] = _checked(score)
            fresh[keys[item]] = item, scores[item]
            if len(fresh) >= ready.kept_together:
                cache.keep(fresh)
                fresh = {}
            progress(len(scores), len(items), scorer.name)
    finally:
        cache.keep(fresh)
    return scores


def _checked(score: Score) -> Score:
    """A score from 0 to 1, or null with a reason, whatever a third party's scorer gives."""
    if score.value is None:
        return score._replace(reason=score.reason or "was not scored")
    if not math.isfinite(score.value):
        return Score(None, reason="the score is no finite number")
    return score._replace(value=min(max(score.value, 0.0), 1.0), reason=None)
