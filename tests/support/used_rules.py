"""Finds, in the source code, every rule under which something is set aside or skipped, with the place of its use.

A rule is what is handed as `rule` to whatever makes a quarantine row, or as `reason` to `Skip` and `Span`. What stands
there and is no constant must be one of COMPUTED.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from logforge.connectors.agents import claude_lines
from logforge.connectors.episodes import unsupported_shapes as unsupported
from logforge.connectors.traces import genai as genai_attributes
from logforge.connectors.traces import langfuse, mlflow
from logforge.connectors.traces import openinference as openinference_attributes
from support.places import ROOT

OTHERS = {
    "logforge/learning/training/alarms.py",
    "logforge/evaluation/tuning/data_symptoms.py",
    "logforge/evaluation/verdict.py",
    "logforge/dataset/quality/transitions.py",
    "logforge/shards/array_rules.py",
    "logforge/shards/reader.py",
    "logforge/core/sql.py",
    "logforge/cli/commands.py",
    "logforge/cli/quarantine.py",
    "logforge/ingestion/quarantine.py",
    "logforge/cli/listings.py",
    "logforge/ingestion/hygiene/pipeline.py",
    "logforge/evaluation/credit/key_steps.py",
    "logforge/envs/behaviour.py",
    "logforge/report/sections/failures.py",
}
"""Modules in which `rule` and `Verdict` are something else, or name alarms, findings of a reward, faults of a user's file, rules of secrets or of schemas/transition.py."""
MAKERS = {"Refused", "Reject", "Verdict", "LeftOut", "replace", "Skip", "Span"}
POSITIONAL = {"bad_part": 2, "bad_record": 2, "lost": 2, "Verdict": 2, "Refused": 0, "LeftOut": 0, "Span": 5}
"""Callables that other modules import and that take the rule in this position."""


def _spans(kinds: frozenset[str]) -> frozenset[str]:
    return frozenset(f"{kind}_span" for kind in kinds)


HANDED_ON: frozenset[str] = frozenset()
"""The rule was named where it came from."""
COMPUTED: dict[str, frozenset[str]] = {
    "f'{kind}_line'": frozenset(f"{kind}_line" for kind in claude_lines.OTHER_LINES),
    "f'no_{inner.key}'": frozenset({"no_samples", "no_simulations"}),
    "skip_reason(operation, OPERATIONS)": _spans(genai_attributes.OPERATIONS),
    "skip_reason(began, OPERATIONS)": _spans(genai_attributes.OPERATIONS),
    "skip_reason(kind.lower(), KINDS)": _spans(openinference_attributes.KINDS),
    "skip_reason(kind.lower(), TYPES)": _spans(mlflow.TYPES),
    "skip_reason(named.lower(), TYPES, 'observation')": frozenset(f"{t}_observation" for t in langfuse.TYPES),
    "f'{what}_too_long'": frozenset({"line_too_long", "element_too_long", "document_too_long"}),
    "UNSUPPORTED": frozenset({unsupported.RULE}),
    "RULE": frozenset({unsupported.RULE}),
    "FORGOTTEN": frozenset({"forgotten"}),
    "verdict.rule": HANDED_ON,
    "jsontext.TooDeep.rule": HANDED_ON,
    "known.rule": HANDED_ON,
    "error.rule": HANDED_ON,
    "reject.rule": HANDED_ON,
    "refused.rule": HANDED_ON,
    "span.reason": HANDED_ON,
    "chosen.reason": HANDED_ON,
    "item.reason": HANDED_ON,
    "row['rule']": HANDED_ON,
}


class Use(NamedTuple):
    """A rule and where it is used. `known` is false for an expression whose value cannot be told."""

    rule: str
    place: str
    known: bool = True


@cache
def uses() -> list[Use]:
    """Every use of a rule in the connectors and in logforge itself."""
    return list(_uses())


def _uses() -> Iterator[Use]:
    for folder in ("connectors", "logforge"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if file.relative_to(ROOT).as_posix() not in OTHERS:
                yield from _of_module(file)


def _of_module(file: Path) -> Iterator[Use]:
    tree = ast.parse(file.read_text("utf-8"))
    takers = POSITIONAL | dict(_takers(tree))
    yield from (Use(rule, f"{file.relative_to(ROOT).as_posix()}") for rule in _of_classes(tree))
    for scope in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        handed_on = {a.arg for a in scope.args.args if a.arg == "rule"}
        for expression in _expressions(scope, takers, tree):
            place = f"{file.relative_to(ROOT).as_posix()}:{expression.lineno}"
            yield from (use._replace(place=place) for use in _values(expression, scope, handed_on))


def _of_classes(tree: ast.Module) -> Iterator[str]:
    """Rules that are attributes of classes (of each kind of error its own) or a module's RULE."""
    named = [("RULE", tree.body)]
    named += [("rule", node.body) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for name, body in named:
        for node in body:
            if isinstance(node, ast.Assign) and _text(node.targets[0]) == name:
                yield ast.literal_eval(node.value)


def _takers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The module's own functions that have a parameter `rule`, with its position in a call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
            if "rule" in names:
                yield node.name, names.index("rule")


def _expressions(scope: ast.FunctionDef, takers: dict[str, int], tree: ast.Module) -> Iterator[ast.expr]:
    """What stands for a rule in a function: an argument, a default, a row's value, a span's reason."""
    given = scope.args.posonlyargs + scope.args.args
    arguments = given[len(given) - len(scope.args.defaults) :]
    for argument, default in zip(arguments, scope.args.defaults, strict=True):
        if argument.arg == "rule":
            yield default
    for node in ast.walk(scope):
        if isinstance(node, ast.Call):
            yield from _argument(node, takers)
        elif isinstance(node, ast.Dict):
            yield from (v for k, v in zip(node.keys, node.values, strict=True) if _text(k) == "'rule'")
        elif isinstance(node, ast.Assign) and "span.reason" in _text(node.targets[0]):
            yield from _reasons(node, tree)


def _argument(call: ast.Call, takers: dict[str, int]) -> Iterator[ast.expr]:
    name = _text(call.func).rpartition(".")[2]
    word = "reason" if name in ("Skip", "Span") else "rule"
    named = [keyword.value for keyword in call.keywords if keyword.arg == word]
    if name in MAKERS | set(takers) and named:
        yield named[0]
    elif name in takers and takers[name] < len(call.args):
        yield call.args[takers[name]]


def _reasons(assign: ast.Assign, tree: ast.Module) -> Iterator[ast.expr]:
    """`span.reason = a`, or `span.kind, span.reason = a, b`, or the same of a function that returns such pairs."""
    if isinstance(assign.value, ast.Call):
        called = _text(assign.value.func)
        for function in (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == called):
            pairs = (n.value for n in ast.walk(function) if isinstance(n, ast.Return))
            yield from (pair.elts[1] for pair in pairs if isinstance(pair, ast.Tuple))
    else:
        yield assign.value.elts[1] if isinstance(assign.value, ast.Tuple) else assign.value


def _values(expression: ast.expr, scope: ast.AST, handed_on: set[str]) -> Iterator[Use]:
    text = _text(expression)
    if isinstance(expression, ast.Constant):
        yield from [Use(expression.value, "")] if expression.value else []
    elif isinstance(expression, ast.IfExp):
        for branch in (expression.body, expression.orelse):
            yield from _values(branch, scope, handed_on)
    elif text in COMPUTED:
        yield from (Use(rule, "") for rule in COMPUTED[text])
    elif found := _assigned(text, scope):
        for value in found:
            yield from _values(value, scope, handed_on)
    elif text not in handed_on:
        yield Use(text, "", known=False)


def _assigned(name: str, scope: ast.AST) -> Iterator[ast.expr] | list[ast.expr]:
    """What a name is set to in a function, alone or as in `a, name = x, y`."""
    found: list[ast.expr] = []
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=True) if both else [(target, value)]
            found += [given for part, given in pairs if _text(part) == name]
    return found


def _text(node: ast.AST | None) -> str:
    return ast.unparse(node) if node is not None else ""
