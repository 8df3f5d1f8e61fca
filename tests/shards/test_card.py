import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.schemas.errors import UsageError
from logforge.schemas.manifest import FeatureSlice, Vocabulary
from logforge.shards.card import CARD, dataset_card, read_licences
from logforge.shards.reader import check_files, load_shards, read_manifest, write_dataset
from support.made_arrays import DIM, make, manifest


def card_of(tmp_path, **changes):
    write_dataset(tmp_path / "d", {"train": make([(3, True), (2, False)])}, manifest(**changes))
    return (tmp_path / "d" / CARD).read_text("utf-8")


def test_it_tells_what_the_manifest_knows(tmp_path):
    text = card_of(
        tmp_path, licences={"tau_bench": "MIT"}, mask_kinds={"logged": 3, "inferred": 2}, forgotten=4,
        thoughts={"calls": 8, "named": 6}, text_variance=0.584, layout=(FeatureSlice("thought", 0, DIM, "thought"),),
    )  # fmt: skip
    for said in (
        "# made", "| `tau_bench` | 2 | MIT |", "| train | 2 | 5 | 1 | 1 | 0 |", "| discount γ | 0.9 |", "`hashing` (`1`, 64 numbers, reduced to 2)",
        "`refund`, `search`", "stored as float32", "1 of 2 episodes are cut off", "2 of 5 masks are inferred", "4 episodes were taken out",
        "names its tool in 6 of 8 (75%)", "keeps 58% of the variance",
        read_manifest(tmp_path / "d").hash,
    ):  # fmt: skip
        assert said in text, said
    assert "not stated" not in text


@pytest.mark.parametrize(("named", "block"), [(0, "thought"), (6, "task")])
def test_thoughts_limit_nothing_where_none_names_a_tool_or_none_is_in_the_states(tmp_path, named, block):
    layout = (FeatureSlice(block, 0, DIM, "text"),)
    assert "names its tool" not in card_of(tmp_path, thoughts={"calls": 8, "named": named}, layout=layout)


def test_slots_after_the_first_share_a_row(tmp_path):
    names = [f"history.{slot}.{part}" for slot in range(12) for part in ("action", "status")]
    layout = tuple(
        FeatureSlice(name, at, at + 1, f"meaning {at}") for at, name in enumerate(["task", *names, "mask"])
    )
    lines = dataset_card(manifest(layout=layout, observation_size=len(layout))).splitlines()
    rows = [line for line in lines if line.startswith(("| `task", "| `history", "| `mask"))]
    assert rows == [
        "| `task` | 0:1 | meaning 0 |",
        "| `history.0.action` | 1:2 | meaning 1 |",
        "| `history.0.status` | 2:3 | meaning 2 |",
        "| `history.1 … history.11` | 3:25 | as history.0, of older ones |",
        "| `mask` | 25:26 | meaning 25 |",
    ]


def test_licences_that_nobody_stated_are_called_that(tmp_path):
    text = card_of(tmp_path)
    assert "| `tau_bench` | 2 | not stated |" in text
    assert "thought" not in text
    assert "The licence of what came from `tau_bench` was not stated" in text


def test_it_is_made_of_the_manifest_alone_and_no_part_of_the_hash(tmp_path):
    text = card_of(tmp_path)
    made = read_manifest(tmp_path / "d")
    assert dataset_card(made) == text
    assert CARD not in made.checksums
    (tmp_path / "d" / CARD).write_text("edited by hand")
    check_files(tmp_path / "d", made)
    assert load_shards(tmp_path / "d").manifest.hash == made.hash


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(names, names, names)
def test_names_from_logs_break_nothing(dataset, tool, meaning):
    layout = (FeatureSlice(tool, 0, DIM, meaning),)
    actions = Vocabulary.build(["search", "refund", "unused", tool]).actions
    made = manifest(dataset=dataset, actions=actions, layout=layout)
    lines = dataset_card(made).splitlines()
    assert sum(line.startswith("## ") for line in lines) == 5
    assert sum(line.startswith("# ") for line in lines) == 1
    row = next(line for line in lines if line.endswith("|") and f" 0:{DIM} " in line)
    assert len(re.findall(r"(?<!\\)\|", row.replace("\\\\", ""))) == 4


def test_licences_are_read():
    assert read_licences(["tau_bench=MIT", " star = CC BY 4.0 "]) == {"tau_bench": "MIT", "star": "CC BY 4.0"}
    for wrong in ("MIT", "=MIT", "tau_bench="):
        with pytest.raises(UsageError, match="FORMAT=LICENCE"):
            read_licences([wrong])
