"""A policy as one ONNX file: the scores of all actions, the choice under a mask, and how far the behaviour supports it.

The graph is made of the bundle's weights without torch (Gemm and Relu), and runs wherever onnxruntime does.

    observations  float32 [rows, D]
    mask          bool [rows, A], or left out: every action but `<invalid>` is allowed then
    scores        float32 [rows, A], as `PolicyBundle.scores` gives them
    action        int64 [rows], as `choose` gives it; −1 where the mask allows nothing or the observation is no number
    support       float32 [rows, A], the cloned behaviour's chances, where the bundle has a clone
    template      int64 [rows], −1 where the action has none, where it has a second head
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from logforge.core import BaseReport, Lines, need, replaced_file
from logforge.learning.policies.bundle import PolicyBundle, load_policy
from logforge.learning.policies.layers import TEMPLATE, Layers
from logforge.learning.policies.side_inputs import SideInputs
from logforge.schemas import Mismatch, Vocabulary

EXTRA: Final = "export-onnx"
OPSET, IR_VERSION = 17, 9
TOLERANCE: Final = 1e-4
"""How far a score of onnxruntime may be off from the bundle's own."""


@dataclass(frozen=True)
class OnnxReport(BaseReport):
    """What was written, and how far onnxruntime's scores of the golden rows are from those of the trainer."""

    policy: str
    path: str
    inputs: dict[str, list[str | int]]
    outputs: dict[str, list[str | int]]
    golden_rows: int
    worst: float

    def lines(self) -> Lines:
        """What goes in and comes out, and how it was checked."""
        ends = {**self.inputs, **self.outputs}
        yield f"{self.policy} as ONNX: {self.path}"
        yield "  " + ", ".join(f"{name} {shape}".replace("'", "") for name, shape in ends.items())
        yield f"  checked with onnxruntime: {self.golden_rows} golden rows, scores off by at most {self.worst:.1g}"


def export_onnx(policy: str | Path, out: str | Path) -> OnnxReport:
    """Write the policy in this folder as an ONNX file, and run it: golden rows that come out otherwise raise Mismatch."""
    need("onnx", EXTRA)
    runtime = need("onnxruntime", EXTRA)
    bundle = load_policy(policy)
    data = onnx_bytes(bundle)
    settings = runtime.SessionOptions()
    settings.log_severity_level = 3  # it warns that a mask which may be left out is not folded away
    session = runtime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
    golden = np.asarray(bundle.card.golden.observations, np.float32).reshape(-1, bundle.card.observation_size)
    found = session.run(["scores"], {"observations": golden})[0]
    worst = float(np.abs(found - bundle.scores(golden)).max(initial=0.0))
    if not worst < TOLERANCE:
        remedy = "report it: onnxruntime computes these layers otherwise"
        raise Mismatch(
            "ONNX scores of the golden rows", f"within {TOLERANCE:g}", f"off by {worst:.3g}", remedy
        )
    with replaced_file(Path(out)) as fresh:
        fresh.write_bytes(data)
    shapes = (
        {item.name: item.shape for item in part} for part in (session.get_inputs(), session.get_outputs())
    )
    inputs, outputs = shapes
    inputs |= {item.name: item.shape for item in session.get_overridable_initializers()}
    return OnnxReport(bundle.card.algo, str(out), inputs, outputs, len(golden), worst)


def onnx_bytes(bundle: PolicyBundle) -> bytes:
    """The model; the same policy gives the same bytes. Its metadata tell what the numbers mean."""
    onnx = need("onnx", EXTRA)
    helper, card, graph = onnx.helper, bundle.card, _Graph(onnx)
    size, count = card.observation_size, len(card.actions)
    if bundle.side is None:
        last = graph.stack("acts", bundle.layers, "observations", "scores")
    else:
        last = _beside(graph, bundle.layers, bundle.side)
    _choice(graph, bundle)
    shapes: dict[str, tuple[int, list[str | int]]] = {
        "scores": (onnx.TensorProto.FLOAT, ["rows", count]),
        "action": (onnx.TensorProto.INT64, ["rows"]),
    }
    if bundle.behaviour:
        shapes["support"] = onnx.TensorProto.FLOAT, ["rows", count]
    if card.templates:
        graph.stack("template", bundle.extras[TEMPLATE], last, "template_scores")
        _template(graph, bundle)
        shapes["template"] = onnx.TensorProto.INT64, ["rows"]
    made = helper.make_graph(
        graph.nodes,
        f"{card.algo} of {card.dataset}",
        [
            helper.make_tensor_value_info("observations", onnx.TensorProto.FLOAT, ["rows", size]),
            helper.make_tensor_value_info("mask", onnx.TensorProto.BOOL, ["mask_rows", count]),
        ],
        [helper.make_tensor_value_info(name, *shape) for name, shape in shapes.items()],
        graph.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    helper.set_model_props(model, _about(bundle))
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _beside(graph: _Graph, layers: Layers, side: SideInputs) -> str:
    """Scores of a network over texts: what actions and policies add to the first layer is a constant [P, A, hidden]. Returns the name of
    what the last layer sees."""
    first, rest = layers[0], layers[1:]
    graph.constant("acts.w0", np.ascontiguousarray(first.weight[:, : -side.columns], np.float32))
    graph.constant("acts.b0", np.ascontiguousarray(first.bias, np.float32))
    graph.constant("acts.beside", side.first_sums(layers))
    graph.constant("acts.axes", np.array([1, 2]))
    graph.node("Gemm", ["observations", "acts.w0", "acts.b0"], "acts.seen", transB=1)
    graph.node("Unsqueeze", ["acts.seen", "acts.axes"], "acts.apart")
    found = graph.node("Add", ["acts.apart", "acts.beside"], "acts.sum0")
    for place, layer in enumerate(rest, 1):
        found = graph.node("Relu", [found], f"acts.out{place - 1}")
        graph.constant(f"acts.w{place}", np.ascontiguousarray(layer.weight.T, np.float32))
        graph.constant(f"acts.b{place}", np.ascontiguousarray(layer.bias, np.float32))
        graph.node("MatMul", [found, f"acts.w{place}"], f"acts.product{place}")
        found = graph.node("Add", [f"acts.product{place}", f"acts.b{place}"], f"acts.sum{place}")
    graph.constant("acts.last", np.array([3]))
    graph.node("Squeeze", [found, "acts.last"], "acts.by_policy")
    graph.node("ReduceMax", ["acts.by_policy"], "scores", axes=[1], keepdims=0)
    return f"acts.out{len(rest) - 1}"


def _choice(graph: _Graph, bundle: PolicyBundle) -> None:
    """`mask` and `scores` to `action`, and `support`, where the bundle tells the behaviour."""
    valid = np.ones((1, len(bundle.card.actions)), np.bool_)
    valid[0, Vocabulary(bundle.card.actions).invalid] = False
    graph.constant("mask", valid)
    graph.constant("valid", valid)
    graph.constant("never", np.float32(-np.inf))
    graph.node("And", ["mask", "valid"], "offered")
    allowed = "offered"
    if bundle.behaviour:
        graph.stack("behaviour", bundle.behaviour, "observations", "behaviour_scores")
        graph.node("Where", ["offered", "behaviour_scores", "never"], "behaviour_offered")
        graph.node("Softmax", ["behaviour_offered"], "support", axis=1)
    if bundle.card.threshold > 0:
        graph.constant("least", np.float32(np.log(bundle.card.threshold)))
        graph.node("ReduceMax", ["behaviour_offered"], "likeliest", axes=[1], keepdims=1)
        graph.node("Sub", ["behaviour_offered", "likeliest"], "behind")
        graph.node("Greater", ["behind", "least"], "likely")
        allowed = "likely"
    graph.node("Where", [allowed, "scores", "never"], "masked")
    graph.constant("none", np.array(-1))
    graph.best("masked", "action")


def _template(graph: _Graph, bundle: PolicyBundle) -> None:
    """The likeliest template of the chosen action, −1 where it has none."""
    vocabulary = Vocabulary(bundle.card.actions)
    graph.constant("owners", np.array([[vocabulary.id(item.action) for item in bundle.card.templates]]))
    graph.constant("columns", np.array([1]))
    graph.node("Unsqueeze", ["action", "columns"], "action_column")
    graph.node("Equal", ["owners", "action_column"], "fitting")
    graph.node("Where", ["fitting", "template_scores", "never"], "fitting_scores")
    graph.best("fitting_scores", "template")


class _Graph:
    """Nodes and constants as they are added."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, inputs: list[str], output: str, **settings: Any) -> str:
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, [output], name=output, **settings))
        return output

    def constant(self, name: str, value: Any) -> None:
        self.constants.append(self._onnx.numpy_helper.from_array(np.asarray(value), name))

    def best(self, scores: str, output: str) -> None:
        """The place of the highest score of each row; −1 where none is above −∞."""
        place, highest = f"{output}.best", f"{output}.highest"
        self.node("ArgMax", [scores], place, axis=1, keepdims=0)
        self.node("ReduceMax", [scores], highest, axes=[1], keepdims=0)
        self.node("Greater", [highest, "never"], f"{output}.found")
        self.node("Where", [f"{output}.found", place, "none"], output)

    def stack(self, part: str, layers: Layers, inputs: str, output: str) -> str:
        """The layers with relu between them; returns the name of what the last one sees."""
        for place, layer in enumerate(layers):
            self.constant(f"{part}.w{place}", np.ascontiguousarray(layer.weight, np.float32))
            self.constant(f"{part}.b{place}", np.ascontiguousarray(layer.bias, np.float32))
            given = [inputs, f"{part}.w{place}", f"{part}.b{place}"]
            if place == len(layers) - 1:
                self.node("Gemm", given, output, transB=1)
            else:
                self.node("Gemm", given, f"{part}.sum{place}", transB=1)
                inputs = self.node("Relu", [f"{part}.sum{place}"], f"{part}.out{place}")
        return inputs


def _about(bundle: PolicyBundle) -> Mapping[str, str]:
    card = bundle.card
    layout = [msgspec.to_builtins(part) for part in card.layout]
    templates = [msgspec.to_builtins(item) for item in card.templates]
    data = {"actions": list(card.actions), "layout": layout, "templates": templates, "files": card.files}
    plain = {"algo": card.algo, "kind": card.kind, "dataset": card.dataset, "dataset_hash": card.dataset_hash}
    numbers = {"gamma": repr(card.gamma), "support_floor": repr(card.support_floor)}
    return {**plain, **numbers, **{name: json.dumps(value) for name, value in data.items()}}
