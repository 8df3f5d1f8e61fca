"""The verbs of `logforge/api.py`: a forget that was cut short is completed by each of them, and refused below them."""

from __future__ import annotations

import inspect
import threading

import pytest

import logforge
from logforge import api
from logforge.forgetting import pipeline as forgetting
from logforge.ingestion import pipeline, replaying, watching
from logforge.schemas.errors import StoreError
from logforge.store.forgotten import pending
from logforge.store.store import Store
from support.places import SAMPLES


class Killed(BaseException):
    """A kill."""


@pytest.fixture
def cut_short(tmp_path, monkeypatch):
    """A store in which the forget of one episode was cut short right after it was marked."""

    def cut(store):
        raise Killed

    with Store(tmp_path / "s.duckdb") as store:
        api.ingest(store, [SAMPLES / "tau_bench"])
        ((episode,),) = store.con.sql("SELECT min(episode_id) FROM episodes").fetchall()
        with monkeypatch.context() as patch:
            patch.setattr(forgetting, "_delete", cut)
            with pytest.raises(Killed):
                forgetting.forget(store, episode=episode)
        assert pending(store)
        yield store, episode


def holds(store, episode):
    query = "SELECT count(*) FROM episodes WHERE episode_id = ?"
    return store.con.sql(query, params=[episode]).fetchall() == [(1,)]


@pytest.mark.parametrize("verb", ["ingest", "replay"])
def test_a_verb_completes_what_was_cut_short(cut_short, verb):
    store, episode = cut_short
    arguments = ([SAMPLES / "tau_bench"],) if verb == "ingest" else ()
    getattr(logforge, verb)(store, *arguments)
    assert not pending(store)
    assert not holds(store, episode)


def test_a_watch_completes_it_too(cut_short):
    store, episode = cut_short
    store.close()
    stop = threading.Event()
    for _ in api.watch(store.path, [SAMPLES / "tau_bench"], interval=0, stop=stop):
        stop.set()
    with Store(store.path) as again:
        assert not pending(again)
        assert not holds(again, episode)


@pytest.mark.parametrize(
    "read",
    [
        lambda store: pipeline.ingest(store, [SAMPLES / "tau_bench"]),
        lambda store: pipeline.read_again(store, {}),
        lambda store: replaying.replay(store),
    ],
    ids=["ingest", "read_again", "replay"],
)
def test_ingestion_alone_refuses_and_says_what_completes_it(cut_short, read):
    store, episode = cut_short
    with pytest.raises(StoreError, match="cut short") as refused:
        read(store)
    assert "logforge forget" in refused.value.remedy
    assert pending(store)
    assert holds(store, episode)


def test_a_verb_has_the_signature_of_what_it_calls():
    for verb, inner in ((api.ingest, pipeline.ingest), (api.replay, replaying.replay)):
        assert inspect.signature(verb) == inspect.signature(inner)
        assert verb.__doc__ == inner.__doc__
        assert verb.__module__ == "logforge.api"
    own = inspect.signature(watching.watch).parameters
    assert [name for name in own if name != "ingest"] == list(inspect.signature(api.watch).parameters)
