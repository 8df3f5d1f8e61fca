"""A build with renamed, rare and vetoed tools, with a second level, and with propensities to estimate."""

import json

import numpy as np
import pytest

from logforge.dataset.actions.vocabulary import ActionSpace
from logforge.dataset.build.earlier_dataset import earlier_vocabulary
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.exports.catalogue import Options
from logforge.exports.pipeline import export
from logforge.forgetting.shards import drop_from_datasets
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import UsageError
from logforge.schemas.manifest import OTHER
from logforge.shards.reader import load_shards
from logforge.store.store import Store

SPEC = "gamma: 0.9\nterms:\n  success: {when: success, value: 1, at: terminal}\n"


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    """Sixty episodes: `look` became `lookup`, `audit` is called once, and every tenth `lookup` was a vetoed `erase`."""
    rows = []
    for n in range(60):
        tool = "audit" if n == 7 else "look" if n % 2 else "lookup"
        row = conversation(f"item {n}", tool)
        call = row["messages"][1]["tool_calls"][0]
        call["function"]["arguments"] = json.dumps({"limit": n % 5 + 1, "mode": "fast" if n % 3 else "full"})
        if n % 10 == 0:
            call["proposed_action"] = "erase" if n % 20 else "look"
        row["success"] = n % 3 != 0
        rows.append(row)
    (tmp_path / "reward.yaml").write_text(SPEC)
    return write_jsonl(tmp_path / "logs.jsonl", rows)


@pytest.fixture
def built(tmp_path, logs):
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [logs])

        def build(name="d", vocabulary=None, **settings):
            config = BuildConfig(encoder="hashing", text_size=4, **settings)
            report = build_dataset(
                store, tmp_path / "reward.yaml", name=name, out=tmp_path, config=config, vocabulary=vocabulary
            )
            rows = store.con.sql(
                "SELECT * FROM transitions WHERE dataset = ? ORDER BY split, episode_id, step", params=[name]
            ).pl()
            return report, rows

        build.store = store
        yield build


def shards(tmp_path, name="d"):
    return {split: load_shards(tmp_path / name, split) for split in ("train", "validation", "test")}


def test_a_plain_build_has_no_second_level(tmp_path, built):
    report, _ = built()
    for shard in shards(tmp_path).values():
        shard.verify()
        assert (shard.argument_templates == -1).all()
        assert shard.argument_numbers.shape == (shard.size, 0)
    assert shard.manifest.argument_templates == ()
    assert shard.manifest.propensity_model == {}
    assert report.action_report.templates == 0


def test_the_learner_uses_what_was_executed_and_the_proposal_is_kept(tmp_path, built):
    report, rows = built(action_aliases={"look": "lookup"})
    vetoed = rows.filter(rows["proposed_action"].is_not_null())
    # `look` is an earlier name of the tool that ran: nothing else was proposed there.
    assert vetoed["proposed_action"].to_list() == ["erase"] * 3
    assert set(vetoed["action"]) == {"lookup"}
    assert report.action_report.changed == 3
    assert "3 of 120 decisions (2.5%) executed another action" in report.render()
    known = load_shards(tmp_path / "d", "train").manifest.vocabulary
    actions, proposed = (
        np.concatenate([getattr(shard, name) for shard in shards(tmp_path).values()])
        for name in ("actions", "proposed_actions")
    )
    other = proposed != actions
    assert other.sum() == 3
    assert set(actions[other]) == {known.id("lookup")}
    assert set(proposed[other]) == {known.invalid}  # `erase` is no tool of these logs


def test_a_renamed_tool_has_one_id_and_a_rare_one_shares(tmp_path, built):
    report, rows = built(action_aliases={"look": "lookup"}, min_action_count=3)
    manifest = load_shards(tmp_path / "d", "train").manifest
    assert manifest.actions == ("respond", "clarify", "lookup", OTHER, "<invalid>")
    assert manifest.action_aliases == {"look": "lookup"}
    assert manifest.other_actions == {"audit": 1}
    rare = rows.filter(rows["action"] == "audit")
    assert rare.select("action_id", "action_valid").rows() == [(3, True)]
    assert "1 decisions are `<other>`" in report.render()
    for shard in shards(tmp_path).values():
        shard.verify()
        assert not shard.masks[:, manifest.vocabulary.unplayable].any()
    served = ActionSpace.from_dict(json.loads((tmp_path / "d" / "actions.json").read_text()))
    assert served.vocabulary == manifest.vocabulary
    assert served.vocabulary.id("look") == served.vocabulary.id("lookup") == 2
    assert served.vocabulary.id("audit") == 3


def test_exports_tell_the_names_of_today(tmp_path, built):
    built(action_aliases={"look": "lookup"})
    built.store.close()
    export(tmp_path / "d", "trl-sft", tmp_path / "sft.jsonl", store=tmp_path / "s.duckdb", options=Options())
    text = (tmp_path / "sft.jsonl").read_text().replace("\\", "")
    assert '"lookup"' in text
    assert '"look"' not in text


def test_ids_stay_and_names_move_from_build_to_build(tmp_path, built):
    built("one")
    earlier = earlier_vocabulary(tmp_path / "one")
    built("two", earlier, action_aliases={"look": "lookup"}, min_action_count=3)
    now = earlier_vocabulary(tmp_path / "two")
    assert now.actions == earlier.actions  # both had an id already, and so has `audit`
    assert now.id("look") == earlier.id("lookup")
    built("three", now)
    assert earlier_vocabulary(tmp_path / "three").aliases == {"look": "lookup"}
    shard = load_shards(tmp_path / "three", "train", like=load_shards(tmp_path / "two", "train").manifest)
    assert (shard.actions != earlier.id("look")).all()


def test_circles_are_refused_before_anything_is_built(tmp_path, built):
    with pytest.raises(UsageError, match="round in a circle"):
        built(action_aliases={"look": "lookup", "lookup": "look"})
    assert not (tmp_path / "d").exists()


def test_a_second_level_gives_templates_numbers_and_candidates(tmp_path, built):
    report, rows = built(action_aliases={"look": "lookup"}, action_level="tool+template")
    manifest = load_shards(tmp_path / "d", "train").manifest
    told = [item.template for item in manifest.argument_templates if item.action == "lookup"]
    assert told[0] == "*"
    assert set(told[1:]) == {'{"limit": <num>, "mode": "fast"}', '{"limit": <num>, "mode": "full"}'}
    assert manifest.argument_numbers == ("lookup.limit",)
    assert report.action_report.templates == len(manifest.argument_templates)
    for shard in shards(tmp_path).values():
        shard.verify()
        tool = shard.actions == shard.manifest.vocabulary.id("lookup")
        assert ((shard.argument_templates >= 0) == (shard.actions > 1)).all()
        assert (shard.argument_numbers_known[:, 0] == tool).all()
        assert set(np.unique(shard.argument_numbers[tool])) <= {1, 2, 3, 4, 5}
    found = built.store.con.sql(
        "SELECT c.template, s.arguments FROM argument_candidates c JOIN steps s USING (episode_id, step) WHERE rank = 0"
    ).fetchall()
    modes = {told[place]: json.loads(text)["mode"] for place, text in _places(manifest, found)}
    assert modes['{"limit": <num>, "mode": "full"}'] == "full"
    assert rows["argument_template"].null_count() == 60  # the answers


def test_a_forgotten_episode_stands_for_no_template(tmp_path, built):
    built(action_level="tool+template")
    chosen = "SELECT DISTINCT episode_id FROM argument_candidates ORDER BY 1"
    gone, *_ = [row[0] for row in built.store.con.sql(chosen).fetchall()]
    before = load_shards(tmp_path / "d", "train")
    drop_from_datasets(built.store, [gone])
    assert (gone,) not in built.store.con.sql(chosen).fetchall()
    after = load_shards(tmp_path / "d", "train")
    after.verify()
    assert after.size < before.size
    assert after.manifest.propensity_kinds == {"missing": before.manifest.propensity_kinds["missing"] - 2}


def _places(manifest, found):
    first = next(place for place, item in enumerate(manifest.argument_templates) if item.action == "lookup")
    last = sum(item.action == "lookup" for item in manifest.argument_templates) + first
    return [(place - first, text) for place, text in found if first <= place < last]


def test_a_second_build_has_the_same_bytes(tmp_path, built):
    settings = {"action_level": "tool+template", "estimate_propensity": True, "min_action_count": 2}
    one, _ = built("one", **settings)
    two, _ = built("two", **settings)
    assert one.hash == two.hash


def test_estimates_are_written_with_their_quality_or_refused_with_the_reason(tmp_path, built):
    report, rows = built(estimate_propensity=True)
    manifest = load_shards(tmp_path / "d", "train").manifest
    model = manifest.propensity_model
    assert model["refused"] == ""
    assert manifest.propensity_kinds == {"estimated": rows.height}
    assert 0 <= model["train"]["ece"] <= 1
    assert f"{rows.height} estimated" in report.render()
    for shard in shards(tmp_path).values():
        shard.verify()
        assert (shard.propensity_kinds == 2).all()
