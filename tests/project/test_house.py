"""The rooms: one-way floors, no circles, faces that are what others take, and folders that one can take in."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections import Counter

import pytest

from logforge.moved import MOVED
from support import house
from support.places import ROOT

MOST_MODULES = 25


def test_no_package_imports_from_its_own_floor_or_above():
    upward = [
        f"{arrow.importer} → {arrow.target}"
        for arrow in house.arrows()
        if (here := house.floor_room(arrow.importer)) != (there := house.floor_room(arrow.target))
        and house.floors()[here] <= house.floors()[there]
    ]
    assert not upward, "move what is shared down, or turn the arrow (docs/layers.txt)"


def test_every_package_has_a_floor_and_every_floor_is_there():
    assert set(house.floors()) <= set(house.modules())
    roots = {module for module in house.modules() if house.is_package(module)}
    assert {house.floor_room(module) for module in roots} - {"logforge"} <= set(house.floors())
    assert "logforge" in house.floors()


def test_no_circle_of_files():
    assert house.circles(house.file_graph()) == []


def test_circles_are_found():
    """The search is not blind: two that import each other, and three in a ring."""
    graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"e"}, "e": {"c"}, "f": {"a"}}
    assert sorted(house.circles(graph)) == [["a", "b"], ["c", "d", "e"]]


def test_no_folder_is_too_full():
    sizes = Counter(path.parent for path in house.modules().values() if path.name != "__init__.py")
    assert {str(folder): size for folder, size in sizes.items() if size > MOST_MODULES} == {}


PACKAGES = sorted(module for module in house.modules() if house.is_package(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_face_is_what_others_take(package):
    inside = {arrow.importer for arrow in house.arrows() if house.room(arrow.importer) == package}
    taken = {
        arrow.name or arrow.target.rpartition(".")[2]
        for arrow in house.arrows()
        if arrow.asked == package and arrow.importer not in inside and not _is_room(arrow)
    }
    written = set(house.written(package))
    assert taken - written == set(), "others take these: write them into the face"
    assert written - taken - house.documented() == set(), "nobody takes these, and no page tells of them"


def _is_room(arrow: house.Arrow) -> bool:
    return arrow.name is None and house.is_package(arrow.target)


def test_other_packages_are_asked_at_their_face():
    deep = [
        f"{arrow.importer}: from {arrow.asked}"
        for arrow in house.arrows()
        if not house.is_package(arrow.asked)
        and arrow.asked not in house.floors()
        and house.room(arrow.importer) != house.room(arrow.asked)
    ]
    assert not deep, "take the name from the package: `from logforge.shards import Shard`"


def test_no_module_asks_its_own_face():
    own = [a for a in house.arrows() if a.asked == house.room(a.importer) and a.name is not None]
    assert own == []


@pytest.mark.parametrize("package", [package for package in PACKAGES if house.written(package)])
def test_a_face_says_the_same_three_times(package):
    found = importlib.import_module(package)
    names = house.written(package)
    lazy = [name for name in names if f"{package}.{name}" not in house.modules()]
    behind = house.face(package) if package != "logforge" else dict.fromkeys(names)
    assert set(behind) == set(names) == set(found.__all__)
    assert set(lazy) == (set(found.__dir__()) if lazy else set())
    for name in lazy:
        assert getattr(found, name) is not None
        assert f"{package}.{name}" not in house.modules(), "importing the module would hide the name"


def test_an_unknown_name_is_none_of_a_face():
    with pytest.raises(AttributeError, match="no attribute 'loadshards'"):
        importlib.import_module("logforge.shards").loadshards  # noqa: B018


def test_packages_hold_no_code():
    for package in PACKAGES:
        kinds = {type(node) for node in ast.parse(house.modules()[package].read_text("utf-8")).body}
        assert not kinds & {ast.FunctionDef, ast.ClassDef}, package


OLD = [
    ("logforge.action_parser", "call_text parse_action"),
    ("logforge.action_text", "action_texts action_vectors"),
    ("logforge.build", "BuildConfig build_dataset"),
    ("logforge.check", "check_store"),
    ("logforge.connectors.base", "Head Source at"),
    ("logforge.connectors.builder", "Call EpisodeBuilder content_id"),
    ("logforge.connectors.content", "bad_part first_text text_or_none"),
    ("logforge.connectors.mapping", "load_mapping"),
    ("logforge.connectors.rows", "close first_bool first_user_text read_rows reject"),
    ("logforge.credit", "fit_values"),
    ("logforge.curriculum", "load_stage"),
    ("logforge.envs", "make"),
    ("logforge.envs.behaviour", "rule"),
    ("logforge.envs.branching", "credit"),
    ("logforge.envs.evaluating", "checked_restarts evaluate_policy"),
    ("logforge.envs.learnt", "served"),
    ("logforge.envs.rollout", "seeing"),
    ("logforge.envs.simulation", "simulate"),
    ("logforge.envs.solving", "solve"),
    ("logforge.envs.tool_env", "gym_env vector_env"),
    ("logforge.events", "events_of"),
    ("logforge.exporters", "export load_mdp_dataset to_mdp_dataset"),
    ("logforge.exports.job", "Options"),
    ("logforge.exports.tagged_text", "parse render"),
    ("logforge.fingerprint", "fingerprint"),
    ("logforge.goal_summary", "SUMMARIES"),
    ("logforge.guards", "Gate"),
    ("logforge.history_ids", "history_ids"),
    ("logforge.new_actions", "with_actions"),
    ("logforge.optional", "import_d3rlpy"),
    ("logforge.plausibility", "Watch"),
    ("logforge.probes", "choose_probes"),
    ("logforge.quarantine", "overview"),
    ("logforge.report", "report"),
    ("logforge.sample_efficiency", "curve_area interactions_to"),
    ("logforge.schemas.episode", "Reading"),
    ("logforge.scorer", "Ready Score Scorer each"),
    ("logforge.serving", "StateServer"),
    ("logforge.shard_writer", "ShardWriter episode_pieces"),
    ("logforge.shards", "load_shards"),
    ("logforge.state_text", "TEMPLATE parse_state state_text"),
    ("logforge.store", "open_store"),
    ("logforge.symbols", "State"),
    ("logforge.targets", "targets_of"),
    ("logforge.testing", "LAWS check_connector count_json_records"),
]
"""What the pages of the first release imported, or named as a place to import from."""


@pytest.mark.parametrize(("module", "names"), OLD)
def test_documented_imports_still_work(module, names):
    code = (
        f"import warnings; warnings.simplefilter('ignore'); from {module} import {names.replace(' ', ', ')}"
    )
    exec(code, {})


def test_every_moved_module_is_held_and_warns():
    assert set(MOVED) <= {module for module, _ in OLD}
    code = "from logforge.guards import Gate"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0
    assert "DeprecationWarning: logforge.guards has moved: import from logforge.serving" in done.stderr
