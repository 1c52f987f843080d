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
from ceql.parameters import NO_PARAMETERS, Parameters
from ceql.schema import EventType, Schema, kind_of
from ceql.syntax import ast, plan
from ceql.syntax.clauses import attribute_measured, bounds_of, check_partition, order_of, silences_of, window_of
from ceql.syntax.declare import declared_schema
from ceql.syntax.mistakes import Mistake, shortened
from ceql.syntax.scope import Names, Owner, Scope, names_in, part_type, sources_of
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

MAX_PERMUTED = 6
"""Most parts of PERMUTE: n parts have n * 2^(n-1) copies in the automaton."""

MANY = 2
"""Stands for "two or more" in counts, which stop there."""


def bind(
    query: ast.Query,
    schema: Schema,
    *,
    time_column: str | None = None,
    order_by: Sequence[str] = (),
    parameters: Parameters = NO_PARAMETERS,
) -> plan.Plan:
    """Return the plan of a query over events of a schema.

    Args:
        query: the parsed query; its CREATE STREAM declarations come before the schema.
        schema: what the events look like; `Schema.unknown()` accepts every name and type.
        time_column: the attribute that WITHIN's durations measure; by default the pattern's
            only timestamp or date.
        order_by: the attributes that order the stream; `match_start` shows the first of them if there is neither a
            window on an attribute nor a time column.
        parameters: the values that the query gets from outside.

    Raises:
        Mistake: for the caller to turn into a `QueryError` with the text at hand.
    """
    if query.declarations:
        schema = declared_schema(query.declarations, schema, {name.text for name in query.sources})
    sources = sources_of(query, schema)
    scope = Scope(sources, names_in(query.formula))
    top = _top(query.formula)
    formula, holdings = _FormulaBinder(scope, top, parameters).bind(query.formula)
    check_partition(query, scope)
    durations = [None if part is None else part.duration for part in _timed_absences(top)]
    clock = time_column or (_clock_named(query.window, *durations) if scope.is_unknown else None)
    window = window_of(query, scope, clock)
    silences = silences_of(durations, window, scope, clock)
    measured = attribute_measured(window, silences)
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
        order=order_of(measured, time_column, order_by),
        bounds=bounds_of(measured, time_column, order_by, attributes),
        silence_before=silences[0],
        silence_after=silences[1],
    )


def _clock_named(*durations: ast.Window | None) -> str | None:
    """Return the attribute that WITHIN or FOR names: if nothing is known of the events, the others measure it, too."""
    measured = (part.attribute for part in durations if isinstance(part, ast.AttributeWindow | ast.DurationWindow))
    return next((attribute.text for attribute in measured if attribute is not None), None)


def _top(formula: ast.Formula) -> ast.Formula:
    """Return what FILTER, PROJECT and WITHOUT cover in a pattern: only there may NOT ... FOR stand."""
    while isinstance(formula, ast.Filter | ast.Project | ast.Without):
        formula = formula.formula
    return formula


def _timed_absences(top: ast.Formula) -> tuple[ast.Absence | None, ast.Absence | None]:
    """Return NOT ... FOR at the start and at the end."""
    if not isinstance(top, ast.Sequence):
        return None, None
    first, last = (
        part if isinstance(part, ast.Absence) and part.duration is not None else None
        for part in (top.parts[0], top.parts[-1])
    )
    return first, last


# --- formulas -----------------------------------------------------------------------


@dataclass(slots=True)
class _Holding:
    """What one variable can hold: how many positions (counted up to MANY), of which event types."""

    at_least: int
    at_most: int
    types: frozenset[EventType]


@dataclass(slots=True)
class _Size:
    """How many steps the automaton of a formula has: in all, from its start, to its end, and from start to end.

    Loops that skip events are not counted.
    """

    n_steps: int
    starts: int
    ends: int
    both: int

    def times(self, count: int) -> _Size:
        return _Size(self.n_steps * count, self.starts * count, self.ends * count, self.both * count)


@dataclass(slots=True)
class _Holdings:
    """What the variables of a formula can hold, and all of them together.

    `n_atoms` counts every copy in the automaton, also of events that NOT and WITHOUT forbid. `absent` are the variables
    of these, `first` those of the events with which the formula can begin, and `awaited` those of the events for which
    `->` waits.
    """

    variables: dict[str, _Holding]
    marked: _Holding
    n_atoms: int
    size: _Size
    first: frozenset[str]
    absent: dict[str, _Holding]
    awaited: frozenset[str] = frozenset()

    def check_size(self, what: str, span: Span, hint: str) -> None:
        """Refuse a formula whose automaton would be too large."""
        for size, limit, things in (
            (self.n_atoms, MAX_ATOMS, "events"),
            (self.size.n_steps, MAX_TRANSITIONS, "transitions"),
        ):
            if size > limit:
                raise Mistake(f"{what} multiply the pattern to {size} {things}, more than {limit}", span, hint)


class _FormulaBinder:
    """One method per operator: AST formula to plan formula and holdings."""

    def __init__(self, scope: Scope, top: ast.Formula, parameters: Parameters) -> None:
        """Make a binder for a pattern; `top` is what its last FILTERs and the like cover."""
        self.scope = scope
        self.parameters = parameters
        self._top = top

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
            case ast.Permutation():
                return self._permutation(node)
            case ast.Without():
                return self._without(node)
            case ast.Absence():
                raise _misplaced(node, is_alone=node is self._top)
        raise AssertionError(f"no rule for {type(node).__name__}")

    def _atom(self, node: ast.Atom) -> tuple[plan.Formula, _Holdings]:
        types = self.scope.types_of(node)
        held = _Holding(1, 1, types)
        name = None if node.event_type is None else node.event_type.text
        # A single stream may have any name, so there is nothing to distinguish.
        stream = None if node.stream is None or len(self.scope.sources) == 1 else node.stream.text
        predicates: tuple[plan.Expression, ...] = ()
        if node.predicate is not None:
            predicates = (self._predicate(node.predicate, "_" if name is None else name, types),)
        variables = {} if name is None else {name: held}
        first = frozenset(("" if name is None else name,))
        return plan.Atom(name, stream, predicates), _Holdings(variables, held, 1, _Size(1, 1, 1, 1), first, {})

    def _as(self, node: ast.As) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        name = node.variable.text
        return plan.As(formula, name), replace(
            held,
            variables={**held.variables, name: held.marked},
            first=held.first | {name},
            awaited=held.awaited | {name} if held.awaited else held.awaited,
        )

    def _iteration(self, node: ast.Iteration) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        iteration = plan.Iteration(formula, node.gap, node.least, node.most)
        # Empty rounds cannot be seen, so a single round may stand for several.
        least = 1 if formula.may_be_empty else max(1, node.least)
        n_rounds = least if node.most is None else node.most
        held = replace(
            held,
            variables={name: _repeated(holding, node) for name, holding in held.variables.items()},
            marked=_repeated(held.marked, node),
            n_atoms=held.n_atoms * n_rounds,
            size=_repeated_size(held.size, least, n_rounds, is_bounded=node.most is not None),
            awaited=held.awaited | (held.first if node.gap is ast.Gap.UNFIT else frozenset()),
        )
        held.check_size("repetitions", node.span, "name fewer events inside of so many repetitions")
        return iteration, held

    def _sequence(self, node: ast.Sequence) -> tuple[plan.Formula, _Holdings]:
        before, after = _timed_absences(node) if node is self._top else (None, None)
        node = _without_ends(node, before, after)
        nodes = [part for part in node.parts if not isinstance(part, ast.Absence)]
        gaps, absent_in_gaps, absent, n_absent = self._gaps(node)
        parts, held = self._all(tuple(nodes))
        silences: list[plan.Absent | None] = [None, None]
        for index, timed in enumerate((before, after)):
            if timed is not None:
                silences[index], broken_by = self._absent(timed.formula, "NOT")
                absent, n_absent = _with_absent(absent, broken_by.variables), n_absent + broken_by.n_atoms
        formula = plan.Sequence(parts, gaps, absent_in_gaps, *silences)
        self._check_empty_parts(node, nodes, formula)
        joined = _all_of(held)
        size, first, awaited = held[0].size, held[0].first, joined.awaited
        may_be_empty = parts[0].may_be_empty
        for part, part_held, gap in zip(parts[1:], held[1:], gaps, strict=True):
            size = _followed_size(size, part_held.size, may_be_empty, part.may_be_empty)
            first |= part_held.first if may_be_empty else frozenset()
            awaited |= part_held.first if gap is ast.Gap.UNFIT else frozenset()
            may_be_empty = may_be_empty and part.may_be_empty
        joined = replace(
            joined,
            n_atoms=joined.n_atoms + n_absent,
            size=size,
            first=first,
            awaited=awaited,
            absent=_with_absent(joined.absent, absent),
        )
        if any(part.may_be_empty for part in parts):
            joined.check_size("parts that may be missing", node.span, "make fewer of them optional")
        return formula, joined

    def _gaps(
        self, node: ast.Sequence
    ) -> tuple[tuple[ast.Gap, ...], tuple[plan.Absent | None, ...], dict[str, _Holding], int]:
        """Return what may and may not lie between the parts; of what may not, also the variables and the events."""
        gaps: list[ast.Gap] = []
        absent: list[plan.Absent | None] = []
        variables: dict[str, _Holding] = {}
        n_absent = 0
        for index, part in enumerate(node.parts):
            if not isinstance(part, ast.Absence):
                if index and not isinstance(node.parts[index - 1], ast.Absence):
                    gaps.append(node.gaps[index - 1])
                    absent.append(None)
                continue
            around = node.gaps[max(0, index - 1) : index + 1]
            neighbours = [*node.parts[max(0, index - 1) : index], *node.parts[index + 1 : index + 2]]
            if part.duration is not None or len(around) < 2 or any(gap is not ast.Gap.ANY for gap in around):
                raise _misplaced(part)
            if any(isinstance(neighbour, ast.Absence) for neighbour in neighbours):
                raise Mistake("two NOT in one gap", part.span, "join them by OR: NOT (A OR B)")
            found, held = self._absent(part.formula, "NOT")
            gaps.append(ast.Gap.ANY)
            absent.append(found)
            variables = _with_absent(variables, held.variables)
            n_absent += held.n_atoms
        return tuple(gaps), tuple(absent), variables, n_absent

    def _check_empty_parts(self, node: ast.Sequence, nodes: list[ast.Formula], formula: plan.Sequence) -> None:
        """Refuse a part that may be empty where it would be unclear which gap is left without it."""
        for index, part in enumerate(formula.parts):
            if not part.may_be_empty:
                continue
            gaps = formula.gaps[max(0, index - 1) : index + 1]
            if any(formula.absent[max(0, index - 1) : index + 1]):
                hint = "put the part that may be missing and its neighbour in parentheses"
                raise Mistake("NOT stands next to a part that may be empty", nodes[index].span, hint)
            if len(set(gaps)) > 1:
                before, after = (gap.value for gap in gaps)
                message = f"'{nodes[index]}' may be empty, and stands between '{before}' and '{after}'"
                hint = (
                    f"write ({nodes[index - 1]} {before} {nodes[index]}) or ({nodes[index]} {after} {nodes[index + 1]})"
                )
                raise Mistake(message, nodes[index].span, hint)

    def _absent(self, node: ast.Formula, word: str) -> tuple[plan.Absent, _Holdings]:
        """Return what NOT or WITHOUT forbids, and what its variables would hold."""
        pending = [node]
        while pending:
            part = pending.pop()
            match part:
                case ast.Atom():
                    continue
                case ast.As() | ast.Filter():
                    pending.append(part.formula)
                case ast.Or():
                    pending += part.parts
                case _:
                    message = f"{word} takes single events, not '{shortened(str(part))}'"
                    raise Mistake(message, part.span, f"write an event type, or several: {word} (A OR B[x > 1])")
        formula, held = self.bind(node)
        return plan.Absent(formula), held

    def _permutation(self, node: ast.Permutation) -> tuple[plan.Formula, _Holdings]:
        if len(node.parts) > MAX_PERMUTED:
            message = f"PERMUTE takes at most {MAX_PERMUTED} parts, not {len(node.parts)}"
            raise Mistake(message, node.span, "order some of them by ;")
        parts, held = self._all(node.parts)
        joined = _all_of(held)
        n_copies = 1 << (len(parts) - 1)
        size = joined.size
        starts, ends = size.starts + size.both, size.ends * n_copies
        joined = replace(
            joined,
            n_atoms=joined.n_atoms * n_copies,
            size=_Size((size.n_steps + size.ends) * n_copies, starts, ends, min(starts, ends)),
        )
        joined.check_size("the orders of PERMUTE", node.span, "name fewer events in it")
        return plan.Permutation(parts), joined

    def _without(self, node: ast.Without) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        absent, forbidden = self._absent(node.absent, "WITHOUT")
        # Each gap has a copy of what is forbidden there, and there are at most as many gaps as steps.
        held = replace(
            held,
            n_atoms=held.n_atoms + held.size.n_steps * forbidden.n_atoms,
            absent=_with_absent(held.absent, forbidden.variables),
        )
        held.check_size("the gaps of WITHOUT", node.span, "forbid fewer events, or name fewer events before it")
        return plan.Without(formula, absent), held

    def _or(self, node: ast.Or) -> tuple[plan.Formula, _Holdings]:
        parts, held = self._all(node.parts)
        return plan.Or(parts), _either(held)

    def _all(self, nodes: tuple[ast.Formula, ...]) -> tuple[tuple[plan.Formula, ...], list[_Holdings]]:
        bound = [self.bind(node) for node in nodes]
        return tuple(formula for formula, _ in bound), [held for _, held in bound]

    def _project(self, node: ast.Project) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        for name in node.variables:
            if name.text in held.absent and name.text not in held.variables:
                raise _absent_variable(name)
            self._check_bound(name, held, node.formula, "PROJECT")
        kept = frozenset(name.text for name in node.variables)
        variables = {name: holding for name, holding in held.variables.items() if name in kept}
        at_least, at_most = _count(formula, kept)
        types = frozenset().union(*(holding.types for holding in variables.values()))
        return plan.Project(formula, kept), replace(
            held,
            variables=variables,
            marked=_Holding(at_least, at_most, types),
            first=held.first & kept,
            absent={},
            awaited=held.awaited & kept,
        )

    def _filter(self, node: ast.Filter) -> tuple[plan.Formula, _Holdings]:
        formula, held = self.bind(node.formula)
        alternatives = self._alternatives(node.condition, held, node.formula)
        if len(alternatives) > 1:
            n_copies = len(alternatives)
            held = replace(held, n_atoms=held.n_atoms * n_copies, size=held.size.times(n_copies))
            held.check_size("the conditions", node.condition.span, _ALTERNATIVES_HINT)
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
                self._check_choice(node, parts, held)
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

    def _check_choice(
        self, node: ast.AnyCondition, parts: list[list[tuple[tuple[str, plan.Expression], ...]]], held: _Holdings
    ) -> None:
        """Refuse OR between conditions on events that must not come, or for which `->` waits: it would be unclear."""
        for variable in dict.fromkeys(name for part in parts for conditions in part for name, _ in conditions):
            if variable in held.absent or variable in held.awaited:
                why = "may not come" if variable in held.absent else "'->' waits for"
                message = f"OR between conditions on '{variable}', which {why}"
                raise Mistake(message, node.span, f"write the OR inside of the brackets: {variable}[p OR q]")

    def _variable_condition(
        self, node: ast.VariableCondition, held: _Holdings, filtered: ast.Formula
    ) -> plan.Expression:
        holding = self._check_bound(node.variable, held, filtered, "FILTER")
        return self._predicate(node.predicate, node.variable.text, holding.types)

    def _predicate(self, node: ast.Predicate, variable: str, types: frozenset[EventType]) -> plan.Expression:
        """Return the predicate of a condition on events of some types, which a variable holds."""
        owner = Owner.of(variable, types)

        def attribute_of(attribute: ast.Attribute) -> tuple[plan.Expression, pa.DataType]:
            first, *parts = self._own_path(attribute, variable, types)
            data_type = self.scope.type_of_attribute(first, types, owner)
            found: plan.Expression = plan.Column(first.text, kind_of(data_type))
            for number, part in enumerate(parts):
                data_type = part_type(data_type, part, ".".join(str(name) for name in [first, *parts[:number]]))
                found = plan.Field(found, part.text, kind_of(data_type))
            return found, data_type

        attributes = self.scope.attributes_of(self.scope.pattern_types)
        bound = bind_condition(node, attribute_of, attributes, self.parameters)
        _warn_of_zones(node, attributes)
        if not self.scope.is_unknown:
            _warn_of_constants(node, attributes)
        return bound

    def _own_path(self, attribute: ast.Attribute, variable: str, types: frozenset[EventType]) -> tuple[ast.Name, ...]:
        """Return the names of an attribute and its parts, without the variable that may stand before them.

        Where nothing is known of the events, what another variable is called may also be an attribute.
        """
        first, *others = attribute.path
        if not others:
            return attribute.path
        if first.text == variable:
            return attribute.path[1:]
        is_variable = self.scope.names.introduced(first.text) is not None
        own = self.scope.attributes_of(types).get(first.text)
        if own is not None and pa.types.is_struct(own):
            if is_variable:
                warn(f"'{attribute}' is a part of the attribute '{first.text}', not of the variable '{first.text}'")
            return attribute.path
        if is_variable and not self.scope.is_unknown:
            message = f"a condition on '{variable}' cannot use '{attribute}': a condition sees one event"
            hint = "correlate events with PARTITION BY, or compare in a query over the matches"
            raise Mistake(message, attribute.span, hint)
        if not self.scope.is_unknown and first.text not in self.scope.attributes_of(self.scope.pattern_types):
            raise _unknown_variable(first, self.scope.names.known)
        return attribute.path

    def _check_bound(self, name: ast.Name, held: _Holdings, covered: ast.Formula, clause: str) -> _Holding:
        holdings = [part[name.text] for part in (held.variables, held.absent) if name.text in part]
        if holdings:
            return holdings[0] if len(holdings) == 1 else _sum(holdings)
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


def _without_ends(node: ast.Sequence, before: ast.Absence | None, after: ast.Absence | None) -> ast.Sequence:
    """Return a sequence without NOT ... FOR at its ends."""
    parts, gaps = node.parts, node.gaps
    for part, gap in ((before, gaps[0]), (after, gaps[-1])):
        if part is not None and (gap is not ast.Gap.ANY or len(parts) < 2):
            raise _misplaced(part, is_alone=len(parts) < 2)
        if part is not None:
            own = slice(1, None) if part is parts[0] else slice(None, -1)
            parts, gaps = parts[own], gaps[own]
    return replace(node, parts=parts, gaps=gaps)


def _misplaced(node: ast.Absence, *, is_alone: bool = False) -> Mistake:
    if node.duration is None:
        hint = "write A ; NOT B ; C, or say for how long: A ; NOT B FOR 10 minutes"
        return Mistake("NOT needs a part on both sides, joined by ';'", node.span, hint)
    if is_alone:
        hint = "name an event before or after it: A ; NOT B FOR 10 minutes"
        return Mistake("NOT ... FOR cannot stand alone", node.span, hint)
    hint = "it must be the first or the last part of the whole WHERE, joined by ';': A ; NOT B FOR 10 minutes"
    return Mistake("NOT ... FOR cannot stand here", node.span, hint)


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


def _absent_variable(name: ast.Name) -> Mistake:
    hint = f"conditions on it are possible: FILTER {name}[...]"
    return Mistake(f"'{name.text}' stands only under NOT or WITHOUT, so it holds no event", name.span, hint)


def _unknown_variable(name: ast.Name, known: Iterable[str]) -> Mistake:
    available = list(dict.fromkeys(known))
    return Mistake(
        f"unknown variable '{name.text}'",
        name.span,
        did_you_mean(name.text, available) or f"variables are {listing(available)}",
    )


def _repeated(holding: _Holding, node: ast.Iteration) -> _Holding:
    most = MANY if node.most is None else node.most
    return _Holding(min(MANY, holding.at_least * node.least), min(MANY, holding.at_most * most), holding.types)


def _repeated_size(once: _Size, least: int, n_rounds: int, *, is_bounded: bool) -> _Size:
    """Return the size of rounds one after the other; only after `least` of them there may be no more."""
    if not is_bounded:
        looping = _Size(
            once.n_steps + once.ends + once.starts + once.both,
            once.starts + once.both,
            once.ends + once.both,
            once.both,
        )
        n_before = n_rounds - 1
        both = looping.both if not n_before else 0
        starts = looping.starts if not n_before else once.starts
        return _Size(n_before * once.n_steps + looping.n_steps, starts, looping.ends, both)
    n_early_ends = n_rounds - least
    both = once.both if least == 1 else 0
    starts = once.starts + (once.both if least == 1 and n_rounds > 1 else 0)
    n_steps = n_rounds * once.n_steps + n_early_ends * once.ends
    return _Size(n_steps, starts, (n_early_ends + 1) * once.ends, both)


def _followed_size(left: _Size, right: _Size, is_left_optional: bool, is_right_optional: bool) -> _Size:  # noqa: FBT001
    """Return the size of two formulas one after the other, with the steps around one that may be empty."""
    n_steps, starts, ends, both = left.n_steps + right.n_steps, left.starts, right.ends, 0
    if is_right_optional:
        n_steps, starts, ends, both = n_steps + left.ends, starts + left.both, ends + left.ends, both + left.both
    if is_left_optional:
        n_steps, starts, ends, both = (
            n_steps + right.starts,
            starts + right.starts,
            ends + right.both,
            both + right.both,
        )
    return _Size(n_steps, starts, ends, both)


def _with_absent(left: dict[str, _Holding], right: dict[str, _Holding]) -> dict[str, _Holding]:
    return {**left, **{name: _sum([left[name], held]) if name in left else held for name, held in right.items()}}


def _sum(holdings: list[_Holding]) -> _Holding:
    return _Holding(
        min(MANY, sum(holding.at_least for holding in holdings)),
        min(MANY, sum(holding.at_most for holding in holdings)),
        frozenset().union(*(holding.types for holding in holdings)),
    )


def _all_of(parts: list[_Holdings]) -> _Holdings:
    variables: dict[str, _Holding] = {}
    for part in parts:
        for name, holding in part.variables.items():
            earlier = variables.get(name)
            variables[name] = holding if earlier is None else _sum([earlier, holding])
    return _joined(parts, variables, _sum([part.marked for part in parts]))


def _either(parts: list[_Holdings]) -> _Holdings:
    found: dict[str, list[_Holding]] = {}
    for part in parts:
        for name, holding in part.variables.items():
            found.setdefault(name, []).append(holding)
    variables = {name: _least_and_most(holdings, len(parts)) for name, holdings in found.items()}
    marked = _least_and_most([part.marked for part in parts], len(parts))
    return _joined(parts, variables, marked)


def _joined(parts: list[_Holdings], variables: dict[str, _Holding], marked: _Holding) -> _Holdings:
    absent: dict[str, _Holding] = {}
    for part in parts:
        absent = _with_absent(absent, part.absent)
    return _Holdings(
        variables,
        marked,
        sum(part.n_atoms for part in parts),
        _Size(
            sum(part.size.n_steps for part in parts),
            sum(part.size.starts for part in parts),
            sum(part.size.ends for part in parts),
            sum(part.size.both for part in parts),
        ),
        frozenset().union(*(part.first for part in parts)),
        absent,
        frozenset().union(*(part.awaited for part in parts)),
    )


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
        if len(alternative) == 1 and variable in held.variables and held.variables[variable].at_most <= 1:
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
        case plan.Filter() | plan.Without():
            return _count(formula.formula, kept)
        case plan.Iteration():
            at_least, at_most = _count(formula.formula, kept)
            most = MANY if formula.most is None else formula.most
            return min(MANY, at_least * formula.least), min(MANY, at_most * most)
        case plan.Sequence() | plan.Permutation():
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
            if name in held.absent:
                raise _absent_variable(item.variable)
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
