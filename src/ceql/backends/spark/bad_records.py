"""Bad records: rows with values that Python cannot hold. Spark finds them before a stream reads them.

One bad record would fail the stream, and again at every start from its checkpoint. The values are text that is not
UTF-8, and dates and times with years before 1 or after 9999, also within structs, lists and maps.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ceql.backends.spark.predicates import quoted

OBSERVATION = "ceql_input"
"""The name under which a query's progress reports the counter `bad_records`."""

FIRST, LAST = "0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"
"""The range of times that Python can hold; times with a zone are in UTC."""


def counted_and_left_out(rows: DataFrame) -> DataFrame:
    """Return the rows of a stream without bad records, which the progress of its query counts."""
    is_bad = is_bad_record(rows, rows.columns)
    counted = rows.observe(OBSERVATION, F.count(F.when(is_bad, 1)).alias("bad_records"))
    return counted.where(~is_bad)


def is_bad_record(rows: DataFrame, names: Iterable[str]) -> Column:
    """Return the condition that some of these columns has a value that Python cannot hold."""
    found = [_is_bad(F.col(quoted(name)), rows.schema[name].dataType) for name in names]
    conditions = [condition for condition in found if condition is not None]
    return F.coalesce(_any(conditions), F.lit(False)) if conditions else F.lit(False)  # noqa: FBT003


def _is_bad(column: Column, data_type: DataType) -> Column | None:
    """Return the condition that a value is bad (NULL may mean no); None if no value of the type can be bad."""
    if isinstance(data_type, StringType):
        return ~F.is_valid_utf8(column)
    if isinstance(data_type, DateType | TimestampNTZType):
        first, last = (F.lit(bound).cast(data_type) for bound in (FIRST, LAST))
        return ~column.between(first, last)
    if isinstance(data_type, TimestampType):
        first, last = (F.lit(f"{bound}Z").cast(data_type) for bound in (FIRST, LAST))
        return ~column.between(first, last)
    if isinstance(data_type, ArrayType):
        return _has_bad_item(column, data_type.elementType)
    if isinstance(data_type, MapType):
        keys, values = F.map_keys(column), F.map_values(column)
        within = [_has_bad_item(keys, data_type.keyType), _has_bad_item(values, data_type.valueType)]
    elif isinstance(data_type, StructType):
        within = [_is_bad(column.getField(field.name), field.dataType) for field in data_type]
    else:
        return None
    conditions = [condition for condition in within if condition is not None]
    return _any(conditions) if conditions else None


def _has_bad_item(column: Column, item_type: DataType) -> Column | None:
    if _is_bad(F.lit(None), item_type) is None:
        return None

    def is_bad(item: Column) -> Column:
        found = _is_bad(item, item_type)
        assert found is not None
        return found

    return F.exists(column, is_bad)


def _any(conditions: list[Column]) -> Column:
    return reduce(lambda left, right: left | right, conditions)
