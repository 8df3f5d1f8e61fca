"""SQL expressions from people: parsed, held against an allow-list, and written anew from the parsed tree.

What is emitted differs from plain SQL where plain SQL would hide a missing value: an unknown CASE condition makes
the CASE null instead of taking ELSE, least and greatest are null when one operand is, and `->>` on a text that is
no JSON is null instead of an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from logforge.schemas import COLUMNS, Problem, SpecError, UnknownName

MAX_DEPTH = 30
"""How deep an expression may nest; a chain of ANDs or of ORs counts once."""
MAX_CASES = 5
"""How deep CASE may nest: the engine copies a condition once per branch."""
MAX_BRANCHES = 50
"""How many WHEN a CASE may have: they are emitted within each other."""
MAX_LENGTH = 50_000
"""Characters of an expression."""
MAX_SHARED = 10_000
"""Characters of the shared expressions in it, written out: names that double each other would grow without end."""

_SQL_KINDS = {"VARCHAR": "text", "BOOLEAN": "boolean"}
_COLUMN_KINDS = {column.name: _SQL_KINDS.get(column.type, "number") for column in COLUMNS}

CASTS = {
    exp.DataType.Type.BOOLEAN: "boolean",
    exp.DataType.Type.INT: "number",
    exp.DataType.Type.BIGINT: "number",
    exp.DataType.Type.DOUBLE: "number",
    exp.DataType.Type.VARCHAR: "text",
    exp.DataType.Type.TEXT: "text",
}
"""The types that a CAST may name, each with the kind of its values."""

_KINDS: dict[str, tuple[type[exp.Expression], ...]] = {
    "boolean": (
        exp.Boolean, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.In,
        exp.Between, exp.Like, exp.ILike, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Contains, exp.StartsWith, exp.EndsWith,
        exp.RegexpLike, exp.RegexpFullMatch,
    ),
    "number": (
        exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Pow, exp.Abs, exp.Ln, exp.Exp, exp.Sqrt,
        exp.Round, exp.Floor, exp.Ceil, exp.Sign, exp.Length, exp.StrPosition,
    ),
    "text": (
        exp.Lower, exp.Upper, exp.Trim, exp.Replace, exp.Substring, exp.SplitPart, exp.DPipe, exp.JSONExtractScalar,
    ),
    "": (
        exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Paren, exp.Case, exp.If, exp.Coalesce, exp.Nullif,
        exp.Least, exp.Greatest, exp.Cast, exp.TryCast, exp.DataType, exp.JSONPath, exp.JSONPathRoot, exp.JSONPathKey,
        exp.JSONPathSubscript,
    ),
}  # fmt: skip
ALLOWED: dict[type[exp.Expression], str] = {node: kind for kind, nodes in _KINDS.items() for node in nodes}
"""Every node type an expression may hold, and the kind of its value where the type alone tells."""

FUNCTIONS = (
    "abs, ceil, coalesce, contains, ends_with, exp, floor, greatest, if, json_extract_string, least, length, ln, lower, "
    "nullif, power, regexp_full_match, regexp_matches, replace, round, sign, split_part, sqrt, starts_with, strpos, "
    "substring, trim, upper"
)
"""The functions an expression may call, for errors and docs."""


@dataclass(frozen=True, eq=False)
class Language:
    """What the expressions of one purpose may hold: columns, node types and casts, each with the kind of its value (`text`,
    `number`, `boolean`, `time`, or "" where that is not known), and the names of functions and casts for errors."""

    columns: Mapping[str, str]
    nodes: Mapping[type[exp.Expression], str]
    casts: Mapping[exp.DataType.Type, str]
    functions: str = FUNCTIONS
    cast_names: str = "BOOLEAN, INT, BIGINT, DOUBLE, VARCHAR"


REWARDS = Language(_COLUMN_KINDS, ALLOWED, CASTS)
"""The expressions of reward specs."""

_COMPARED = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.In,
    exp.Between,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
)
_PATTERNS = (exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpFullMatch)
_OPERATORS = tuple(
    node
    for node in ALLOWED
    if issubclass(node, exp.Binary | exp.Unary | exp.Between | exp.In)
    # sqlglot counts AND and OR among the functions
    and (not issubclass(node, exp.Func | exp.Paren) or node in (exp.And, exp.Or))
)


class Expression(NamedTuple):
    """A safe expression: its canonical text, the SQL that runs, the columns it reads, its value if it is a mere number."""

    text: str
    sql: str
    columns: tuple[str, ...]
    number: float | None


def text_literal(text: str) -> str:
    """A text as an SQL constant."""
    return str(exp.Literal.string(text).sql(dialect="duckdb"))


@lru_cache(maxsize=512)
def parse(text: str, names: tuple[tuple[str, str], ...] = (), language: Language = REWARDS) -> Expression:
    """The safe expression of a text. `names` are shared expressions it may use, each in its canonical text.

    Raises SpecError, listing everything in it that is not allowed.
    """
    try:
        tree = _expanded(_tree(text), dict(names))
        found = list(dict.fromkeys(_problems(tree, language)))
        if not found:
            columns = {column.name.lower() for column in tree.find_all(exp.Column)}
            bare = _rewritten(tree, _bare)
            text, sql = _emit(bare), _emit(_rewritten(bare.copy(), _guarded))
            return Expression(text, sql, tuple(sorted(columns)), _number(bare))
    except RecursionError:
        found = ["nested too deeply"]
    raise SpecError([Problem(what) for what in found])


def _tree(text: str) -> Any:
    if len(text) > MAX_LENGTH:
        raise SpecError([Problem(f"longer than {MAX_LENGTH:,} characters")])
    # sqlglot warns on stderr about each statement it does not know; here those are refused
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        refused = [
            token.text for token in sqlglot.tokenize(text, read="duckdb") if token.text in (";", "~", "!~")
        ]
        if refused:
            what = (
                "`;`: an expression, not statements"
                if ";" in refused
                else "`~`: write regexp_full_match(text, 'pattern')"
            )
            raise SpecError([Problem(what)])
        return sqlglot.parse_one(text, read="duckdb")
    except SqlglotError as error:
        listed = getattr(error, "errors", None)
        what = listed[0]["description"] if listed else str(error).splitlines()[0]
        raise SpecError([Problem(f"not an SQL expression: {what[:120].rstrip('.')}")]) from None


def _expanded(tree: Any, names: dict[str, str]) -> Any:
    """The tree with every shared expression in the place of its name."""
    used = [names.get(column.name.lower(), "") for column in tree.find_all(exp.Column)] if names else []
    if sum(map(len, used)) > MAX_SHARED:
        raise SpecError(
            [Problem(f"its shared expressions, written out, are longer than {MAX_SHARED:,} characters")]
        )

    def named(node: Any) -> Any:
        plain = isinstance(node, exp.Column) and len(node.parts) == 1 and node.name.lower() in names
        return exp.Paren(this=_tree(names[node.name.lower()])) if plain else node

    return _rewritten(tree, named) if names else tree


def _problems(tree: Any, language: Language) -> Iterator[str]:
    if _is_deep(tree):
        yield "nested too deeply"
        return
    strangers = [problem for node in tree.walk() for problem in _stranger(node, language)]
    yield from strangers
    for node in () if strangers else tree.walk():
        yield from _form_problems(node, language)
        yield from _kind_problems(node, language)


def _stranger(node: Any, language: Language) -> Iterator[str]:
    if type(node) not in language.nodes:
        yield _refusal(node, language)
    elif isinstance(node, exp.Column):
        yield from _column_problems(node, language)


def _refusal(node: Any, language: Language) -> str:
    if isinstance(node, exp.Anonymous):
        return str(UnknownName("function", node.name.lower(), language.functions.split(", ")))
    if isinstance(node, exp.JSONExtract):
        return "`->` and json_extract are not allowed: use `->>`, which gives text"
    if isinstance(node, exp.Func):
        return f"function {node.sql_name().lower()} is not allowed. valid: {language.functions}"
    name = type(node).__name__
    return f"{name} is not allowed: an expression holds columns, constants, operators, CASE, CAST and listed functions"


def _column_problems(node: Any, language: Language) -> Iterator[str]:
    if len(node.parts) > 1:
        yield f"{node.sql(dialect='duckdb')}: write a column without a table"
    elif not isinstance(node.this, exp.Identifier) or node.name.lower() not in language.columns:
        yield str(UnknownName("column", node.name, list(language.columns)))


def _form_problems(node: Any, language: Language) -> Iterator[str]:
    if isinstance(node, _PATTERNS) and not _is_text(node.expression):
        yield "a pattern must be a constant text"
    if isinstance(node, exp.In) and not node.expressions:
        yield "IN needs a list in parentheses"
    if isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null | exp.Boolean):
        yield "IS takes NULL, TRUE or FALSE"
    if isinstance(node, exp.Cast) and (node.to.this not in language.casts or node.to.expressions):
        yield f"CAST to {node.to.sql(dialect='duckdb')} is not allowed. valid: {language.cast_names}"
    if isinstance(node, exp.JSONExtractScalar):
        if not isinstance(node.this, exp.Column):
            yield "`->>` takes a column on its left"
        if not isinstance(node.expression, exp.JSONPath) and not _is_text(node.expression):
            yield "`->>` takes a constant path on its right"
    if isinstance(node, exp.Replace) and not _shrinks(node):
        yield "replace takes constant texts, the new one no longer than the old one"
    if isinstance(node, exp.Case | exp.If) and _case_depth(node) > MAX_CASES:
        yield f"CASE nests deeper than {MAX_CASES}"
    if isinstance(node, exp.Case) and len(node.args["ifs"]) > MAX_BRANCHES:
        yield f"CASE has more than {MAX_BRANCHES} branches"


def _kind_problems(node: Any, language: Language) -> Iterator[str]:
    """Text compared with a number binds in DuckDB and fails, or not, on the first row: found here instead."""
    if isinstance(node, _COMPARED):
        operands = [child for child in node.iter_expressions() if not isinstance(child, exp.Null)]
        kinds = {kind_of(child, language) for child in operands} - {""}
        for odd, name in (("text", "text"), ("time", "a time")):
            if odd in kinds and len(kinds) > 1:
                shown = node.sql(dialect="duckdb", comments=False)
                hint = ": write TIMESTAMP '2026-01-31 08:00:00'" if "time" in kinds else ""
                yield f"{shown}: compares {name} with a {min(kinds - {odd})}{hint}"
                break
    for condition in _conditions(node):
        kind = kind_of(condition, language)
        if kind not in ("", "boolean"):
            shown = condition.sql(dialect="duckdb", comments=False)
            yield f"{shown}: a {kind} where a truth value is needed"


def _conditions(node: Any) -> list[Any]:
    if isinstance(node, exp.And | exp.Or):
        return [node.left, node.right]
    if isinstance(node, exp.Not):
        return [node.this]
    if isinstance(node, exp.If):
        simple = isinstance(node.parent, exp.Case) and node.parent.this
        return [] if simple else [node.this]
    return []


def kind_of(node: Any, language: Language) -> str:
    """The kind of a node's value, "" where that is not known."""
    if isinstance(node, exp.Column):
        return language.columns[node.name.lower()]
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "number"
    if isinstance(node, exp.Cast):
        return language.casts[node.to.this]
    if isinstance(node, exp.Paren | exp.Coalesce | exp.Nullif | exp.Least | exp.Greatest):
        return kind_of(node.this, language)
    return language.nodes[type(node)]


def _is_text(node: Any) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _shrinks(node: Any) -> bool:
    """Nested replacements that lengthen a text multiply, and the engine has no limit for texts."""
    old, new = node.expression, node.args.get("replacement")
    return _is_text(old) and _is_text(new) and len(new.this.encode()) <= len(old.this.encode())


def _case_depth(node: Any) -> int:
    depth, parent = 1, node.parent
    while parent is not None:
        within = isinstance(parent, exp.Case | exp.If) and not (
            isinstance(parent, exp.If) and isinstance(parent.parent, exp.Case)
        )
        depth, parent = depth + within, parent.parent
    return depth


def _is_deep(tree: Any) -> bool:
    depths: dict[int, int] = {}
    for node in tree.walk():  # parents come before their children
        depths[id(node)] = depths.get(id(node.parent), 0) + (not _chained(node))
    return max(depths.values()) > MAX_DEPTH


def _chained(node: Any) -> bool:
    return isinstance(node, exp.And | exp.Or) and type(node.parent) is type(node)


def _number(tree: Any) -> float | None:
    sign, inner = (-1.0, tree.this) if isinstance(tree, exp.Neg) else (1.0, tree)
    return sign * float(inner.this) if isinstance(inner, exp.Literal) and not inner.is_string else None


def _emit(tree: Any) -> str:
    """One spelling for one meaning, independent of the engine's operator precedence."""
    return str(_rewritten(tree.copy(), _delimited).sql(dialect="duckdb", comments=False))


def _rewritten(tree: Any, rule: Callable[[Any], Any]) -> Any:
    """The tree with each node replaced by what the rule makes of it, children first."""
    for node in reversed(list(tree.walk())):
        new = rule(node)
        if new is node:
            continue
        if node is tree:
            return new
        node.replace(new)
    return tree


def _bare(node: Any) -> Any:
    if isinstance(node, exp.Paren):
        return node.this.copy()
    if isinstance(node, exp.Column):
        return exp.column(node.name.lower())
    if (
        isinstance(node, exp.Literal)
        and not node.is_string
        and "." in node.this
        and "e" not in node.this.lower()
    ):
        return exp.Literal.number(
            f"{node.this}e0"
        )  # a DOUBLE; DuckDB reads 0.1 as a DECIMAL, which can overflow
    return node


def _guarded(node: Any) -> Any:
    if isinstance(node, exp.JSONExtractScalar):
        path = exp.Literal.string(_path(node.expression))
        text = exp.Anonymous(this="json_extract_string", expressions=[node.this.copy(), path])
        return exp.Case(
            ifs=[exp.If(this=exp.Anonymous(this="json_valid", expressions=[node.this.copy()]), true=text)]
        )
    if isinstance(node, exp.Least | exp.Greatest):
        order = "ASC" if isinstance(node, exp.Least) else "DESC"
        operands = exp.Array(expressions=[child.copy() for child in (node.this, *node.expressions)])
        words = [exp.Literal.string(order), exp.Literal.string("NULLS FIRST")]
        ranked = exp.Anonymous(this="list_sort", expressions=[operands, *words])
        return exp.Anonymous(this="list_extract", expressions=[ranked, exp.Literal.number(1)])
    if isinstance(node, exp.Case):
        return _known_case(node)
    if isinstance(node, exp.If) and not isinstance(node.parent, exp.Case):
        return _branch(node.this, node.args["true"], node.args.get("false"))
    return node


def _path(node: Any) -> str:
    """The text of a JSON path, quotes of the SQL literal removed."""
    if isinstance(node, exp.Literal):
        return str(node.this)
    return str(node.sql(dialect="duckdb"))[1:-1].replace("''", "'")


def _known_case(node: Any) -> Any:
    rest = node.args.get("default")
    for branch in reversed(node.args["ifs"]):
        condition = exp.EQ(this=node.this.copy(), expression=branch.this.copy()) if node.this else branch.this
        rest = _branch(condition, branch.args["true"], rest)
    return rest


def _branch(condition: Any, then: Any, otherwise: Any) -> Any:
    """CASE that is null when its condition is: neither WHEN matches."""
    ifs = [exp.If(this=exp.true(), true=then.copy())]
    if otherwise is not None:
        ifs.append(exp.If(this=exp.false(), true=otherwise.copy()))
    return exp.Case(this=condition.copy(), ifs=ifs)


def _delimited(node: Any) -> Any:
    """Parentheses around an operator within another, so that no precedence is left to be read differently."""
    if type(node) not in _OPERATORS or type(node.parent) not in _OPERATORS or _chained(node):
        return node
    return exp.Paren(this=node.copy())


def sandbox() -> duckdb.DuckDBPyConnection:
    """A locked engine. The lock is instance-wide, so it never is the store's."""
    con = duckdb.connect()
    con.execute("SET error_on_division_by_zero = false")
    con.execute("SET enable_external_access = false; SET lock_configuration = true")
    return con


def first_line(error: duckdb.Error) -> str:
    """What the engine says, in one line."""
    return str(error).splitlines()[0].strip()
