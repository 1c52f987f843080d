"""Predicates with arithmetic over whole columns of numbers, with the meaning of `predicates.evaluate`.

Where a predicate compares a column with constants, few classes of values say it all (`symbols`). Arithmetic, and
comparisons between columns, have as many classes as values; so they are computed for all rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.schema import Kind
from ceql.syntax import plan

Array = Any
"""A NumPy array."""


@dataclass(frozen=True)
class Vector:
    """A value for each row (or one for all): integers, doubles or truths, and where it is not NULL."""

    values: Array
    is_valid: Array


def in_own_kind(predicate: plan.Expression) -> plan.Expression:
    """Return a predicate that compares numbers with constants of their own kind only, and means the same.

    A constant between two doubles (or integers) is replaced by the next one above.
    """
    match predicate:
        case plan.Compare(left=plan.Constant(), right=right) if not isinstance(right, plan.Constant):
            return in_own_kind(predicate.mirrored())
        case plan.Compare(right=plan.Constant()) if not predicate.as_doubles:
            return _compare_in_own_kind(predicate)
        case plan.InSet():
            return _set_in_own_kind(predicate)
        case plan.Not() | plan.All() | plan.Any():
            return predicate.map(in_own_kind)
    return predicate


def _compare_in_own_kind(predicate: plan.Compare) -> plan.Expression:
    assert isinstance(predicate.right, plan.Constant)
    above = _at_least(predicate.right, plan.kind_of_value(predicate.left))
    if above is None:
        return predicate
    if above is predicate.right or above.value == predicate.right.value:
        return plan.Compare(predicate.left, predicate.operator, above, as_doubles=False)
    if predicate.operator in ("=", "!="):
        return predicate
    return plan.Compare(predicate.left, "<" if predicate.operator in ("<", "<=") else ">=", above, as_doubles=False)


def _set_in_own_kind(predicate: plan.InSet) -> plan.Expression:
    """Return a set without the items that no number of its value's kind equals."""
    kind = plan.kind_of_value(predicate.value)
    items = []
    for item in predicate.items:
        own = _at_least(item, kind)
        if own is None:
            return predicate
        if own.value == item.value or own is item:
            items.append(own)
    return plan.InSet(predicate.value, tuple(items), predicate.has_null)


def _at_least(constant: plan.Constant, kind: Kind) -> plan.Constant | None:
    """Return the least number of a kind that is not below a constant; None if there is none, or it is no number."""
    value = constant.value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, float) and (kind is Kind.FLOAT or not math.isfinite(value)):
        return constant if kind is Kind.FLOAT else None
    if kind is Kind.INTEGER:
        whole = math.ceil(value)
        return plan.Constant(whole, kind) if -(2**63) <= whole < 2**63 else None
    if kind is not Kind.FLOAT:
        return None
    try:
        nearest = float(value)
    except OverflowError:
        return None
    return plan.Constant(nearest if nearest >= value else math.nextafter(nearest, math.inf), kind)


def can_evaluate(predicate: plan.Expression, types: Mapping[str, pa.DataType]) -> bool:
    """Whether a predicate is made of numbers that NumPy computes with as Python does, on columns of these types."""
    match predicate:
        case plan.Compare():
            parts = (predicate.left, predicate.right)
            return all(can_compute(part, types) for part in parts) and (
                predicate.as_doubles or len({_is_float(part) for part in parts}) == 1
            )
        case plan.InSet():
            items = [predicate.value, *predicate.items]
            return all(can_compute(item, types) for item in items) and len({_is_float(item) for item in items}) <= 1
        case plan.IsNull():
            return can_compute(predicate.value, types) or can_evaluate(predicate.value, types)
        case plan.Not():
            return can_evaluate(predicate.predicate, types)
        case plan.All() | plan.Any():
            return all(can_evaluate(part, types) for part in predicate.parts)
    return False


def can_compute(term: plan.Expression, types: Mapping[str, pa.DataType]) -> bool:
    """Whether a term is a number that NumPy computes as Python does."""
    match term:
        case plan.Column(name=name):
            data_type = types.get(name)
            if data_type is None:
                return False
            is_integer = pa.types.is_integer(data_type) and data_type != pa.uint64() and term.kind is Kind.INTEGER
            return bool(is_integer or (pa.types.is_floating(data_type) and term.kind is Kind.FLOAT))
        case plan.Constant(value=value):
            is_small = type(value) is int and -(2**63) <= value < 2**63
            return (is_small and term.kind is Kind.INTEGER) or (type(value) is float and term.kind is Kind.FLOAT)
        case plan.Negative():
            return can_compute(term.value, types)
        case plan.Arithmetic():
            return all(can_compute(operand, types) for operand in term.operands)
    return False


def _is_float(term: plan.Expression) -> bool:
    return plan.kind_of_value(term) is Kind.FLOAT


def evaluate(predicate: plan.Expression, columns: Mapping[str, Vector]) -> Vector:
    """Return a predicate's truth for each row; `can_evaluate` must have said yes."""
    match predicate:
        case plan.Compare():
            left, right = compute(predicate.left, columns), compute(predicate.right, columns)
            if predicate.as_doubles:
                left, right = _as_double(left), _as_double(right)
            return Vector(_compared(left.values, predicate.operator, right.values), left.is_valid & right.is_valid)
        case plan.InSet():
            value = compute(predicate.value, columns)
            truth = np.zeros(value.values.shape, np.bool_)
            for item in predicate.items:
                truth = truth | _compared(value.values, "=", compute(item, columns).values)
            return Vector(truth, value.is_valid & (truth | (not predicate.has_null)))
        case plan.IsNull():
            is_term = isinstance(predicate.value, plan.Column | plan.Constant | plan.Arithmetic | plan.Negative)
            value = (compute if is_term else evaluate)(predicate.value, columns)
            return Vector(~value.is_valid, np.ones_like(value.is_valid))
        case plan.Not():
            value = evaluate(predicate.predicate, columns)
            return Vector(~value.values, value.is_valid)
        case plan.All() | plan.Any():
            return _joined(
                [evaluate(part, columns) for part in predicate.parts], is_all=isinstance(predicate, plan.All)
            )
    raise AssertionError(f"no rule for {type(predicate).__name__}")


def compute(term: plan.Expression, columns: Mapping[str, Vector]) -> Vector:
    """Return a term's number for each row."""
    match term:
        case plan.Column(name=name):
            return columns[name]
        case plan.Constant():
            return Vector(np.array([term.value]), np.ones(1, np.bool_))
        case plan.Negative():
            operand = compute(term.value, columns)
            if operand.values.dtype == np.float64:
                return Vector(-operand.values, operand.is_valid)
            # The least integer has no counterpart.
            return Vector(-operand.values, operand.is_valid & (operand.values != np.iinfo(np.int64).min))
        case plan.Arithmetic():
            first, *others = (compute(operand, columns) for operand in term.operands)
            for operator, other in zip(term.operators, others, strict=True):
                first = _operated(first, operator, other)
            return first
    raise AssertionError(f"no rule for {type(term).__name__}")


def _joined(parts: list[Vector], *, is_all: bool) -> Vector:
    """Return a conjunction, or a disjunction, in three-valued logic: one part may decide it, whatever others are."""
    decided: Any = np.zeros(1, np.bool_)
    is_valid: Any = np.ones(1, np.bool_)
    for part in parts:
        decided = decided | (part.is_valid & (part.values != is_all))
        is_valid = is_valid & part.is_valid
    return Vector(~decided if is_all else decided, is_valid | decided)


def _compared(left: Array, operator: str, right: Array) -> Array:
    """Return a comparison in which NaN equals itself and is greater than all other numbers."""
    if left.dtype != np.float64:
        return _COMPARISONS[operator](left, right)
    left_nan, right_nan = np.isnan(left), np.isnan(right)
    match operator:
        case "=":
            return (left == right) | (left_nan & right_nan)
        case "!=":
            return ~_compared(left, "=", right)
        case "<":
            return (left < right) | (right_nan & ~left_nan)
        case ">":
            return (left > right) | (left_nan & ~right_nan)
        case "<=":
            return ~_compared(left, ">", right)
    return ~_compared(left, "<", right)


_COMPARISONS: dict[str, Any] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _as_double(vector: Vector) -> Vector:
    return Vector(vector.values.astype(np.float64), vector.is_valid)


def _operated(left: Vector, operator: str, right: Vector) -> Vector:
    is_valid = left.is_valid & right.is_valid
    if operator == "/" or np.float64 in (left.values.dtype, right.values.dtype):
        a, b = left.values.astype(np.float64), right.values.astype(np.float64)
        with np.errstate(all="ignore"):
            if operator in "/%":
                is_valid = is_valid & (b != 0)
            return Vector(_DOUBLE_OPERATIONS[operator](a, b), is_valid)
    a, b = left.values, right.values
    with np.errstate(all="ignore"):
        if operator == "%":
            return Vector(np.fmod(a, np.where(b == 0, 1, b)), is_valid & (b != 0))
        result = _INTEGER_OPERATIONS[operator](a, b)
        return Vector(result, is_valid & ~_overflows(a, operator, b, result))


_DOUBLE_OPERATIONS: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
}
_INTEGER_OPERATIONS: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply}


def _overflows(left: Array, operator: str, right: Array, result: Array) -> Array:
    """Return where an integer result was cut to 64 bits."""
    if operator == "+":
        return ((left ^ result) & (right ^ result)) < 0
    if operator == "-":
        return ((left ^ right) & (left ^ result)) < 0
    least = np.iinfo(np.int64).min
    divisor = np.where((left == 0) | (left == -1), 1, left)
    is_wrong = (left != 0) & (left != -1) & (result // divisor != right)
    is_edge = (left == -1) & (right == least)
    return is_wrong | is_edge
