"""Predicates on one event, in SQL's three-valued logic.

This is the meaning of every predicate, value by value; code that evaluates whole columns must agree with it. Values are
Python's: None is NULL, and floats compare as in Spark,
where NaN equals itself and is greater than all other numbers. Times may be Python's own or
nanoseconds since 1970.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ceql.functions import FUNCTIONS
from ceql.functions.entry import INT64_MAX, INT64_MIN, as_kind
from ceql.functions.order import order
from ceql.schema import Kind
from ceql.syntax import plan
from ceql.syntax.patterns import search
from ceql.syntax.times import nanoseconds


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its type, its stream, and its attributes; a missing attribute is NULL."""

    event_type: str
    attributes: Mapping[str, Any]
    stream: str | None = None


def holds(predicate: plan.Expression, event: Event) -> bool:
    """Whether an event satisfies a predicate. If the predicate is NULL, it satisfies neither it nor its negation."""
    return evaluate(predicate, event) is True


def evaluate(predicate: plan.Expression, event: Event) -> Any:
    """Return a predicate's value on an event; None is NULL."""
    match predicate:
        case plan.HasType():
            return predicate.event_type == event.event_type and predicate.stream in (None, event.stream)
        case plan.Column():
            return _as_value(event.attributes.get(predicate.name))
        case plan.Item():
            return _as_value(event.attributes[plan.ITEM])
        case plan.Field():
            value = evaluate(predicate.value, event)
            return None if value is None else _as_value(value.get(predicate.name))
        case plan.AnyItem():
            return _any_item(predicate, event)
        case plan.Constant():
            return predicate.value
        case plan.Compare():
            left, right = evaluate(predicate.left, event), evaluate(predicate.right, event)
            if left is None or right is None:
                return None
            if predicate.as_doubles:
                left, right = float(left), float(right)
            return _COMPARISONS[predicate.operator](order(left, right))
        case plan.InSet():
            return _in_set(predicate, evaluate(predicate.value, event))
        case plan.InList():
            value = evaluate(predicate.value, event)
            return None if value is None else value in predicate.values or (None if predicate.has_null else False)
        case plan.Matches():
            value = evaluate(predicate.value, event)
            return None if value is None else _is_found(predicate.regex, value)
        case plan.Call():
            arguments = [evaluate(argument, event) for argument in predicate.arguments]
            return FUNCTIONS[predicate.function].value(predicate.kind, arguments)
        case plan.Case():
            cases = zip(predicate.conditions, predicate.values, strict=True)
            chosen = (value for condition, value in cases if evaluate(condition, event) is True)
            return as_kind(predicate.kind, evaluate(next(chosen, predicate.otherwise), event))
        case plan.IsNull():
            return evaluate(predicate.value, event) is None
        case plan.Not():
            value = evaluate(predicate.predicate, event)
            return None if value is None else not value
        case plan.All():
            return _all([evaluate(part, event) for part in predicate.parts])
        case plan.Any():
            opposite = _all([_not(evaluate(part, event)) for part in predicate.parts])
            return _not(opposite)
        case plan.Arithmetic():
            return _arithmetic(predicate, event)
        case plan.TimeSum():
            first, *others = [evaluate(operand, event) for operand in predicate.operands]
            if first is None or None in others:
                return None
            signed = zip(predicate.operators, others, strict=True)
            return first + sum(other if sign == "+" else -other for sign, other in signed)
        case plan.Negative():
            value = _operand(predicate.value, event)
            return None if value is None else _bounded(-value)
    raise AssertionError(f"no rule for {type(predicate).__name__}")


def truth(predicate: plan.Expression, truths: Mapping[plan.Expression, bool | None]) -> bool | None:
    """Return the value of a predicate from the known values of its parts."""
    if predicate in truths:
        return truths[predicate]
    match predicate:
        case plan.Not():
            return _not(truth(predicate.predicate, truths))
        case plan.All():
            return _all([truth(part, truths) for part in predicate.parts])
        case plan.Any():
            return _not(_all([_not(truth(part, truths)) for part in predicate.parts]))
    raise AssertionError(f"no rule for {type(predicate).__name__}")


_COMPARISONS: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "!=": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


def _as_value(value: Any) -> Any:
    return nanoseconds(value) if isinstance(value, date | timedelta) else value


def _any_item(predicate: plan.AnyItem, event: Event) -> bool | None:
    items = evaluate(predicate.items, event)
    if items is None:
        return None
    events = [replace(event, attributes={**event.attributes, plan.ITEM: item}) for item in items]
    return _not(_all([_not(evaluate(predicate.predicate, seen)) for seen in events]))


def _not(value: bool | None) -> bool | None:  # noqa: FBT001
    return None if value is None else not value


def _all(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _in_set(predicate: plan.InSet, value: Any) -> bool | None:
    if value is None:
        return None
    if any(order(value, item.value) == 0 for item in predicate.items):
        return True
    return None if predicate.has_null else False


@lru_cache(maxsize=1024)
def _is_found(regex: str, value: str) -> bool:
    found: bool = search(regex, pa.array([value]))[0].as_py()
    return found


def _operand(predicate: plan.Expression, event: Event) -> int | float | None:
    """Return an operand for arithmetic: an integer or a double; decimals become doubles."""
    value = evaluate(predicate, event)
    if isinstance(value, Decimal) or plan.kind_of_value(predicate) is Kind.FLOAT:
        return None if value is None else float(value)
    result: int | float | None = _bounded(value)
    return result


def _arithmetic(predicate: plan.Arithmetic, event: Event) -> int | float | None:
    result, *operands = (_operand(operand, event) for operand in predicate.operands)
    for operator, operand in zip(predicate.operators, operands, strict=True):
        if result is None or operand is None:
            return None
        result = _bounded(_OPERATIONS[operator](result, operand))
    return result


def _divide(left: float, right: float) -> float | None:
    return None if right == 0 else float(left) / float(right)


def _remainder(left: float, right: float) -> int | float | None:
    """Return the remainder with the sign of the dividend, as SQL and Java have it."""
    if right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) % abs(right) * (-1 if left < 0 else 1)
    return math.nan if math.isinf(left) else math.fmod(left, right)


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": _remainder,
}


def _bounded(value: Any) -> Any:
    """Return a result, or NULL if it is an integer that does not fit 64 bits."""
    return None if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX else value
