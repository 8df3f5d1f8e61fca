"""The stages of an ingest: their order, and how much of the data each sees at a time."""

from __future__ import annotations

from logforge.core.stages import Scope
from logforge.ingestion.looking import look_again
from logforge.ingestion.pipeline import ROUND, STAGES
from logforge.ingestion.rounds import read_and_store
from support.chains import check_chain, scopes


def test_an_ingest_goes_from_sources_to_a_report():
    check_chain(STAGES)
    assert scopes(STAGES) == {
        "find_sources": [Scope.GLOBAL],
        "look": [Scope.SOURCE],
        "read_and_store": [Scope.SOURCE, Scope.BATCH, Scope.GLOBAL],
        "tell": [Scope.GLOBAL],
    }


def test_a_round_reads_source_by_source_stores_by_the_batch_and_hands_over_at_its_end():
    assert scopes(ROUND) == {
        "read_groups": [Scope.SOURCE],
        "commit": [Scope.BATCH],
        "hand_over": [Scope.GLOBAL],
    }


def test_a_replay_joins_the_same_chain():
    check_chain((look_again, read_and_store))
