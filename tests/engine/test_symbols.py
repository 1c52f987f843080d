"""Predicates over whole columns mean what they mean value by value."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ceql
from ceql.automaton.lazy import Alphabet
from ceql.automaton.predicates import Event
from ceql.engine.intake import symbols as symbols_module
from ceql.engine.intake.classes import Columns
from ceql.engine.intake.fold import StringTable, classify_strings
from ceql.engine.intake.symbols import SymbolEncoder

MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1)

texts = st.sampled_from(["", "a", "ab", "b%", "é", "日本語", "a" * 40, "a" * 39 + "b", "12345678", "123456789", "\0"])
floats = st.sampled_from(
    [0.0, -0.0, 1.0, 1.5, 0.1, -2.5, math.inf, -math.inf, math.nan, 1e308, 5e-324, 2.0**53, float(2**63)]
)


def integers(bits: int, *, is_signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    return st.sampled_from([0, 1, 2, 3, 10, high, high - 1, low, low + 1])


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    nines = "9" * (digits - scale) + ("." + "9" * scale if scale else "")
    values = ["0", "1", "-2", *(["1.5"] if scale else []), nines, f"-{nines}"]
    return st.sampled_from([Decimal(value) for value in values])


def moments(unit: str) -> st.SearchStrategy[datetime]:
    fine = {"s": [], "ms": [timedelta(milliseconds=1)], "us": [MICROSECOND], "ns": [MICROSECOND]}[unit]
    steps = st.sampled_from([timedelta(), timedelta(seconds=1), timedelta(days=-1), timedelta(days=19000), *fine])
    return steps.map(lambda step: datetime(2020, 1, 1) + step)


dates = st.sampled_from([date(2020, 1, 1), date(2020, 1, 2), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31)])

COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{getattr(pa, f"int{bits}")(): integers(bits) for bits in (8, 16, 32, 64)},
    **{getattr(pa, f"uint{bits}")(): integers(bits, is_signed=False) for bits in (8, 16, 32, 64)},
    pa.float16(): floats.filter(lambda value: abs(value) < 1e4 or not math.isfinite(value)).map(np.float16),
    pa.float32(): floats.map(lambda value: float(np.float32(min(value, 1e38)))),
    pa.float64(): floats,
    pa.decimal128(5, 2): decimals(5, 2),
    pa.decimal128(18, 0): decimals(18, 0),
    pa.decimal128(38, 10): decimals(38, 10),
    pa.decimal256(60, 5): decimals(60, 5),
    pa.string(): texts,
    pa.large_string(): texts,
    pa.dictionary(pa.int8(), pa.string()): texts,
    pa.dictionary(pa.uint32(), pa.large_string()): texts,
    pa.bool_(): st.booleans(),
    pa.date32(): dates,
    pa.date64(): dates,
    **{
        pa.timestamp(unit, zone): moments(unit)
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "+02:00", "America/New_York")
    },
}

CONSTANTS = {
    "number": [
        *("0", "1", "-1", "1.5", "0.1", "10", "127", "255", "1e300", "-1e300", "9007199254740993", "NULL"),
        *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551615"),
    ],
    "text": ["''", "'a'", "'ab'", "'é'", "'日本語'", f"'{'a' * 40}'", "'12345678'", "'zz'", "NULL"],
    "boolean": ["TRUE", "FALSE", "NULL"],
    "date": ["'2020-01-01'", "'2020-01-02'", "'0001-01-01'", "'9999-12-31'"],
    "timestamp": [
        *("'2020-01-01'", "'2020-01-01 00:00:01'", "'2019-12-31'", "'2020-01-01 00:00:00.000001'"),
        *("'2020-01-01 00:00:00.000000001'", "'2020-01-01 00:00:00.0000009999'", "'2020-01-01 00:00:00.000001000'"),
    ],
}
PATTERNS = [
    "{0} LIKE 'a%'",
    "{0} NOT LIKE '%b'",
    "{0} LIKE '_'",
    "{0} LIKE ''",
    "{0} RLIKE '^a+$'",
    "NOT {0} RLIKE '日'",
    "{0} LIKE 'b\\%'",
]


def group_of(data_type: pa.DataType) -> str:
    if pa.types.is_dictionary(data_type) or pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return "text"
    for name, test in (
        ("boolean", pa.types.is_boolean),
        ("date", pa.types.is_date),
        ("timestamp", pa.types.is_timestamp),
    ):
        if test(data_type):
            return name
    return "number"


@st.composite
def conditions(draw: Any, data_type: pa.DataType, depth: int = 2) -> str:
    """Return the text of a predicate over columns x and y of one type, and the integer z."""
    group = group_of(data_type)
    constants = st.sampled_from(CONSTANTS[group])
    operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    choice = draw(st.integers(0, 9 if depth else 6))
    column = draw(st.sampled_from(["x", "x", "y"]))
    match choice:
        case 0 | 1:
            return f"{column} {operator} {draw(constants)}"
        case 2:
            items = draw(st.lists(constants, min_size=1, max_size=4))
            return f"{column} {draw(st.sampled_from(['IN', 'NOT IN']))} {{{', '.join(items)}}}"
        case 3:
            return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 4:
            return f"x {operator} y"
        case 5 if group == "text":
            return draw(st.sampled_from(PATTERNS)).format(column)
        case 5 if group == "number":
            sign = draw(st.sampled_from(["+", "-", "*", "/", "%"]))
            return f"{column} {sign} {draw(st.sampled_from(['2', '0', '0.5', 'y', 'z']))} {operator} z"
        case 5 | 6:
            return f"{draw(constants)} {operator} {column}"
        case 7:
            return f"NOT ({draw(conditions(data_type, depth - 1))})"
    word = " AND " if choice == 8 else " OR "
    return "(" + word.join(draw(st.lists(conditions(data_type, depth - 1), min_size=2, max_size=3))) + ")"


def as_seen(value: Any, data_type: pa.DataType) -> Any:
    """Return a value as the scalar predicates take it: timestamps with a zone as moments in UTC."""
    if isinstance(value, datetime) and data_type.tz is not None:
        return value.replace(tzinfo=UTC)
    return float(value) if isinstance(value, np.floating) else value


@pytest.mark.filterwarnings("ignore:.*means UTC:ceql.errors.CeqlWarning")
@pytest.mark.parametrize("data_type", COLUMNS, ids=str)
@settings(max_examples=settings.get_profile("ceql").max_examples // 10)
@given(data=st.data())
def test_columns_give_the_symbols_of_their_values(data_type: pa.DataType, data: st.DataObject) -> None:
    values = st.lists(
        st.tuples(st.none() | COLUMNS[data_type], st.none() | COLUMNS[data_type], st.none() | integers(64)), max_size=12
    )
    drawn = data.draw(values)
    texts = data.draw(st.lists(conditions(data_type), min_size=1, max_size=3))
    formula = " ; ".join(f"(A AS v{index} FILTER v{index}[{text}])" for index, text in enumerate(texts))
    schema = pa.schema([("type", pa.string()), ("x", data_type), ("y", data_type), ("z", pa.int64())])
    query = ceql.compile(f"SELECT * FROM S WHERE {formula}", schema)
    alphabet = Alphabet.of(query.automaton)

    # A slice of a longer array: what lies before and after it must not be read.
    offset = data.draw(st.integers(0, 3))
    padded = [*drawn[:1] * offset, *drawn, *drawn[:1]]
    arrays = {
        name: pa.array([row[at] for row in padded], data_type if name != "z" else pa.int64()).slice(
            offset if drawn else 0, len(drawn)
        )
        for at, name in enumerate("xyz")
    }
    symbols = np.empty(len(drawn), np.int32)
    encoder = SymbolEncoder(alphabet.guards)
    encoder.encode(Columns(arrays, pa.array(["A"] * len(drawn), pa.string())), symbols)
    expected = [
        alphabet.symbol(Event("A", {"x": as_seen(x, data_type), "y": as_seen(y, data_type), "z": z}))
        for x, y, z in drawn
    ]
    assert [encoder.masks[symbol] for symbol in symbols.tolist()] == expected


@pytest.mark.parametrize("data_type", [pa.int64(), pa.float64(), pa.decimal128(5, 2)], ids=str)
@settings(max_examples=settings.get_profile("ceql").max_examples // 10)
@given(data=st.data())
def test_many_cuts_of_one_number(data_type: pa.DataType, data: st.DataObject) -> None:
    near = st.integers(-40, 40) if pa.types.is_integer(data_type) else st.integers(-80, 80).map(lambda n: n / 2)
    near = near.map(Decimal) if pa.types.is_decimal(data_type) else near
    drawn = data.draw(st.lists(st.none() | near | COLUMNS[data_type], min_size=1, max_size=20))
    # More rows than are searched for together.
    drawn = drawn * (600 // len(drawn))
    constants = data.draw(st.lists(st.sampled_from(["-1e20", "9007199254740993", "0.1"]) | near.map(str), max_size=30))
    constants += [str(number) for number in range(17)]
    operators = data.draw(st.lists(st.sampled_from(["<", "<=", "=", "!=", ">", ">="]), min_size=47, max_size=47))
    texts = [f"x {operator} {constant}" for operator, constant in zip(operators, constants, strict=False)]
    formula = " OR ".join(
        f"(A AS v{index} FILTER v{index}[{text}])" for index, text in enumerate([*texts, "x IS NULL"])
    )
    query = ceql.compile(f"SELECT * FROM S WHERE {formula}", pa.schema([("type", pa.string()), ("x", data_type)]))
    alphabet = Alphabet.of(query.automaton)
    symbols = np.empty(len(drawn), np.int32)
    encoder = SymbolEncoder(alphabet.guards)
    encoder.encode(Columns({"x": pa.array(drawn, data_type)}, pa.array(["A"] * len(drawn))), symbols)
    symbol_of = {str(x): alphabet.symbol(Event("A", {"x": x})) for x in drawn}
    assert [encoder.masks[symbol] for symbol in symbols.tolist()] == [symbol_of[str(x)] for x in drawn]


EVENT_TYPES = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
}


@pytest.mark.parametrize("data_type", EVENT_TYPES.values(), ids=EVENT_TYPES)
@pytest.mark.parametrize("n_streams", [1, 2])
def test_event_types(data_type: pa.DataType, n_streams: int) -> None:
    schema = pa.schema([("type", pa.string())])
    names = ("S", "T")[:n_streams]
    described = schema if n_streams == 1 else dict.fromkeys(names, schema)
    atoms = "A ; `Ä long type` ; B" if n_streams == 1 else "S>A ; T>A ; `Ä long type`"
    query = ceql.compile(f"SELECT * FROM {', '.join(names)} WHERE {atoms}", described)
    alphabet = Alphabet.of(query.automaton)
    types = ["A", None, "B", "", "Ä long type", "Ä long typo", "A"]
    streams = np.array([0, 0, 0, 0, 0, 0, 1], np.int32)
    columns = Columns({}, pa.array(types, data_type), streams if n_streams == 2 else None, names[: n_streams * 2 - 2])
    symbols = np.empty(len(types), np.int32)
    encoder = SymbolEncoder(alphabet.guards)
    encoder.encode(columns, symbols)
    expected = [
        alphabet.symbol(Event(one if one is not None else "\0", {}, names[stream] if n_streams == 2 else None))
        for one, stream in zip(types, streams.tolist(), strict=True)
    ]
    assert [encoder.masks[symbol] for symbol in symbols.tolist()] == expected


@pytest.mark.parametrize("max_table", [1, symbols_module.MAX_TABLE])
def test_columns_multiply_the_sets_but_only_those_that_occur_are_made(
    monkeypatch: pytest.MonkeyPatch, max_table: int
) -> None:
    # Forty independent columns: 2^40 sets of guards are possible, one per row is there.
    monkeypatch.setattr(symbols_module, "MAX_TABLE", max_table)
    monkeypatch.setattr("ceql.engine.intake.classes.MAX_COMBINATIONS", max_table)
    n_columns, n_rows = 40, 200
    random = np.random.default_rng(0)
    data = {f"c{index}": random.integers(0, 2, n_rows) for index in range(n_columns)}
    formula = " ; ".join(f"(A AS v{index} FILTER v{index}[c{index} = 1])" for index in range(n_columns))
    schema = pa.schema([("type", pa.string()), *((name, pa.int64()) for name in data)])
    alphabet = Alphabet.of(ceql.compile(f"SELECT * FROM S WHERE {formula}", schema).automaton)
    encoder = SymbolEncoder(alphabet.guards)
    symbols = np.empty(n_rows, np.int32)
    encoder.encode(Columns({name: pa.array(values) for name, values in data.items()}, "A"), symbols)
    expected = [
        alphabet.symbol(Event("A", {name: int(values[row]) for name, values in data.items()})) for row in range(n_rows)
    ]
    assert [encoder.masks[symbol] for symbol in symbols.tolist()] == expected


def test_combinations_of_many_wide_columns_do_not_overflow() -> None:
    # Five columns of 10,000 values each: their codes together need more than 64 bits.
    n_rows = 10_000
    random = np.random.default_rng(1)
    data = {name: random.permutation(n_rows) for name in "abcde"}
    schema = pa.schema([("type", pa.string()), *((name, pa.int64()) for name in data)])
    query = ceql.compile("SELECT * FROM S WHERE A FILTER A[a + b + c + d + e > 25000]", schema)
    encoder = SymbolEncoder(Alphabet.of(query.automaton).guards)
    symbols = np.empty(n_rows, np.int32)
    encoder.encode(Columns({name: pa.array(values) for name, values in data.items()}, "A"), symbols)
    assert ([encoder.masks[symbol] for symbol in symbols] == (sum(data.values()) > 25000)).all()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_beyond_the_years_that_python_knows(unit: str) -> None:
    extremes = pa.array([-(2**63), -1, 0, 1, 2**63 - 1, None], pa.int64()).view(pa.timestamp(unit))
    table = pa.table({"type": ["A"] * 6, "x": extremes, "y": extremes.take(pa.array([1, 1, 1, 1, 1, 1]))})
    for condition, rows in (
        ("x > '1970-01-01'", [3, 4]),
        ("x < y", [0]),
        ("x >= y AND y < '2000-01-01'", [1, 2, 3, 4]),
        ("(x > '1970-01-01') IS NULL", [5]),
        ("(x > '1970-01-01' AND y < '1970-01-01') IN {FALSE}", [0, 1, 2]),
    ):
        found = ceql.match(f"SELECT * FROM S WHERE A FILTER A[{condition}]", table, shape="positions").to_arrow()
        assert found["start"].to_pylist() == rows


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("s RLIKE '^(a+)+$'", [0]),
        ("s RLIKE '(a?){40}b' OR s RLIKE 'a*a*a*!' AND s != u", [1, 3]),
        ("(s RLIKE '(a|a)*b') = FALSE", [0, 1]),
    ],
)
@pytest.mark.parametrize("data_type", [pa.string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())])
def test_regular_expressions_take_linear_time(condition: str, rows: list[int], data_type: pa.DataType) -> None:
    # A matcher that goes back would try all ways to read the texts.
    values = pa.array(["a" * 2000, "a" * 2000 + "!", None, "a" * 60 + "b"], pa.large_string())
    values = values.dictionary_encode().cast(data_type) if pa.types.is_dictionary(data_type) else values.cast(data_type)
    table = pa.table({"type": ["A"] * 4, "s": values, "u": [""] * 4})
    found = ceql.match(f"SELECT * FROM S WHERE A AS x FILTER x[{condition}]", table, shape="positions")
    assert found.to_arrow()["start"].to_pylist() == rows


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("t = '2024-08-20T13:03:54.294365140Z'", [1]),
        ("t != '2024-08-20T15:03:54.294365140000+02:00'", [0, 2, 3]),
        ("t = '2024-08-20T13:03:54.294365Z'", [0]),
        ("t = '2024-08-20T13:03:54.2943651405Z'", []),
        ("t < '2024-08-20T13:03:54.2943651405Z'", [0, 1]),
        ("'2024-08-20T13:03:54.2943651405Z' <= t", [2, 3]),
        ("t > '2024-08-20T13:03:54.294365140Z'", [2, 3]),
        ("t IN {'2024-08-20T13:03:54.294365141Z', '2024-08-20T13:03:54.2943660001Z'}", [2]),
        ("t BETWEEN '2024-08-20T13:03:54.2943650001Z' AND '2024-08-20T13:03:54.294365141Z'", [1, 2]),
        ("t = '2024-08-20T13:03:54,294365140Z' OR t = t AND t = '2024-08-20T13:03:54.294366Z'", [1, 3]),
    ],
)
def test_constants_are_as_fine_as_they_are_written(condition: str, rows: list[int]) -> None:
    start = 1724159034294365000
    moments = pa.array([start, start + 140, start + 141, start + 1000, None]).cast(pa.timestamp("ns", "UTC"))
    query = f"SELECT * FROM S WHERE A AS x FILTER x[{condition}]"
    table = pa.table({"type": ["A"] * 5, "t": moments})
    assert ceql.match(query, table, shape="positions").to_arrow()["start"].to_pylist() == rows


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_constant_between_two_values_equals_none(unit: str) -> None:
    def rows(condition: str) -> list[int]:
        query = f"SELECT * FROM S WHERE A AS x FILTER x[{condition}]"
        return ceql.match(query, table, shape="positions").to_arrow()["start"].to_pylist()  # type: ignore[no-any-return]

    table = pa.table({"type": ["A"] * 3, "t": pa.array([-1, 0, 1]).cast(pa.timestamp(unit))})
    constant = "'1970-01-01 00:00:00.0000000005'"
    assert rows(f"t = {constant}") == rows(f"t IN {{{constant}}}") == []
    assert rows(f"t < {constant}") == rows(f"t <= {constant}") == [0, 1]
    assert rows(f"t > {constant}") == rows(f"t >= {constant}") == [2]
    assert rows(f"t BETWEEN '1970-01-01' AND {constant}") == [1]


def test_few_strings_get_the_numbers_that_many_get() -> None:
    constants = ["", "a", "12345678", "123456789", "12345678901234567", "ä" * 8]
    texts = [*constants, None, "b", "1234567", "1234567x", "12345678x", "1234567890123456x", "12345678\0", "ä" * 7]
    table = StringTable(constants)
    expected = [constants.index(text) if text in constants else 6 if text is not None else 7 for text in texts]
    for data_type in (pa.string(), pa.large_string()):
        many = pa.array(["zz", *texts, *texts], data_type).slice(1)
        assert classify_strings(many, table).tolist() == 2 * expected
        assert [classify_strings(many.slice(at, 1), table)[0] for at in range(len(texts))] == expected
