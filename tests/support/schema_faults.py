"""Where a JSON value breaks a JSON schema, by the few words that the project's schemas use."""

from __future__ import annotations

from typing import Any

TYPES: dict[str, Any] = {
    "string": str, "object": dict, "array": list, "null": type(None), "number": (int, float), "integer": int, "boolean": bool,
}  # fmt: skip
WORDS = {
    "$ref", "$schema", "$defs", "title", "description", "default", "type", "enum", "const", "anyOf", "minLength", "properties",
    "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
}  # fmt: skip


def faults(
    value: Any, schema: dict[str, Any], whole: dict[str, Any] | None = None, at: str = "$"
) -> list[str]:
    """The places, with what is wrong there; `whole` holds the definitions that `schema` refers to."""
    whole = schema if whole is None else whole
    assert set(schema) <= WORDS, set(schema) - WORDS
    if "$ref" in schema:
        return faults(value, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole, at)
    if "anyOf" in schema:
        found = [faults(value, item, whole, at) for item in schema["anyOf"]]
        return [] if [] in found else found[0]
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or isinstance(value, bool) != (kind == "boolean")):
        return [f"{at}: no {kind}"]
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return [f"{at}: {value} is not allowed"]
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        return [f"{at}: too short"]
    if isinstance(value, list):
        kinds = schema.get("prefixItems") or [schema.get("items", {})] * len(value)
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return [f"{at}: {len(value)} items"]
        pairs = enumerate(zip(value, kinds, strict=True))
        return [fault for n, (item, kind) in pairs for fault in faults(item, kind, whole, f"{at}[{n}]")]
    return _faults_of_object(value, schema, whole, at) if isinstance(value, dict) else []


def _faults_of_object(
    value: dict[str, Any], schema: dict[str, Any], whole: dict[str, Any], at: str
) -> list[str]:
    found = [f"{at}.{name}: missing" for name in schema.get("required", []) if name not in value]
    known, other = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, item in value.items():
        inner = known.get(name, other)
        found += [f"{at}.{name}: unknown"] if inner is False else faults(item, inner, whole, f"{at}.{name}")
    return found
