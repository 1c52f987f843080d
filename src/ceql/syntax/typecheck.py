"""Predicates: AST to plan, with every comparison's types checked.

This module decides, once for all backends, how two values compare: constants become values of the kind they are
compared with, exactly if possible; two numeric columns of different kinds compare as doubles; integers compute in 64
bits.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from ceql.errors import did_you_mean, listing
from ceql.functions import FUNCTIONS, Function, common_kind
from ceql.functions.entry import INT64_MAX, INT64_MIN, computed_kind
from ceql.functions.text import lowered
from ceql.parameters import NO_PARAMETERS, Parameters, Values
from ceql.schema import Kind, kind_of, python_values
from ceql.syntax import ast, plan
from ceql.syntax.mistakes import Mistake, shortened
from ceql.syntax.patterns import IGNORES_CASE, PatternError, like_to_regex, portable_regex
from ceql.syntax.plan import kind_of_value
from ceql.syntax.times import NANOSECONDS_PER_DAY, UNITS, nanoseconds, read_moment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    AttributeOf = Callable[[ast.Attribute], tuple[plan.Expression, pa.DataType]]
    """Returns an attribute and its type, or raises a mistake if it is unknown."""

_UNTYPED = (Kind.NULL, Kind.UNKNOWN)
MAX_LISTED = 100
"""Most values of a list that are treated as if they were written in the query."""
ANY = "ANY"
_LOOKS_INTO_LISTS = ast.Compare | ast.InSet | ast.InList | ast.InRange | ast.Between | ast.Like | ast.IsNull
"""Predicates that may say ANY(list)."""
_EXAMPLES = {
    Kind.TIMESTAMP: "2024-01-31 23:59:59.5",
    Kind.LOCAL_TIMESTAMP: "2024-01-31 23:59:59.5",
    Kind.DATE: "2024-01-31",
}


def bind_condition(
    node: ast.Predicate,
    attribute_of: AttributeOf,
    attributes: Collection[str] = (),
    parameters: Parameters = NO_PARAMETERS,
) -> plan.Expression:
    """Return the plan of a predicate, which must be boolean.

    `attributes` are for hints: a string that equals the name of an attribute is probably in quotes by mistake.
    """
    return _Binder(attribute_of, attributes, parameters).condition(node)


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


def _constant_of(values: pa.Array, node: ast.Parameter) -> plan.Constant:
    """Return the only value of an array as a constant, as if it was written in the query."""
    kind, value = kind_of(values.type), python_values(values)[0]
    if value is None:
        return plan.Constant(None, Kind.NULL)
    if not kind.is_comparable:
        raise Mistake(f"'{node}' is of type {values.type}, which cannot be compared", node.span)
    if kind is Kind.FLOAT and math.isfinite(value):
        return plan.Constant(Decimal(repr(float(value))), Kind.DECIMAL)
    return plan.Constant(value, kind)


def _constant_kind(value: ast.ConstantValue) -> Kind:
    if value is None:
        return Kind.NULL
    for python_type, kind in ((bool, Kind.BOOLEAN), (str, Kind.STRING), (int, Kind.INTEGER)):
        if isinstance(value, python_type):
            return kind
    return Kind.DECIMAL


class _Binder:
    def __init__(self, attribute_of: AttributeOf, attributes: Collection[str], parameters: Parameters) -> None:
        self.parameters = parameters
        self.attribute_of = attribute_of
        self.attributes = attributes
        self.any_list: plan.Expression | None = None
        """The list that the comparison around this place looks into, by ANY."""

    def condition(self, node: ast.Predicate) -> plan.Expression:
        """Return the plan of a predicate, or raise a mistake if it is not boolean."""
        outer, self.any_list = self.any_list, None
        bound = self.bind(node)
        items, self.any_list = self.any_list, outer
        bound = bound if items is None else plan.AnyItem(items, bound)
        kind = kind_of_value(bound) if items is None else kind_of_value(bound.predicate)
        if kind is not Kind.BOOLEAN and kind not in _UNTYPED:
            hint = quoted_attribute([node], self.attributes) or "compare it with something"
            raise Mistake(f"{_described(node, kind)} is not a condition", node.span, hint)
        return bound

    def bind(self, node: ast.Predicate) -> plan.Expression:
        """Return the plan of a predicate or value."""
        if not isinstance(node, _LOOKS_INTO_LISTS):
            return self._bind(node)
        outer, self.any_list = self.any_list, None
        bound = self._bind(node)
        items, self.any_list = self.any_list, outer
        return bound if items is None else plan.AnyItem(items, bound)

    def _bind(self, node: ast.Predicate) -> plan.Expression:
        match node:
            case ast.Attribute():
                return self.attribute_of(node)[0]
            case ast.Constant():
                return plan.Constant(node.value, _constant_kind(node.value))
            case ast.Parameter():
                return self._parameter(node)
            case ast.InList():
                return _negated(self._in_list(node), node.is_negated)
            case ast.Duration():
                return plan.Constant(_nanoseconds(node), Kind.DURATION)
            case ast.Arithmetic():
                return self._arithmetic(node)
            case ast.Negative():
                value = self.bind(node.value)
                if kind_of_value(value) is Kind.DURATION:
                    return plan.TimeSum((plan.Constant(0, Kind.DURATION), value), ("-",), Kind.DURATION)
                value = self._number(node.value)
                return plan.Negative(value, computed_kind(kind_of_value(value)))
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
            case ast.Call():
                return self._call(node)
            case ast.Case():
                return self._case(node)
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
            return plan.Constant(_as_double(bound.value, node), Kind.FLOAT)
        return bound

    def _arithmetic(self, node: ast.Arithmetic) -> plan.Arithmetic | plan.TimeSum:
        bound = [self.bind(operand) for operand in node.operands]
        kinds = {kind_of_value(operand) for operand in bound}
        # A string may be a time where nothing is known of the other operand.
        if any(kind.is_in_nanoseconds for kind in kinds) or {Kind.UNKNOWN, Kind.STRING} <= kinds:
            return self._time_sum(node, bound)
        operands = tuple(self._number(operand) for operand in node.operands)
        kinds = {computed_kind(kind_of_value(operand)) for operand in operands}
        is_integer = kinds == {Kind.INTEGER} and "/" not in node.operators
        kind = Kind.INTEGER if is_integer else Kind.UNKNOWN if Kind.UNKNOWN in kinds else Kind.FLOAT
        return plan.Arithmetic(operands, node.operators, kind)

    def _time_sum(self, node: ast.Arithmetic, bound: list[plan.Expression]) -> plan.TimeSum:
        """Return a sum of times and durations, computed from the left like any other."""
        kinds = [kind_of_value(operand) for operand in bound]
        time = next((kind for kind in kinds if kind.is_time), Kind.UNKNOWN if Kind.UNKNOWN in kinds else None)
        operands = [
            self._in_kind(part, operand, time)
            if time is not None and isinstance(operand, plan.Constant) and isinstance(operand.value, str)
            else operand
            for part, operand in zip(node.operands, bound, strict=True)
        ]
        kind = kind_of_value(operands[0])
        for sign, operand in zip(node.operators, operands[1:], strict=True):
            other = kind_of_value(operand)
            found = _kind_of_time_sum(kind, sign, other)
            if found is None:
                kinds_told = f"{_kind_with_article(kind)} {sign} {_kind_with_article(other)}"
                message = f"cannot compute {shortened(str(node))}: {kinds_told}"
                raise Mistake(message, node.span, _time_sum_hint(kind, sign, other))
            kind = found
        odd = (part for part, operand in zip(node.operands, operands, strict=True) if not _is_whole_days(operand))
        if kind is Kind.DATE and (part := next(odd, None)) is not None:
            hint = "add whole days to a date: day + 1 day"
            raise Mistake(f"cannot add {shortened(str(part))} to a date", part.span, hint)
        return plan.TimeSum(tuple(operands), node.operators, kind)

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
            constant = self.bind(item)
            assert isinstance(constant, plan.Constant), "the grammar only allows constants here"
            items.append(self._as_kind_of(item, constant, node.value, kind, item))
        present = tuple(item for item in items if item.value is not None)
        return plan.InSet(value, present, has_null=len(present) < len(items))

    def _given(self, node: ast.Parameter) -> tuple[pa.Array, bool]:
        """Return the values of a parameter, and whether they are a list."""
        if node.name not in self.parameters.names:
            hint = did_you_mean(node.name, self.parameters.names) or f"give it as params={{'{node.name}': ...}}"
            raise Mistake(f"parameter '{node}' has no value", node.span, hint)
        return self.parameters.values(node.name)

    def _parameter(self, node: ast.Parameter) -> plan.Constant:
        values, is_list = self._given(node)
        if is_list:
            raise Mistake(f"'{node}' is a list of values", node.span, f"write IN {node}")
        return _constant_of(values, node)

    def _in_list(self, node: ast.InList) -> plan.InSet | plan.InList:
        values, _ = self._given(node.values)
        value = self.bind(node.value)
        kind = kind_of_value(value)
        listed = self.parameters.listed(node.values.name)
        present = listed.array
        has_null = values.null_count > 0
        if kind in _UNTYPED or len(present) <= MAX_LISTED:
            constants = (_constant_of(present.slice(at, 1), node.values) for at in range(min(len(present), MAX_LISTED)))
            items = [self._as_kind_of(node.values, constant, node.value, kind, node) for constant in constants]
            return plan.InSet(value, tuple(items), has_null)
        # All values are of one type, so the first of them stands for all.
        constant = self._as_kind_of(node.values, _constant_of(present.slice(0, 1), node.values), node.value, kind, node)
        if isinstance(constant.value, int) and kind.is_time and kind_of(present.type) is Kind.STRING:
            moments = [_time_constant(text, kind, node.values).value for text in present.to_pylist()]
            whole = [Decimal(moment) for moment in moments if isinstance(moment, int)]
            listed = Values(listed.name, pa.array(whole, pa.decimal128(38, 0)))
        return plan.InList(value, listed, has_null)

    def _like(self, node: ast.Like) -> plan.Matches:
        value = self.bind(node.value)
        kind = kind_of_value(value)
        if kind is not Kind.STRING and kind not in _UNTYPED:
            raise Mistake(f"{node.word} needs a string, not {_described(node.value, kind)}", node.value.span)
        constant = self.bind(node.pattern)
        if not isinstance(constant, plan.Constant) or not isinstance(constant.value, str):
            raise Mistake(f"{node.word} needs a string as pattern, not {node.pattern}", node.pattern.span)
        pattern = constant.value
        if node.ignores_case or (node.is_regex and pattern.startswith(IGNORES_CASE)):
            value = plan.Call("LOWER", (value,), Kind.STRING)
        try:
            if node.is_regex:
                return plan.Matches(value, portable_regex(pattern))
            return plan.Matches(value, like_to_regex(lowered(pattern) if node.ignores_case else pattern))
        except PatternError as error:
            word = "regular expression" if node.is_regex else "LIKE pattern"
            raise Mistake(f"unusable {word} {node.pattern}", node.pattern.span, str(error)) from None

    def _call(self, node: ast.Call) -> plan.Expression:
        name = node.function.text
        if name == ANY:
            return self._item(node)
        function = FUNCTIONS.get(name)
        if function is None:
            hint = did_you_mean(name, [*FUNCTIONS, ANY]) or f"functions are {listing(FUNCTIONS, limit=len(FUNCTIONS))}"
            raise Mistake(f"unknown function '{name}'", node.function.span, hint)
        node = self._with_listed(node, function)
        _check_number(node, function)
        arguments = [self.bind(argument) for argument in node.arguments]
        for number, (argument, bound) in enumerate(zip(node.arguments, arguments, strict=True)):
            self._check_argument(function, number, argument, bound)
            if function.check is not None and isinstance(bound, plan.Constant):
                wrong = function.check([kind_of_value(value) for value in arguments], number, bound.value)
                if wrong is not None:
                    raise Mistake(f"{name} cannot use {shortened(str(argument))}", argument.span, wrong)
        same = [number for number in range(len(arguments)) if function.taken(number).is_same]
        if same:
            nodes, values = [node.arguments[number] for number in same], [arguments[number] for number in same]
            kind, values = self._of_one_kind(nodes, values, f"the values of {name}")
            for number, value in zip(same, values, strict=True):
                arguments[number] = value
        else:
            # Where a number may be of several kinds, the first argument decides.
            kind = computed_kind(kind_of_value(arguments[0]))
        return plan.Call(name, tuple(arguments), function.gives or kind)

    def _with_listed(self, node: ast.Call, function: Function) -> ast.Call:
        """Return a call with the strings of a list in place of the list, where a function takes any number of them."""
        arguments: list[ast.Predicate] = []
        for argument in node.arguments:
            is_list = function.repeats and isinstance(argument, ast.Parameter) and self._given(argument)[1]
            if is_list and isinstance(argument, ast.Parameter):
                values = self._given(argument)[0].to_pylist()
                arguments += [ast.Constant(value, span=argument.span) for value in values]
            else:
                arguments.append(argument)
        return replace(node, arguments=tuple(arguments))

    def _item(self, node: ast.Call) -> plan.Expression:
        """Return the item that `ANY(list)` stands for; the comparison around it is true if it is for some item."""
        if len(node.arguments) != 1:
            raise Mistake(f"ANY takes 1 list, not {len(node.arguments)}", node.span)
        argument = node.arguments[0]
        items = self.bind(argument)
        kind = kind_of_value(items)
        if kind in _UNTYPED:
            item = Kind.UNKNOWN
        elif kind is Kind.LIST and isinstance(argument, ast.Attribute):
            item = kind_of(self.attribute_of(argument)[1].value_type)
        else:
            raise Mistake(f"ANY needs a list, not {_described(argument, kind)}", argument.span)
        if self.any_list is not None and self.any_list != items:
            hint = "join two comparisons by AND or OR"
            raise Mistake("a comparison can look into one list only", node.span, hint)
        self.any_list = items
        return plan.Item(item)

    def _check_argument(self, function: Function, number: int, node: ast.Predicate, bound: plan.Expression) -> None:
        taken, kind = function.taken(number), kind_of_value(bound)
        if kind not in taken.kinds and kind not in _UNTYPED:
            hint = quoted_attribute([node], self.attributes)
            raise Mistake(f"{function.name} needs {taken.what}, not {_described(node, kind)}", node.span, hint)

    def _case(self, node: ast.Case) -> plan.Case:
        if node.compared is None:
            conditions = [self.condition(branch.condition) for branch in node.branches]
        else:
            compared = node.compared
            conditions = [self._compare(branch.condition, compared, "=", branch.condition) for branch in node.branches]
        nodes = [branch.value for branch in node.branches]
        nodes.append(ast.Constant(None, span=node.span) if node.otherwise is None else node.otherwise)
        kind, values = self._of_one_kind(nodes, [self.bind(value) for value in nodes], "the values of CASE")
        return plan.Case(tuple(conditions), tuple(values[:-1]), values[-1], kind)

    def _of_one_kind(
        self, nodes: list[ast.Predicate], values: list[plan.Expression], what: str
    ) -> tuple[Kind, list[plan.Expression]]:
        """Return the kind that some values have in common, and the values with constants of this kind."""
        known = [(node, kind_of_value(value)) for node, value in zip(nodes, values, strict=True)]
        # What a constant string means, others decide: it may be a time.
        times = [kind for _, kind in known if kind.is_time]
        kinds = [
            times[0]
            if times and isinstance(value, plan.Constant) and kind is Kind.STRING
            else kind
            if not isinstance(value, plan.Constant) or _fits_int64(value.value)
            else Kind.FLOAT
            for value, (_, kind) in zip(values, known, strict=True)
        ]
        kind = common_kind(kinds)
        if kind is None:
            first = next((node, kind) for node, kind in known if kind is not Kind.NULL)
            other = next(pair for pair in known if common_kind([first[1], pair[1]]) is None)
            message = f"{what} are of several types: {_described(*first)} and {_described(*other)}"
            if first == other:
                message = f"{_described(*first)} cannot be among {what}"
            raise Mistake(message, other[0].span, "give them one type")
        return kind, [
            self._in_kind(node, value, kind) if isinstance(value, plan.Constant) else value
            for node, value in zip(nodes, values, strict=True)
        ]

    def _in_kind(self, node: ast.Predicate, constant: plan.Constant, kind: Kind) -> plan.Constant:
        """Return a constant as a computed value of a kind."""
        value = constant.value
        if isinstance(value, str) and kind is Kind.UNKNOWN:
            return plan.Constant(value, kind)
        if isinstance(value, str) and kind.is_time:
            # What is finer than a nanosecond can only be compared.
            moment = _time_constant(value, kind, node)
            return plan.Constant(math.floor(moment.value), kind)  # type: ignore[arg-type]
        if kind is Kind.FLOAT and isinstance(value, int | Decimal):
            return plan.Constant(_as_double(value, node), Kind.FLOAT)
        return constant

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
        if kind.is_time and constant.kind.is_time and kind is not Kind.DATE and constant.kind is not Kind.TIMESTAMP:
            # As in a text, a time without a zone means UTC, and a date its beginning.
            return plan.Constant(value, kind)
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
        if kind is other and kind.is_comparable:
            return
        if left.span.start > right.span.start:
            left, kind, right, other = right, other, left, kind
        has_constant = isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
        hint = quoted_attribute((left, right), self.attributes) or _comparison_hint(
            {kind, other}, has_constant=has_constant
        )
        raise Mistake(f"cannot compare {_described(left, kind)} with {_described(right, other)}", whole.span, hint)


def _nanoseconds(node: ast.Duration) -> int:
    found = int(sum(Decimal(amount) * UNITS[unit.removesuffix("s")] for amount, unit in node.parts))
    if found > INT64_MAX:
        raise Mistake(f"{shortened(str(node))} is longer than 292 years", node.span)
    return found


def _kind_of_time_sum(left: Kind, sign: str, right: Kind) -> Kind | None:
    """Return the kind of a sum or difference of times and durations; None if it makes no sense."""
    kinds = {kind for kind in (left, right) if kind not in _UNTYPED}
    if sign not in "+-" or not all(kind.is_in_nanoseconds for kind in kinds):
        return None
    if Kind.UNKNOWN in (left, right):
        return Kind.UNKNOWN
    if Kind.NULL in (left, right):
        return next((kind for kind in kinds if kind.is_time), Kind.DURATION if kinds else None)
    if left.is_time and right.is_time:
        return Kind.DURATION if sign == "-" and left is right else None
    if right.is_time:
        return right if sign == "+" else None
    return left


def _time_sum_hint(left: Kind, sign: str, right: Kind) -> str:
    if left.is_numeric or right.is_numeric:
        return "numbers have no unit: write a duration, like 5 seconds"
    if sign not in "+-":
        return "times and durations can be added and subtracted"
    if left.is_time and right.is_time and left is not right:
        return "both must be of one type"
    return "a time minus a time is a duration, and a time plus or minus a duration is a time"


def _kind_with_article(kind: Kind) -> str:
    return f"{'an' if kind.value[0] in 'aeiou' else 'a'} {kind.value}"


def _is_whole_days(operand: plan.Expression) -> bool:
    if kind_of_value(operand) is not Kind.DURATION:
        return True
    return isinstance(operand, plan.Constant) and int(operand.value or 0) % NANOSECONDS_PER_DAY == 0


def _comparison_hint(kinds: set[Kind], *, has_constant: bool) -> str | None:
    if Kind.LIST in kinds:
        return "write ANY(...) around the list to compare its items"
    if Kind.OTHER in kinds:
        return "only booleans, numbers, strings, times and durations can be compared"
    if not has_constant:
        return None
    if Kind.DURATION in kinds:
        return "write a duration with its unit: 5 seconds"
    if Kind.BOOLEAN in kinds:
        return "write TRUE or FALSE without quotes"
    time = next((kind for kind in kinds if kind.is_time), None)
    if time is not None:
        return f"write a {time.value} like '{_EXAMPLES[time]}'"
    return "write numbers without quotes and strings with quotes"


def _as_double(value: object, node: ast.Predicate) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise Mistake(f"{shortened(str(node))} is too large to compute with", node.span) from None


def _check_number(node: ast.Call, function: Function) -> None:
    """Refuse a call with too many or too few arguments."""
    most, n_given = len(function.takes), len(node.arguments)
    least = most - function.optional
    if least <= n_given and (n_given <= most or function.repeats):
        return
    wanted = f"{least} or more" if function.repeats else f"{least}" if least == most else f"{least} or {most}"
    values = "value" if wanted == "1" else "values"
    hint = f"it takes {', '.join(taken.what for taken in function.takes)}"
    hint += ", ..." if function.repeats else "; the last may be left out" if function.optional else ""
    raise Mistake(f"{function.name} takes {wanted} {values}, not {n_given}", node.span, hint)


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
