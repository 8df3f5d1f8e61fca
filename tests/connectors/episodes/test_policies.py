"""A policy's name: who decided, at which temperature, with which prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.connectors.episodes.builder import EpisodeBuilder
from logforge.connectors.episodes.policies import policy_name, prompt_version
from logforge.schemas.episode import Episode


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("m", 0.7, "ab12cd34ef560718"), "m@t=0.7#prompt:ab12cd34"),
        (("m", 0.0, None), "m@t=0"),
        (("m", 1, None), "m@t=1"),
        (("m", None, "support:12"), "m#prompt:support:12"),
        (("m", None, None), "m"),
    ],
)
def test_a_name_says_what_is_known(parts, name):
    assert policy_name(*parts) == name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Today is 2026-02-03.", "Today is 2026-11-30."),
        ("Now: 2026-02-03T10:00:01Z", "Now: 2027-02-03 11:12:13+02:00"),
        ("It is Monday, February 3, 2026, 9:05 AM.", "It is Tuesday, March 14, 2026, 11:59 PM."),
        ("Date: 3 May 2024", "Date: 21 September 2025"),
        ("Date: 5/1/24", "Date: 12/31/2025"),
        ("Time 10:30 EST", "Time 9:15:30 UTC"),
        ("Session 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "Session 6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ("You work in /home/ann/projects/web.", "You work in /tmp/run_77/checkout/api."),
        (r"You work in C:\Users\ann\web now", r"You work in C:\Users\bob\api now"),
        ("Serve user 4815162342.", "Serve user 1084210842."),
        ("The customer is ann@example.com.", "The customer is bob.lee@example.co.uk."),
        ("See https://x.example/a?b=1 first", "See https://x.example/c?d=22 first"),
        ("Order ord_9f8e7d6c5b4a", "Order ord_1a2b3c4d5e6f"),
        ("Help.\n<env>\nOS: linux\n</env>\nBye.", "Help.\n<env>\nOS: darwin\nShell: zsh\n</env>\nBye."),
        ("<user_info>Ann, gold</user_info>", "<user_info>Bob, silver</user_info>"),
    ],
)
def test_what_differs_between_runs_of_one_agent_makes_no_other_prompt(one, other):
    assert prompt_version(one) == prompt_version(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Take at most 5 steps.", "Take at most 10 steps."),
        ("You are a support agent.", "You are a sales agent."),
        ("Use tool_v2.", "Use tool_v3."),
        ("Answer in English/German.", "Answer in English/French."),
        ("Refunds up to $100.", "Refunds up to $1000."),
        ("May refund orders.", "Might refund orders."),
        ("Rule 1: be brief.\nRule 2: be kind.", "Rule 1: be brief."),
        ("Policy 2.1 holds", "Policy 2.2 holds"),
    ],
)
def test_other_instructions_are_another_prompt(one, other):
    assert prompt_version(one) != prompt_version(other)


def test_a_block_that_is_not_closed_is_kept():
    assert prompt_version("<env> Be kind.") != prompt_version("<env> Be rude.")
    assert prompt_version("<env>x</env> Be kind.") != prompt_version("<env>x</env> Be rude.")


@given(st.text(max_size=300))
def test_a_version_is_16_hex_digits_and_depends_on_the_text_alone(text):
    assert prompt_version(text) == prompt_version.__wrapped__(text)
    assert len(prompt_version(text)) == 16
    assert set(prompt_version(text)) <= set("0123456789abcdef")


def run(models, **more) -> Episode:
    """A system prompt, and one answer of each model."""
    builder = EpisodeBuilder()
    builder.message("system", "Be kind.", "x")
    for model in models:
        builder.turn("Hello.", [], "x", model=model)
    shape = {"id": "e", "format": "f", "locator": "x", "ending": "terminal", "ending_reason": ""}
    return builder.finish(**{**shape, **more})


PROMPT = prompt_version("Be kind.")[:8]


def test_model_temperature_and_prompt_make_the_policy():
    episode = run(["m"], model="m", policy_id="m", temperature=0.5)
    assert episode.policy_id == f"m@t=0.5#prompt:{PROMPT}"
    assert [step.policy_id for step in episode.steps] == [None]
    assert episode.prompt_version == prompt_version("Be kind.")


def test_a_method_of_a_model_is_completed_too():
    assert run([None], model="m", policy_id="m/react").policy_id == f"m/react#prompt:{PROMPT}"


@pytest.mark.parametrize("name", ["human", "human:ann", "script:gold", "prod-v3"])
def test_people_scripts_and_policies_with_a_name_keep_it(name):
    model = "m" if name.startswith("prod") else None
    assert run(["m"], model=model, policy_id=name, temperature=0.5).policy_id == name


def test_a_step_of_another_model_is_of_another_policy():
    """An alias of the model (the request's name for it) is no other model."""
    episode = run(["m-2025", None, "n-2025", "m-2025"], model="m", policy_id="m", temperature=0.5)
    assert episode.policy_id == f"m@t=0.5#prompt:{PROMPT}"
    other = f"n-2025@t=0.5#prompt:{PROMPT}"
    assert [step.policy_id for step in episode.steps] == [None, None, other, None]


def test_the_logs_own_version_of_the_prompt_counts():
    episode = run(["m"], model="m", policy_id="m", prompt_version="support:7")
    assert (episode.policy_id, episode.prompt_version) == ("m#prompt:support:7", "support:7")
