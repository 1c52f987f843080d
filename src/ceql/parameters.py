"""Values that a query gets from outside: `$limit` is one value, `$blocklist` a list of them.

They are not part of the text, and no part of what a snapshot or checkpoint depends on. They are kept as one row of
Arrow data, so that a million values travel as fast as a column.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from ceql.errors import CeqlError
from ceql.schema import kind_of, python_values

_SCALARS = (bool, int, float, str, Decimal, date, time, timedelta, bytes, pa.Scalar)


@dataclass(frozen=True, eq=False)
class Values:
    """The different values of a list, without NULL. Each such list equals only itself."""

    name: str
    array: pa.Array

    @cached_property
    def found(self) -> frozenset[Any]:
        """The values as Python has them, to look one up; times and durations as nanoseconds."""
        return frozenset(python_values(self.array))

    @cached_property
    def has_nan(self) -> bool:
        """Whether NaN is among the values. It equals itself, but not for Python."""
        return any(isinstance(value, float) and math.isnan(value) for value in self.found)

    def __contains__(self, value: Any) -> bool:
        return value in self.found or (self.has_nan and isinstance(value, float) and math.isnan(value))

    def __repr__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, eq=False)
class Parameters:
    """The values of parameters by name. A list is a value of Arrow's list type."""

    row: pa.RecordBatch
    _listed: dict[str, Values] = field(default_factory=dict, repr=False)
    """The lists that were asked for: a query is bound several times, and there may be a million values."""

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Parameters:
        """Return parameters from Python values, lists of them, Arrow arrays, or tables of one column."""
        if not given:
            return NO_PARAMETERS
        if not isinstance(given, Mapping):
            raise CeqlError(f"params are a dict from names to values, not {type(given).__name__}")
        arrays = {str(name).removeprefix("$"): _array(str(name), value) for name, value in given.items()}
        return cls(pa.record_batch(list(arrays.values()), names=list(arrays)))

    @classmethod
    def from_bytes(cls, stored: bytes) -> Parameters:
        """Return what `to_bytes` has stored."""
        return _read(stored) if stored else NO_PARAMETERS

    def to_bytes(self) -> bytes:
        """Return the parameters as Arrow data; nothing if there are none."""
        if self is NO_PARAMETERS:
            return b""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, self.row.schema, options=options) as writer:
            writer.write_batch(self.row)
        return bytes(sink.getvalue())

    def updated(self, others: Parameters) -> Parameters:
        """Return these parameters with the values of others in place of their own."""
        if others is NO_PARAMETERS or self is NO_PARAMETERS:
            return self if others is NO_PARAMETERS else others
        columns = dict(zip(self.row.schema.names, self.row.columns, strict=True))
        columns |= dict(zip(others.row.schema.names, others.row.columns, strict=True))
        return Parameters(pa.record_batch(list(columns.values()), names=list(columns)))

    @property
    def names(self) -> list[str]:
        """The names of the parameters."""
        return [] if self is NO_PARAMETERS else list(self.row.schema.names)

    def values(self, name: str) -> tuple[pa.Array, bool]:
        """Return the values of a parameter, and whether they are a list."""
        array = self.row.column(name)
        is_list = pa.types.is_large_list(array.type)
        return (array.flatten() if is_list else array), is_list

    def listed(self, name: str) -> Values:
        """Return the different values of a list."""
        if name not in self._listed:
            self._listed[name] = Values(name, self.values(name)[0].drop_null().unique())
        return self._listed[name]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Parameters) and self.row.equals(other.row))

    def __hash__(self) -> int:
        return hash(tuple(self.row.schema.names))

    def __repr__(self) -> str:
        return f"Parameters({', '.join(self.names)})"

    def __reduce__(self) -> tuple[object, ...]:
        return Parameters.from_bytes, (self.to_bytes(),)


NO_PARAMETERS = Parameters(pa.RecordBatch.from_arrays([], schema=pa.schema([])))


@lru_cache(maxsize=16)
def _read(stored: bytes) -> Parameters:
    # PERF: kept, because each task and micro-batch reads the same ones.
    with pa.ipc.open_stream(stored) as reader:
        return Parameters(reader.read_next_batch())


def _array(name: str, given: Any) -> pa.Array:
    """Return the value of a parameter as an array of one row."""
    try:
        values = _values(given)
        if values is None:
            value = given.as_py() if isinstance(given, pa.Scalar) else given
            return pa.array([value], given.type if isinstance(given, pa.Scalar) else None)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise CeqlError(f"the value of parameter ${name.removeprefix('$')} cannot be used: {error}") from None
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string(values.type) or pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    if not kind_of(values.type).is_comparable and not pa.types.is_null(values.type):
        raise CeqlError(f"parameter ${name.removeprefix('$')} is a list of {values.type}, which cannot be compared")
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)


def _values(given: Any) -> pa.Array | None:
    """Return the values of a list; None if a single value is given."""
    if given is None or isinstance(given, _SCALARS):
        return None
    if isinstance(given, pa.Array):
        return given
    if isinstance(given, pa.ChunkedArray):
        return given.combine_chunks()
    if isinstance(given, pa.Table | pa.RecordBatch) or hasattr(given, "__arrow_c_stream__"):
        return _only_column(given)
    if isinstance(given, Mapping):
        raise TypeError("a dict is neither a value nor a list of values")
    if isinstance(given, Collection) and not hasattr(given, "__array__"):
        return pa.array(list(given))
    is_array = hasattr(given, "__array__") and getattr(given, "ndim", 1) != 0
    found = pa.array(given) if is_array else None
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _only_column(given: Any) -> pa.Array:
    if not isinstance(given, pa.Table | pa.RecordBatch):
        exported = pa.chunked_array(given) if not hasattr(given, "columns") else pa.table(given)
        if isinstance(exported, pa.ChunkedArray):
            return exported.combine_chunks()
        given = exported
    if given.num_columns != 1:
        raise ValueError(f"a table with {given.num_columns} columns; give a table with one")
    column = given.column(0)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
