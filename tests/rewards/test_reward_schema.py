"""The JSON schema for editors: what it takes and refuses, by a small reading of the words it uses."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest
import yaml

from logforge.cli.project import init_project
from logforge.rewards.pipeline import load_spec
from logforge.schemas.reward import RewardSpec
from support.places import ROOT, SAMPLES

SCHEMA = json.loads(files("logforge.templates").joinpath("reward.schema.json").read_text("utf-8"))
EXAMPLES = [
    *sorted((ROOT / "logforge" / "templates" / "rewards").glob("*.yaml")), SAMPLES / "reward.yaml",
    ROOT / "logforge" / "templates" / "reward.yaml",
]  # fmt: skip
TYPES = {
    "string": str, "boolean": bool, "object": dict, "array": list, "null": type(None), "number": (int, float), "integer": int,
}  # fmt: skip


def wrong(value, schema, at=""):
    """Where a value breaks a schema; nothing where it fits."""
    if "$ref" in schema:
        return wrong(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], at)
    if "anyOf" in schema:
        found = [wrong(value, item, at) for item in schema["anyOf"]]
        return [] if [] in found else found[0]
    kind = schema.get("type")
    if kind and (
        not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind in ("number", "integer"))
    ):
        return [f"{at}: no {kind}"]
    broken = [] if value in schema.get("enum", [value]) else [f"{at}: not listed"]
    if kind in ("number", "integer"):
        limits = [("minimum", 0), ("maximum", 0), ("exclusiveMinimum", 1), ("exclusiveMaximum", 1)]
        for word, strict in limits:
            sign = 1 if "inimum" in word else -1
            if word in schema and sign * (value - schema[word]) < (1e-300 if strict else 0):
                broken.append(f"{at}: {word}")
    if kind == "array":
        broken += [
            fault
            for n, item in enumerate(value)
            for fault in wrong(item, schema.get("items", {}), f"{at}.{n}")
        ]
    return broken + (_wrong_object(value, schema, at) if kind == "object" else [])


def _wrong_object(value, schema, at):
    broken = [f"{at}: {name} is missing" for name in schema.get("required", []) if name not in value]
    patterns = schema.get("patternProperties", {})
    for name, item in value.items():
        inner = schema.get("properties", {}).get(name)
        inner = (
            inner if inner is not None else next((s for p, s in patterns.items() if re.search(p, name)), None)
        )
        if inner is not None:
            broken += wrong(item, inner, f"{at}.{name}")
        elif schema.get("additionalProperties") is False:
            broken.append(f"{at}.{name}: unknown")
    return broken


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_fits(path):
    load_spec(path)
    assert wrong(yaml.safe_load(path.read_text("utf-8")), SCHEMA) == []


@pytest.mark.parametrize(
    "text",
    [
        "terms: {a: {value: 1}}", "gamma: 0", "gamma: 1.5", "gamma: x", "gamma: 1\nterm: {}", "gamma: 1\nterms: {A: {}}",
        "gamma: 1\nterms: {a: {valeu: 1}}", "gamma: 1\nterms: {a: {at: never}}", "gamma: 1\nterms: {a: {max_per_episode: 0}}",
        "gamma: 1\nterms: {a: {once: 1}}", "gamma: 1\nterms: {a: {diminishing: 1}}", "gamma: 1\nlayers: {a: {weight: 1}}",
        "gamma: 1\nlayers: {a: {weight: 1, terms: {b: {}}, normalise: x}}", "gamma: 1\ndetectors: {loop: {calls: 1}}",
        "gamma: 1\ndetectors: {came_back: {within_s: x}}", "gamma: 1\nlet: {B: a}", "gamma: 1\nterms: {a: {weight: 0}}",
    ],
)  # fmt: skip
def test_what_the_model_refuses_the_schema_refuses(text):
    data = yaml.safe_load(text)
    assert wrong(data, SCHEMA)
    with pytest.raises(ValueError, match="validation error"):
        RewardSpec.model_validate(data)


def test_every_word_is_described():
    models = [SCHEMA, *SCHEMA["$defs"].values()]
    words = [(name, item) for model in models for name, item in model.get("properties", {}).items()]
    assert len(words) > 25
    assert [name for name, item in words if not item.get("description")] == []


def test_a_new_project_names_a_schema_that_lies_beside_it(tmp_path):
    init_project(tmp_path)
    first = (tmp_path / "reward.yaml").read_text("utf-8").splitlines()[0]
    name = first.removeprefix("# yaml-language-server: $schema=")
    assert json.loads((tmp_path / name).read_text("utf-8")) == SCHEMA
