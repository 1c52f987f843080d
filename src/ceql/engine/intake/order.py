"""How rows are put in order: by the columns of `Plan.order`, NULL first and NaN last, as in Spark.

Rows that are equal in all of these columns tie. Tied rows of different streams come in the order of FROM. Tied rows of
one stream keep the order of their table; on Spark, where tables have no order, the other columns decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def sorted_rows(keys: Iterable[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Return the numbers of the rows in ascending order of some keys, the first key first."""
    columns = list(keys)
    table = pa.table(columns, [str(number) for number in range(len(columns))])
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])


def sort_keys(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Return the keys that put rows in the order of a column: NULL first, NaN last, a struct by its fields."""
    keys = [column.is_valid()] if column.null_count else []
    if pa.types.is_struct(column.type):
        return [*keys, *(key for field in column.flatten() for key in sort_keys(field))]
    if pa.types.is_nested(column.type):
        return [*keys, _ranks(column)]
    column = _sortable(column)
    if pa.types.is_floating(column.type):
        is_nan = pc.is_nan(column)
        return [*keys, is_nan, pc.if_else(is_nan, pa.scalar(0.0, column.type), column)]
    return [*keys, column]


def sign_of_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a key that distinguishes -0.0 from 0.0, which are equal for `sort_keys`."""
    return pc.if_else(pc.equal(column, 0.0), column.cast(pa.float64()).cast(pa.string()), pa.scalar(None, pa.string()))


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as a type that Arrow can sort; it sorts decimals of less than 128 bits wrongly."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_decimal(column.type) and column.type.bit_width < 128:
        return column.cast(pa.decimal128(column.type.precision, column.type.scale))
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


def _ranks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers that order lists as Spark does, and maps, which Spark does not order, in one fixed way."""
    keys = [_rank_key(value) for value in column.to_pylist()]
    number_of = {key: number for number, key in enumerate(sorted(set(keys)))}
    return pa.chunked_array([pa.array([number_of[key] for key in keys], pa.int64())])


def _rank_key(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, *map(_rank_key, value.values()))
    if isinstance(value, list | tuple):
        return (1, *map(_rank_key, value))
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    return (1, value)
