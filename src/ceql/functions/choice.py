"""Functions that choose one of their arguments, which are all of one kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ceql.functions.entry import SAME, Function
from ceql.functions.order import order


def _least(first: Any, *others: Any) -> Any:
    return reduce(lambda found, other: other if order(other, found) < 0 else found, others, first)


def _greatest(first: Any, *others: Any) -> Any:
    return reduce(lambda found, other: other if order(other, found) > 0 else found, others, first)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _first_present(*columns: Any) -> Any:
    return pc.coalesce(*_alike(columns))


def _extreme(is_wanted: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def choose(*columns: Any) -> Any:
        if any(pa.types.is_boolean(column.type) for column in columns if isinstance(column, pa.Array)):
            return None
        return reduce(lambda found, other: _chosen(found, other, is_wanted), _alike(columns))

    return choose


def _chosen(found: Any, other: Any, is_wanted: Callable[[Any, Any], Any]) -> Any:
    """Return the wanted one of each pair. NaN equals itself and is greater than all other numbers."""
    is_better = is_wanted(other, found)
    if pa.types.is_floating(found.type):
        greater, smaller = (other, found) if is_wanted is pc.greater else (found, other)
        is_better = pc.or_(is_better, pc.and_(pc.is_nan(greater), pc.invert(pc.is_nan(smaller))))
    # If one of them is NULL, so is the answer, and the choice.
    return pc.if_else(is_better, other, found)


def _alike(columns: tuple[Any, ...]) -> list[Any]:
    """Return columns and constants as arrays and scalars of one type."""
    data_type = next(column.type for column in columns if isinstance(column, pa.Array))
    return [column if isinstance(column, pa.Array) else pa.scalar(column, data_type) for column in columns]


CHOICES = (
    Function(
        "COALESCE",
        (SAME,),
        None,
        of=_first,
        arrow=_first_present,
        spark=lambda f, *values: f.coalesce(*values),
        repeats=True,
        takes_null=True,
    ),
    Function("LEAST", (SAME,), None, of=_least, arrow=_extreme(pc.less), repeats=True),
    Function("GREATEST", (SAME,), None, of=_greatest, arrow=_extreme(pc.greater), repeats=True),
)
