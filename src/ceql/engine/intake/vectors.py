"""Predicates with arithmetic over whole columns of numbers, with the meaning of `predicates.evaluate`.

A column that is only compared with constants has few classes of values (see `classes`). With arithmetic, and where
columns are compared with each other, there may be as many classes as values. Such predicates are computed here, for all
rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.schema import Kind
from ceql.syntax import cuts, plan

Array = Any
"""A NumPy array."""


@dataclass(frozen=True)
class Vector:
    """A value for each row (or one for all): integers, doubles or truths, and where it is not NULL."""

    values: Array
    is_valid: Array


def in_own_kind(predicate: plan.Expression) -> plan.Expression:
    """Return a predicate with the same meaning that compares numbers only with constants of their own kind.

    A constant between two doubles (or integers) is replaced by the greater of the two.
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
    kind = plan.kind_of_value(predicate.left)
    asked = _in_kind(predicate.operator, predicate.right, kind)
    if asked is None or isinstance(asked, bool):
        return predicate
    return plan.Compare(predicate.left, asked[0], plan.Constant(asked[1], kind), as_doubles=False)


def _set_in_own_kind(predicate: plan.InSet) -> plan.Expression:
    """Return a set without items that no number of its value's kind can equal."""
    kind = plan.kind_of_value(predicate.value)
    asked = [_in_kind("=", item, kind) for item in predicate.items]
    if None in asked:
        return predicate
    items = [plan.Constant(equal[1], kind) for equal in asked if isinstance(equal, tuple)]
    return plan.InSet(predicate.value, tuple(items), predicate.has_null)


_COMPUTED_TYPES = {Kind.INTEGER: pa.int64(), Kind.FLOAT: pa.float64()}
"""The type in which numbers of each kind are computed; other kinds are not computed."""


def _in_kind(operator: str, constant: plan.Constant, kind: Kind) -> tuple[str, cuts.Number] | bool | None:
    """Return a comparison with a constant as `cuts.in_type` does; None if it does not compare numbers."""
    data_type, value = _COMPUTED_TYPES.get(kind), constant.value
    if data_type is None or isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return cuts.in_type(operator, value, data_type)


def can_evaluate(predicate: plan.Expression, types: Mapping[str, pa.DataType]) -> bool:
    """Whether NumPy gives what `predicates.evaluate` gives, for a predicate over columns of these types."""
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
    """Whether a term is a number for which NumPy gives what `predicates.evaluate` gives."""
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
            # The negative of the least integer does not fit 64 bits.
            return Vector(-operand.values, operand.is_valid & (operand.values != np.iinfo(np.int64).min))
        case plan.Arithmetic():
            first, *others = (compute(operand, columns) for operand in term.operands)
            for operator, other in zip(term.operators, others, strict=True):
                first = _operated(first, operator, other)
            return first
    raise AssertionError(f"no rule for {type(term).__name__}")


def _joined(parts: list[Vector], *, is_all: bool) -> Vector:
    """Return a conjunction or a disjunction in three-valued logic: one part may decide it, even if others are NULL."""
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
