"""The mapping that reads an unknown shape best: every place is drafted, every draft is tried on the sample."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from logforge.connectors.records import BUILT_IN
from logforge.inspecting.calls import find_calls
from logforge.inspecting.drafts import Draft, drafts_of
from logforge.inspecting.mapping_text import doubts_of, mapping_text
from logforge.inspecting.places import Place, find_places
from logforge.inspecting.proof import Proof, prove
from logforge.inspecting.routes import Route, as_path
from logforge.inspecting.samples import Sample
from logforge.inspecting.speech import has_sentence
from logforge.schemas import SpecError


@dataclass(frozen=True)
class Inferred:
    """A mapping, what it made of the sample, and what is unsure about it."""

    text: str
    proof: Proof
    doubts: tuple[str, ...]


def infer(sample: Sample) -> Inferred | None:
    """The mapping that reads most of a sample; None when no draft reads a talk out of it."""
    name = name_for(sample.label)
    best: tuple[float, Draft, Proof, Place] | None = None
    places = find_places(sample.documents)
    tried: set[str] = set()
    for place in places:
        for draft in drafts_of(place):
            text = mapping_text(draft, name, sample.label)
            if text in tried:
                continue
            tried.add(text)
            try:
                proof = prove(text, sample)
            except SpecError:
                continue
            score = proof.score - 0.02 * len(doubts_of(draft))
            if proof.holds and (best is None or score > best[0] + 1e-9):
                best = score, draft, proof, place
    if best is None:
        return None
    _, draft, proof, place = best
    draft = _warned(draft, proof, _left_places(place, places))
    return Inferred(mapping_text(draft, name, sample.label), proof, tuple(doubts_of(draft)))


def _left_places(chosen: Place, places: list[Place]) -> list[str]:
    """Other lists of the file that hold sentences or calls: nothing of them is read."""
    left = [
        place.route
        for place in places
        if not _is_within(place.route, chosen.route)
        and not _is_within(chosen.route, place.route)
        and (any(map(has_sentence, place.units.flats)) or find_calls(place.units))
    ]
    outer = [route for route in left if not any(route != one and _is_within(route, one) for one in left)]
    return [f"nothing of {as_path(route)} is read" for route in outer[:3]]


def _is_within(route: Route, outer: Route) -> bool:
    return route[: len(outer)] == outer


def _warned(draft: Draft, proof: Proof, left: list[str]) -> Draft:
    """What the trial says against the draft becomes part of its doubts, and what was left."""
    doubts = [*draft.doubts, *left]
    if proof.repeated > 0.3:
        doubts.append(
            "many conversations repeat what earlier ones said at the same place: are they requests with the talk so far?"
        )
    for rule, count in proof.aside.items():
        doubts.append(f"{count} parts or records of the sample are set aside ({rule})")
    if proof.empty:
        doubts.append(f"{proof.empty} records of the sample hold no message: are they of another kind?")
    if proof.silent:
        doubts.append(f"{proof.silent} messages of the agent say nothing and call nothing: what do they do?")
    if proof.in_text > 0.2 * proof.messages.get("assistant", 0):
        doubts.append(
            f"{proof.in_text} messages of the agent look as if they held calls in their text; they are read as words"
        )
    if proof.words < 0.8:
        doubts.append(f"only {proof.words:.0%} of the words in the sample are read")
    if proof.calls and proof.answered < 0.5 * proof.calls:
        doubts.append(f"only {proof.answered} of {proof.calls} calls have a result")
    return Draft(draft.records, draft.episode, draft.messages, draft.time_unit, tuple(doubts))


def name_for(label: str) -> str:
    """A format's name after the file's."""
    words = re.findall(r"[a-z0-9]+", PurePath(label.replace("!", "/")).name.lower().partition(".")[0])
    name = "_".join(words)[:40] or "mine"
    return f"my_{name}" if name in BUILT_IN or name[0].isdigit() else name
