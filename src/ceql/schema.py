"""What events look like: streams, event types, attributes and their types.

A schema is either *open* (it comes from tables: the columns are known, but any event
type may occur, because a table does not list its types) or *declared* (it comes from
`CREATE STREAM`: event types and their attributes are listed). Attribute types are Arrow
types throughout; `kind_of` groups them by how they compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from ceql.errors import CeqlError, DataError

ANY_STREAM = "*"
"""Name of the only stream of a schema made from one table: FROM may give it any name."""


class Kind(Enum):
    """How values compare: two attributes are comparable when their kinds are."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "double"
    DECIMAL = "decimal"
    STRING = "string"
    TIMESTAMP = "timestamp"
    LOCAL_TIMESTAMP = "timestamp without zone"
    DATE = "date"
    DURATION = "duration"
    LIST = "list"
    NULL = "null"
    UNKNOWN = "unknown"
    OTHER = "complex"

    @property
    def is_numeric(self) -> bool:
        """Whether arithmetic applies."""
        return self in (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL)

    @property
    def is_comparable(self) -> bool:
        """Whether values can be compared with one another."""
        return self not in (Kind.NULL, Kind.UNKNOWN, Kind.LIST, Kind.OTHER)

    @property
    def is_time(self) -> bool:
        """Whether durations apply."""
        return self in (Kind.TIMESTAMP, Kind.LOCAL_TIMESTAMP, Kind.DATE)

    @property
    def is_in_nanoseconds(self) -> bool:
        """Whether values are whole numbers of nanoseconds, for conditions: times and durations."""
        return self.is_time or self is Kind.DURATION


NANOSECONDS_IN_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Arrow's units of timestamps and durations."""

UNKNOWN_TYPE = pa.null()
"""Type of attributes when a query is checked without any schema."""


def kind_of(data_type: pa.DataType) -> Kind:
    """Return how values of an Arrow type compare.

    >>> kind_of(pa.int16()), kind_of(pa.dictionary(pa.int32(), pa.string()))
    (<Kind.INTEGER: 'integer'>, <Kind.STRING: 'string'>)
    """
    if pa.types.is_dictionary(data_type):
        return kind_of(data_type.value_type)
    for kind, tests in _KIND_TESTS:
        if any(test(data_type) for test in tests):
            return kind
    if pa.types.is_timestamp(data_type):
        return Kind.LOCAL_TIMESTAMP if data_type.tz is None else Kind.TIMESTAMP
    return Kind.OTHER


_KIND_TESTS = (
    (Kind.BOOLEAN, (pa.types.is_boolean,)),
    (Kind.INTEGER, (pa.types.is_integer,)),
    (Kind.FLOAT, (pa.types.is_floating,)),
    (Kind.DECIMAL, (pa.types.is_decimal,)),
    (Kind.STRING, (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
    (Kind.DATE, (pa.types.is_date,)),
    (Kind.DURATION, (pa.types.is_duration,)),
    (Kind.LIST, (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)),
    (Kind.UNKNOWN, (pa.types.is_null,)),
)


def python_values(array: pa.Array) -> list[Any]:
    """Return values as predicates take them; times and durations as nanoseconds, because Python's are coarser.

    >>> python_values(pa.array([1, None], pa.duration("us")))
    [1000, None]
    """
    if not kind_of(array.type).is_in_nanoseconds or pa.types.is_dictionary(array.type):
        values: list[Any] = array.to_pylist()
        return values
    if pa.types.is_date32(array.type):
        unit, stored = 86400 * 10**9, array.view(pa.int32())
    else:
        unit = NANOSECONDS_IN_UNIT["ms" if pa.types.is_date64(array.type) else array.type.unit]
        stored = array.view(pa.int64())
    return [None if value is None else value * unit for value in stored.to_pylist()]


Attributes = Mapping[str, pa.DataType]

EventType = tuple[str, str]
"""A stream's name and the name of one of its event types."""


@dataclass(frozen=True)
class Stream:
    """One named stream.

    `event_types` maps each declared type to its attributes; None means that any type may
    occur and that every event has `columns`.
    """

    name: str
    columns: Attributes
    event_types: Mapping[str, Attributes] | None = None

    def attributes_of(self, event_type: str) -> Attributes:
        """Return the attributes of one event type that the stream allows."""
        return self.columns if self.event_types is None else self.event_types[event_type]


@dataclass(frozen=True)
class Schema:
    """The streams a query may read, each with its event types and attributes."""

    streams: tuple[Stream, ...]

    @classmethod
    def of(cls, source: object) -> Schema:
        """Return a schema from anything that describes one.

        Accepts a `Schema`, an Arrow schema, anything with an Arrow `schema` attribute (a table,
        a reader, a data set), anything else that `ceql.match` takes (pandas, DuckDB, a list of dicts), a Spark
        schema or DataFrame, or a dict from stream names to these. Events that can be read only once are not read.
        """
        if isinstance(source, Schema):
            return source
        if isinstance(source, Mapping):
            return cls(tuple(Stream(str(name), _columns(part)) for name, part in source.items()))
        return cls((Stream(ANY_STREAM, _columns(source)),))

    @classmethod
    def unknown(cls) -> Schema:
        """Return the schema that accepts every stream, event type and attribute, untyped."""
        return cls(())

    @property
    def is_unknown(self) -> bool:
        """Whether names and types cannot be checked, because nothing is known."""
        return not self.streams


class KnownTypes:
    """The columns of earlier events, which give the values of dicts their types."""

    def __init__(self, schema: pa.Schema) -> None:
        self.types = dict(zip(schema.names, schema.types, strict=True))
        self._row = pa.struct(list(self.types.items()))
        # PERF: Arrow compares a schema with itself at no cost, so where nothing differs, batches have the very same.
        plain = pa.schema(list(self._row))
        self._schema = schema if plain.equals(schema, check_metadata=True) else plain

    def batch(self, events: Sequence[Any]) -> pa.RecordBatch | None:
        """Return dicts as a batch; None if one has other columns, or a value that does not fit.

        PERF: Arrow reads whole dicts, so a batch of one stock trade takes 16 instead of 28 us.
        """
        names = self.types.keys()
        if not isinstance(events, list) or not all(type(event) is dict and event.keys() <= names for event in events):
            return None
        try:
            rows = pa.array(events, self._row)
        except (ValueError, TypeError, OverflowError, NotImplementedError):
            return None
        if not isinstance(rows, pa.StructArray):
            return None
        return pa.RecordBatch.from_arrays(rows.flatten(), schema=self._schema)


def table_of_dicts(events: Sequence[Any], like: KnownTypes | None = None) -> pa.Table:
    """Return events given as dicts as a table. Types come from `like`, else from the values."""
    if not all(isinstance(event, Mapping) for event in events):
        raise DataError("events given as a list must all be dicts")
    names = dict.fromkeys(name for event in events for name in event)
    types = {} if like is None else like.types
    columns = {}
    for name in dict.fromkeys([*types, *names]):
        try:
            columns[str(name)] = pa.array([event.get(name) for event in events], types.get(name))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            expected = f"are not all of type {types[name]}" if name in types else "have no common type"
            raise DataError(f"the values of '{name}' {expected}: {error}") from None
        except UnicodeEncodeError as error:
            raise DataError(f"the values of '{name}' are not all text: {half_told(error)}") from None
    return pa.table(columns)


def half_told(error: UnicodeEncodeError) -> str:
    """Return a message that text has half of a surrogate pair."""
    return f"{error.object[error.start : error.end]!a} is half of a character"


def column_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the columns that an option names.

    >>> column_names("id"), column_names(["at", "id"])
    (('id',), ('at', 'id'))
    """
    return (given,) if isinstance(given, str) else tuple(given)


def _columns(source: object) -> dict[str, pa.DataType]:
    if isinstance(source, Sequence) and source and all(isinstance(part, pa.RecordBatch) for part in source):
        source = source[0]
    elif isinstance(source, list | tuple) and all(isinstance(event, Mapping) for event in source):
        source = table_of_dicts(source)
    schema = source if isinstance(source, pa.Schema) else getattr(source, "schema", source)
    if isinstance(schema, pa.Schema):
        return {field.name: field.type for field in schema}
    if hasattr(schema, "__arrow_c_schema__"):
        return {field.name: field.type for field in pa.schema(schema)}
    if hasattr(schema, "jsonValue"):
        return {field["name"]: _column_from_spark(field) for field in schema.jsonValue()["fields"]}
    if hasattr(source, "__arrow_c_stream__"):
        # An object that only exports streams can export another stream.
        return {field.name: field.type for field in pa.RecordBatchReader.from_stream(source).schema}
    raise CeqlError(
        f"cannot read a schema from {type(source).__name__}: give an Arrow or Spark schema, events, or a dict of them"
    )


_SPARK_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "null": pa.null(),
}


def _column_from_spark(field: dict[str, Any]) -> pa.DataType:
    try:
        return _from_spark(field["type"])
    except LookupError as error:
        raise DataError(
            f"column '{field['name']}' is of Spark's type {error.args[0]}, which events cannot have",
            "leave the column out, or cast it",
        ) from None


def _from_spark(described: str | dict[str, Any]) -> pa.DataType:
    """Return the Arrow type for a type as Spark's schema JSON describes it.

    Reading the JSON form keeps pyspark out of this module: it may not be installed, and its own converter does not
    cover every type. `LookupError` names a type that has no Arrow type.
    """
    if isinstance(described, dict):
        return _from_spark_nested(described)
    name, _, rest = described.partition("(")
    if name == "decimal":
        precision, scale = (int(part) for part in rest.rstrip(")").split(",")) if rest else (10, 0)
        return pa.decimal128(precision, scale)
    if name.split(" ")[0] in ("char", "varchar", "string"):
        return pa.string()
    if name in _SPARK_TYPES:
        return _SPARK_TYPES[name]
    raise LookupError(described)


def _from_spark_nested(described: dict[str, Any]) -> pa.DataType:
    match described["type"]:
        case "array":
            return pa.list_(_from_spark(described["elementType"]))
        case "map":
            return pa.map_(_from_spark(described["keyType"]), _from_spark(described["valueType"]))
        case "struct":
            return pa.struct([(field["name"], _from_spark(field["type"])) for field in described["fields"]])
        case "udt":
            return _from_spark(described["sqlType"])
        case other:
            raise LookupError(other)
