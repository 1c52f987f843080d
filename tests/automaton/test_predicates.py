"""The value of predicates on single events: three-valued logic, and numbers at their limits."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import ceql
from ceql.automaton.predicates import Event, evaluate, holds
from ceql.syntax import plan

SCHEMA = pa.schema(
    [
        ("p", pa.bool_()),
        ("q", pa.bool_()),
        ("i", pa.int64()),
        ("j", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("d", pa.decimal128(20, 4)),
        ("e", pa.decimal128(20, 2)),
        ("s", pa.string()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("u", pa.timestamp("us", tz="UTC")),
        ("lasted", pa.duration("us")),
        ("process", pa.struct([("name", pa.string()), ("parent", pa.struct([("at", pa.timestamp("us", tz="UTC"))]))])),
        ("args", pa.list_(pa.string())),
        ("ports", pa.list_(pa.int64())),
    ]
)
NAN, INF = math.nan, math.inf
LEAST, MOST = -(2**63), 2**63 - 1


def predicate(text: str) -> plan.Expression:
    query = ceql.compile(f"SELECT * FROM S WHERE A FILTER A[{text}]", SCHEMA)
    assert isinstance(query.plan.formula, plan.Filter)
    ((_, bound),) = query.plan.formula.conditions
    return bound


def value(text: str, **attributes: Any) -> Any:
    return evaluate(predicate(text), Event("A", attributes))


TRUTH = [
    # p, q, p AND q, p OR q, NOT p
    (True, True, True, True, False),
    (True, False, False, True, False),
    (True, None, None, True, False),
    (False, True, False, True, True),
    (False, False, False, False, True),
    (False, None, False, None, True),
    (None, True, None, True, None),
    (None, False, False, None, None),
    (None, None, None, None, None),
]


@pytest.mark.parametrize(("p", "q", "both", "either", "negated"), TRUTH)
def test_truth_table(p: bool | None, q: bool | None, both: bool | None, either: bool | None, negated: bool) -> None:
    assert value("p AND q", p=p, q=q) is both
    assert value("p OR q", p=p, q=q) is either
    assert value("NOT p", p=p) is negated
    assert holds(predicate("p"), Event("A", {"p": p})) is (p is True)
    assert value("p IS NULL", p=p) is (p is None)
    assert value("p IS NOT NULL", p=p) is (p is not None)


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("i = 1", {}, None),
        ("i = 1", {"i": None}, None),
        ("i != 1", {"i": None}, None),
        ("i = NULL", {"i": 1}, None),
        ("NOT i = NULL", {"i": 1}, None),
        ("NULL", {}, None),
        ("NOT NULL", {}, None),
        ("i + NULL = 1", {"i": 1}, None),
        ("i IN {1, 2}", {"i": 2}, True),
        ("i IN {1, 2}", {"i": 3}, False),
        ("i IN {1, 2}", {"i": None}, None),
        ("i IN {1, NULL}", {"i": 1}, True),
        ("i IN {1, NULL}", {"i": 2}, None),
        ("i NOT IN {1, NULL}", {"i": 1}, False),
        ("i NOT IN {1, NULL}", {"i": 2}, None),
        ("i NOT IN {1}", {"i": 2}, True),
        ("i BETWEEN 1 AND 3", {"i": 3}, True),
        ("i BETWEEN 1 AND 3", {"i": 4}, False),
        ("i BETWEEN 3 AND 1", {"i": 2}, False),
        ("i BETWEEN NULL AND 3", {"i": 4}, False),
        ("i BETWEEN NULL AND 3", {"i": 2}, None),
        ("i NOT BETWEEN NULL AND 3", {"i": 4}, True),
        ("i IN {1..3}", {"i": 1}, True),
        ("i NOT IN {1..3}", {"i": 1}, False),
        ("s LIKE 'a%'", {"s": None}, None),
        ("s NOT LIKE 'a%'", {"s": None}, None),
        ("s NOT LIKE 'a%'", {"s": "b"}, True),
        ("s RLIKE 'b$'", {"s": "ab"}, True),
        ("s RLIKE 'b$'", {"s": "b\n"}, False),
        ("s < 'b'", {"s": "a"}, True),
        ("s < 'a'", {"s": "Z"}, True),
        ("s = 'é'", {"s": "e\u0301"}, False),
        ("s = ''", {"s": ""}, True),
        ("p = TRUE", {"p": False}, False),
        ("p > q", {"p": True, "q": False}, True),
        ("(i = 1) = (j = 1)", {"i": 2, "j": 3}, True),
        ("(i = 1) = (j = 1)", {"i": None, "j": 3}, None),
    ],
)
def test_nulls_sets_and_strings(text: str, attributes: dict[str, Any], expected: bool | None) -> None:
    assert value(text, **attributes) is expected


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        (NAN, NAN, "="),
        (NAN, INF, ">"),
        (-INF, NAN, "<"),
        (INF, INF, "="),
        (-0.0, 0.0, "="),
        (0.1 + 0.2, 0.3, ">"),
        (1.0, 2.0, "<"),
    ],
)
def test_order_of_doubles(left: float, right: float, order: str) -> None:
    expected = {
        "=": order == "=",
        "!=": order != "=",
        "<": order == "<",
        "<=": order != ">",
        ">": order == ">",
        ">=": order != "<",
    }
    assert {sign: value(f"x {sign} y", x=left, y=right) for sign in expected} == expected


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("x = 0.1", {"x": 0.1}, True),
        ("x > 0.1", {"x": 0.1}, False),
        ("x IN {0.1, 0.2}", {"x": 0.2}, True),
        ("x > 9007199254740993", {"x": 9007199254740992.0}, False),
        ("x < 9007199254740993", {"x": 9007199254740992.0}, True),
        ("i < 1.5", {"i": 1}, True),
        ("i = 1.0", {"i": 1}, True),
        ("i = 1.5", {"i": 1}, False),
        ("i < 9223372036854775808", {"i": MOST}, True),
        ("i > -9223372036854775809", {"i": LEAST}, True),
        ("i = 9223372036854775807", {"i": MOST}, True),
        ("i = 9223372036854775807.5", {"i": MOST}, False),
        ("i = x", {"i": 2**53 + 1, "x": 2.0**53}, True),
        ("x > 5", {"x": NAN}, True),
        ("x IN {1}", {"x": NAN}, False),
        ("d = 0.1", {"d": Decimal("0.1000")}, True),
        ("d = 0.10001", {"d": Decimal("0.1000")}, False),
        ("d = e", {"d": Decimal("1.1000"), "e": Decimal("1.10")}, True),
        ("d > e", {"d": Decimal("1.1001"), "e": Decimal("1.10")}, True),
        ("d = i", {"d": Decimal("3.0000"), "i": 3}, True),
        ("d < x", {"d": Decimal("0.1000"), "x": 0.1}, False),
        ("d IN {1, 2.5}", {"d": Decimal("2.5000")}, True),
    ],
)
def test_comparisons_between_kinds_of_numbers(text: str, attributes: dict[str, Any], expected: bool) -> None:
    assert value(text, **attributes) is expected


def computed(expression: str, **attributes: Any) -> Any:
    """Return the value of an arithmetic expression."""
    bound = predicate(f"{expression} IS NULL")
    assert isinstance(bound, plan.IsNull)
    return evaluate(bound.value, Event("A", attributes))


@pytest.mark.parametrize(
    ("expression", "attributes", "expected"),
    [
        ("i + j", {"i": 1, "j": 2}, 3),
        ("i + j", {"i": MOST, "j": 1}, None),
        ("i - j", {"i": LEAST, "j": 1}, None),
        ("i * j", {"i": 2**62, "j": 2}, None),
        ("i * j", {"i": LEAST, "j": 1}, LEAST),
        ("i * j", {"i": LEAST, "j": -1}, None),
        ("i + j - 1", {"i": MOST, "j": 1}, None),
        ("i - 1 + j", {"i": MOST, "j": 1}, MOST),
        ("-i", {"i": LEAST}, None),
        ("-i", {"i": MOST}, LEAST + 1),
        ("i + 9223372036854775808", {"i": 1}, 2.0**63),
        ("i / j", {"i": 7, "j": 2}, 3.5),
        ("i / j", {"i": 6, "j": 3}, 2.0),
        ("i / j", {"i": 1, "j": 0}, None),
        ("x / y", {"x": 1.0, "y": 0.0}, None),
        ("x / y", {"x": 1.0, "y": -0.0}, None),
        ("x / y", {"x": NAN, "y": 0.0}, None),
        ("i % j", {"i": 7, "j": 3}, 1),
        ("i % j", {"i": -7, "j": 3}, -1),
        ("i % j", {"i": 7, "j": -3}, 1),
        ("i % j", {"i": -7, "j": -3}, -1),
        ("i % j", {"i": 7, "j": 0}, None),
        ("i % j", {"i": LEAST, "j": -1}, 0),
        ("x % y", {"x": -7.5, "y": 2.0}, -1.5),
        ("x % y", {"x": 7.5, "y": -2.0}, 1.5),
        ("x % y", {"x": 1.0, "y": 0.0}, None),
        ("x % y", {"x": 1.0, "y": INF}, 1.0),
        ("x % y", {"x": INF, "y": 2.0}, NAN),
        ("x + y", {"x": INF, "y": -INF}, NAN),
        ("x * y", {"x": 1e308, "y": 10.0}, INF),
        ("i + x", {"i": 1, "x": 0.5}, 1.5),
        ("i * 0.5", {"i": 3}, 1.5),
        ("d + 1", {"d": Decimal("0.5")}, 1.5),
        ("-d", {"d": Decimal("0.5")}, -0.5),
        ("d * e", {"d": Decimal("0.1"), "e": Decimal("0.2")}, 0.1 * 0.2),
        ("2 + i * 3 - 1", {"i": 4}, 13),
        ("i - j - 1", {"i": 10, "j": 3}, 6),
        ("i / j * 2", {"i": 1, "j": 4}, 0.5),
        ("i + j", {"i": None, "j": 1}, None),
        ("-x", {"x": None}, None),
    ],
)
def test_arithmetic(expression: str, attributes: dict[str, Any], expected: float | None) -> None:
    found = computed(expression, **attributes)
    assert type(found) is type(expected)
    assert found == expected or (math.isnan(found) and math.isnan(expected))  # type: ignore[arg-type]


NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)
BERLIN = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("t = '2024-01-31 12:00:00'", {"t": NOON}, True),
        ("t = '2024-01-31T12:00:00Z'", {"t": NOON}, True),
        ("t = '2024-01-31 13:00:00+01:00'", {"t": NOON}, True),
        ("t = '2024-01-31 13:00:00+01:00'", {"t": NOON.astimezone(BERLIN)}, True),
        ("t < '2024-01-31 12:00:00.000001'", {"t": NOON}, True),
        ("t >= '2024-01-31'", {"t": NOON}, True),
        ("t BETWEEN '2024-01-30' AND '2024-02-01'", {"t": NOON}, True),
        ("t IN {'2024-01-31 12:00', '2024-01-31 13:00'}", {"t": NOON}, True),
        ("'2024-02-01' < t", {"t": NOON}, False),
        ("local = '2024-01-31 12:00:00'", {"local": NOON.replace(tzinfo=None)}, True),
        ("local > '2024-01-31'", {"local": NOON.replace(tzinfo=None)}, True),
        ("day = '2024-01-31'", {"day": date(2024, 1, 31)}, True),
        ("day > '2024-01-31'", {"day": date(2024, 2, 1)}, True),
        ("day IS NULL", {"day": None}, True),
        ("t > '2024-01-31'", {"t": None}, None),
    ],
)
def test_times(text: str, attributes: dict[str, Any], expected: bool | None) -> None:
    assert value(text, **attributes) is expected


@pytest.mark.parametrize(
    ("event_type", "stream", "asked", "expected"),
    [
        ("A", None, plan.HasType("A"), True),
        ("B", None, plan.HasType("A"), False),
        ("A", "S", plan.HasType("A"), True),
        ("A", "S", plan.HasType("A", "S"), True),
        ("A", "T", plan.HasType("A", "S"), False),
    ],
)
def test_event_types_and_streams(event_type: str, stream: str | None, asked: plan.HasType, expected: bool) -> None:
    assert evaluate(asked, Event(event_type, {}, stream)) is expected


@pytest.mark.parametrize(
    ("expression", "attributes", "expected"),
    [
        ("LOWER(s)", {"s": "CMD.exe"}, "cmd.exe"),
        ("LOWER(s)", {"s": "ÄΣ日"}, "äσ日"),
        ("LOWER(s)", {"s": "İ"}, "i"),
        ("UPPER(s)", {"s": "straẞe"}, "STRAẞE"),
        ("LENGTH(s)", {"s": "a🙂é"}, 3),
        ("TRIM(s)", {"s": "  a b\t "}, "a b\t"),
        ("SUBSTR(s, 2)", {"s": "a🙂cd"}, "🙂cd"),
        ("SUBSTR(s, 2, 2)", {"s": "a🙂cd"}, "🙂c"),
        ("SUBSTR(s, 0, 2)", {"s": "abcd"}, "ab"),
        ("SUBSTR(s, -3, 2)", {"s": "abcd"}, "bc"),
        ("SUBSTR(s, -6, 4)", {"s": "abcd"}, "ab"),
        ("SUBSTR(s, 9)", {"s": "abcd"}, ""),
        ("SUBSTR(s, 2, -1)", {"s": "abcd"}, ""),
        ("SUBSTR(s, i)", {"s": "abcd", "i": None}, None),
        ("CONCAT(s, '-', s)", {"s": "a"}, "a-a"),
        ("CONCAT(s, NULL)", {"s": "a"}, None),
        ("STARTS_WITH(s, 'a%')", {"s": "a%b"}, True),
        ("ENDS_WITH(s, 'B')", {"s": "ab"}, False),
        ("CONTAINS(s, '')", {"s": ""}, True),
        ("CONTAINS(s, 'a')", {"s": None}, None),
        ("COALESCE(i, j, 7)", {"i": None, "j": None}, 7),
        ("COALESCE(i, x)", {"i": 1, "x": None}, 1.0),
        ("COALESCE(i, d)", {"i": None, "d": Decimal("0.5")}, 0.5),
        ("COALESCE(s, NULL)", {"s": None}, None),
        ("ABS(i)", {"i": -3}, 3),
        ("ABS(i)", {"i": LEAST}, None),
        ("ABS(d)", {"d": Decimal("-0.5")}, 0.5),
        ("ROUND(x)", {"x": 0.5}, 1.0),
        ("ROUND(x)", {"x": -2.5}, -3.0),
        ("ROUND(x)", {"x": 0.49999999999999994}, 0.0),
        ("ROUND(x, 2)", {"x": 2.675}, 2.68),
        ("ROUND(x, -1)", {"x": 25.0}, 30.0),
        ("ROUND(i, -1)", {"i": 25}, 30),
        ("ROUND(i, -1)", {"i": MOST}, None),
        ("ROUND(i, 3)", {"i": 25}, 25),
        ("ROUND(x, 400)", {"x": 5e-324}, 5e-324),
        ("FLOOR(x)", {"x": -0.5}, -1.0),
        ("CEIL(x)", {"x": 1e300}, 1e300),
        ("CEIL(x)", {"x": NAN}, NAN),
        ("FLOOR(i)", {"i": 7}, 7),
        ("LEAST(i, j)", {"i": 2, "j": 1}, 1),
        ("LEAST(i, NULL)", {"i": 2}, None),
        ("LEAST(x, y)", {"x": NAN, "y": INF}, INF),
        ("GREATEST(x, y, 1)", {"x": NAN, "y": INF}, NAN),
        ("GREATEST(s, 'b')", {"s": "a"}, "b"),
        ("CIDR_MATCH(s, '10.0.0.0/8')", {"s": "10.255.0.1"}, True),
        ("CIDR_MATCH(s, '10.1.2.3/8', '::1')", {"s": "::1"}, True),
        ("CIDR_MATCH(s, '10.0.0.0/8')", {"s": "2001:db8::1"}, False),
        ("CIDR_MATCH(s, '10.0.0.0/8')", {"s": "10.0.0.256"}, None),
        ("CIDR_MATCH(s, '10.0.0.0/8')", {"s": "010.0.0.1"}, None),
        ("CASE WHEN i > 1 THEN 'a' WHEN i > 0 THEN 'b' END", {"i": 1}, "b"),
        ("CASE WHEN i > 1 THEN 'a' WHEN i > 0 THEN 'b' END", {"i": None}, None),
        ("CASE i WHEN 1 THEN x ELSE j END", {"i": None, "j": 5}, 5.0),
        ("CASE i WHEN j THEN 1 ELSE 2 END", {"i": 3, "j": 3}, 1),
    ],
)
def test_functions(expression: str, attributes: dict[str, Any], expected: Any) -> None:
    found = computed(expression, **attributes)
    assert type(found) is type(expected)
    assert found == expected or (math.isnan(found) and math.isnan(expected))


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("s ILIKE 'CMD%'", {"s": "cmd.exe"}, True),
        ("s ILIKE '_É'", {"s": "aé"}, True),
        ("s NOT ILIKE 'a'", {"s": "A"}, False),
        ("s ILIKE 'a'", {"s": None}, None),
        ("s RLIKE '(?i)^cmd'", {"s": "CMD"}, True),
        ("s RLIKE '(?i)[^a-z]'", {"s": "CMD"}, False),
        ("s RLIKE '(?i)[Z-a]'", {"s": "z"}, True),
        ("s RLIKE '(?i)[À-Ö]'", {"s": "ä"}, True),
        ("s RLIKE '(?i)\\x41\\u00c4'", {"s": "aä"}, True),
        ("s RLIKE '(?i)^k$'", {"s": "\u212a"}, True),
    ],
)
def test_without_regard_to_case(text: str, attributes: dict[str, Any], expected: bool | None) -> None:
    assert value(text, **attributes) is expected


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("t - u <= 5 seconds", {"t": NOON, "u": NOON - timedelta(seconds=5)}, True),
        ("t - u <= 5 seconds", {"t": NOON, "u": NOON - timedelta(seconds=5, microseconds=1)}, False),
        ("t - u <= 5 seconds", {"t": NOON, "u": None}, None),
        ("t + 1 hour 30 minutes = '2024-01-31 13:30'", {"t": NOON}, True),
        ("1 day + t > '2024-02-01'", {"t": NOON}, True),
        ("t - '2024-01-31' = 12 hours", {"t": NOON}, True),
        ("t + 1 nanosecond > t", {"t": NOON}, True),
        ("lasted > 0.5 seconds", {"lasted": timedelta(milliseconds=501)}, True),
        ("lasted IN {1 second, 2 seconds}", {"lasted": timedelta(seconds=2)}, True),
        ("-lasted < -1 second", {"lasted": timedelta(seconds=2)}, True),
        ("ABS(u - t) + lasted = 2 seconds", {"t": NOON, "u": NOON, "lasted": timedelta(seconds=2)}, True),
        ("day + 1 day = '2024-02-01'", {"day": date(2024, 1, 31)}, True),
        ("day - '2024-01-01' > 29 days", {"day": date(2024, 1, 31)}, True),
        ("DATE(t) = '2024-01-31'", {"t": NOON}, True),
        ("DATE(t, '+12:00') = '2024-02-01'", {"t": NOON}, True),
        ("HOUR(t, 'Europe/Berlin') = 13 AND HOUR(t) = 12", {"t": NOON}, True),
        ("MINUTE(t, '+05:45') = 45", {"t": NOON}, True),
        ("DAY_OF_WEEK(day) = 3 AND DAY_OF_WEEK(t) = 3", {"day": date(2024, 1, 31), "t": NOON}, True),
        ("HOUR(local) = 12", {"local": NOON.replace(tzinfo=None)}, True),
        ("COALESCE(u, '2024-01-31 12:00') = t", {"t": NOON, "u": None}, True),
        ("GREATEST(t, u) = u", {"t": NOON, "u": NOON + timedelta(microseconds=1)}, True),
        ("HOUR(t) = 23", {"t": datetime(1969, 12, 31, 23, 59, tzinfo=UTC)}, True),
    ],
)
def test_times_and_durations(text: str, attributes: dict[str, Any], expected: bool | None) -> None:
    assert value(text, **attributes) is expected


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("process.name = 'a'", {"process": {"name": "a", "parent": None}}, True),
        ("process.parent.at > '2024-01-01'", {"process": {"name": "a", "parent": {"at": NOON}}}, True),
        ("process.parent.at > '2024-01-01'", {"process": {"name": "a", "parent": None}}, None),
        ("process.parent IS NULL", {"process": None}, True),
        ("A.process.name LIKE 'a%'", {"process": {"name": "ab", "parent": None}}, True),
        ("ANY(args) LIKE '%x%'", {"args": ["a", "bx"]}, True),
        ("ANY(args) LIKE '%x%'", {"args": ["a", None]}, None),
        ("ANY(args) LIKE '%x%'", {"args": []}, False),
        ("ANY(args) LIKE '%x%'", {"args": None}, None),
        ("NOT ANY(args) LIKE '%x%'", {"args": ["a"]}, True),
        ("ANY(args) NOT LIKE '%x%'", {"args": ["a", "x"]}, True),
        ("ANY(args) IS NULL", {"args": ["a", None]}, True),
        ("ANY(args) = s", {"args": ["a", "b"], "s": "b"}, True),
        ("LOWER(ANY(args)) IN {'a', 'b'}", {"args": ["x", "B"]}, True),
        ("ANY(ports) IN {22, 23}", {"ports": [1, 22]}, True),
        ("i < ANY(ports) AND ANY(ports) BETWEEN 1 AND 3", {"ports": [5, 2], "i": 4}, True),
        ("LENGTH(args) = 2", {"args": ["a", None]}, True),
        ("LENGTH(args) = 0", {"args": None}, None),
        ("args IS NULL OR process IS NULL", {"args": [], "process": None}, True),
    ],
)
def test_parts_of_structs_and_items_of_lists(text: str, attributes: dict[str, Any], expected: bool | None) -> None:
    assert value(text, **attributes) is expected
