"""AST and schema to plan: this module resolves names, checks types, and raises every semantic error.

For each formula we compute, bottom up, what each variable can hold (`Holdings`): how
many positions at least and at most, and events of which types. From that follow which
variables a FILTER may name, the result's columns, and the types of attributes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import pyarrow as pa

from ceql.errors import Span, did_you_mean, listing, warn
from ceql.schema import EventType, Kind, Schema, kind_of
from ceql.syntax import ast, plan
from ceql.syntax.clauses import bounds_of, check_partition, order_of, window_of
from ceql.syntax.declare import declared_schema
from ceql.syntax.mistakes import Mistake, shortened
from ceql.syntax.scope import Names, Owner, Scope, names_in, sources_of
from ceql.syntax.typecheck import bind_condition, quoted_attribute

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

MAX_ALTERNATIVES = 1000
"""Most alternatives that a FILTER's ORs may multiply to; each is a copy of the formula."""

MAX_ATOMS = 10_000
"""Most atoms of a pattern, counting the copies made for ORs; each takes a fraction of a millisecond to compile."""

MAX_TRANSITIONS = 40_000
"""Most transitions of a pattern with repetitions: an event inside n of them has (n + 1)^2."""

_ALTERNATIVES_HINT = "write x[p OR q] instead of x[p] OR x[q] if each event may satisfy either"

UTC_NAMES = ("UTC", "ETC/UTC", "Z", "GMT", "+00:00", "ZULU")
"""Zones, in capitals, in which times are as in UTC."""

_NAMES_ZONE = re.compile(r":.*(Z|[+-][\d:]+)$", re.IGNORECASE)

_NULL_TESTS = {"=": "IS NULL", "!=": "IS NOT NULL"}

MANY = 2
"""Stands for "two or more" in counts, which stop there."""


def bind(
    query: ast.Query, schema: Schema, *, time_column: str | None = None, order_by: Sequence[str] = ()
) -> plan.Plan:
    """Return the plan of a query over events of a schema.

    Args:
        query: the parsed query; its CREATE STREAM declarations come before the schema.
        schema: what the events look like; `Schema.unknown()` accepts every name and type.
        time_column: the attribute that WITHIN's durations measure; by default the pattern's
            only timestamp or date.
        order_by: the attributes that order the stream; `match_start` shows the first of them if there is neither a
            window on an attribute nor a time column.

    Raises:
        Mistake: for the caller to turn into a `QueryError` with the text at hand.
    """
    if query.declarations:
        schema = declared_schema(query.declarations, schema, {name.text for name in query.sources})
    sources = sources_of(query, schema)
    scope = Scope(sources, names_in(query.formula))
    formula, holdings = _FormulaBinder(scope).bind(query.formula)
    check_partition(query, scope)
    window = window_of(query, scope, time_column)
    variables = _variables(query, scope, holdings)
    attributes = scope.attributes_of(scope.pattern_types)
    _check_columns(query, variables, scope.names)
    return plan.Plan(
        formula=formula,
        strategy=query.select.strategy,
        sources=tuple(name.text for name in query.sources),
        variables=variables,
        partition_by=tuple(name.text for name in query.partition_by),
        window=window,
        consumption=query.consumption,
        limit=query.limit,
        attributes=tuple(attributes.items()),
        named=frozenset(scope.named),
        declared=scope.declared(),
        order=order_of(window, time_column, order_by),
        bounds=bounds_of(window, time_column, order_by, attributes),
    )


# --- formulas -----------------------------------------------------------------------


@dataclass(slots=True)
class _Holding:
    """What one variable can hold: how many positions (counted up to MANY), of which event types."""

    at_least: int
    at_most: int
    types: frozenset[EventType]


@dataclass(slots=True)
class _Holdings:
    """What the variables of a formula can hold, and all of them together."""

    variables: dict[str, _Holding]
    marked: _Holding
    n_atoms: int
    n_repetitions: int = 0
    """How many `+` stand around one another."""

    @property
    def n_transitions(self) -> int:
        """Transitions that the automaton has at most, but for those that skip events."""
        return self.n_atoms * (self.n_repetitions + 1) ** 2


class _FormulaBinder:
    """One method per operator: AST formula to plan formula and holdings."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def bind(self, node: ast.Formula) -> tuple[plan.Formula, _Holdings]:
        match node:
            case ast.Atom():
                return self._atom(node)
            case ast.As():
                return self._as(node)
            case ast.Iteration():
                return self._iteration(node)
            case ast.Sequence():
                return self._sequence(node)
            case ast.Or():
                return self._or(node)
            case ast.Filter():
                return self._filter(node)
            case ast.Project():
                return self._project(node)
        raise AssertionError(f"no rule for {type(node).__name__}")

    def _atom(self, node: ast.Atom) -> tuple[plan.Formula, _Holdings]:
        types = self.scope.types_of(node)
        held = _Holding(1, 1, types)
        # A single stream may have any name, so there is nothing to distinguish.
        stream = None if node.stream is None or len(self.scope.sources) == 1 else node.stream.text
        atom = plan.Atom(node.event_type.text, stream)
        return atom, _Holdings({node.event_type.text: held}, held, 1)

    def _as(self, node: ast.As) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        variables = {**held.variables, node.variable.text: held.marked}
        return plan.As(formula, node.variable.text), replace(held, variables=variables)

    def _iteration(self, node: ast.Iteration) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        variables = {name: _repeated(holding) for name, holding in held.variables.items()}
        held = _Holdings(variables, _repeated(held.marked), held.n_atoms, held.n_repetitions + 1)
        if held.n_transitions > MAX_TRANSITIONS:
            message = (
                f"repetitions multiply the pattern to {held.n_transitions} transitions, more than {MAX_TRANSITIONS}"
            )
            raise Mistake(message, node.span, "name fewer events inside of so many repetitions")
        return plan.Iteration(formula, may_skip=not node.is_contiguous), held

    def _sequence(self, node: ast.Sequence) -> tuple[plan.Formula, _Holdings]:
        parts, held = self._all(node.parts)
        variables: dict[str, _Holding] = {}
        for part in held:
            for name, holding in part.variables.items():
                earlier = variables.get(name)
                variables[name] = holding if earlier is None else _sum([earlier, holding])
        marked = _sum([part.marked for part in held])
        return plan.Sequence(parts, node.gaps), _joined(held, variables, marked)

    def _or(self, node: ast.Or) -> tuple[plan.Formula, _Holdings]:
        parts, held = self._all(node.parts)
        return plan.Or(parts), _either(held)

    def _all(self, nodes: tuple[ast.Formula, ...]) -> tuple[tuple[plan.Formula, ...], list[_Holdings]]:
        bound = [self.bind(node) for node in nodes]
        return tuple(formula for formula, _ in bound), [held for _, held in bound]

    def _project(self, node: ast.Project) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        for name in node.variables:
            self._check_bound(name, held, node.formula, "PROJECT")
        kept = frozenset(name.text for name in node.variables)
        variables = {name: holding for name, holding in held.variables.items() if name in kept}
        at_least, at_most = _count(formula, kept)
        types = frozenset().union(*(holding.types for holding in variables.values()))
        return plan.Project(formula, kept), replace(
            held, variables=variables, marked=_Holding(at_least, at_most, types)
        )

    def _filter(self, node: ast.Filter) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        alternatives = self._alternatives(node.condition, held, node.formula)
        held = replace(held, n_atoms=held.n_atoms * len(alternatives))
        sizes = ((held.n_atoms, MAX_ATOMS, "events"), (held.n_transitions, MAX_TRANSITIONS, "transitions"))
        for size, limit, what in sizes:
            if size > limit and len(alternatives) > 1:
                message = f"the conditions multiply the pattern to {size} {what}, more than {limit}"
                raise Mistake(message, node.condition.span, _ALTERNATIVES_HINT)
        filtered = tuple(plan.Filter(formula, alternative) for alternative in alternatives)
        return (filtered[0] if len(filtered) == 1 else plan.Or(filtered)), held

    def _alternatives(
        self, node: ast.Condition, held: _Holdings, filtered: ast.Formula
    ) -> list[tuple[tuple[str, plan.Expression], ...]]:
        """Return the conditions as alternatives of conjunctions, each conjunct a variable's predicate."""
        match node:
            case ast.VariableCondition():
                return [((node.variable.text, self._variable_condition(node, held, filtered)),)]
            case ast.AnyCondition():
                parts = [self._alternatives(part, held, filtered) for part in node.parts]
                return _joined_where_one_event([alternative for part in parts for alternative in part], held)
            case ast.AllConditions():
                parts = [self._alternatives(part, held, filtered) for part in node.parts]
                total = 1
                for part in parts:
                    total *= len(part)
                    if total > MAX_ALTERNATIVES:
                        raise Mistake(
                            f"the conditions expand to more than {MAX_ALTERNATIVES} alternatives",
                            node.span,
                            _ALTERNATIVES_HINT,
                        )
                return [tuple(pair for part in chosen for pair in part) for chosen in product(*parts)]
        raise AssertionError(f"no rule for {type(node).__name__}")

    def _variable_condition(
        self, node: ast.VariableCondition, held: _Holdings, filtered: ast.Formula
    ) -> plan.Expression:
        holding = self._check_bound(node.variable, held, filtered, "FILTER")
        owner = Owner.of(node.variable.text, holding.types)

        def kind_of_attribute(attribute: ast.Attribute) -> Kind:
            if attribute.variable is not None and attribute.variable.text != node.variable.text:
                message = f"a condition on '{node.variable.text}' cannot use '{attribute}': a condition sees one event"
                hint = "correlate events with PARTITION BY, or compare in a query over the matches"
                name = attribute.variable.text
                if self.scope.names.introduced(name) is None:
                    if not self.scope.is_unknown and name not in self.scope.attributes_of(self.scope.pattern_types):
                        raise _unknown_variable(attribute.variable, self.scope.names.known)
                    message = f"'{attribute}' is part of attribute '{name}', and only whole attributes can be compared"
                    hint = "put its value into a column first"
                raise Mistake(message, attribute.span, hint)
            return kind_of(self.scope.type_of_attribute(attribute.name, holding.types, owner))

        attributes = self.scope.attributes_of(self.scope.pattern_types)
        bound = bind_condition(node.predicate, kind_of_attribute, attributes)
        _warn_of_zones(node.predicate, attributes)
        if not self.scope.is_unknown:
            _warn_of_constants(node.predicate, attributes)
        return bound

    def _check_bound(self, name: ast.Name, held: _Holdings, covered: ast.Formula, clause: str) -> _Holding:
        if name.text in held.variables:
            return held.variables[name.text]
        names = self.scope.names
        introduced = names.introduced(name.text)
        if introduced is None:
            raise _unknown_variable(name, names.known)
        if covered.span.start <= introduced.span.start < covered.span.end:
            raise _dropped_variable(name, introduced, clause)
        raise Mistake(
            f"{clause} uses '{name.text}', which the formula to its left cannot bind",
            name.span,
            f"it binds {listing(held.variables)}; move {clause} after the part that binds '{name.text}'",
            introduced.span,
        )


def _warn_of_zones(predicate: ast.Node, types: Mapping[str, pa.DataType]) -> None:
    """Warn if a constant without a zone, which means UTC, is compared with a column shown in another zone."""
    pending = [predicate]
    while pending:
        parts = list(pending.pop().children())
        pending += parts
        texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        plain = next((text for text in texts if not _NAMES_ZONE.search(text)), None)
        for name in [part.name.text for part in parts if isinstance(part, ast.Attribute)]:
            zone = getattr(types.get(name), "tz", None)
            if plain is not None and zone is not None and zone.upper() not in UTC_NAMES:
                note = f"'{plain}' means UTC, but '{name}' is shown in {zone}: add a zone to it, such as +00:00"
                warn(note)


def _warn_of_constants(predicate: ast.Node, attributes: Collection[str]) -> None:
    """Warn of names of attributes in quotes, which are strings, and of comparisons with NULL, which are never true."""
    pending = [predicate]
    while pending:
        node = pending.pop()
        parts = list(node.children())
        pending += parts
        note = None
        if parts and all(isinstance(part, ast.Constant) for part in parts):
            note = quoted_attribute(parts, attributes)
            note = note and f"{shortened(str(node))} uses no attribute: {note}"
        elif isinstance(node, ast.Compare) and node.operator in _NULL_TESTS:
            nulls = [isinstance(part, ast.Constant) and part.value is None for part in parts]
            if any(nulls):
                test = f"{parts[nulls.index(False)]} {_NULL_TESTS[node.operator]}"
                note = f"{shortened(str(node))} is never true: write {test}"
        if note is not None:
            warn(note)


def _dropped_variable(name: ast.Name, introduced: ast.Name, clause: str) -> Mistake:
    hint = f"list '{name.text}' in PROJECT" + (", or put FILTER before it" if clause == "FILTER" else "")
    return Mistake(f"{clause} uses '{name.text}', which PROJECT has dropped", name.span, hint, introduced.span)


def _unknown_variable(name: ast.Name, known: Iterable[str]) -> Mistake:
    available = list(dict.fromkeys(known))
    return Mistake(
        f"unknown variable '{name.text}'",
        name.span,
        did_you_mean(name.text, available) or f"variables are {listing(available)}",
    )


def _repeated(holding: _Holding) -> _Holding:
    return _Holding(holding.at_least, MANY if holding.at_most else 0, holding.types)


def _sum(holdings: list[_Holding]) -> _Holding:
    return _Holding(
        min(MANY, sum(holding.at_least for holding in holdings)),
        min(MANY, sum(holding.at_most for holding in holdings)),
        frozenset().union(*(holding.types for holding in holdings)),
    )


def _either(parts: list[_Holdings]) -> _Holdings:
    found: dict[str, list[_Holding]] = {}
    for part in parts:
        for name, holding in part.variables.items():
            found.setdefault(name, []).append(holding)
    variables = {name: _least_and_most(holdings, len(parts)) for name, holdings in found.items()}
    marked = _least_and_most([part.marked for part in parts], len(parts))
    return _joined(parts, variables, marked)


def _joined(parts: list[_Holdings], variables: dict[str, _Holding], marked: _Holding) -> _Holdings:
    n_atoms = sum(part.n_atoms for part in parts)
    return _Holdings(variables, marked, n_atoms, max(part.n_repetitions for part in parts))


def _least_and_most(holdings: list[_Holding], n_parts: int) -> _Holding:
    return _Holding(
        min(holding.at_least for holding in holdings) if len(holdings) == n_parts else 0,
        max(holding.at_most for holding in holdings),
        frozenset().union(*(holding.types for holding in holdings)),
    )


def _joined_where_one_event(
    alternatives: list[tuple[tuple[str, plan.Expression], ...]], held: _Holdings
) -> list[tuple[tuple[str, plan.Expression], ...]]:
    """Return alternatives, joined if a variable holds a single event: then x[p] OR x[q] is x[p OR q]."""
    single: dict[str, list[plan.Expression]] = {}
    joined = []
    for alternative in alternatives:
        variable, predicate = alternative[0]
        if len(alternative) == 1 and held.variables[variable].at_most <= 1:
            single.setdefault(variable, []).append(predicate)
        else:
            joined.append(alternative)
    for variable, predicates in single.items():
        joined.append(((variable, plan.Any(tuple(predicates)) if len(predicates) > 1 else predicates[0]),))
    return joined


def _count(formula: plan.Formula, kept: frozenset[str] | None) -> tuple[int, int]:
    """Return how many positions some variables hold together, at least and at most; None means all.

    Counts of single variables cannot be added up after PROJECT, because variables share positions.
    """
    match formula:
        case plan.Atom():
            held = int(kept is None or formula.event_type in kept)
            return held, held
        case plan.As():
            return _count(formula.formula, None if kept is not None and formula.variable in kept else kept)
        case plan.Project():
            return _count(formula.formula, formula.variables if kept is None else kept & formula.variables)
        case plan.Filter():
            return _count(formula.formula, kept)
        case plan.Iteration():
            at_least, at_most = _count(formula.formula, kept)
            return at_least, MANY if at_most else 0
        case plan.Sequence():
            counts = [_count(part, kept) for part in formula.parts]
            return min(MANY, sum(low for low, _ in counts)), min(MANY, sum(high for _, high in counts))
        case plan.Or():
            counts = [_count(part, kept) for part in formula.parts]
            return min(low for low, _ in counts), max(high for _, high in counts)
    raise AssertionError(f"no rule for {type(formula).__name__}")


# --- the result's columns ----------------------------------------------------------


def _variables(query: ast.Query, scope: Scope, held: _Holdings) -> tuple[plan.Variable, ...]:
    if query.select.selected is None:
        names = [name for name in scope.names.columns if name in held.variables]
        return tuple(_variable(name, held.variables[name], scope, query.select.span) for name in names)
    selected = []
    for item in query.select.selected:
        name = item.variable.text
        if name not in held.variables:
            introduced = scope.names.introduced(name)
            if introduced is not None:
                raise _dropped_variable(item.variable, introduced, "SELECT")
            raise _unknown_variable(item.variable, held.variables)
        holding = held.variables[name]
        if item.attributes is None:
            selected.append(_variable(name, holding, scope, item.span))
        else:
            owner = Owner.of(name, holding.types)
            shown = tuple((part.text, scope.type_of_attribute(part, holding.types, owner)) for part in item.attributes)
            selected.append(plan.Variable(name, _multiplicity(holding), shown))
    return tuple(selected)


def _multiplicity(holding: _Holding) -> plan.Multiplicity:
    if holding.at_most >= MANY:
        return plan.Multiplicity.SEVERAL
    return plan.Multiplicity.ONE if holding.at_least else plan.Multiplicity.OPTIONAL


def _variable(name: str, holding: _Holding, scope: Scope, span: Span) -> plan.Variable:
    attributes = scope.attributes_of(holding.types)
    for attribute, data_type in attributes.items():
        if pa.types.is_null(data_type):
            scope.check_one_type(attribute, holding.types, span)
    return plan.Variable(name, _multiplicity(holding), tuple(attributes.items()))


def _check_columns(query: ast.Query, variables: tuple[plan.Variable, ...], names: Names) -> None:
    """Refuse results whose column names differ at most in case: Spark and Parquet cannot hold them."""
    taken = dict.fromkeys((plan.MATCH_START, plan.MATCH_END), "a column that every result has")
    for name in query.partition_by:
        _take(taken, name, "partition attribute", "rename the attribute")
    for index, variable in enumerate(variables):
        item = query.select.selected[index] if query.select.selected is not None else None
        place = names.introduced(variable.name) if item is None else item.variable
        name = ast.Name(variable.name, span=query.select.span if place is None else place.span)
        _take(taken, name, "variable", "rename it with AS, or select it once")
        if item is not None and item.attributes is not None:
            fields, hint = item.attributes, "leave one of them out"
        else:
            fields = tuple(ast.Name(attribute, span=name.span) for attribute, _ in variable.attributes)
            hint = f"name the attributes to show: {name}[...]"
        taken_fields: dict[str, str] = {}
        for attribute_name in fields:
            _take(taken_fields, attribute_name, "attribute", hint)


def _take(taken: dict[str, str], name: ast.Name, what: str, hint: str) -> None:
    clash = taken.get(name.text.lower())
    if clash is not None:
        message = f"result column '{name.text}' is taken by {clash}"
        raise Mistake(message, name.span, f"{hint}; names that differ only in case clash")
    taken[name.text.lower()] = f"{what} '{name.text}'"
