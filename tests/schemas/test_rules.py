"""The catalogue names every rule in use and no other, and says of each what it means and what to do."""

from __future__ import annotations

import re

import pytest

from logforge.ingestion.pipeline import ingest
from logforge.schemas.rules import CATALOGUE, FOREIGN, LEAVE, meaning_of, remedy_of
from logforge.schemas.transition import RULES
from support.places import ROOT, SAMPLES, SHARED
from support.used_rules import COMPUTED, uses


def test_every_rule_in_use_is_in_the_catalogue():
    missing = {use.rule: use.place for use in uses() if use.known and use.rule not in CATALOGUE}
    assert not missing, "add these to schemas/rules.py"


def test_every_rule_is_told_where_it_is_used():
    unknown = [use for use in uses() if not use.known]
    assert not unknown, "name the rule by a constant, or list the expression in used_rules.COMPUTED"


def test_every_rule_of_the_catalogue_is_in_use():
    used = {use.rule for use in uses()}
    assert set(CATALOGUE) - set(RULES) - used - SPECIAL == set()


SPECIAL = {"other_span", "other_observation"}
"""What connectors/traces/spans.py calls a kind that is not known."""


def test_the_expressions_that_the_search_knows_are_still_in_the_code():
    code = "".join(file.read_text() for file in (ROOT / "connectors").rglob("*.py"))
    code += "".join(file.read_text() for file in (ROOT / "logforge").rglob("*.py"))
    assert [text for text in COMPUTED if text.replace("'", '"') not in code and text not in code] == []


@pytest.mark.parametrize("rule", CATALOGUE.values(), ids=lambda rule: rule.name)
def test_a_rule_says_what_it_means_and_what_to_do(rule):
    assert re.fullmatch(r"[a-z][a-z0-9_-]*", rule.name)
    assert rule.meaning
    assert not rule.meaning.endswith(".")
    assert re.fullmatch(r"[A-Z].*\.", rule.remedy), "one imperative sentence"
    assert len(rule.meaning) <= 100
    assert len(rule.remedy) <= 94, "it fits a line of the overview"
    assert rule.level != "record" or rule.remedy != LEAVE, "a record that is lost needs something to be done"


def test_rules_of_transitions_are_those_of_their_own_module():
    assert set(RULES) <= set(CATALOGUE)
    assert all(CATALOGUE[name].meaning == meaning for name, meaning in RULES.items())


def test_a_rule_of_another_package_sends_the_reader_to_its_connector():
    assert (meaning_of("their_rule"), remedy_of("their_rule")) == ("", FOREIGN)
    assert remedy_of("malformed_record") == CATALOGUE["malformed_record"].remedy


def test_what_real_logs_give_is_in_the_catalogue(store):
    """The search in the code misses nothing that happens."""
    paths = [
        SAMPLES,
        ROOT / "tests" / "data",
        *(p for p in (SHARED / "logs", SHARED / "quirks") if p.exists()),
    ]
    report = ingest(store, paths)
    found = {item.rule for item in report.quarantine} | set(report.skip_reasons)
    assert found
    assert found <= set(CATALOGUE)
    assert found <= {use.rule for use in uses()} | SPECIAL
