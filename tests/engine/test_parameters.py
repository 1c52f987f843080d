"""Parameters: values that a query gets from outside, in every form that they may have."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ceql
from ceql.parameters import NO_PARAMETERS, Parameters

NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)
MANY = [f"word {number}" for number in range(500)]
TABLE = pa.table(
    {
        "type": ["A"] * 5,
        "s": ["a", "b", None, "word 7", ""],
        "i": [1, 2, 3, None, 300],
        "x": [0.1, float("nan"), 1.0, None, -0.0],
        "d": pa.array([Decimal("0.1"), Decimal("1.0"), None, Decimal("300.0"), None], pa.decimal128(10, 1)),
        "at": pa.array([NOON, NOON + timedelta(hours=1), None, NOON, NOON], pa.timestamp("us", "UTC")),
        "tags": [["a"], [], None, ["word 9", None], ["z"]],
    }
)


def rows(condition: str, **params: Any) -> list[int]:
    query = f"SELECT * FROM S WHERE A AS x FILTER x[{condition}]"
    found: list[int] = ceql.match(query, TABLE, shape="positions", params=params).to_arrow()["start"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ("i > $p", 1, [1, 2, 4]),
        ("i > $p", Decimal("1.5"), [1, 2, 4]),
        ("x = $p", 0.1, [0]),
        ("d = $p", 0.1, [0]),
        ("x = $p", float("nan"), [1]),
        ("s = $p", "b", [1]),
        ("s = $p", None, []),
        ("s IN {'a', $p}", "b", [0, 1]),
        ("s LIKE $p", "word%", [3]),
        ("s RLIKE $p", "(?i)WORD", [3]),
        ("at > $p", NOON, [1]),
        ("at > $p", datetime(2024, 1, 31, 12), [1]),
        ("at > $p", date(2024, 1, 31), [0, 1, 3, 4]),
        ("at > $p", "2024-01-31 12:00", [1]),
        ("at - '2024-01-31' > $p", timedelta(hours=12), [1]),
        ("COALESCE(i, $p) = $p", 7, [3]),
        ("s IN $p", ["a", "b"], [0, 1]),
        ("s IN $p", "a", [0]),
        ("s IN $p", {"a"}, [0]),
        ("s IN $p", [], []),
        ("s NOT IN $p", [], [0, 1, 3, 4]),
        ("x NOT IN $p", [], [0, 1, 2, 4]),
        ("s NOT IN $p", ["a", None], []),
        ("s IN $p", MANY, [3]),
        ("s NOT IN $p", MANY, [0, 1, 4]),
        ("s NOT IN $p", [*MANY, None], []),
        ("LOWER(s) IN $p", pa.array(MANY), [3]),
        ("s IN $p", pa.chunked_array([MANY[:9], MANY[9:]]).dictionary_encode(), [3]),
        ("s IN $p", pa.table({"word": MANY}), [3]),
        ("ANY(tags) IN $p", MANY, [3]),
        ("i IN $p", np.arange(300), [0, 1, 2]),
        ("i IN $p", range(250, 400), [4]),
        ("i IN $p", [0.5 + number for number in range(200)] + [2.0], [1]),
        ("x IN $p", [*range(200), 0.1, float("nan")], [0, 1, 2, 4]),
        ("d IN $p", range(200, 400), [3]),
        ("d IN $p", [Decimal(number) / 10 for number in range(300)], [0, 1]),
        ("at IN $p", [NOON + timedelta(hours=number) for number in range(1, 200)], [1]),
        ("at IN $p", [f"2024-01-31 12:00:{number:02}.5" for number in range(60)] * 2 + ["2024-01-31 12:00"], [0, 3, 4]),
    ],
)
def test_values(condition: str, value: Any, expected: list[int]) -> None:
    assert rows(condition, p=value) == expected


def test_networks_may_come_as_a_list() -> None:
    table = pa.table({"type": ["A"] * 3, "ip": ["10.1.2.3", "11.1.2.3", "2001:db8::1"]})
    query = "SELECT * FROM S WHERE A AS x FILTER x[CIDR_MATCH(ip, $nets)]"
    found = ceql.match(query, table, params={"nets": ["10.0.0.0/8", "2001:db8::/32"]}, shape="positions")
    assert found.to_arrow()["start"].to_pylist() == [0, 2]


@pytest.mark.parametrize(
    ("condition", "params", "message"),
    [
        ("i > $limit", {}, r"parameter '\$limit' has no value"),
        ("i > $limt", {"limit": 1}, "did you mean 'limit'"),
        ("i > $p", {"p": [1]}, r"'\$p' is a list of values"),
        ("i > $p", {"p": "a"}, r"cannot compare i \(integer\) with \$p \(string\)"),
        ("i IN $p", {"p": MANY}, r"cannot compare i \(integer\) with \$p \(string\)"),
        ("s LIKE $p", {"p": 1}, "LIKE needs a string as pattern"),
        ("s IN $p", {"p": {"a": 1}}, "neither a value nor a list"),
        ("s IN $p", {"p": pa.table({"a": [1], "b": [1]})}, "a table with 2 columns"),
        ("s IN $p", {"p": [[1]]}, "which cannot be compared"),
        ("s IN $p", {"p": ["a", 1]}, "cannot be used"),
    ],
)
def test_what_cannot_be_used(condition: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ceql.CeqlError, match=message):
        rows(condition, **params)


def test_parameters_travel_with_a_query() -> None:
    text = "SELECT * FROM S WHERE A AS x FILTER x[s IN $words AND i > $limit]"
    query = ceql.compile(text, TABLE, params={"words": [*MANY, "b"], "limit": 1})
    for copy in (query, pickle.loads(pickle.dumps(query))):
        assert ceql.match(copy, TABLE).count() == 1
        assert ceql.match(copy, TABLE, params={"limit": 2}).count() == 0
    assert "s IN $words" in query.explain()
    stored = query.draft.parameters.to_bytes()
    assert Parameters.from_bytes(stored) == query.draft.parameters
    assert Parameters.from_bytes(NO_PARAMETERS.to_bytes()) is NO_PARAMETERS


def test_a_session_goes_on_with_other_values() -> None:
    text = "SELECT * FROM S WHERE A AS x ; A AS y FILTER x[s IN $words] AND y[i > $limit]"
    session = ceql.Session(text, params={"words": ["a"], "limit": 1})
    session.feed(TABLE.slice(0, 1)).count()
    session = ceql.Session.restore(text, session.snapshot(), params={"words": MANY, "limit": 2})
    assert session.feed(TABLE.slice(1)).count() == 3
    with pytest.raises(ceql.SnapshotError):
        ceql.Session.restore(text.replace("$limit", "$most"), session.snapshot(), params={"words": MANY, "most": 2})
