"""Functions that are put into others do what they do when they are called."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ceql.engine.inlining import inlined, merged

FACTOR = 3


class Pair(NamedTuple):
    left: list[int]
    right: list[int]


@inlined
def scaled(value: int) -> int:
    """Return a multiple."""
    return value * FACTOR + value


@inlined
def total(values: list[int], result: int) -> int:
    """Return a sum; the parameter is changed."""
    for value in values:
        if value > 0:
            result += scaled(value)
        else:
            result -= value
    return result


@inlined
def put(values: list[int], value: int) -> None:
    """Change a list."""
    values.append(value)


@inlined
def both(pair: Pair, result: int) -> tuple[int, int]:
    """Return two results."""
    left = total(pair.left, result)
    right = total(pair.right, result + 1)
    return left, right


def whole(pair: Pair, bonus: Any) -> Any:
    """Call all of them; names here are also names there."""
    result, value, left = 7, 2, 0
    while value > 0:
        value -= 1
        if bonus is None:
            result, left = both(pair, result)
        else:
            result = total(bonus, scaled(result - left))
        put(pair.left, result)
    return result, value, left, scaled(scaled(value) + 1), pair


def reassigned(values: list[int], bonus: Any) -> Any:
    """Assign a parameter that is compared with None afterwards."""
    put(values, 1)
    if bonus is None:
        bonus = values
    return 0 if bonus is None else len(bonus)


numbers = st.lists(st.integers(-5, 5), max_size=4)


@given(numbers, numbers, st.none() | numbers, st.booleans())
def test_a_merged_function_does_the_same(
    left: list[int], right: list[int], bonus: list[int] | None, is_known: bool
) -> None:
    made = merged(whole, given={"bonus": bonus is not None} if is_known else None)
    assert made(Pair(list(left), list(right)), bonus) == whole(Pair(list(left), list(right)), bonus)


def test_nothing_inlined_is_called_any_more() -> None:
    assert not {"scaled", "total", "put", "both"} & set(merged(whole).__code__.co_names)
    assert len(merged(whole, given={"bonus": False}).__code__.co_code) < len(merged(whole).__code__.co_code)
    assert merged(put) is put


def test_what_is_assigned_is_not_known_before() -> None:
    assert merged(reassigned, given={"values": True, "bonus": False})([1, 2], None) == 3
