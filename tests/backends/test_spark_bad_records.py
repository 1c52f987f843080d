"""Which rows Python cannot hold, and how a batch says so; what streams do with them is tested with streams."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark.sql")
from pyspark.errors import PythonException

import ceql.spark
from ceql.backends.spark.bad_records import is_bad_record

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
]

BAD = "string(unhex('41ff'))"
VALUES = {
    "text": (BAD, True),
    "a surrogate": ("string(unhex('eda080'))", True),
    "good text": ("'\u00e9\U0001f600'", False),
    "text that is NULL": ("string(NULL)", False),
    "collated text": (f"{BAD} COLLATE UTF8_LCASE", True),
    "bytes": ("unhex('41ff')", False),
    "a number": ("double('NaN')", False),
    "the first date": ("date '0001-01-01'", False),
    "a date before it": ("date '0000-12-31'", True),
    "the last date": ("date '9999-12-31'", False),
    "a date after it": ("date '+10000-01-01'", True),
    "the last time": ("timestamp '9999-12-31 23:59:59.999999Z'", False),
    "a time after it": ("timestamp '9999-12-31 23:59:59.999999Z' + interval 1 microsecond", True),
    "the last time without zone": ("timestamp_ntz '9999-12-31 23:59:59.999999'", False),
    "a time without zone after it": ("timestamp_ntz '+10000-01-01 00:00:00'", True),
    "a list": (f"array('a', NULL, {BAD})", True),
    "a good list": ("array('a', NULL)", False),
    "a list that is NULL": ("cast(NULL AS array<string>)", False),
    "a key of a map": (f"map({BAD}, 1)", True),
    "a value of a map": (f"map(1, {BAD})", True),
    "a struct": (f"named_struct('a.b', 1, 'c', array(named_struct('d', {BAD})))", True),
    "a struct that is NULL": ("cast(NULL AS struct<a: string, b: date>)", False),
    "a struct with NULL": ("named_struct('a', string(NULL), 'b', date '+10000-01-01')", True),
}


def test_bad_records_are_those_with_values_that_python_cannot_hold(spark: Any) -> None:
    row = spark.range(1).selectExpr(*(f"{value} AS `{name}`" for name, (value, _) in VALUES.items()))
    found = row.select(*(is_bad_record(row, [name]).alias(name) for name in row.columns)).first().asDict()
    assert found == {name: is_bad for name, (_, is_bad) in VALUES.items()}


def test_a_batch_fails_and_tells_the_bytes(spark: Any) -> None:
    rows = spark.sql("SELECT 'A' AS type, 1L AS id, string(unhex(hex)) AS s FROM VALUES ('41'), ('ff41') AS rows(hex)")
    query = "SELECT x FROM S WHERE A AS x PARTITION BY [s]"
    with pytest.raises(PythonException, match=r"(?is)utf-8.*partition keys in it: s = 'A'; s = b'\\xffA'"):
        ceql.spark.match(query, rows, order_by=["id"]).collect()
