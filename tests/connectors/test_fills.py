"""What each connector says its logs may hold is what its logs hold."""

from __future__ import annotations

from collections import defaultdict

import pytest

from logforge.connectors.detection import detect, registry
from logforge.connectors.records.base import FILLS, Source
from logforge.schemas.episode import Episode
from support.places import DATA, SAMPLES, SHARED

FIXTURES = DATA


def filled(episode):
    yield from (
        name
        for name, value in (
            ("outcome", episode.success),
            ("score", episode.score),
            ("tools", episode.tools),
            ("cost", episode.cost_usd),
        )
        if value is not None
    )
    for step in episode.steps:
        pairs = (
            ("rewards", step.logged_reward),
            ("propensities", step.propensity),
            ("latency", step.latency_s),
        )
        yield from (name for name, value in pairs if value is not None)
    for message in episode.messages:
        pairs = (
            ("thoughts", message.thought or None),
            ("tokens", message.tokens_out or message.tokens_in),
            ("times", message.created_at),
        )
        yield from (name for name, value in pairs if value is not None)


def observed(*roots):
    found = defaultdict(set)
    for path in (path for root in roots for path in sorted(root.rglob("*")) if path.is_file()):
        for claim in detect(path)[:1]:
            companions = getattr(claim.connector, "companions", lambda _: [])(path)
            source = Source(path, "log", tuple(other for other in companions if other.is_file()))
            for item in claim.connector.read(source):
                if isinstance(item, Episode):
                    found[claim.connector.name].update(filled(item))
    return found


def test_nothing_is_filled_that_is_not_declared():
    for name, fields in observed(SAMPLES, FIXTURES).items():
        assert fields <= set(registry()[name].fills), name


def test_declarations_use_the_known_words_in_order():
    for name, connector in registry().items():
        assert list(connector.fills) == [word for word in FILLS if word in connector.fills], name


@pytest.mark.skipif(not (SHARED / "logs").is_dir(), reason="the shared logs are not here")
def test_everything_declared_is_seen_somewhere():
    found = observed(SAMPLES, FIXTURES, SHARED / "logs", SHARED / "quirks")
    assert {name: found[name] for name in registry()} == {
        name: set(connector.fills) for name, connector in registry().items()
    }
