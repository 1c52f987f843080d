"""Random queries and streams for Hypothesis.

Event types A, B, C; attributes x (integer, often NULL), s (string, often NULL), t (integer time with
ties, never NULL) and k (partition key, sometimes NULL). Formulas take variable names from a small
set, so that names are shared between parts of a formula and with event types.
"""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from ceql.syntax import ast
from ceql.syntax.ast import Consumption, Strategy
from ceql.syntax.parser import parse

SCHEMA = pa.schema([("type", pa.string()), ("x", pa.int64()), ("s", pa.string()), ("t", pa.int64()), ("k", pa.int64())])
TYPES = ("A", "B", "C")
VARIABLES = ("u", "v", "w", "A")

Draw = Any

FUZZ = int(os.environ.get("CEQL_FUZZ", "0"))
"""Without it the same cases run every time, so that a run tells of the change before it and not of
chance; with it, new ones, and so many times more."""


def some(n_examples: int) -> settings:
    """Return settings for tests whose cases take longer than most."""
    return settings(max_examples=n_examples * max(1, FUZZ))


def _name(text: str) -> ast.Name:
    return ast.Name(text)


numbers = st.sampled_from([0, 1, 2, 3])
words = st.sampled_from(["", "p", "pq", "é"])


@st.composite
def events(draw: Draw, max_size: int = 7) -> list[dict[str, Any]]:
    """Return a stream, ordered by t."""
    n_events = draw(st.sampled_from([max_size, max_size - 1, max_size - 2, 3, 2, 1, 0]))
    time = 0
    stream = []
    for _ in range(n_events):
        time += draw(st.sampled_from([0, 0, 1, 1, 2]))
        stream.append(
            {
                "type": draw(st.sampled_from("AAABBC")),
                "x": draw(st.none() | numbers),
                "s": draw(st.none() | words),
                "t": time,
                "k": draw(st.sampled_from([0, 0, 0, 0, 1, 1, None])),
            }
        )
    return stream


attributes = st.sampled_from(["x", "s", "t"]).map(lambda name: ast.Attribute(_name(name)))
integer_attributes = st.sampled_from(["x", "t"]).map(lambda name: ast.Attribute(_name(name)))
integer_constants = st.sampled_from([-1, 0, 1, 2, 3]).map(ast.Constant)
number_constants = integer_constants | st.sampled_from([Decimal("1.5"), Decimal("0.0"), None]).map(ast.Constant)
string_constants = words.map(ast.Constant)


@st.composite
def integers(draw: Draw) -> ast.Predicate:
    """Return an integer expression over one event."""
    choice = draw(st.integers(0, 3))
    if choice <= 1:
        return draw(integer_attributes)
    if choice == 2:
        return ast.Negative(draw(integer_attributes))
    operators = draw(st.sampled_from([("+",), ("-",), ("*",), ("%",), ("/",), ("+", "-"), ("*", "%")]))
    operands = [draw(integer_attributes | integer_constants) for _ in range(len(operators) + 1)]
    return ast.Arithmetic(tuple(operands), operators)


@st.composite
def comparisons(draw: Draw) -> ast.Predicate:
    """Return a predicate without AND, OR and NOT."""
    is_negated = draw(st.booleans())
    string = ast.Attribute(_name("s"))
    match draw(st.integers(0, 7)):
        case 0:
            return ast.InSet(
                draw(integers()), tuple(draw(st.lists(number_constants, min_size=1, max_size=3))), is_negated
            )
        case 1:
            return ast.InRange(draw(integers()), draw(integer_constants), draw(integer_constants), is_negated)
        case 2:
            return ast.Between(draw(integers()), draw(integers()), draw(number_constants), is_negated)
        case 3:
            pattern = draw(st.sampled_from(["p%", "_", "%", "", "%q", "é"]))
            return ast.Like(string, ast.Constant(pattern), is_regex=False, is_negated=is_negated)
        case 4:
            pattern = draw(st.sampled_from(["^p", "q$", "", "[pé]", "p?q", "^$"]))
            return ast.Like(string, ast.Constant(pattern), is_regex=True, is_negated=is_negated)
        case 5:
            return ast.IsNull(draw(attributes), is_negated)
        case 6:
            return ast.Compare(string, draw(st.sampled_from(["=", "!=", "<", ">="])), draw(string_constants))
    operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    return ast.Compare(draw(integers()), operator, draw(number_constants | integers()))


MILD = [
    parse(f"SELECT * FROM S WHERE A FILTER A[{text}]").formula.condition.predicate  # type: ignore[attr-defined]
    for text in ("x < 3", "x IS NULL OR x > 0", "s IS NULL OR s != 'é'", "x <> 1 OR t >= 0", "t > 0")
]
"""Predicates that most events satisfy, so that filtered formulas still match."""


@st.composite
def predicates(draw: Draw, depth: int = 2) -> ast.Predicate:
    """Return what may stand between the brackets of a condition."""
    choice = draw(st.integers(0, 6)) if depth else 6
    if choice == 0:
        return ast.Not(draw(predicates(depth - 1)))
    if choice in (1, 2):
        node = ast.AllPredicates if choice == 1 else ast.AnyPredicate
        return node(tuple(draw(st.lists(predicates(depth - 1), min_size=2, max_size=3))))
    return draw(st.sampled_from(MILD) | comparisons())


def bound_variables(formula: ast.Formula) -> frozenset[str]:
    """Return the variables that a formula can bind."""
    match formula:
        case ast.Atom():
            return frozenset({formula.event_type.text})
        case ast.As():
            return bound_variables(formula.formula) | {formula.variable.text}
        case ast.Project():
            return bound_variables(formula.formula) & {name.text for name in formula.variables}
        case ast.Sequence() | ast.Or():
            return frozenset().union(*(bound_variables(part) for part in formula.parts))
        case ast.Filter() | ast.Iteration():
            return bound_variables(formula.formula)
    raise AssertionError(formula)


@st.composite
def conditions(draw: Draw, variables: list[str], depth: int = 2) -> ast.Condition:
    """Return a FILTER's conditions on some variables."""
    choice = draw(st.integers(0, 4)) if depth else 4
    if choice in (0, 1):
        node = ast.AllConditions if choice == 0 else ast.AnyCondition
        return node(tuple(draw(st.lists(conditions(variables, depth - 1), min_size=2, max_size=2))))
    return ast.VariableCondition(_name(draw(st.sampled_from(variables))), draw(predicates()))


@st.composite
def formulas(draw: Draw, depth: int = 5, n_atoms: int | None = None) -> ast.Formula:
    """Return a formula with every operator, nested up to a depth.

    The number of atoms is drawn first: a stream of seven events must be able to match them.
    """
    if n_atoms is None:
        n_atoms = draw(st.sampled_from([3, 2, 4, 1, 5]))
    if n_atoms > 1 and depth > 1 and (depth <= 3 or draw(st.booleans())):
        n_left = draw(st.integers(1, n_atoms - 1))
        parts = (draw(formulas(depth - 1, n_left)), draw(formulas(depth - 1, n_atoms - n_left)))
        if draw(st.sampled_from([True, True, False])):
            return ast.Sequence(parts, (draw(st.sampled_from([True, True, False])),))
        return ast.Or(parts)
    choice = draw(st.sampled_from(["atom", "as", "+", ":+", "filter", "project", "as", "+"])) if depth else "atom"
    if choice == "atom" and (n_atoms == 1 or depth <= 1):
        return ast.Atom(_name(draw(st.sampled_from("AAABBC"))))
    formula = draw(formulas(depth - 1, n_atoms))
    variables = sorted(bound_variables(formula))
    match choice:
        case "+" | ":+":
            return ast.Iteration(formula, is_contiguous=choice == ":+")
        case "project":
            dropped = draw(st.lists(st.sampled_from(variables), unique=True, max_size=2)) if variables else []
            return ast.Project(formula, tuple(_name(name) for name in variables if name not in dropped))
        case "filter" if variables:
            return ast.Filter(formula, draw(conditions(variables)))
    return ast.As(formula, _name(draw(st.sampled_from(VARIABLES))))


@st.composite
def rich_formulas(draw: Draw, n_atoms: int) -> ast.Formula:
    """Return a formula without conditions that finds many overlapping matches: what strategies choose from."""
    if n_atoms > 1:
        n_left = draw(st.integers(1, n_atoms - 1))
        parts = (draw(rich_formulas(n_left)), draw(rich_formulas(n_atoms - n_left)))
        is_sequence = draw(st.sampled_from([True, True, False]))
        may_skip = draw(st.sampled_from([True, True, True, False]))
        formula: ast.Formula = ast.Sequence(parts, (may_skip,)) if is_sequence else ast.Or(parts)
    else:
        formula = ast.Atom(_name(draw(st.sampled_from("AB"))))
    match draw(st.sampled_from(["+", "as", "", "", ":+"])):
        case "+" | ":+" as sign:
            return ast.Iteration(formula, is_contiguous=sign == ":+")
        case "as":
            return ast.As(formula, _name(draw(st.sampled_from("uv"))))
    return formula


@st.composite
def rich_queries(draw: Draw, strategy: Strategy) -> ast.Query:
    """Return a query whose strategy has something to choose."""
    formula = draw(rich_formulas(draw(st.sampled_from([3, 4, 5]))))
    variables = sorted(bound_variables(formula))
    selected = None
    if draw(st.sampled_from([False, False, True])):
        selected = tuple(ast.Selected(_name(name)) for name in draw(st.lists(st.sampled_from(variables), unique=True)))
    window = draw(st.sampled_from([None, None, ast.EventsWindow(4), ast.AttributeWindow(4, _name("t"))]))
    return ast.Query((), ast.Select(strategy, selected), (_name("S"),), formula, (), window)


@st.composite
def rich_events(draw: Draw) -> list[dict[str, Any]]:
    """Return a stream of As and Bs, with a C here and there that nothing matches."""
    types = draw(st.text("AABBC", min_size=5, max_size=8))
    return [{"type": event_type, "x": None, "s": None, "t": at, "k": 0} for at, event_type in enumerate(types)]


windows = st.one_of(
    st.none(),
    st.just(ast.AttributeWindow(5, _name("t"))),
    st.integers(0, 6).map(ast.EventsWindow),
    st.sampled_from([0, 1, 2, 3, Decimal("1.5")]).map(lambda size: ast.AttributeWindow(size, _name("t"))),
)


@st.composite
def queries(draw: Draw, depth: int = 5) -> ast.Query:
    """Return a whole query; SELECT lists only variables that the formula can bind."""
    formula = draw(formulas(depth))
    variables = sorted(bound_variables(formula))
    choice = draw(st.integers(0, 2))
    selected: tuple[ast.Selected, ...] | None = None
    if choice:
        kept = draw(st.lists(st.sampled_from(variables), unique=True)) if variables else []
        selected = tuple(ast.Selected(_name(name)) for name in kept)
    return ast.Query(
        (),
        ast.Select(draw(st.sampled_from(Strategy)), selected),
        (_name("S"),),
        formula,
        draw(st.sampled_from([(), (), (_name("k"),)])),
        draw(windows),
        draw(st.sampled_from([Consumption.NONE, *Consumption])),
    )
