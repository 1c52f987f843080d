"""Predicates over whole columns mean what they mean value by value."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ceql
from ceql.automaton.predicates import Event, evaluate
from ceql.engine.intake import vectors
from ceql.schema import Kind
from ceql.syntax import plan

BIG = 2**63 - 1
INTEGERS = [None, 0, 1, -1, 2, -3, 7, 2**31, 3037000500, -3037000500, 2**62, BIG, -BIG, -BIG - 1]
DOUBLES = [None, 0.0, -0.0, 1.0, -2.5, 1e308, -1e308, 5e-324, 2.0**53 + 2, math.inf, -math.inf, math.nan]
ROWS = [(i, j, INTEGERS[(i * 7 + j) % len(INTEGERS)]) for i in range(len(INTEGERS)) for j in range(len(DOUBLES))]
TABLE = {
    "i": pa.array([INTEGERS[i] for i, _, _ in ROWS], pa.int64()),
    "j": pa.array([other for _, _, other in ROWS], pa.int64()),
    "f": pa.array([DOUBLES[j] for _, j, _ in ROWS], pa.float64()),
    "g": pa.array([DOUBLES[(i + j) % len(DOUBLES)] for i, j, _ in ROWS], pa.float64()),
}
TYPES = {name: array.type for name, array in TABLE.items()}
KINDS = {"i": Kind.INTEGER, "j": Kind.INTEGER, "f": Kind.FLOAT, "g": Kind.FLOAT}

columns = st.sampled_from("ijfg").map(lambda name: plan.Column(name, KINDS[name]))
DECIMALS = [Decimal("0.1"), Decimal("0.5"), Decimal("-2.5"), Decimal("7"), Decimal("1e30"), Decimal("-0.0"), 2**70]
foreign = st.sampled_from(
    [plan.Constant(value, Kind.INTEGER if isinstance(value, int) else Kind.DECIMAL) for value in DECIMALS]
)
constants = st.sampled_from(
    [plan.Constant(value, Kind.INTEGER) for value in INTEGERS if value is not None]
    + [plan.Constant(value, Kind.FLOAT) for value in DOUBLES if value is not None]
)


@st.composite
def terms(draw: Any, depth: int = 2) -> Any:
    choice = draw(st.integers(0, 4)) if depth else 0
    if choice <= 1:
        return draw(columns | constants)
    if choice == 2:
        value = draw(terms(depth - 1))
        return plan.Negative(value, plan.kind_of_value(value))
    operands = draw(st.lists(terms(depth - 1), min_size=2, max_size=3))
    operators = tuple(draw(st.sampled_from("+-*/%")) for _ in operands[1:])
    is_float = "/" in operators or any(plan.kind_of_value(one) is Kind.FLOAT for one in operands)
    return plan.Arithmetic(tuple(operands), operators, Kind.FLOAT if is_float else Kind.INTEGER)


@st.composite
def predicates(draw: Any, depth: int = 2) -> Any:
    choice = draw(st.integers(0, 5)) if depth else draw(st.integers(0, 2))
    if choice == 0:
        return plan.IsNull(draw(terms()))
    if choice == 1:
        value = draw(terms())
        kind = plan.kind_of_value(value)
        items = draw(st.lists(constants.filter(lambda one: one.kind is kind), min_size=1, max_size=3))
        return plan.InSet(value, tuple(items), draw(st.booleans()))
    if choice == 2:
        left, right = draw(terms()), draw(terms())
        is_mixed = plan.kind_of_value(left) is not plan.kind_of_value(right)
        return plan.Compare(left, draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), right, as_doubles=is_mixed)
    if choice == 3:
        return plan.Not(draw(predicates(depth - 1)))
    parts = tuple(draw(st.lists(predicates(depth - 1), min_size=2, max_size=3)))
    return plan.All(parts) if choice == 4 else plan.Any(parts)


@st.composite
def comparisons_with_others(draw: Any) -> Any:
    """Comparisons with constants of another kind, which are exact."""
    value, constant = draw(terms()), draw(foreign | constants)
    operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    match draw(st.integers(0, 2)):
        case 0:
            return plan.Compare(value, operator, constant, as_doubles=False)
        case 1:
            return plan.Compare(constant, operator, value, as_doubles=False)
    items = draw(st.lists(foreign | constants, min_size=1, max_size=3))
    return plan.Not(plan.InSet(value, tuple(items), draw(st.booleans())))


ATTRIBUTES = [
    dict(zip(TABLE, row, strict=True)) for row in zip(*(array.to_pylist() for array in TABLE.values()), strict=True)
]


@given(predicate=comparisons_with_others())
def test_constants_of_another_kind_are_replaced_by_equivalent_ones(predicate: Any) -> None:
    own = vectors.in_own_kind(predicate)
    for attributes in ATTRIBUTES:
        event = Event("", attributes)
        assert evaluate(own, event) == evaluate(predicate, event)


@given(predicate=predicates())
def test_columns_are_evaluated_as_values_are(predicate: Any) -> None:
    assert vectors.can_evaluate(predicate, TYPES)
    numbers = {
        name: vectors.Vector(
            np.array([0 if value is None else value for value in array.to_pylist()], array.type.to_pandas_dtype()),
            np.array([value is not None for value in array.to_pylist()]),
        )
        for name, array in TABLE.items()
    }
    found = vectors.evaluate(predicate, numbers)
    truths = np.broadcast_to(found.values, len(ROWS)).tolist()
    valid = np.broadcast_to(found.is_valid, len(ROWS)).tolist()
    for row, attributes in enumerate(ATTRIBUTES):
        expected = evaluate(predicate, Event("", attributes))
        assert (truths[row] if valid[row] else None) == expected


@pytest.mark.parametrize("condition", ["v * p > 5000", "v * 2 > 900 OR p / v < 0.5", "v % 10 = 3 AND v < p"])
def test_arithmetic_over_many_values_is_not_done_value_by_value(
    monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    chance = np.random.default_rng(0)
    n_events = 200_000
    events = pa.table(
        {
            "type": ["A"] * n_events,
            "v": chance.integers(0, 10**9, n_events) % 1000,
            "p": chance.random(n_events) * 1000,
        }
    )
    v, p = np.asarray(events["v"]), np.asarray(events["p"])
    with np.errstate(all="ignore"):
        expected = {
            "v * p > 5000": v * p > 5000,
            "v * 2 > 900 OR p / v < 0.5": (v * 2 > 900) | ((v != 0) & (p / v < 0.5)),
            "v % 10 = 3 AND v < p": (v % 10 == 3) & (v < p),
        }[condition]
    query = f"SELECT * FROM S WHERE A AS x FILTER x[{condition}]"
    n_evaluated = [0]

    def counted(*arguments: Any) -> Any:
        n_evaluated[0] += 1
        return evaluate(*arguments)

    monkeypatch.setattr("ceql.engine.intake.classes.evaluate", counted)
    assert ceql.match(query, events).count() == expected.sum()
    assert n_evaluated[0] < 100
