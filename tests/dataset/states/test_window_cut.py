"""How many decisions lie behind more messages than the window has."""

from __future__ import annotations

import json

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.states.config import StateConfig
from logforge.dataset.states.coverage import WindowCut, window_cut
from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store
from support.made_calls import SPEC, call


def test_decisions_and_the_messages_that_they_no_longer_see_are_counted(tmp_path):
    turns = [message for number in range(5) for message in call("find", None, number)]
    row = {"id": "a", "success": True, "messages": [{"role": "user", "content": "hello"}, *turns]}
    (tmp_path / "log.jsonl").write_text(json.dumps(row))
    (tmp_path / "reward.yaml").write_text(SPEC)
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [tmp_path / "log.jsonl"])
        config = BuildConfig(
            encoder="hashing", text_size=4, fractions=(1.0, 0.0, 0.0), state=StateConfig(window_turns=4)
        )
        report = build_dataset(store, tmp_path / "reward.yaml", out=tmp_path, config=config)
        # The decisions come after 1, 3, 5, 7 and 9 messages: 1, 3 and 5 of the last three are gone.
        assert report.window == window_cut(store.con, "default", 4) == WindowCut(4, 5, 3, 9)
        assert window_cut(store.con, "default", 9).told() == ""
        assert window_cut(store.con, "another", 4) == WindowCut(4, 0, 0, 0)
    assert "3 of 5 decisions (60%) lie behind more than 4 messages; 3.0 of them" in report.render()
    assert report.as_dict()["window"] == {"turns": 4, "decisions": 5, "cut": 3, "messages": 9}
