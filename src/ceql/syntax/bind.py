"""AST and schema to plan: names resolved, types checked, every semantic error raised here.

For each formula we compute, bottom up, what each variable can hold (`Holdings`): how
many positions at least and at most, and events of which types. From that follow which
variables a FILTER may name, the result's columns, and the types of attributes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ceql.errors import Span, did_you_mean, listing
from ceql.schema import ANY_STREAM, UNKNOWN_TYPE, Attributes, Kind, Schema, Stream, kind_of
from ceql.syntax import ast, plan
from ceql.syntax.declare import declared_schema
from ceql.syntax.mistakes import Mistake
from ceql.syntax.parser import MAX_COUNT, UNBOUNDED_HINT, UNITS
from ceql.syntax.typecheck import bind_condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_ALTERNATIVES = 1000
"""Most alternatives that a FILTER's ORs may multiply to; each is a copy of the formula."""

MAX_ATOMS = 2_000_000
"""Most events that a pattern may name, copies made for ORs included."""

_ALTERNATIVES_HINT = "write x[p OR q] instead of x[p] OR x[q] where each event may satisfy either"

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
        order_by: the attributes that order the stream; `match_start` shows the first of them
            where there is neither a window on an attribute nor a time column.

    Raises:
        Mistake: for the caller to turn into a `QueryError` with the text at hand.
    """
    if query.declarations:
        schema = declared_schema(query.declarations, schema)
    sources = _sources(query, schema)
    scope = _Scope(sources, _names_in(query.formula))
    formula, holdings = _FormulaBinder(scope).bind(query.formula)
    _check_partition(query, scope)
    window = _window(query, scope, time_column)
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
        bounds=_bounds(window, time_column, order_by, attributes),
    )


# --- streams and types --------------------------------------------------------------

EventType = tuple[str, str]
"""A stream's name and the name of one of its event types."""


def _sources(query: ast.Query, schema: Schema) -> dict[str, Stream]:
    sources: dict[str, Stream] = {}
    known = {stream.name: stream for stream in schema.streams}
    for name in query.sources:
        if name.text in sources:
            raise Mistake(f"stream '{name.text}' is named twice in FROM", name.span)
        if schema.is_unknown:
            sources[name.text] = Stream(name.text, {})
        elif ANY_STREAM in known:
            sources[name.text] = Stream(name.text, known[ANY_STREAM].columns)
        elif name.text in known:
            sources[name.text] = known[name.text]
        else:
            hint = did_you_mean(name.text, known) or f"streams are {listing(known)}"
            raise Mistake(f"unknown stream '{name.text}'", name.span, hint)
    if ANY_STREAM in known and len(sources) > 1:
        hint = "name one stream, or give the events as a dict of tables"
        raise Mistake("FROM names several streams, but the events are one table", query.sources[1].span, hint)
    return sources


@dataclass
class _Names:
    """The names that a formula introduces, in order of appearance, each with the place of the first.

    `columns` are those that SELECT * shows: AS variables, and types of atoms under no AS. What a
    PROJECT further out drops counts for neither, so that the columns hold every marked event.
    """

    variables: dict[str, ast.Name] = field(default_factory=dict)
    atoms: dict[tuple[str | None, str], ast.Atom] = field(default_factory=dict)
    columns: dict[str, None] = field(default_factory=dict)

    def introduced(self, name: str) -> ast.Name | None:
        """Return where a variable or event type first appears."""
        of_type = (atom.event_type for (_, event_type), atom in self.atoms.items() if event_type == name)
        return self.variables.get(name) or next(of_type, None)

    @property
    def known(self) -> list[str]:
        """Every name that may serve as a variable."""
        return [*self.columns, *(event_type for _, event_type in self.atoms)]


def _names_in(formula: ast.Formula) -> _Names:
    names = _Names()
    pending: list[tuple[ast.Formula, frozenset[str] | None, bool]] = [(formula, None, False)]
    while pending:
        node, kept, has_column = pending.pop()
        if isinstance(node, ast.Atom):
            names.atoms.setdefault(_atom_key(node), node)
            if not has_column and (kept is None or node.event_type.text in kept):
                names.columns.setdefault(node.event_type.text)
        elif isinstance(node, ast.As):
            names.variables.setdefault(node.variable.text, node.variable)
            if kept is None or node.variable.text in kept:
                names.columns.setdefault(node.variable.text)
                has_column = True
        elif isinstance(node, ast.Project):
            listed = frozenset(name.text for name in node.variables)
            kept = listed if kept is None else kept & listed
        below = [child for child in node.children() if isinstance(child, ast.Formula)]
        pending += [(child, kept, has_column) for child in reversed(below)]
    return names


def _atom_key(atom: ast.Atom) -> tuple[str | None, str]:
    return (None if atom.stream is None else atom.stream.text), atom.event_type.text


class _Owner(NamedTuple):
    """Whose attribute is looked for: what an error says of it."""

    lacks: str
    has: str

    @classmethod
    def of(cls, variable: str, types: Iterable[EventType]) -> _Owner:
        """Return a variable as the owner, by its event type where it holds one type only."""
        names = sorted({event_type for _, event_type in types})
        if len(names) == 1:
            return cls(f"event type {names[0]} has no", f"{names[0]} has")
        return cls(f"'{variable}' ({listing(names)}) has no", f"'{variable}' has")


_PATTERN = _Owner("no event type in the pattern has an", "they have")


class _Scope:
    """The streams in FROM and the names in the pattern: what identifiers may refer to."""

    def __init__(self, sources: dict[str, Stream], names: _Names) -> None:
        self.sources = sources
        self.names = names
        self.is_unknown = all(not stream.columns and stream.event_types is None for stream in sources.values())
        self._types = {key: self._types_of(atom) for key, atom in names.atoms.items()}
        order = dict.fromkeys(pair for types in self._types.values() for pair in sorted(types))
        self._order = {pair: index for index, pair in enumerate(order)}
        self.pattern_types = frozenset(order)

    def types_of(self, atom: ast.Atom) -> frozenset[EventType]:
        """Return the (stream, type) pairs that an atom may match."""
        return self._types[_atom_key(atom)]

    def _types_of(self, atom: ast.Atom) -> frozenset[EventType]:
        if atom.stream is not None and atom.stream.text not in self.sources:
            hint = did_you_mean(atom.stream.text, self.sources) or f"FROM names {listing(self.sources)}"
            raise Mistake(f"stream '{atom.stream.text}' is not in FROM", atom.stream.span, hint)
        streams = [atom.stream.text] if atom.stream is not None else list(self.sources)
        event_type = atom.event_type.text
        declared = {name: self.sources[name].event_types for name in streams}
        found = frozenset(
            (name, event_type) for name, types in declared.items() if types is None or event_type in types
        )
        if not found:
            known = [known for types in declared.values() for known in types or ()]
            hint = did_you_mean(event_type, known) or f"event types are {listing(known)}"
            message = f"unknown event type '{event_type}'"
            if atom.stream is not None:
                message = f"stream '{atom.stream.text}' has no event type '{event_type}'"
            raise Mistake(message, atom.event_type.span, hint)
        return found

    def ordered(self, types: Iterable[EventType]) -> Iterator[tuple[str, Attributes]]:
        """Yield event types with their attributes, in the order in which the pattern names them."""
        for stream, event_type in sorted(types, key=self._order.__getitem__):
            yield event_type, self.sources[stream].attributes_of(event_type)

    def attributes_of(self, types: Iterable[EventType]) -> dict[str, pa.DataType]:
        """Return the attributes of some event types, each with the type that fits all of them.

        An attribute whose types do not fit together is there with type null.
        """
        merged: dict[str, pa.DataType] = {}
        for attributes in {id(attributes): attributes for _, attributes in self.ordered(types)}.values():
            for name, data_type in attributes.items():
                merged[name] = data_type if name not in merged else _common_type(merged[name], data_type)
        return merged

    def type_of_attribute(self, name: ast.Name, types: frozenset[EventType], owner: _Owner) -> pa.DataType:
        """Return an attribute's type on events of some types, or raise if no event in the pattern has it."""
        if self.is_unknown:
            return UNKNOWN_TYPE
        own = self.attributes_of(types)
        available = own if name.text in own else self.attributes_of(self.pattern_types)
        if name.text not in available:
            hint = did_you_mean(name.text, own or available)
            has = f"{owner.has}: {listing(own)}" if own else None
            message = f"{owner.lacks} attribute '{name.text}'"
            raise Mistake(message, name.span, " ".join(filter(None, (hint, has))) or None)
        self.check_one_type(name.text, types, name.span)
        return available[name.text]

    def check_one_type(self, name: str, types: frozenset[EventType], span: Span) -> None:
        """Refuse an attribute that means different things on different event types."""
        kinds = {
            pair: kind_of(attributes[name]).value
            for pair in sorted(types, key=self._order.__getitem__)
            if name in (attributes := self.sources[pair[0]].attributes_of(pair[1]))
        }
        if len(set(kinds.values())) > 1 and pa.types.is_null(self.attributes_of(types)[name]):
            has_streams = len({stream for stream, _ in kinds}) > 1
            uses = ", ".join(
                f"{kind} in {f'{stream}>' if has_streams else ''}{event_type}"
                for (stream, event_type), kind in kinds.items()
            )
            raise Mistake(f"attribute '{name}' has several types: {uses}", span, "give them different names")


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the Arrow type that holds the values of both, null if there is none."""
    if left == right:
        return left
    if kind_of(left) is not kind_of(right) and not (kind_of(left).is_numeric and kind_of(right).is_numeric):
        return UNKNOWN_TYPE
    try:
        schemas = [pa.schema([("a", data_type)]) for data_type in (left, right)]
        return pa.unify_schemas(schemas, promote_options="permissive").field("a").type
    except pa.ArrowTypeError:
        return UNKNOWN_TYPE


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


class _FormulaBinder:
    """One method per operator: AST formula to plan formula and holdings."""

    def __init__(self, scope: _Scope) -> None:
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
        # With one stream, which may have any name, there is nothing to tell apart.
        stream = None if node.stream is None or len(self.scope.sources) == 1 else node.stream.text
        atom = plan.Atom(node.event_type.text, stream)
        return atom, _Holdings({node.event_type.text: held}, held, 1)

    def _as(self, node: ast.As) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        variables = {**held.variables, node.variable.text: held.marked}
        return plan.As(formula, node.variable.text), _Holdings(variables, held.marked, held.n_atoms)

    def _iteration(self, node: ast.Iteration) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        variables = {name: _repeated(holding) for name, holding in held.variables.items()}
        return (
            plan.Iteration(formula, may_skip=not node.is_contiguous),
            _Holdings(variables, _repeated(held.marked), held.n_atoms),
        )

    def _sequence(self, node: ast.Sequence) -> tuple[plan.Formula, _Holdings]:
        parts, held = self._all(node.parts)
        variables: dict[str, _Holding] = {}
        for part in held:
            for name, holding in part.variables.items():
                earlier = variables.get(name)
                variables[name] = holding if earlier is None else _sum([earlier, holding])
        marked = _sum([part.marked for part in held])
        return plan.Sequence(parts, node.gaps), _Holdings(variables, marked, sum(part.n_atoms for part in held))

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
        return plan.Project(formula, kept), _Holdings(variables, _Holding(at_least, at_most, types), held.n_atoms)

    def _filter(self, node: ast.Filter) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        alternatives = self._alternatives(node.condition, held, node.formula)
        n_atoms = held.n_atoms * len(alternatives)
        if n_atoms > MAX_ATOMS:
            message = f"the pattern grows to {n_atoms} events, more than {MAX_ATOMS}"
            raise Mistake(message, node.condition.span, _ALTERNATIVES_HINT)
        held = _Holdings(held.variables, held.marked, n_atoms)
        filtered = tuple(plan.Filter(formula, alternative) for alternative in alternatives)
        return (filtered[0] if len(filtered) == 1 else plan.Or(filtered)), held

    def _alternatives(
        self, node: ast.Condition, held: _Holdings, filtered: ast.Formula
    ) -> list[tuple[tuple[str, plan.Predicate], ...]]:
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
    ) -> plan.Predicate:
        holding = self._check_bound(node.variable, held, filtered, "FILTER")
        owner = _Owner.of(node.variable.text, holding.types)

        def kind_of_attribute(attribute: ast.Attribute) -> Kind:
            if attribute.variable is not None and attribute.variable.text != node.variable.text:
                raise Mistake(
                    f"condition on '{node.variable.text}' uses '{attribute}': a condition sees one event",
                    attribute.span,
                    "correlate events with PARTITION BY, or compare in a query over the matches",
                )
            return kind_of(self.scope.type_of_attribute(attribute.name, holding.types, owner))

        return bind_condition(node.predicate, kind_of_attribute)

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
            f"{clause} names '{name.text}', which the formula to its left cannot bind",
            name.span,
            f"it binds {listing(held.variables)}; move {clause} after the part that binds '{name.text}'",
            introduced.span,
        )


def _dropped_variable(name: ast.Name, introduced: ast.Name, clause: str) -> Mistake:
    hint = f"list '{name.text}' in PROJECT" + (", or put FILTER before it" if clause == "FILTER" else "")
    return Mistake(f"{clause} names '{name.text}', which PROJECT has dropped", name.span, hint, introduced.span)


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
    return _Holdings(variables, marked, sum(part.n_atoms for part in parts))


def _least_and_most(holdings: list[_Holding], n_parts: int) -> _Holding:
    return _Holding(
        min(holding.at_least for holding in holdings) if len(holdings) == n_parts else 0,
        max(holding.at_most for holding in holdings),
        frozenset().union(*(holding.types for holding in holdings)),
    )


def _joined_where_one_event(
    alternatives: list[tuple[tuple[str, plan.Predicate], ...]], held: _Holdings
) -> list[tuple[tuple[str, plan.Predicate], ...]]:
    """Return alternatives with those on one and the same event joined: x[p] OR x[q] is x[p OR q] there."""
    single: dict[str, list[plan.Predicate]] = {}
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


# --- the other clauses --------------------------------------------------------------


def _check_partition(query: ast.Query, scope: _Scope) -> None:
    seen: set[str] = set()
    for name in query.partition_by:
        if name.text in seen:
            raise Mistake(f"PARTITION BY names '{name.text}' twice", name.span)
        seen.add(name.text)
        data_type = scope.type_of_attribute(name, scope.pattern_types, _PATTERN)
        if kind_of(data_type) is Kind.OTHER:
            message = f"PARTITION BY cannot compare '{name.text}': it is of type {data_type}"
            raise Mistake(message, name.span, "use a boolean, number, string, timestamp or date")


def _window(
    query: ast.Query, scope: _Scope, time_column: str | None
) -> plan.EventsWindow | plan.AttributeWindow | None:
    match query.window:
        case ast.EventsWindow() as window:
            return plan.EventsWindow(window.count)
        case ast.AttributeWindow() as window:
            kind = _window_kind(window.attribute, scope)
            if kind.is_time:
                hint = f"write WITHIN {window.size} seconds [{window.attribute}]"
                raise Mistake(
                    f"WITHIN {window.size} of what? '{window.attribute.text}' is a {kind.value}", window.span, hint
                )
            return plan.AttributeWindow(window.attribute.text, kind, window.size)
        case ast.DurationWindow() as window:
            return _duration_window(window, scope, time_column)
    return None


def _window_kind(attribute: ast.Name, scope: _Scope) -> Kind:
    """Return the kind of a window's attribute, which every type in the pattern must have, with an order."""
    data_type = scope.type_of_attribute(attribute, scope.pattern_types, _PATTERN)
    for event_type, attributes in scope.ordered(scope.pattern_types):
        if not scope.is_unknown and attribute.text not in attributes:
            message = f"event type {event_type} has no attribute '{attribute.text}', which WITHIN measures"
            raise Mistake(message, attribute.span, f"{event_type} has: {listing(attributes)}")
    kind = kind_of(data_type)
    if not (kind.is_numeric or kind.is_time or kind is Kind.UNKNOWN):
        shown = data_type if kind is Kind.OTHER else kind.value
        message = f"WITHIN cannot measure '{attribute.text}': it is of type {shown}"
        raise Mistake(message, attribute.span, "use a number, timestamp or date")
    return kind


def _duration_window(window: ast.DurationWindow, scope: _Scope, time_column: str | None) -> plan.AttributeWindow | None:
    nanoseconds = sum(Decimal(amount) * UNITS[unit.removesuffix("s")] for amount, unit in window.parts)
    if nanoseconds > MAX_COUNT:
        raise Mistake("the window is longer than 292 years", window.span, UNBOUNDED_HINT)
    attribute = window.attribute or _time_attribute(window, scope, time_column, nanoseconds)
    kind = _window_kind(attribute, scope)
    if not (kind.is_time or kind is Kind.UNKNOWN):
        message = f"a duration needs a timestamp or date, but '{attribute.text}' is of type {kind.value}"
        raise Mistake(message, attribute.span, _as_number(attribute.text, nanoseconds))
    # Of an attribute about which nothing is known, a duration says that it is a time.
    kind = Kind.TIMESTAMP if scope.is_unknown else kind
    return plan.AttributeWindow(attribute.text, kind, int(nanoseconds))


def _time_attribute(
    window: ast.DurationWindow, scope: _Scope, time_column: str | None, nanoseconds: int | Decimal
) -> ast.Name:
    """Return the attribute that a duration measures where the query names none."""
    attributes = scope.attributes_of(scope.pattern_types)
    if time_column is not None:
        if not scope.is_unknown and time_column not in attributes:
            hint = did_you_mean(time_column, attributes) or f"they have: {listing(attributes)}"
            raise Mistake(f"the events in the pattern have no time column '{time_column}'", window.span, hint)
        return ast.Name(time_column, span=window.span)
    if scope.is_unknown:
        return ast.Name("time", span=window.span)
    times = [name for name, data_type in attributes.items() if kind_of(data_type).is_time]
    if len(times) == 1:
        return ast.Name(times[0], span=window.span)
    if times:
        message = f"a duration needs one timestamp or date, but there are several: {listing(times)}"
        raise Mistake(message, window.span, f"name it: {window} [{ast.quoted_name(times[0])}]")
    integers = [name for name, data_type in attributes.items() if kind_of(data_type) is Kind.INTEGER]
    likely = [name for name in integers if any(word in name.lower() for word in ("time", "ts", "date"))] or integers
    hint = _as_number(likely[0], nanoseconds) if likely else "count events instead: WITHIN n EVENTS"
    raise Mistake("a duration needs a timestamp or date, and the events have none", window.span, hint)


def _as_number(attribute: str, nanoseconds: int | Decimal) -> str:
    """Return the hint to write a duration as a number, in the coarsest usual unit that loses nothing."""
    units = ("millisecond", "microsecond", "nanosecond")
    unit = next((unit for unit in units if nanoseconds % UNITS[unit] == 0), "nanosecond")
    window = f"WITHIN {int(nanoseconds) // UNITS[unit]} [{ast.quoted_name(attribute)}]"
    return f"write {window} if '{attribute}' counts {unit}s"


def _variables(query: ast.Query, scope: _Scope, held: _Holdings) -> tuple[plan.Variable, ...]:
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
            owner = _Owner.of(name, holding.types)
            shown = tuple((part.text, scope.type_of_attribute(part, holding.types, owner)) for part in item.attributes)
            selected.append(plan.Variable(name, _multiplicity(holding), shown))
    return tuple(selected)


def _multiplicity(holding: _Holding) -> plan.Multiplicity:
    if holding.at_most >= MANY:
        return plan.Multiplicity.SEVERAL
    return plan.Multiplicity.ONE if holding.at_least else plan.Multiplicity.OPTIONAL


def _variable(name: str, holding: _Holding, scope: _Scope, span: Span) -> plan.Variable:
    attributes = scope.attributes_of(holding.types)
    for attribute, data_type in attributes.items():
        if pa.types.is_null(data_type):
            scope.check_one_type(attribute, holding.types, span)
    return plan.Variable(name, _multiplicity(holding), tuple(attributes.items()))


def _check_columns(query: ast.Query, variables: tuple[plan.Variable, ...], names: _Names) -> None:
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
        for one in fields:
            _take(taken_fields, one, "attribute", hint)


def _take(taken: dict[str, str], name: ast.Name, what: str, hint: str) -> None:
    clash = taken.get(name.text.lower())
    if clash is not None:
        message = f"result column '{name.text}' is taken by {clash}"
        raise Mistake(message, name.span, f"{hint}; case does not tell columns apart")
    taken[name.text.lower()] = f"{what} '{name.text}'"


def _bounds(
    window: plan.EventsWindow | plan.AttributeWindow | None,
    time_column: str | None,
    order_by: Sequence[str],
    attributes: dict[str, pa.DataType],
) -> str | None:
    if isinstance(window, plan.AttributeWindow):
        candidates = [window.attribute]
    else:
        candidates = [time_column, *order_by[:1]] if time_column is not None else list(order_by[:1])
    return next((name for name in candidates if name in attributes), None)
