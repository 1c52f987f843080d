"""Predicates mean the same to Spark, to the engine over Arrow columns, and value by value."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ceql
import strategies
from ceql.automaton.predicates import Event, evaluate, holds
from ceql.engine.intake.classes import Columns
from ceql.engine.intake.symbols import SymbolEncoder
from ceql.schema import Schema
from ceql.syntax import plan

pytest.importorskip("pyspark.sql")
from pyspark.sql import DataFrame

from ceql.backends.spark.predicates import Translation, row_conditions

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("generated"),
]

N_ROWS = 60
N_PREDICATES = 80

INTEGERS = [0, 1, -1, 2, 3, -7, 10]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, 1.5, -2.5, 2.0**53, 1e300, -1e300, 5e-324, 2.0**63, -(2.0**63)]
SPECIAL = [math.nan, math.inf, -math.inf]
TEXTS = [
    *("", "a", "A", "ab", "b", "MSFT", "10%", "100", "a_b", "\\", "a\\b", "'", "\n", "a\n", "a\nb", "\0", "a\0", " a "),
    *("é", "e\u0301", "日本語", "🙂", "a🙂b", "🙂🙂", "\U0010ffff", "\uffff", "\ue000", "\ud7ff", "٣", "ß", "a" * 300),
]
MOMENTS = [
    datetime(1970, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 1, 31, 12),
    datetime(2024, 1, 31, 12, 0, 0, 1),
    datetime(2024, 3, 10, 2, 30),
    datetime(2024, 1, 31),
    datetime(1900, 1, 1),
    datetime(1582, 10, 10),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]


def limits(bits: int) -> list[int]:
    return [2 ** (bits - 1) - 1, 2 ** (bits - 1) - 2, -(2 ** (bits - 1)), 1 - 2 ** (bits - 1)]


def decimals(digits: int, scale: int) -> list[Decimal]:
    nines = "9" * (digits - scale) + "." + "9" * scale
    small = ["0", *(["1", "-1", "3"] if digits > scale else []), *(["0.5", "-0.5", "0.1"] if scale else [])]
    return [Decimal(one) for one in [*small, nines, f"-{nines}", f"{nines[:-1]}8" if scale else "2"]]


VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "p": (pa.bool_(), [True, False]),
    "q": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), INTEGERS + limits(8)),
    "i16": (pa.int16(), INTEGERS + limits(16)),
    "i32": (pa.int32(), INTEGERS + limits(32)),
    "i": (pa.int64(), [*INTEGERS, *limits(64), 2**53 + 1]),
    "j": (pa.int64(), [*INTEGERS, *limits(64), 2**53 + 1]),
    "f": (pa.float32(), [*FLOATS[:7], *SPECIAL, 16777216.0, 3.4028234663852886e38, 1e-45]),
    "x": (pa.float64(), FLOATS + SPECIAL),
    "y": (pa.float64(), FLOATS + SPECIAL),
    "d5": (pa.decimal128(5, 2), decimals(5, 2)),
    "d18": (pa.decimal128(18, 0), decimals(18, 0)),
    "d20": (pa.decimal128(20, 4), decimals(20, 4)),
    "d38": (pa.decimal128(38, 18), decimals(38, 18)),
    "big": (pa.decimal128(38, 0), decimals(38, 0)),
    "fine": (pa.decimal128(38, 37), decimals(38, 37)),
    "part": (pa.decimal128(38, 38), decimals(38, 38)),
    "s": (pa.string(), TEXTS),
    "r": (pa.string(), TEXTS),
    "t": (pa.timestamp("us", "UTC"), MOMENTS),
    "u": (pa.timestamp("us", "UTC"), MOMENTS),
    "n": (pa.timestamp("us"), MOMENTS),
    "m": (pa.timestamp("us"), MOMENTS),
    "day": (pa.date32(), [moment.date() for moment in MOMENTS]),
    "eve": (pa.date32(), [moment.date() for moment in MOMENTS]),
    "a b.`c": (pa.int64(), INTEGERS),
    "void": (pa.null(), [None]),
}
TYPES = {"type": pa.string(), **{name: data_type for name, (data_type, _) in VALUES.items()}}
SCHEMA = pa.schema(list(TYPES.items()))
ROWS = Translation("type", TYPES, None)
GROUPS = {
    "number": [
        *("i8", "i16", "i32", "i", "j", "`a b.``c`", "f", "x", "y"),
        *("d5", "d18", "d20", "d38", "big", "fine", "part"),
    ],
    "text": ["s", "r"],
    "boolean": ["p", "q"],
    "moment": ["t", "u"],
    "local": ["n", "m"],
    "date": ["day", "eve"],
}
CONSTANTS = {
    "number": [
        *("0", "-0.0", "1", "-1", "1.0", "1.5", "-1.5", "0.1", "0.5", "127", "128", "-128", "-129", "32768", "NULL"),
        *("2147483647", "2147483648", "16777217", "9007199254740993", "9007199254740992", "0.10000000149011612"),
        *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809"),
        *("9223372036854775806.5", "999.99", "999.995", "1000", "99999999999999999999999999999999999999"),
        *("1e300", "-1e300", "1e309", "-1e309", "1e39", "5e-324", "1e-390", "3.4028234663852886e38"),
        "1" + "0" * 350,
    ],
    "text": [f"'{one.replace(chr(39), chr(39) * 2)}'" for one in TEXTS] + ["NULL"],
    "boolean": ["TRUE", "FALSE", "NULL"],
    "moment": [f"'{one}'" for one in MOMENTS] + ["'2024-01-31T07:00:00-05:00'", "'2024-01-31 12:00:00Z'", "NULL"],
    "local": [f"'{one}'" for one in MOMENTS] + ["NULL"],
    "date": [f"'{one.date()}'" for one in MOMENTS] + ["NULL"],
}
PATTERNS = [
    *("LIKE 'a%'", "LIKE '%b'", "LIKE '_'", "LIKE '__'", "LIKE ''", "LIKE '%'", "LIKE '10\\%'", "LIKE 'a\\_b'"),
    *("LIKE '\\\\'", "LIKE 'a\\\\%'", "LIKE '%🙂%'", "LIKE '_🙂_'", "LIKE 'é'", "LIKE 'e_'", "LIKE '%\n'"),
    *("RLIKE '^a+$'", "RLIKE '日'", "RLIKE ''", "RLIKE '^.$'", "RLIKE '^.*$'", "RLIKE '^\\W$'", "RLIKE '\\d'"),
    *("RLIKE '[\\x00-\\uffff]'", "RLIKE '[\\x80-\\uffff]'", "RLIKE '[^\\x00-\\uffff]'", "RLIKE '[\\ue000-\\uffff]$'"),
    *("RLIKE '^(a|é|)$'", "RLIKE '^(a|b|🙂)+$'", "RLIKE '^.{2,}$'", "RLIKE '^[^a]{1,2}$'", "RLIKE '\\\\'"),
    *("RLIKE '[🙂-\U0010ffff]'", "RLIKE '[^🙂]'", "RLIKE '\\s'", "RLIKE 'a$|^\\\\'", "RLIKE '^\\x00?$'", "RLIKE '$^'"),
]
CALLS = {
    "number": [
        *("ABS({0}) > {1}", "ROUND({0}) = {1}", "ROUND({0}, 1) > {1}", "FLOOR({0}) <= {1}", "CEIL({0}) = {0}"),
        *("FLOOR({0}) < {0}", "COALESCE({0}, {1}) > 1", "LEAST({0}, {1}) = {0}", "COALESCE({0}, 0) + 1 > {1}"),
        *("CASE WHEN {0} > {1} THEN {0} ELSE 0.5 END >= {1}", "CASE WHEN {0} > 1 THEN 'a' ELSE s END = 'a'"),
        *("ROUND({0}) - {0} = 0.5", "ABS(FLOOR({0})) IS NULL", "COALESCE({0}, 1) IN {{1, 0.5}}"),
    ],
    "text": [
        *("LENGTH({0}) = 2", "LENGTH({0}) > i", "TRIM({0}) = 'a'", "SUBSTR({0}, 2) = 'b'", "SUBSTR({0}, -2, 1) = 'a'"),
        *("SUBSTR({0}, 0, 2) = 'ab'", "SUBSTR({0}, -9, 8) = ''", "SUBSTR({0}, 1, -1) = ''", "SUBSTR({0}, i, 1) = 'a'"),
        *("CONCAT({0}, '!', {1}) = 'a!a'", "STARTS_WITH({0}, 'a')", "ENDS_WITH({0}, {1})", "CONTAINS({0}, '🙂')"),
        *("CONTAINS('a🙂b', {0})", "COALESCE({0}, {1}, 'x') = 'x'", "CASE {0} WHEN 'a' THEN {1} END = 'b'"),
        *(
            "NOT STARTS_WITH({0}, {1})",
            "SUBSTR({0}, NULL) = 'a'",
            "LENGTH(NULL) > i",
            "CIDR_MATCH({0}, '10.0.0.0/8')",
            "LENGTH(CONCAT({0}, {1})) - 1 > i8",
        ),
        *("COALESCE({0} = {1}, p) = q", "CASE WHEN {0} = {1} THEN p ELSE q END"),
    ],
    "cased": [
        *("LOWER({0}) = 'a'", "UPPER({0}) != 'A'", "{0} ILIKE 'A%'", "NOT {0} ILIKE 'É'", "{0} RLIKE '(?i)[A-Z]$'"),
        *("LENGTH(LOWER({0})) > 1", "LOWER(TRIM({0})) IN {{'a', 'é'}}", "LOWER({0}) = UPPER({1})"),
        *("NOT (LOWER({0}) > 'b' OR LOWER({0}) IS NULL)", "CONTAINS(LOWER({0}), 'a') = p"),
    ],
    "moment": [
        *("{0} - {1} > 1 day", "{0} - {1} <= 1 microsecond", "{0} + 1 nanosecond > {1}", "{0} + 90 minutes >= {1}"),
        *("{0} - '1970-01-01' = 0 seconds", "HOUR({0}) = 12", "MINUTE({0}) > 30", "DATE({0}) = '1969-12-31'"),
        *("DATE({0}) < day", "DAY_OF_WEEK({0}) = 3", "HOUR({0} + 1 hour) IN {{0, 13}}", "COALESCE({0}, {1}) = {1}"),
        *(
            "CASE WHEN i > 0 THEN {0} ELSE {1} END > '2000-01-01'",
            "ABS({0} - {1}) < 400 days",
            "HOUR({0}, 'Asia/Tokyo') = 9",
        ),
        *(
            "{0} - {1} IN {{0 seconds, 1 microsecond, 12 hours}}",
            "{0} - {1} = 0.5 microseconds",
            "DATE({0}) + 1 day > eve",
        ),
    ],
    "date": [
        *("{0} - {1} >= 1 day", "{0} + 1 day > {1}", "DAY_OF_WEEK({0}) = DAY_OF_WEEK({1})", "COALESCE({0}, {1}) = eve"),
        *("{0} - '2024-01-31' = 0 days", "DATE({0}) = {0}"),
    ],
}
CALLS["local"] = [text for text in CALLS["moment"] if "Tokyo" not in text]
SIGNS = ["=", "!=", "<", "<=", ">", ">="]

CASES = [
    *("NULL", "NOT NULL", "1 = 1.0", "'a' < 'b'", "1 IN {2, NULL}", "void = 1", "void IS NULL", "NOT void IN {1}"),
    *("void + i > 1", "void LIKE 'a'", "p AND NULL", "p OR NULL", "NOT p", "p = (i > 1)", "(x < 1) = FALSE"),
    *("(x < 1) IN {FALSE}", "(x < 1) IS NULL", "(s RLIKE 'a' OR NULL) IS NOT NULL", "NOT (x < 1 AND i > 1)"),
    *("x > 1e308 * 10", "x = 1e308 * 10 - 1e308 * 10", "x < 1e308 * 10 - 1e308 * 10", "x = 0", "x IN {0, 1.5}"),
    *("x NOT IN {0, 1.5}", "f = 0.1", "f > 0.1", "f < 16777217", "f >= 1e39", "f > -1e39", "x > 9007199254740993"),
    *("i = x", "i < x", "d38 = x", "f = x", "i8 = i", "d5 = i", "d5 < d38", "big < fine", "big = part", "part < i"),
    *("fine >= i", "fine = d38", "part != d38", "big > d38", "i = 9223372036854775807.5", "i8 < 1000"),
    *("i8 != 1000", "i8 IN {1, 1.0, 1.5, 1000}", "i8 NOT IN {1000}", "d5 IN {0.5, 0.501}", "-i > 0", "-i8 = 128"),
    *("-(-i) = i", "i + 1 IS NULL", "i + j - 1 > 0", "i * j IS NULL", "i8 * i8 > 100", "i / j > 0"),
    *("i / 0 IS NULL", "x / y IS NULL", "i % j = -1", "i % 3 < 0", "i % 0 IS NULL", "i % -1 = 0", "x % y > 0"),
    *("x % 2 IS NULL", "x * y > 1", "x - y = 0", "d38 + 1 > d38", "d5 * d5 > 0", "-d5 < 0", "d38 / 3 > 0.1"),
    *("i + 9223372036854775808 > 0", "2 - i * 3 % 2 > x", "i > 1 + 2", "x >= 1 + 0.5", "d5 = 1 / 2"),
    *("i BETWEEN NULL AND 3", "i NOT BETWEEN j AND 3", "i IN {1..3}", "t = '2024-01-31T13:00:00+01:00'"),
    *("t = '2024-01-31 12:00:00.0000005'", "t < '2024-01-31 12:00:00.0000005Z'", "n != '2024-01-31 12:00:00.0000001'"),
    *("t IN {'2024-01-31 12:00:00', '2024-01-31 12:00:00.0000005'}", "n >= '9999-12-31 23:59:59.9999999'"),
    *("t BETWEEN '2024-01-31 12:00:00' AND '2024-01-31 12:00:00.000000999'", "n > '9999-12-31 23:59:59.9999990000'"),
    *("t >= '2024-03-10 02:30:00'", "n = '2024-03-10 02:30:00'", "t < u", "n >= m", "t > '0001-01-01'"),
    *("n <= '1582-10-10'", "day = '1582-10-10'", "day IN {'0001-01-01', '9999-12-31'}", "s = r", "s < r"),
    *("s < '🙂'", "s > '\uffff'", "s >= ''", "s IN {'é', '🙂', NULL}", "s NOT IN {'é', ''}", "`a b.``c` = 1"),
    *("type = 'A'", "type != 'A'"),
    *(f"s {pattern}" for pattern in PATTERNS),
    *(text.format("s", "r") for text in CALLS["text"]),
    *(text.format("x", "i") for text in CALLS["number"]),
    *(text.format("i", "d20") for text in CALLS["number"]),
    *(text.format("t", "u") for text in CALLS["moment"]),
    *(text.format("n", "m") for text in CALLS["local"]),
    *(text.format("day", "eve") for text in CALLS["date"]),
    *("i8 * 9223372036854775807 * i32 IS NULL", "i8 * (9223372036854775807 * i32) IS NULL"),
    *("i + 9223372036854775807 + (-200) IS NULL", "5 + i8 + 9223372036854775807 - 200 > 0", "i + (1 + j) - 1 IS NULL"),
]


def numbers(chance: random.Random, depth: int = 2) -> str:
    choice = chance.randrange(8) if depth else 0
    if choice <= 4:
        return chance.choice(GROUPS["number"])
    if choice == 5:
        return f"-({numbers(chance, depth - 1)})"
    operands = [numbers(chance, depth - 1)]
    for _ in range(chance.choice([1, 1, 2])):
        operands.append(chance.choice("+-*/%"))
        is_constant = chance.random() < 0.4
        constants = ["2", "0", "0.5", "1", "3", "9223372036854775807", "9223372036854775808"]
        operands.append(chance.choice(constants) if is_constant else numbers(chance, depth - 1))
    return f"({' '.join(operands)})"


def condition(chance: random.Random, depth: int = 2) -> str:
    """Return the text of a random predicate."""
    group = chance.choice(["number", "number", "number", "text", "boolean", "moment", "local", "date"])
    sign, negation = chance.choice(SIGNS), chance.choice(["", "NOT "])
    constants = CONSTANTS[group]

    def value() -> str:
        return numbers(chance) if group == "number" else chance.choice(GROUPS[group])

    match chance.randrange(13 if depth else 9):
        case 8 if group in CALLS:
            return chance.choice(CALLS[group]).format(*chance.choices(GROUPS[group], k=2))
        case 0 | 1:
            pair = [chance.choice(GROUPS[group]), chance.choice(constants)]
            chance.shuffle(pair)
            return f"{pair[0]} {sign} {pair[1]}"
        case 2:
            return f"{value()} {sign} {value()}"
        case 3:
            items = chance.sample(constants, min(len(constants), chance.choice([1, 2, 4, 12])))
            return f"{value()} {negation}IN {{{', '.join(items)}}}"
        case 4:
            return f"{value()} {negation}BETWEEN {value()} AND {chance.choice(constants)}"
        case 5:
            return f"{value()} IS {negation}NULL"
        case 6:
            return f"{chance.choice(GROUPS['text'])} {negation}{chance.choice(PATTERNS)}"
        case 7:
            return f"{value()} {sign} {chance.choice(constants)}"
        case 8 | 9:
            return f"NOT ({condition(chance, depth - 1)})"
        case 10:
            return f"({condition(chance, depth - 1)}) {sign} ({condition(chance, depth - 1)})"
        case 11:
            return f"({condition(chance, depth - 1)}) {chance.choice(['IS NULL', '= FALSE', 'IN {FALSE, NULL}'])}"
    word = chance.choice([" AND ", " OR "])
    return f"({word.join(condition(chance, depth - 1) for _ in range(chance.choice([2, 3])))})"


def bound(texts: Sequence[str], schema: Any = SCHEMA) -> list[plan.Expression]:
    formula = " ; ".join(f"(A AS v{at} FILTER v{at}[{text}])" for at, text in enumerate(texts))
    whole = ceql.compile(f"SELECT * FROM S WHERE {formula}", schema).plan.formula
    parts = whole.parts if isinstance(whole, plan.Sequence) else (whole,)
    return [part.conditions[0][1] for part in parts]  # type: ignore[attr-defined]


def rows() -> list[dict[str, Any]]:
    """Return rows in which every value occurs, with NULLs, and with equal values in columns of one kind."""
    chance = random.Random(3)
    columns: dict[str, list[Any]] = {"type": [chance.choice(["A", "A", "B", None]) for _ in range(N_ROWS)]}
    for name, (_, values) in VALUES.items():
        column = [*values, None, *chance.choices([*values, None], k=N_ROWS)][:N_ROWS]
        chance.shuffle(column)
        columns[name] = column
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


TABLE = pa.Table.from_pylist(rows(), SCHEMA)


@pytest.fixture(scope="module")
def frame(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the rows as a DataFrame over Parquet, each with its number."""
    path = tmp_path_factory.mktemp("predicates") / "rows.parquet"
    numbered = TABLE.append_column("row", pa.array(range(N_ROWS))).drop_columns(["void"])
    pq.write_table(numbered, path)
    return spark.read.parquet(str(path))


def by_value(predicates: Sequence[plan.Expression]) -> list[list[bool | None]]:
    events = [Event(str(row["type"]), row) for row in TABLE.to_pylist()]
    return [[evaluate(one, event) for event in events] for one in predicates]


def by_columns(predicates: Sequence[plan.Expression]) -> list[list[bool]]:
    """Return which rows satisfy each predicate, as the engine sees them."""
    encoder = SymbolEncoder(tuple(frozenset((one,)) for one in predicates))
    symbols = np.empty(N_ROWS, np.int32)
    arrays = {name: TABLE[name].combine_chunks() for name in TABLE.column_names}
    encoder.encode(Columns(arrays, arrays["type"]), symbols)
    masks = [encoder.masks[symbol] for symbol in symbols.tolist()]
    return [[bool(mask >> at & 1) for mask in masks] for at in range(len(predicates))]


def is_asked(predicate: plan.Expression) -> bool:
    """Whether Spark is asked about all of a predicate, and not only about a part of it."""
    parts = [part for part in predicate.walk() if isinstance(part, plan.Call | plan.TimeSum | plan.Case)]
    return all(map(ROWS.is_certain, parts))


def by_spark(frame: Any, predicates: Sequence[plan.Expression]) -> list[list[bool | None]]:
    columns = [ROWS.condition(one).alias(f"p{at}") for at, one in enumerate(predicates)]
    table = frame.select("row", *columns).toArrow().sort_by("row")
    return [table[f"p{at}"].to_pylist() for at in range(len(predicates))]


@contextmanager
def settings(spark: Any, values: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
SETTINGS: dict[str, dict[str, str]] = {
    "plain": {},
    "new-york": {"spark.sql.session.timeZone": "America/New_York", **INTERPRETED},
    "not-ansi": {"spark.sql.ansi.enabled": "false", **INTERPRETED},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_spark_and_engine_agree_with_the_meaning(spark: Any, frame: Any, name: str) -> None:
    for round in range(max(1, strategies.FUZZ)):
        chance = random.Random(f"{name} {round}")
        texts = [*CASES, *(condition(chance) for _ in range(N_PREDICATES))]
        predicates = bound(texts)
        expected = by_value(predicates)
        in_engine = by_columns(predicates)
        for text, meant, encoded in zip(texts, expected, in_engine, strict=True):
            assert encoded == [one is True for one in meant], text
        asked = [at for at, predicate in enumerate(predicates) if is_asked(predicate)]
        assert len(asked) > 0.8 * len(texts)
        with settings(spark, SETTINGS[name]):
            found = by_spark(frame, [predicates[at] for at in asked])
        for at, seen in zip(asked, found, strict=True):
            meant = expected[at]
            differing = [row for row in range(N_ROWS) if seen[row] is not meant[row]]
            assert not differing, (texts[at], [(seen[row], meant[row], TABLE.slice(row, 1)) for row in differing])


def test_spark_is_asked_about_the_case_of_ascii_only(frame: Any) -> None:
    texts = [text.format(*pair) for text in CALLS["cased"] for pair in ("sr", "rs")]
    predicates = bound(texts)
    assert all(map(is_asked, predicates))
    weaker = [ROWS.weakened([one], ROWS.is_certain) for one in predicates]
    found = by_spark(frame, weaker)  # type: ignore[arg-type]
    is_ascii = [all((row[name] or "").isascii() for name in "sr") for row in TABLE.to_pylist()]
    for text, meant, seen in zip(texts, by_value(predicates), found, strict=True):
        for row in range(N_ROWS):
            assert (seen[row] is True) >= (meant[row] is True), (text, TABLE.slice(row, 1))
            assert not is_ascii[row] or (seen[row] is True) is (meant[row] is True), (text, TABLE.slice(row, 1))
    assert [[one is True for one in meant] for meant in by_value(predicates)] == by_columns(predicates)


def filter_of(text: str, frame: Any, **options: Any) -> Any:
    query = ceql.compile(f"SELECT * FROM S WHERE {text}", frame)
    return row_conditions(query, "type", Schema.of(frame).streams[0].columns, **options)[0]


AT_THE_SCAN = [
    *("x > 1", "x >= 1e300", "x != 1", "x = 0", "x >= 0", "x <= 0", "x < 0", "x IN {0, 1.5}", "x NOT IN {0, 1}"),
    *("NOT x < 1e300", "NOT (x <= 1 OR i = 2)", "(x < 2) = FALSE", "(x < 2) IN {FALSE}", "NOT (x < 2) = TRUE"),
    *("x > 1e308 * 10", "x = 1e308 * 10 - 1e308 * 10", "f > 1", "f != 1", "f = 0", "f NOT IN {0.1, 1}", "0.5 < x"),
    *("s >= '🙂'", "s != ''", "t < '1970-01-01'", "n > '2024-01-31'", "day != '0001-01-01'", "d5 = 0.5", "i > 126.5"),
    *("p", "NOT p", "i IS NOT NULL", "s IN {'a', 'é'} AND x < 5", "i > 1 AND s RLIKE 'a'", "type != 'B'"),
]


def test_no_row_is_lost_where_scans_use_statistics(spark: Any, tmp_path: Path) -> None:
    # Row groups of two rows: statistics leave NaN out, dictionaries tell -0.0 from 0.0.
    doubles = [1.0, math.nan, -0.0, -0.0, math.nan, math.nan, 1e300, None]
    n_rows = len(doubles)
    columns = {name: [*values][:n_rows] for name, (_, values) in VALUES.items() if name in ("s", "t", "n", "day", "d5")}
    columns["type"], columns["row"] = ["A"] * n_rows, [*range(n_rows)]
    columns["x"], columns["f"] = doubles, [*doubles[:6], 2.0, None]
    columns["i"] = [1, None, 2, 126, 127, 3, 1, 1]
    columns["p"] = [True, False, None, True, True, True, False, False]
    for values in columns.values():
        values += [None] * (n_rows - len(values))
    table = pa.table({name: pa.array(values, TYPES.get(name, pa.int64())) for name, values in columns.items()})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=2)
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    parts = [
        frame.where(filter_of(f"A FILTER A[{text}]", frame)).selectExpr("row", f"{at} AS at")
        for at, text in enumerate(AT_THE_SCAN)
    ]
    found = [(one["at"], one["row"]) for one in functools.reduce(DataFrame.union, parts).toArrow().to_pylist()]
    for at, (text, predicate) in enumerate(zip(AT_THE_SCAN, bound(AT_THE_SCAN), strict=True)):
        expected = [row["row"] for row in table.to_pylist() if holds(predicate, Event("A", row))]
        assert sorted(row for number, row in found if number == at) == expected, text


def test_simple_comparisons_reach_the_scan(spark: Any, frame: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def pushed(text: str) -> str:
        capsys.readouterr()
        with settings(spark, {"spark.sql.maxMetadataStringLength": "1000"}):
            frame.where(filter_of(text, frame)).explain()
        return capsys.readouterr().out.partition("PushedFilters: [")[2].partition("], ReadSchema")[0]

    found = pushed("A AS a ; B AS b FILTER a[s = 'MSFT'] AND a[i8 > 100] AND b[t >= '2024-01-31' AND x <= 1]")
    for part in (
        "EqualTo(type,A)",
        "EqualTo(s,MSFT)",
        "GreaterThan(i8,100)",
        "GreaterThanOrEqual(t,2024-01-31 00:00:00.0)",
        "EqualTo(type,B)",
        "LessThanOrEqual(x,1.0)",
    ):
        assert part in found
    # NaN is greater than 100, but statistics do not know it.
    found = pushed("A AS a ; B AS b FILTER a[s = 'MSFT'] AND a[x > 100] AND b[s RLIKE 'x' AND i IN {1, 2}]")
    for part in ("EqualTo(s,MSFT)", "In(i, [1,2])", "EqualTo(type,B)"):
        assert part in found
    assert "100" not in found


@pytest.mark.parametrize(
    ("condition", "is_asked", "others"),
    [
        ("s RLIKE '^(a|b)*$'", False, []),
        ("s RLIKE '^(ab|.){2,}$' AND i > 1", False, [">(i"]),
        ("s RLIKE '^.{2,}$' AND i > 1", True, [">(i"]),
        ("NOT (s RLIKE '(ab)+' OR i > 1)", False, ["<=(i"]),
        ("i > 1 OR NOT s RLIKE '(ab){2}'", False, []),
        ("(s RLIKE '(ab)*') IS NULL AND i > 1", False, [">(i"]),
        ("s RLIKE '^(ab|c)?d{2,3}[)*]$' AND i > 1", True, [">(i"]),
        ("s LIKE 'a%' OR i > 1", True, [">(i"]),
        (f"s LIKE '{'%a' * 300}' AND i > 1", False, [">(i"]),
        (f"{' + '.join('i' * 200)} > 1 AND j > 1", False, [">(j"]),
    ],
)
def test_what_spark_cannot_be_asked_is_left_out(frame: Any, condition: str, is_asked: bool, others: list[str]) -> None:
    described = str(filter_of(f"A FILTER A[{condition}]", frame)).replace("`", "")
    assert "=(type" in described
    assert ("rlike" in described) is is_asked
    assert "try_add" not in described
    comparisons = [sign + name for sign in (">(", "<=(") for name in "ij" if sign + name + "," in described]
    assert comparisons == others


@pytest.mark.parametrize("text", ["A : B", "A ; B WITHIN 5 EVENTS", "A :+"])
def test_all_rows_are_needed_where_positions_count(frame: Any, text: str) -> None:
    assert filter_of(text, frame) is None


def test_all_rows_are_needed_where_nothing_tells_types_apart(frame: Any) -> None:
    columns = Schema.of(frame).streams[0].columns
    query = ceql.compile("SELECT * FROM S WHERE S ; S AS x FILTER x[i > 1]", frame)
    assert row_conditions(query, None, columns)[0] is None
    query = ceql.compile("SELECT * FROM S WHERE S+ AS x FILTER x[i > 1]", frame)
    kept = frame.where(row_conditions(query, None, columns)[0])
    assert kept.count() == sum(value is not None and value > 1 for value in TABLE["i"].to_pylist())


def test_attributes_that_a_declared_type_lacks_are_null(spark: Any) -> None:
    frame = spark.createDataFrame([("A", 1, 5), ("B", 2, 5), ("B", 2, None)], "type string, v int, w int")
    declared = "CREATE STREAM S { EVENT A { v: int }, EVENT B { v: int, w: int } } "
    for condition, expected in (("w IS NULL", [("A", 5), ("B", None)]), ("w = 5", [("B", 5)])):
        query = ceql.compile(declared + f"SELECT * FROM S WHERE (A OR B) AS x FILTER x[{condition}]", frame)
        kept = frame.where(row_conditions(query, "type", Schema.of(frame).streams[0].columns)[0]).collect()
        assert [(row["type"], row["w"]) for row in kept] == expected


@pytest.mark.parametrize("type_column", ["type", None])
def test_streams_are_told_apart_by_a_column(spark: Any, type_column: str | None) -> None:
    rows = [("S", "A", 1), ("T", "A", 1), ("S", "B", 1), ("T", "B", 2), ("T", "B", 1), ("S", None, 1)]
    frame = spark.createDataFrame(rows, "stream string, type string, v int")
    schema = pa.schema([("type", pa.string()), ("v", pa.int32())])
    atoms = "S>A ; B AS x" if type_column else "S ; T AS x"
    query = ceql.compile(f"SELECT * FROM S, T WHERE {atoms} FILTER x[v = 2]", {"S": schema, "T": schema})
    condition, _ = row_conditions(
        query, type_column, dict(zip(schema.names, schema.types, strict=True)), stream_column="stream"
    )
    expected = [("S", "A", 1), ("T", "B", 2)] if type_column else [rows[0], rows[2], rows[3], rows[5]]
    assert [tuple(row) for row in frame.where(condition).collect()] == expected


def test_collations_do_not_count(spark: Any) -> None:
    collated = "string collate UTF8_LCASE"
    rows = [("A", "x", "X"), ("a", "X", "X")]
    frame = spark.createDataFrame(rows, f"type {collated}, s {collated}, r string")
    types = Schema.of(frame).streams[0].columns
    for text, expected in (
        ("s = 'X'", [False, True]),
        ("s IN {'X', 'y'}", [False, True]),
        ("s != 'x'", [False, True]),
        ("s RLIKE 'X'", [False, True]),
        ("s < 'Y'", [False, True]),
        ("s = r", [False, True]),
    ):
        (predicate,) = bound([text], frame)
        column = Translation("type", types, None).condition(predicate)
        assert [row[0] for row in frame.select(column).collect()] == expected, text
    assert frame.where(Translation("type", types, None).condition(plan.HasType("A"))).count() == 1
