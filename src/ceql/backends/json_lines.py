"""Rows as lines of JSON, the same from both engines.

    times       ISO 8601, six digits after the second, nine where there are nanoseconds; with a zone, in UTC and with Z
    numbers     with all digits, also decimals; NaN, Infinity and -Infinity, which JSON lacks, as strings
    binary      Base64
    NULL        null; no attribute is left out

`SPARK_OPTIONS` says the same to Spark.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ceql.visible import HIDDEN

SPARK_TIMES = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How Spark writes times; its default cuts them to milliseconds."""
SPARK_OPTIONS = {"ignoreNullFields": "false", **SPARK_TIMES}
"""How Spark writes JSON. It needs no option to write numbers that JSON lacks as strings."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False)
_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def json_line(value: Any) -> str:
    """Return a value of Python as JSON on one line."""
    return shown_json(_ENCODER.encode(value))


def shown_json(text: str) -> str:
    r"""Return the same JSON with control characters as escapes, because a terminal obeys them; only strings have them.

    >>> shown_json('"\x7f\u202e"')
    '"\\u007f\\u202e"'
    """
    return HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_rows(batch: pa.RecordBatch) -> list[str]:
    r"""Return each row as a JSON object.

    >>> json_rows(pa.record_batch({"x": [{"a": 1, "b": float("nan")}], "y": [["é", None]]}))
    ['{"x": {"a": 1, "b": "NaN"}, "y": ["é", null]}']
    """
    return json_values(batch.to_struct_array())


def json_values(array: pa.Array) -> list[str]:
    """Return each value of an array as JSON."""
    return [shown_json(text) for text in _texts(array)]


def _texts(array: pa.Array) -> list[str]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _texts(array.dictionary_decode())
    if pa.types.is_struct(kind):
        return _objects(array)
    if pa.types.is_map(kind):
        return _maps(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(array)
    if pa.types.is_decimal(kind):
        return _unless_null(array.cast(pa.string()), str)
    if pa.types.is_floating(kind):
        # As text first: the shortest text for a number differs between 32 and 64 bits.
        shortest = array if pa.types.is_float64(kind) else array.cast(pa.float32()).cast(pa.string())
        return _unless_null(shortest, _number)
    return _unless_null(*_as_text(array))


def _as_text(array: pa.Array) -> tuple[pa.Array, Callable[[Any], str]]:
    """Return a column of a simple Arrow type in a form that Python can hold, and a function that makes JSON of it."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _times(array), _quoted
    if pa.types.is_date(kind):
        return array.cast(pa.date32()).cast(pa.string()), _quoted
    if pa.types.is_time(kind):
        return array.cast(pa.string()), _quoted
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return array, lambda value: _quoted(b64encode(value).decode())
    if pa.types.is_integer(kind):
        return array, str
    return array, _ENCODER.encode


def _unless_null(array: pa.Array, text: Callable[[Any], str]) -> list[str]:
    return ["null" if value is None else text(value) for value in array.to_pylist()]


def _quoted(text: str) -> str:
    return f'"{text}"'


def _number(value: float | str) -> str:
    text = repr(float(value))
    return _NOT_FINITE.get(text, text)


def _times(array: pa.Array) -> pa.Array:
    """Return times as text. Arrow writes it, because Python has neither nanoseconds nor years beyond 9999."""
    kind = array.type
    unit = "ns" if kind.unit == "ns" else "us"
    # Arrow stores times with a zone in UTC, so dropping the zone gives the time in UTC.
    there = array if kind.tz is None else array.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit))
    texts = pc.replace_substring(there.cast(pa.timestamp(unit)).cast(pa.string()), " ", "T", max_replacements=1)
    if unit == "ns":
        texts = pc.replace_substring_regex(texts, r"(\.\d{6})000$", r"\1")
    return texts if kind.tz is None else pc.binary_join_element_wise(texts, "Z", "")


def _objects(array: pa.StructArray) -> list[str]:
    keys = [_ENCODER.encode(field.name) for field in array.type]
    template = "{" + ", ".join(f"{key.replace('%', '%%')}: %s" for key in keys) + "}"
    columns = [_texts(column) for column in array.flatten()]
    rows: Iterator[tuple[str, ...]] = zip(*columns, strict=True) if columns else iter([()] * len(array))
    if not array.null_count:
        return [template % row for row in rows]
    return [template % row if is_there else "null" for row, is_there in zip(rows, _validity(array), strict=True)]


def _lists(array: pa.Array) -> list[str]:
    values = iter(_texts(array.flatten()))
    lengths = pc.list_value_length(array).to_pylist()
    return ["null" if length is None else f"[{', '.join(islice(values, length))}]" for length in lengths]


def _maps(array: pa.MapArray) -> list[str]:
    keys = [key if key[0] == '"' else _quoted(key) for key in _texts(array.keys)]
    entries = [f"{key}: {value}" for key, value in zip(keys, _texts(array.items), strict=True)]
    offsets = array.offsets.to_pylist()
    bounds = zip(offsets[:-1], offsets[1:], _validity(array), strict=True)
    return [f"{{{', '.join(entries[begin:end])}}}" if is_there else "null" for begin, end, is_there in bounds]


def _validity(array: pa.Array) -> list[bool]:
    return array.is_valid().to_pylist()  # type: ignore[no-any-return]
