"""A comparison with a value of the column's own type gives what the one with the constant gives."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ceql.functions.order import order
from ceql.syntax.cuts import above, at_or_above, in_type

DAY = 24 * 3600 * 10**9
HOLDS: dict[str, Any] = {
    "=": lambda sign: sign == 0,
    "!=": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}
ODD_FLOATS = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308]


def integers_of(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def doubles() -> st.SearchStrategy[float]:
    return st.floats() | st.sampled_from(ODD_FLOATS)


def decimal_of(units: int) -> Decimal:
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -2))


VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): integers_of(8),
    pa.int64(): integers_of(64),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): st.floats(width=16),
    pa.float32(): st.floats(width=32),
    pa.float64(): doubles(),
    pa.decimal128(5, 2): st.integers(-99999, 99999).map(decimal_of),
    pa.decimal128(38, 2): st.integers(1 - 10**38, 10**38 - 1).map(decimal_of),
    pa.timestamp("us"): integers_of(64).map(lambda value: value * 1000),
    pa.timestamp("ns", "UTC"): integers_of(64),
    pa.date32(): integers_of(32).map(lambda value: value * DAY),
    pa.date64(): integers_of(64).map(lambda value: value * 10**6),
}
UNITS = {pa.timestamp("us"): 1000, pa.timestamp("ns", "UTC"): 1, pa.date32(): DAY, pa.date64(): 10**6}
types = st.sampled_from(list(VALUES))
constants = (
    st.integers(-(10**20), 10**20)
    | st.integers(-5, 5)
    | st.sampled_from([10**400, -(10**400), 2**63, -(2**63) - 1, 128, -129])
    | doubles()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.fractions()
)


@st.composite
def types_and_neighbours(draw: Any) -> tuple[pa.DataType, Any, Any]:
    """Return a type, one of its values, and a constant, which may be that value or close to it."""
    data_type = draw(types)
    value = draw(VALUES[data_type])
    close = [value] if isinstance(value, float) and not math.isfinite(value) else [value, Fraction(value)]
    if len(close) == 2:
        close += [close[1] + Fraction(1, 3), close[1] - Fraction(1, 10**9)]
    return data_type, value, draw(constants | st.sampled_from(close))


@given(types_and_neighbours(), st.sampled_from(sorted(HOLDS)))
def test_a_comparison_means_the_same_in_the_own_type(case: tuple[pa.DataType, Any, Any], operator: str) -> None:
    data_type, value, constant = case
    asked = in_type(operator, constant, data_type)
    own = asked if isinstance(asked, bool) else HOLDS[asked[0]](order(value, asked[1]))
    assert own == HOLDS[operator](order(value, constant))


@given(types_and_neighbours())
def test_no_value_lies_between_a_constant_and_its_cuts(case: tuple[pa.DataType, Any, Any]) -> None:
    data_type, value, constant = case
    least, next_one = at_or_above(constant, data_type), above(constant, data_type)
    assert (order(value, constant) >= 0) == (least is not None and order(value, least) >= 0)
    assert (order(value, constant) > 0) == (next_one is not None and order(value, next_one) >= 0)


@given(types_and_neighbours())
def test_a_cut_is_a_value_of_the_type(case: tuple[pa.DataType, Any, Any]) -> None:
    data_type, _, constant = case
    least = at_or_above(constant, data_type)
    if least is None:
        return
    if pa.types.is_floating(data_type):
        number = data_type.to_pandas_dtype()
        assert order(float(number(least)), least) == 0
    elif pa.types.is_decimal(data_type) or pa.types.is_integer(data_type):
        assert pa.array([least], data_type)[0].as_py() == least
    else:
        unit = UNITS[data_type]
        assert least % unit == 0
        width = np.int32 if pa.types.is_date32(data_type) else np.int64
        assert np.iinfo(width).min <= least // unit <= np.iinfo(width).max


@pytest.mark.parametrize("data_type", VALUES, ids=str)
def test_nothing_is_above_the_greatest_value(data_type: pa.DataType) -> None:
    constant = math.nan if pa.types.is_floating(data_type) else 10**60
    assert above(constant, data_type) is None
