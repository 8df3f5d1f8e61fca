"""A policy as a file: networks, bundle, card, decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.learning.policies.bundle import CARD, Decision, PolicyBundle, load_policy, served_files
    from logforge.learning.policies.card import Golden, PolicyCard, Range, ScoreKind, features_of
    from logforge.learning.policies.description import about
    from logforge.learning.policies.layers import FISHER, TEMPLATE, Layer, Layers
    from logforge.learning.policies.networks import (
        Network,
        forward,
        linear,
        make_network,
        member_layers,
        stacked,
        trunk,
    )
    from logforge.learning.policies.new_actions import with_actions
    from logforge.learning.policies.onnx import export_onnx
    from logforge.learning.policies.runs import (
        BC,
        BC_SUCCESS,
        METRICS_FILE,
        RUN_FILE,
        RUN_VERSION,
        read_run,
        run_data,
    )
    from logforge.learning.policies.side_inputs import SideInputs, check_vectors
    from logforge.learning.policies.typical_behaviour import entropies, habits_of, playable

__all__ = [
    "BC", "BC_SUCCESS", "CARD", "FISHER", "METRICS_FILE", "RUN_FILE", "RUN_VERSION", "TEMPLATE",
    "Decision", "Golden", "Layer", "Layers", "Network", "PolicyBundle", "PolicyCard", "Range",
    "ScoreKind", "SideInputs", "about", "check_vectors", "entropies", "export_onnx", "features_of",
    "forward", "habits_of", "linear", "load_policy", "make_network", "member_layers", "playable",
    "read_run", "run_data", "served_files", "stacked", "trunk", "with_actions",
]  # fmt: skip

face(
    __name__,
    bundle="CARD Decision PolicyBundle load_policy served_files",
    card="Golden PolicyCard Range ScoreKind features_of",
    description="about",
    layers="FISHER Layer Layers TEMPLATE",
    networks="Network forward linear make_network member_layers stacked trunk",
    new_actions="with_actions",
    onnx="export_onnx",
    runs="BC BC_SUCCESS METRICS_FILE RUN_FILE RUN_VERSION read_run run_data",
    side_inputs="SideInputs check_vectors",
    typical_behaviour="entropies habits_of playable",
)
