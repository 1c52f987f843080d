"""Random queries and streams for Hypothesis.

Event types A, B, C; attributes x (integer, often NULL), s (string, often NULL), t (integer time with
ties, never NULL) and k (partition key, sometimes NULL). Formulas take variable names from a small
set, so that names are shared between parts of a formula and with event types.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from ceql.syntax import ast
from ceql.syntax.ast import Consumption, Strategy
from ceql.syntax.parser import parse
from reference import may_be_empty

SCHEMA = pa.schema([("type", pa.string()), ("x", pa.int64()), ("s", pa.string()), ("t", pa.int64()), ("k", pa.int64())])
COLUMNS = {"x": "int", "s": "string", "t": "int", "k": "int"}
TYPES = ("A", "B", "C")
VARIABLES = ("u", "v", "w", "A")

Draw = Any

FUZZ = int(os.environ.get("CEQL_FUZZ", "0"))
"""Without it the same cases run every time, so that a run tells of the change before it and not of
chance; with it, new ones, and so many times more."""


def some(n_examples: int) -> settings:
    """Return settings for tests whose cases take longer than most."""
    return settings(max_examples=n_examples * max(1, FUZZ))


# PERF: Hypothesis looks closely at each strategy that it has not seen before, which takes it longer than drawing.
integers_between = cache(st.integers)


@lru_cache(maxsize=None, typed=True)
def any_of(*values: Any) -> st.SearchStrategy[Any]:
    """Return one of some values; those that are told twice come twice as often."""
    return st.sampled_from(values)


@cache
def some_of(values: tuple[Any, ...], max_size: int | None = None) -> st.SearchStrategy[list[Any]]:
    """Return some of different values, in any order."""
    return st.lists(st.sampled_from(values), unique=True, max_size=max_size) if values else st.just([])


@cache
def lists_of(elements: st.SearchStrategy[Any], min_size: int, max_size: int) -> st.SearchStrategy[list[Any]]:
    """Return lists of some lengths."""
    return st.lists(elements, min_size=min_size, max_size=max_size)


def composite(function: Callable[..., Any]) -> Callable[..., st.SearchStrategy[Any]]:
    """Return what draws by a function, the same strategy for the same arguments."""
    return cache(st.composite(function))


def _name(text: str) -> ast.Name:
    return ast.Name(text)


numbers = st.sampled_from([0, 1, 2, 3])
words = st.sampled_from(["", "p", "pq", "é"])
optional_numbers, optional_words = st.none() | numbers, st.none() | words
booleans = st.booleans()


@composite
def events(draw: Draw, max_size: int = 7) -> list[dict[str, Any]]:
    """Return a stream, ordered by t."""
    n_events = draw(any_of(max_size, max_size - 1, max_size - 2, 3, 2, 1, 0))
    time = 0
    stream = []
    for _ in range(n_events):
        time += draw(any_of(0, 0, 1, 1, 2))
        stream.append(
            {
                "type": draw(any_of(*"AAABBC")),
                "x": draw(optional_numbers),
                "s": draw(optional_words),
                "t": time,
                "k": draw(any_of(0, 0, 0, 0, 1, 1, None)),
            }
        )
    return stream


attributes = st.sampled_from(["x", "s", "t"]).map(lambda name: ast.Attribute(_name(name)))
integer_attributes = st.sampled_from(["x", "t"]).map(lambda name: ast.Attribute(_name(name)))
integer_constants = st.sampled_from([-1, 0, 1, 2, 3]).map(ast.Constant)
number_constants = integer_constants | st.sampled_from([Decimal("1.5"), Decimal("0.0"), None]).map(ast.Constant)
string_constants = words.map(ast.Constant)
integer_operands = integer_attributes | integer_constants


@composite
def integers(draw: Draw) -> ast.Predicate:
    """Return an integer expression over one event."""
    choice = draw(integers_between(0, 3))
    if choice <= 1:
        return draw(integer_attributes)
    if choice == 2:
        return ast.Negative(draw(integer_attributes))
    operators = draw(any_of(("+",), ("-",), ("*",), ("%",), ("/",), ("+", "-"), ("*", "%")))
    operands = [draw(integer_operands) for _ in range(len(operators) + 1)]
    return ast.Arithmetic(tuple(operands), operators)


number_operands = number_constants | integers()


@composite
def comparisons(draw: Draw) -> ast.Predicate:
    """Return a predicate without AND, OR and NOT."""
    is_negated = draw(booleans)
    string = ast.Attribute(_name("s"))
    match draw(integers_between(0, 7)):
        case 0:
            return ast.InSet(draw(integers()), tuple(draw(lists_of(number_constants, 1, 3))), is_negated)
        case 1:
            return ast.InRange(draw(integers()), draw(integer_constants), draw(integer_constants), is_negated)
        case 2:
            return ast.Between(draw(integers()), draw(integers()), draw(number_constants), is_negated)
        case 3:
            pattern = draw(any_of("p%", "_", "%", "", "%q", "é"))
            return ast.Like(string, ast.Constant(pattern), is_regex=False, is_negated=is_negated)
        case 4:
            pattern = draw(any_of("^p", "q$", "", "[pé]", "p?q", "^$"))
            return ast.Like(string, ast.Constant(pattern), is_regex=True, is_negated=is_negated)
        case 5:
            return ast.IsNull(draw(attributes), is_negated)
        case 6:
            return ast.Compare(string, draw(any_of("=", "!=", "<", ">=")), draw(string_constants))
    operator = draw(any_of("=", "!=", "<", "<=", ">", ">="))
    return ast.Compare(draw(integers()), operator, draw(number_operands))


def _parsed(*texts: str) -> list[ast.Predicate]:
    return [parse(f"SELECT * FROM S WHERE A FILTER A[{text}]").formula.condition.predicate for text in texts]  # type: ignore[attr-defined]


MILD = _parsed("x < 3", "x IS NULL OR x > 0", "s IS NULL OR s != 'é'", "x <> 1 OR t >= 0", "t > 0")
"""Predicates that most events satisfy, so that filtered formulas still match."""
CALLS = _parsed(
    *("LOWER(s) != 'pq'", "s ILIKE 'P%'", "s RLIKE '(?i)^[P-Q]'", "LENGTH(s) < 2", "SUBSTR(s, -1) = 'q'"),
    *("CONCAT(s, '-', s) = 'p-p'", "STARTS_WITH(s, 'p') OR ENDS_WITH(s, 'é')", "COALESCE(s, 'é') = 'é'"),
    *("COALESCE(x, t) > 1", "LEAST(x, t, 2) < 2", "GREATEST(x, 1.5) = 1.5", "ABS(x - t) <= 1", "ROUND(t / 2) = x"),
    *("FLOOR(t / 2) + CEIL(t / 2) = t", "CASE WHEN x > t THEN 'p' WHEN x = 1 THEN s ELSE 'x' END != 'p'"),
    *("CASE x WHEN 1 THEN TRUE WHEN 2 THEN s = 'p' END", "UPPER(TRIM(s)) IN {'P', 'PQ'}", "CONTAINS(s, 'q') IS NULL"),
    "LENGTH(s) + x = t",
)
simple_predicates = st.sampled_from(MILD) | comparisons() | st.sampled_from(CALLS)


@composite
def predicates(draw: Draw, depth: int = 2) -> ast.Predicate:
    """Return what may stand between the brackets of a condition."""
    choice = draw(integers_between(0, 6)) if depth else 6
    if choice == 0:
        return ast.Not(draw(predicates(depth - 1)))
    if choice in (1, 2):
        node = ast.AllPredicates if choice == 1 else ast.AnyPredicate
        return node(tuple(draw(lists_of(predicates(depth - 1), 2, 3))))
    return draw(simple_predicates)


def bound_variables(formula: ast.Formula) -> frozenset[str]:
    """Return the variables that a formula can bind."""
    match formula:
        case ast.Atom():
            return frozenset() if formula.event_type is None else frozenset({formula.event_type.text})
        case ast.Absence():
            return frozenset()
        case ast.As():
            return bound_variables(formula.formula) | {formula.variable.text}
        case ast.Project():
            return bound_variables(formula.formula) & {name.text for name in formula.variables}
        case ast.Sequence() | ast.Or() | ast.Permutation():
            return frozenset().union(*(bound_variables(part) for part in formula.parts))
        case ast.Filter() | ast.Iteration() | ast.Without():
            return bound_variables(formula.formula)
    raise AssertionError(formula)


def absent_variables(formula: ast.Formula) -> frozenset[str]:
    """Return the variables under NOT and WITHOUT that a FILTER around the formula may name."""
    match formula:
        case ast.Absence():
            return bound_variables(formula.formula)
        case ast.Project():
            return frozenset()
        case ast.Without():
            return absent_variables(formula.formula) | bound_variables(formula.absent)
    below = (child for child in formula.children() if isinstance(child, ast.Formula))
    return frozenset().union(*(absent_variables(child) for child in below))


def has_exceptions(formula: ast.Node) -> bool:
    """Return whether a gap of a formula has events that may not be skipped."""
    if isinstance(formula, ast.Absence | ast.Without):
        return True
    gaps = getattr(formula, "gaps", (getattr(formula, "gap", None),))
    return ast.Gap.UNFIT in gaps or any(map(has_exceptions, formula.children()))


@composite
def conditions(draw: Draw, variables: tuple[str, ...], depth: int = 2, *, has_or: bool = True) -> ast.Condition:
    """Return a FILTER's conditions on some variables."""
    choice = draw(integers_between(0, 4)) if depth else 4
    if choice in (0, 1):
        node = ast.AnyCondition if choice == 1 and has_or else ast.AllConditions
        return node(tuple(draw(lists_of(conditions(variables, depth - 1, has_or=has_or), 2, 2))))
    return ast.VariableCondition(_name(draw(any_of(*variables))), draw(predicates()))


GAPS = (ast.Gap.ANY, ast.Gap.ANY, ast.Gap.ANY, ast.Gap.NOTHING, ast.Gap.UNFIT)
BOUNDS = ((1, None), (1, None), (1, None), (0, 1), (0, None), (2, 2), (1, 2), (0, 2), (2, None))


@composite
def atoms_of(draw: Draw, types: str = "AAABBC") -> ast.Formula:
    """Return an atom, now and then with a condition or without a type."""
    choice = draw(any_of("type", "type", "type", "type", "any", "condition", "any condition"))
    name = None if choice.startswith("any") else _name(draw(any_of(*types)))
    return ast.Atom(name, None, draw(simple_predicates) if choice.endswith("condition") else None)


@composite
def absent_events(draw: Draw) -> ast.Formula:
    """Return what may stand under NOT."""
    formula: ast.Formula = draw(atoms_of("ABC"))
    match draw(any_of("", "", "", "or", "as", "filter")):
        case "or":
            return ast.Or((formula, draw(atoms_of("ABC"))))
        case "as":
            return ast.As(formula, _name(draw(any_of(*VARIABLES))))
        case "filter" if bound_variables(formula):
            return ast.Filter(formula, draw(conditions(tuple(bound_variables(formula)))))
    return formula


def in_sequence(left: ast.Formula, gap: ast.Gap, right: ast.Formula) -> ast.Formula:
    """Return two formulas one after the other, as one chain where this is clear."""
    parts, gaps = (left,), ()
    if isinstance(left, ast.Sequence) and not isinstance(left.parts[-1], ast.Absence):
        is_clear = not may_be_empty(left.parts[-1]) or left.gaps[-1] is gap
        if is_clear and not (may_be_empty(left.parts[-1]) and isinstance(left.parts[-2], ast.Absence)):
            parts, gaps = left.parts, left.gaps
    return ast.Sequence((*parts, right), (*gaps, gap))


def sequences(draw: Draw, left: ast.Formula, right: ast.Formula) -> ast.Formula:
    """Return two formulas one after the other, with any gap in between."""
    choice = draw(any_of("", "", "", "NOT", "PERMUTE", "flat"))
    if choice == "PERMUTE":
        return ast.Permutation((left, right))
    if choice == "NOT" and not may_be_empty(left) and not may_be_empty(right):
        return ast.Sequence((left, ast.Absence(draw(absent_events())), right), (ast.Gap.ANY, ast.Gap.ANY))
    gap = draw(any_of(*GAPS))
    return in_sequence(left, gap, right) if choice == "flat" else ast.Sequence((left, right), (gap,))


def repetitions(draw: Draw, formula: ast.Formula) -> ast.Formula:
    """Return a formula that is repeated, or may be missing."""
    least, most = draw(any_of(*BOUNDS))
    return ast.Iteration(formula, ast.Gap.ANY if most == 1 else draw(any_of(*GAPS)), least, most)


@composite
def formulas(draw: Draw, depth: int = 5, n_atoms: int | None = None) -> ast.Formula:
    """Return a formula with every operator, nested up to a depth.

    The number of atoms is drawn first: a stream of seven events must be able to match them.
    """
    if n_atoms is None:
        n_atoms = draw(any_of(3, 2, 4, 1, 5))
    if n_atoms > 1 and depth > 1 and (depth <= 3 or draw(booleans)):
        n_left = draw(integers_between(1, n_atoms - 1))
        parts = (draw(formulas(depth - 1, n_left)), draw(formulas(depth - 1, n_atoms - n_left)))
        return sequences(draw, *parts) if draw(any_of(True, True, False)) else ast.Or(parts)
    choice = draw(any_of("atom", "as", "+", "+", "filter", "project", "as", "+", "without")) if depth else "atom"
    if choice == "atom" and (n_atoms == 1 or depth <= 1):
        return draw(atoms_of())
    formula = draw(formulas(depth - 1, n_atoms))
    variables = tuple(sorted(bound_variables(formula)))
    match choice:
        case "+":
            return repetitions(draw, formula)
        case "project":
            dropped = draw(some_of(variables, 2))
            return ast.Project(formula, tuple(_name(name) for name in variables if name not in dropped))
        case "without":
            return ast.Without(formula, draw(absent_events()))
        case "filter" if variables:
            named = tuple(sorted({*variables, *absent_variables(formula)}))
            return ast.Filter(formula, draw(conditions(named, has_or=not has_exceptions(formula))))
    return ast.As(formula, _name(draw(any_of(*VARIABLES))))


@composite
def rich_formulas(draw: Draw, n_atoms: int) -> ast.Formula:
    """Return a formula without conditions that finds many overlapping matches: what strategies choose from."""
    if n_atoms > 1:
        n_left = draw(integers_between(1, n_atoms - 1))
        parts = (draw(rich_formulas(n_left)), draw(rich_formulas(n_atoms - n_left)))
        formula: ast.Formula = sequences(draw, *parts) if draw(any_of(True, True, False)) else ast.Or(parts)
    else:
        formula = ast.Atom(_name(draw(any_of(*"AB"))))
    match draw(any_of("+", "as", "", "", "+")):
        case "+":
            return repetitions(draw, formula)
        case "as":
            return ast.As(formula, _name(draw(any_of(*"uv"))))
    return formula


@composite
def rich_queries(draw: Draw, strategy: Strategy) -> ast.Query:
    """Return a query whose strategy has something to choose."""
    formula = draw(rich_formulas(draw(any_of(3, 4, 5))))
    variables = tuple(sorted(bound_variables(formula)))
    selected = None
    if draw(any_of(False, False, True)):
        selected = tuple(ast.Selected(_name(name)) for name in draw(some_of(variables)))
    window = draw(any_of(None, None, ast.EventsWindow(4), ast.AttributeWindow(4, _name("t"))))
    return ast.Query((), ast.Select(strategy, selected), (_name("S"),), formula, (), window)


rich_types = st.text("AABBC", min_size=5, max_size=8)


@composite
def rich_events(draw: Draw) -> list[dict[str, Any]]:
    """Return a stream of As and Bs, with a C here and there that nothing matches."""
    types = draw(rich_types)
    return [{"type": event_type, "x": None, "s": None, "t": at, "k": 0} for at, event_type in enumerate(types)]


def atoms(formula: ast.Formula) -> frozenset[str]:
    """Return the event types that a formula names."""
    if isinstance(formula, ast.Atom):
        return frozenset() if formula.event_type is None else frozenset({formula.event_type.text})
    return frozenset().union(*(atoms(child) for child in formula.children() if isinstance(child, ast.Formula)))


@composite
def declarations(draw: Draw, named: tuple[str, ...]) -> ast.StreamDeclaration:
    """Return what CREATE STREAM may say of the types in a pattern, and perhaps of others.

    One of those in the pattern has all attributes, so that each can be asked for, and all of them have a time.
    """
    complete = draw(any_of(*named))
    declared = []
    for event_type in TYPES:
        has = set(COLUMNS) if event_type == complete else set(draw(some_of(tuple(COLUMNS))))
        if event_type in named:
            has.add("t")
        if event_type in named or draw(booleans):
            attributes = [
                ast.AttributeDeclaration(_name(name), _name(COLUMNS[name])) for name in COLUMNS if name in has
            ]
            declared.append(ast.EventDeclaration(_name(event_type), tuple(attributes)))
    return ast.StreamDeclaration(_name("S"), tuple(declared))


silent_times = st.sampled_from([0, 1, 2, 3, Decimal("1.5")]).map(lambda size: ast.AttributeWindow(size, _name("t")))


@composite
def silent(draw: Draw, formula: ast.Formula, times: st.SearchStrategy[ast.Window] = silent_times) -> ast.Formula:
    """Return a formula with a silence before it or after it, perhaps with conditions; `times` are its lengths."""
    which = draw(any_of("after", "after", "before", "both"))
    before = [ast.Absence(draw(absent_events()), draw(times))] if which != "after" else []
    after = [ast.Absence(draw(absent_events()), draw(times))] if which != "before" else []
    parts, gaps = ((formula,), ()) if not isinstance(formula, ast.Sequence) else (formula.parts, formula.gaps)
    ends = (ast.Gap.ANY,)
    whole: ast.Formula = ast.Sequence((*before, *parts, *after), (*ends * len(before), *gaps, *ends * len(after)))
    variables = tuple(sorted(bound_variables(whole) | absent_variables(whole)))
    match draw(any_of("", "", "filter", "project", "without")):
        case "filter" if variables:
            return ast.Filter(whole, draw(conditions(variables, has_or=False)))
        case "project":
            return ast.Project(whole, tuple(_name(name) for name in sorted(bound_variables(whole))))
        case "without":
            return ast.Without(whole, draw(absent_events()))
    return whole


windows = st.one_of(
    st.none(),
    st.just(ast.AttributeWindow(5, _name("t"))),
    st.integers(0, 6).map(ast.EventsWindow),
    st.sampled_from([0, 1, 2, 3, Decimal("1.5")]).map(lambda size: ast.AttributeWindow(size, _name("t"))),
)


@composite
def queries(draw: Draw, depth: int = 5, *, declares: bool = False, silences: bool = False) -> ast.Query:
    """Return a whole query, perhaps with CREATE STREAM; SELECT lists only variables that the formula can bind.

    With `silences`, some patterns have NOT ... FOR at their ends.
    """
    formula = draw(formulas(depth))
    if silences and draw(any_of(False, False, True)):
        formula = draw(silent(formula))
    variables = tuple(sorted(bound_variables(formula)))
    choice = draw(integers_between(0, 2))
    selected: tuple[ast.Selected, ...] | None = None
    if choice:
        kept = draw(some_of(variables))
        selected = tuple(ast.Selected(_name(name)) for name in kept)
    named = tuple(sorted(atoms(formula)))
    return ast.Query(
        (draw(declarations(named)),) if named and declares and draw(any_of(False, False, True)) else (),
        ast.Select(draw(any_of(*Strategy)), selected),
        (_name("S"),),
        formula,
        draw(any_of((), (), (_name("k"),))),
        draw(windows),
        draw(any_of(Consumption.NONE, *Consumption)),
    )
