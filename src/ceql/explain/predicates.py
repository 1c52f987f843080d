"""Predicates, guards and labels as text."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ceql.automaton.cea import CEA, MARK, SKIP, TRUE, Guard, Transition
from ceql.schema import Kind
from ceql.syntax import plan
from ceql.syntax.ast import quoted_name
from ceql.syntax.times import write_duration, write_time


def predicate_text(predicate: plan.Expression) -> str:
    """Return a bound predicate as the query would write it."""
    return _predicate(predicate, 0)


def _predicate(predicate: plan.Expression, level: int) -> str:
    text, own_level = _predicate_and_level(predicate)
    return text if own_level >= level else f"({text})"


def _predicate_and_level(predicate: plan.Expression) -> tuple[str, int]:
    """Return the text and how strongly it binds, as in `ast`."""
    match predicate:
        case plan.HasType():
            name = quoted_name(predicate.event_type)
            return (name if predicate.stream is None else f"{quoted_name(predicate.stream)}>{name}"), 9
        case plan.Column():
            return quoted_name(predicate.name), 9
        case plan.Field():
            return f"{_predicate(predicate.value, 9)}.{quoted_name(predicate.name)}", 9
        case plan.AnyItem():
            return _predicate_and_level(_named_item(predicate))
        case plan.Constant():
            return _constant(predicate), 6
        case plan.Any():
            return " OR ".join(_predicate(part, 1) for part in predicate.parts), 0
        case plan.All():
            return " AND ".join(_predicate(part, 2) for part in predicate.parts), 1
        case plan.Not():
            return f"NOT {_predicate(predicate.predicate, 2)}", 2
        case plan.Compare():
            return f"{_predicate(predicate.left, 4)} {predicate.operator} {_predicate(predicate.right, 4)}", 3
        case plan.InSet():
            items = [_constant(item) for item in predicate.items] + ["NULL"] * predicate.has_null
            return f"{_predicate(predicate.value, 4)} IN {{{', '.join(items)}}}", 3
        case plan.InList():
            return f"{_predicate(predicate.value, 4)} IN ${predicate.values.name}", 3
        case plan.Matches():
            return f"{_predicate(predicate.value, 4)} RLIKE {_constant(plan.Constant(predicate.regex, Kind.STRING))}", 3
        case plan.Call():
            return f"{predicate.function}({', '.join(_predicate(part, 0) for part in predicate.arguments)})", 9
        case plan.Case():
            cases = zip(predicate.conditions, predicate.values, strict=True)
            branches = [f"WHEN {_predicate(asked, 0)} THEN {_predicate(value, 0)}" for asked, value in cases]
            return f"CASE {' '.join(branches)} ELSE {_predicate(predicate.otherwise, 0)} END", 9
        case plan.IsNull():
            return f"{_predicate(predicate.value, 4)} IS NULL", 3
        case plan.Negative():
            return f"-{_predicate(predicate.value, 7)}", 6
        case plan.Arithmetic() | plan.TimeSum():
            level = 4 if predicate.operators[0] in "+-" else 5
            first, *rest = (_predicate(operand, level + 1) for operand in predicate.operands)
            pairs = zip(predicate.operators, rest, strict=True)
            return first + "".join(f" {sign} {operand}" for sign, operand in pairs), level
    raise AssertionError(f"no rule for {type(predicate).__name__}")


def _named_item(predicate: plan.AnyItem) -> plan.Expression:
    """Return the predicate of a list's items with `ANY(list)` in place of the item."""
    name = plan.Call("ANY", (predicate.items,), Kind.BOOLEAN)
    return plan.replaced(predicate.predicate, lambda part: name if isinstance(part, plan.Item) else None)


def _constant(constant: plan.Constant) -> str:
    value: Any = constant.value
    if constant.kind is Kind.DURATION and value is not None:
        return write_duration(value)
    if constant.kind.is_time and value is not None:
        value = write_time(value, constant.kind)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else str(value).upper() if isinstance(value, bool) else str(value)


def guard_text(guard: Guard) -> str:
    """Return a transition's condition; the event type comes first."""
    parts = sorted((not isinstance(part, plan.HasType), _predicate(part, 2)) for part in guard)
    return " AND ".join(text for _, text in parts) or "TRUE"


def unless_text(transition: Transition) -> str:
    """Return what an event must not satisfy for a transition to be taken; empty if there is nothing."""
    return _one_of(transition.unless)


def _one_of(guards: Collection[Guard]) -> str:
    is_one = len(guards) == 1
    return " OR ".join(
        sorted(guard_text(guard) if is_one or len(guard) == 1 else f"({guard_text(guard)})" for guard in guards)
    )


def silences_text(cea: CEA) -> list[str]:
    """Return what may not come for some time before and after a run, as sentences."""
    return [
        f"may not come {when} a run: {_one_of(guards)}"
        for when, guards in (("before", cea.broken_before), ("after", cea.broken_after))
        if guards
    ]


def is_skipping(transition: Transition) -> bool:
    """Whether a transition only waits. Any other event that nothing holds is needed, though it is not selected."""
    is_loop = transition.source == transition.target and transition.guard == TRUE
    return is_loop and transition.label == SKIP


def label_text(transition: Transition) -> str:
    """Return what becomes of the event: its variables, `marked`, `not selected`, or `-` if it is skipped."""
    if transition.label == SKIP:
        return "-" if is_skipping(transition) else "not selected"
    return ", ".join("marked" if name == MARK else quoted_name(name) for name in sorted(transition.label))


def transition_text(transition: Transition) -> str:
    """Return when a transition is taken, and what becomes of the event."""
    unless = f" UNLESS {unless_text(transition)}" if transition.unless else ""
    return f"{guard_text(transition.guard)}{unless} / {label_text(transition)}"
