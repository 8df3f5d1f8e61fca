"""Simulators with a known truth: `it-ops` and `support-escalation`.

`make` gives a world, `evaluate_policy` what a policy is worth in it, `solve` exact values and credit, `branches` the same by
sampling,
`gym_env` and `vector_env` the Gymnasium interface, `simulate` raw logs. docs/simulators.md tells what they are.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from logforge.envs.it_ops import ItOps
from logforge.envs.support import Support
from logforge.envs.world import Difficulty, World
from logforge.schemas import UnknownName

WORLDS: dict[str, type[World]] = {world.name: world for world in (ItOps, Support)}
"""The simulators by name."""


def make(name: str, **knobs: Any) -> World:
    """A simulator by its name; `knobs` are fields of Difficulty that differ from the world's usual ones."""
    if name not in WORLDS:
        raise UnknownName("simulator", name, list(WORLDS))
    known = [field.name for field in fields(Difficulty)]
    for knob in knobs:
        if knob not in known:
            raise UnknownName("difficulty", knob, known)
    world = WORLDS[name]
    return world(replace(world.usual, **knobs))
