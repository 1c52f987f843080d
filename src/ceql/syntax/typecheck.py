"""Predicates: AST to plan, with every comparison's types checked.

This module decides, once for all backends, how two values compare: constants become values of the kind they are
compared with, exactly if possible; two numeric columns of different kinds compare as doubles; integers compute in 64
bits.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

from ceql.schema import Kind
from ceql.syntax import ast, plan
from ceql.syntax.mistakes import Mistake, shortened
from ceql.syntax.patterns import PatternError, like_to_regex, portable_regex
from ceql.syntax.plan import kind_of_value
from ceql.syntax.times import nanoseconds, read_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    AttributeKind = Callable[[ast.Attribute], Kind]
    """Returns an attribute's kind, or raises a mistake if it is unknown."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_UNTYPED = (Kind.NULL, Kind.UNKNOWN)
_EXAMPLES = {
    Kind.TIMESTAMP: "2024-01-31 23:59:59.5",
    Kind.LOCAL_TIMESTAMP: "2024-01-31 23:59:59.5",
    Kind.DATE: "2024-01-31",
}


def bind_condition(
    node: ast.Predicate, kind_of_attribute: AttributeKind, attributes: Collection[str] = ()
) -> plan.Expression:
    """Return the plan of a predicate, which must be boolean.

    `attributes` are for hints: a string that equals the name of an attribute is probably in quotes by mistake.
    """
    return _Binder(kind_of_attribute, attributes).condition(node)


def quoted_attribute(nodes: Iterable[ast.Node], attributes: Collection[str]) -> str | None:
    """Return a hint if a string among these nodes is the name of an attribute, else None."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in attributes:
            written = ast.quoted_name(node.value)
            quotes = "without quotes" if written == node.value else "with backticks"
            return f"write the attribute {written} {quotes}"
    return None


def _described(node: ast.Predicate, kind: Kind) -> str:
    return f"{shortened(str(node))} ({kind.value})"


def _constant_kind(value: ast.ConstantValue) -> Kind:
    if value is None:
        return Kind.NULL
    for python_type, kind in ((bool, Kind.BOOLEAN), (str, Kind.STRING), (int, Kind.INTEGER)):
        if isinstance(value, python_type):
            return kind
    return Kind.DECIMAL


class _Binder:
    def __init__(self, kind_of_attribute: AttributeKind, attributes: Collection[str]) -> None:
        self.kind_of_attribute = kind_of_attribute
        self.attributes = attributes

    def condition(self, node: ast.Predicate) -> plan.Expression:
        """Return the plan of a predicate, or raise a mistake if it is not boolean."""
        bound = self.bind(node)
        kind = kind_of_value(bound)
        if kind is not Kind.BOOLEAN and kind not in _UNTYPED:
            hint = quoted_attribute([node], self.attributes) or "compare it with something"
            raise Mistake(f"{_described(node, kind)} is not a condition", node.span, hint)
        return bound

    def bind(self, node: ast.Predicate) -> plan.Expression:
        """Return the plan of a predicate or value."""
        match node:
            case ast.Attribute():
                return plan.Column(node.name.text, self.kind_of_attribute(node))
            case ast.Constant():
                return plan.Constant(node.value, _constant_kind(node.value))
            case ast.Arithmetic():
                return self._arithmetic(node)
            case ast.Negative():
                value = self._number(node.value)
                return plan.Negative(value, _computed_kind(kind_of_value(value)))
            case ast.Compare():
                return self._compare(node, node.left, node.operator, node.right)
            case ast.InSet():
                return _negated(self._in_set(node), node.is_negated)
            case ast.InRange() | ast.Between():
                low = self._compare(node.low, node.value, ">=", node.low)
                high = self._compare(node.high, node.value, "<=", node.high)
                return _negated(plan.All((low, high)), node.is_negated)
            case ast.Like():
                return _negated(self._like(node), node.is_negated)
            case ast.IsNull():
                return _negated(plan.IsNull(self.bind(node.value)), node.is_negated)
            case ast.Not():
                return plan.Not(self.condition(node.predicate))
            case ast.AllPredicates():
                return plan.All(tuple(self.condition(part) for part in node.parts))
            case ast.AnyPredicate():
                return plan.Any(tuple(self.condition(part) for part in node.parts))
        raise AssertionError(f"no rule for {type(node).__name__}")

    def _number(self, node: ast.Predicate) -> plan.Expression:
        bound = self.bind(node)
        kind = kind_of_value(bound)
        if not kind.is_numeric and kind not in _UNTYPED:
            hint = quoted_attribute([node], self.attributes)
            raise Mistake(f"{_described(node, kind)} is not a number", node.span, hint)
        if isinstance(bound, plan.Constant) and not _fits_int64(bound.value):
            try:
                return plan.Constant(float(bound.value), Kind.FLOAT)  # type: ignore[arg-type]
            except OverflowError:
                raise Mistake(f"{shortened(str(node))} is too large to compute with", node.span) from None
        return bound

    def _arithmetic(self, node: ast.Arithmetic) -> plan.Arithmetic:
        operands = tuple(self._number(operand) for operand in node.operands)
        kinds = {_computed_kind(kind_of_value(operand)) for operand in operands}
        is_integer = kinds == {Kind.INTEGER} and "/" not in node.operators
        kind = Kind.INTEGER if is_integer else Kind.UNKNOWN if Kind.UNKNOWN in kinds else Kind.FLOAT
        return plan.Arithmetic(operands, node.operators, kind)

    def _compare(self, whole: ast.Predicate, left: ast.Predicate, operator: str, right: ast.Predicate) -> plan.Compare:
        bound_left, bound_right = self.bind(left), self.bind(right)
        if isinstance(bound_left, plan.Constant):
            bound_left = self._as_kind_of(left, bound_left, right, kind_of_value(bound_right), whole)
        elif isinstance(bound_right, plan.Constant):
            bound_right = self._as_kind_of(right, bound_right, left, kind_of_value(bound_left), whole)
        else:
            self._check_comparable(left, kind_of_value(bound_left), right, kind_of_value(bound_right), whole)
        return plan.Compare(bound_left, operator, bound_right, _as_doubles(bound_left, bound_right))

    def _in_set(self, node: ast.InSet) -> plan.InSet:
        value = self.bind(node.value)
        kind = kind_of_value(value)
        items = []
        for item in node.items:
            constant = plan.Constant(item.value, _constant_kind(item.value))
            items.append(self._as_kind_of(item, constant, node.value, kind, item))
        present = tuple(item for item in items if item.value is not None)
        return plan.InSet(value, present, has_null=len(present) < len(items))

    def _like(self, node: ast.Like) -> plan.Matches:
        value = self.bind(node.value)
        kind = kind_of_value(value)
        if kind is not Kind.STRING and kind not in _UNTYPED:
            word = "RLIKE" if node.is_regex else "LIKE"
            raise Mistake(f"{word} needs a string, not {_described(node.value, kind)}", node.value.span)
        pattern = str(node.pattern.value)
        try:
            return plan.Matches(value, portable_regex(pattern) if node.is_regex else like_to_regex(pattern))
        except PatternError as error:
            word = "regular expression" if node.is_regex else "LIKE pattern"
            raise Mistake(f"unusable {word} {node.pattern}", node.pattern.span, str(error)) from None

    def _as_kind_of(
        self,
        node: ast.Predicate,
        constant: plan.Constant,
        other: ast.Predicate,
        kind: Kind,
        whole: ast.Predicate,
    ) -> plan.Constant:
        """Return a constant as a value of the kind it is compared with, without loss."""
        value = constant.value
        if value is None or kind in _UNTYPED:
            return constant
        if isinstance(value, str) and kind.is_time:
            return _time_constant(value, kind, node)
        self._check_comparable(node, constant.kind, other, kind, whole)
        if kind is Kind.FLOAT and isinstance(value, Decimal):
            return plan.Constant(float(value), Kind.FLOAT)
        return constant

    def _check_comparable(
        self, left: ast.Predicate, kind: Kind, right: ast.Predicate, other: Kind, whole: ast.Predicate
    ) -> None:
        if kind in _UNTYPED or other in _UNTYPED or (kind.is_numeric and other.is_numeric):
            return
        if kind is other and kind is not Kind.OTHER:
            return
        if left.span.start > right.span.start:
            left, kind, right, other = right, other, left, kind
        has_constant = isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
        hint = quoted_attribute((left, right), self.attributes) or _comparison_hint(
            {kind, other}, has_constant=has_constant
        )
        raise Mistake(f"cannot compare {_described(left, kind)} with {_described(right, other)}", whole.span, hint)


def _comparison_hint(kinds: set[Kind], *, has_constant: bool) -> str | None:
    if Kind.OTHER in kinds:
        return "only booleans, numbers, strings, timestamps and dates can be compared"
    if not has_constant:
        return None
    if Kind.BOOLEAN in kinds:
        return "write TRUE or FALSE without quotes"
    time = next((kind for kind in kinds if kind.is_time), None)
    if time is not None:
        return f"write a {time.value} like '{_EXAMPLES[time]}'"
    return "write numbers without quotes and strings with quotes"


def _computed_kind(kind: Kind) -> Kind:
    """Return the kind that arithmetic works in: decimals compute as doubles."""
    return {Kind.INTEGER: Kind.INTEGER, Kind.UNKNOWN: Kind.UNKNOWN, Kind.NULL: Kind.INTEGER}.get(kind, Kind.FLOAT)


def _fits_int64(value: object) -> bool:
    return not isinstance(value, Decimal) and (not isinstance(value, int) or INT64_MIN <= value <= INT64_MAX)


def _as_doubles(left: plan.Expression, right: plan.Expression) -> bool:
    """Whether two columns are compared and only one of them is a double."""
    if isinstance(left, plan.Constant) or isinstance(right, plan.Constant):
        return False
    kinds = {kind_of_value(left), kind_of_value(right)}
    return Kind.FLOAT in kinds and len(kinds) > 1 and all(kind.is_numeric for kind in kinds)


def _time_constant(value: str, kind: Kind, node: ast.Predicate) -> plan.Constant:
    """Return a timestamp or date from its ISO form, exactly; without a zone it is in UTC."""
    try:
        if kind is Kind.DATE:
            return plan.Constant(nanoseconds(date.fromisoformat(value)), kind)
        moment, has_zone = read_moment(value)
    except (ValueError, OverflowError):
        raise Mistake(f"'{value}' is not a {kind.value}", node.span, f"write it like '{_EXAMPLES[kind]}'") from None
    if has_zone and kind is Kind.LOCAL_TIMESTAMP:
        raise Mistake(f"'{value}' has a zone, but the attribute has none", node.span, "leave the zone out")
    return plan.Constant(moment, kind)


def _negated(predicate: plan.Expression, is_negated: bool) -> plan.Expression:  # noqa: FBT001
    return plan.Not(predicate) if is_negated else predicate
