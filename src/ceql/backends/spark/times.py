"""Times as Spark hands them to Python: in the session's zone, which may change, and which Python may not know."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def in_utc(rows: Rows) -> Rows:
    """Return the same instants in one zone."""
    return rows.cast(pa.schema([field.with_type(_type_in_utc(field.type)) for field in rows.schema]))


def _type_in_utc(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return pa.timestamp(data_type.unit, "UTC")
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_type_in_utc(data_type.value_type)))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_type_in_utc(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        item = data_type.item_field.with_type(_type_in_utc(data_type.item_type))
        return pa.map_(data_type.key_field.with_type(_type_in_utc(data_type.key_type)), item)
    return data_type
