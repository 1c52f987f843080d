"""Events from files and rows to files, in every format."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import ceql
from ceql.backends.files import SUFFIXES, FileError, read_all_events, read_events, write_rows
from ceql.backends.iso_times import NotATime, as_moments
from ceql.backends.json_lines import json_rows

ROWS = pa.table({"type": ["A", "B", "ü,\n\"'"], "x": [1, None, 3], "y": [0.5, 1.5, None]})
TEXT = (".csv", ".csv.gz", ".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")

suffixes = pytest.mark.parametrize("suffix", SUFFIXES)


def write(path: Path, table: pa.Table) -> Path:
    with write_rows(path, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write_batch(batch)
    return path


def read(path: Path) -> pa.Table:
    events = read_events(path)
    table = pa.Table.from_batches(events.batches, events.schema)
    if events.n_rows is not None:
        assert events.n_rows == len(table)
    return table


@suffixes
def test_what_is_written_can_be_read(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"rows{suffix}", ROWS)
    assert read(path).to_pylist() == ROWS.to_pylist()
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == suffix.endswith(".gz")


@suffixes
def test_no_rows(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"rows{suffix}", ROWS.slice(0, 0))
    if "json" in suffix or "nd" in suffix:
        # Without a line there are no columns either.
        with pytest.raises(FileError, match=path.name):
            read_events(path)
    else:
        assert read(path).num_rows == 0
        assert read(path).column_names == ROWS.column_names


@suffixes
def test_matches_go_into_every_format(tmp_path: Path, suffix: str) -> None:
    events = [{"type": "A", "x": 1}, {"type": "B", "x": 2}, {"type": "B", "x": 3}]
    matches = ceql.match("SELECT * FROM S WHERE A AS a ; B+ AS b", events)
    path = write(tmp_path / f"matches{suffix}", matches.to_arrow())
    found = read(path).to_pylist()
    expected = matches.to_arrow().to_pylist()
    if suffix.startswith(".csv"):
        # CSV has no nested columns: they are JSON within a cell.
        found = [row | {"a": json.loads(row["a"]), "b": json.loads(row["b"])} for row in found]
    assert len(found) == 3
    assert found == expected


TYPES = pa.table(
    {
        "dictionary": pa.array(["p", None], pa.dictionary(pa.int8(), pa.string())),
        "large": pa.array(["é", ""], pa.large_string()),
        "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(20, 2)),
        "moment": pa.array([datetime(2024, 1, 2, 3, 4, 5, 600, UTC), None], pa.timestamp("us", "UTC")),
        "day": pa.array([date(2024, 1, 2), None]),
        "flag": pa.array([True, None]),
        "small": pa.array([1.5, None], pa.float32()),
        "unsigned": pa.array([2**64 - 1, None], pa.uint64()),
        "list": pa.array([[1, None], None], pa.list_(pa.int64())),
        "struct": pa.array([{"day": date(2024, 1, 2)}, None]),
    }
)


@suffixes
@pytest.mark.parametrize("name", TYPES.column_names)
def test_every_type_can_be_written(tmp_path: Path, suffix: str, name: str) -> None:
    table = TYPES.select([name]).append_column("row", pa.array([0, 1]))
    found = read(write(tmp_path / f"rows{suffix}", table))
    assert found["row"].to_pylist() == [0, 1]
    first, second = found[name].to_pylist()
    assert first is not None
    assert second in (None, "", "null")
    if suffix not in TEXT:
        assert found[name].to_pylist() == TYPES[name].to_pylist()


def test_parquet_has_microseconds_as_spark_reads_no_finer_ones(tmp_path: Path) -> None:
    nanoseconds = pa.timestamp("ns", "UTC")
    moment = datetime(2024, 1, 2, 3, 4, 5, 678901, UTC)
    columns = {
        "t": pa.array([moment, None], nanoseconds),
        "s": pa.array([{"t": moment, "x": 1}, None], pa.struct([("t", nanoseconds), ("x", pa.int64())])),
        "l": pa.array([[{"t": moment}], None], pa.list_(pa.struct([("t", nanoseconds)]))),
    }
    path = write(tmp_path / "rows.parquet", pa.table(columns))
    found = pa.parquet.read_table(path)
    assert "ns" not in str(found.schema)
    assert found.to_pylist() == [
        {"t": moment, "s": {"t": moment, "x": 1}, "l": [{"t": moment}]},
        dict.fromkeys(columns),
    ]
    finer = pa.table({"t": pa.array([1_000, 1_001], pa.int64()).cast(nanoseconds)})
    with pytest.warns(UserWarning, match="finer than microseconds"):
        write(path, finer)
    assert pa.parquet.read_table(path)["t"].cast(pa.int64()).to_pylist() == [1, 1]


JSON = {
    "moment": (pa.array([1, 10**15 + 1, None], pa.timestamp("us", "Europe/Berlin")), "1970-01-01T00:00:00.000001Z"),
    "local": (pa.array([0, None], pa.timestamp("s")), "1970-01-01T00:00:00.000000"),
    "milliseconds": (pa.array([-1], pa.timestamp("ms", "+05:00")), "1969-12-31T23:59:59.999000Z"),
    "nanoseconds": (pa.array([1], pa.timestamp("ns", "UTC")), "1970-01-01T00:00:00.000000001Z"),
    "no_nanoseconds": (pa.array([1000], pa.timestamp("ns", "UTC")), "1970-01-01T00:00:00.000001Z"),
    "far": (pa.array([253402300800], pa.timestamp("s", "UTC")), "10000-01-01T00:00:00.000000Z"),
    "day": (pa.array([date(2024, 1, 2)]), "2024-01-02"),
    "nan": (pa.array([float("nan")]), "NaN"),
    "infinity": (pa.array([float("inf")], pa.float32()), "Infinity"),
    "below": (pa.array([float("-inf")]), "-Infinity"),
    "small": (pa.array([0.1], pa.float32()), Decimal("0.1")),
    "decimal": (pa.array([Decimal("12345678901234567890.10")]), Decimal("12345678901234567890.10")),
    "tiny": (pa.array([Decimal("1e-18")], pa.decimal128(20, 18)), Decimal("1e-18")),
    "unsigned": (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
    "bytes": (pa.array([b"\xff\x00"]), "/wA="),
    "text": (pa.array(['é"\n\x7f\x9b\u2028']), 'é"\n\x7f\x9b\u2028'),
    "map": (pa.array([[("a%", 1)]], pa.map_(pa.string(), pa.int64())), {"a%": 1}),
    "nothing": (pa.nulls(1), None),
}


@pytest.mark.parametrize("name", JSON)
def test_values_as_json(name: str) -> None:
    values, expected = JSON[name]

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    def parsed(row: str) -> Any:
        return json.loads(row, parse_float=Decimal, parse_constant=refuse)

    batch = pa.record_batch({name: values})
    rows = [parsed(row) for row in json_rows(batch)]
    assert rows[0] == {name: expected}
    assert [row[name] is None for row in rows] == values.is_null().to_pylist()
    # The same within lists and structs, of which some rows are cut off.
    nested = pa.array([None, [{"a": 1}], [None, {"a": 2}]], pa.list_(pa.struct([("a", pa.int8())])))
    lists = pa.ListArray.from_arrays(pa.array([0, None, 0, len(values)], pa.int32()), values)
    batch = pa.record_batch({"x": pa.StructArray.from_arrays([lists, nested], ["l", "n"])})
    assert [parsed(row)["x"] for row in json_rows(batch.slice(1))] == [
        {"l": None, "n": [{"a": 1}]},
        {"l": [row[name] for row in rows], "n": [None, {"a": 2}]},
    ]


def test_files_are_read_bit_by_bit(tmp_path: Path) -> None:
    table = pa.table({"type": ["A", "B"] * 50_000, "x": range(100_000)})
    path = tmp_path / "events.parquet"
    pa.parquet.write_table(table, path, row_group_size=10_000)
    events = read_events(path)
    heard: list[int] = []
    reader = events.reader(heard.append)
    assert events.n_rows == 100_000
    assert ceql.match("SELECT * FROM S WHERE A : B", reader, shape="positions").count() == 50_000
    assert sum(heard) == events.n_read == 100_000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("none.parquet", None),
        ("none.csv", None),
        ("events.parquet", b"PAR1 no parquet PAR1"),
        ("empty.parquet", b""),
        ("events.arrow", b"ARROW1 no arrow"),
        ("empty.arrow", b""),
        ("empty.csv", b""),
        ("ragged.csv", b"type,x\nA,1\nB\n"),
        ("events.csv.gz", b"no gzip"),
        ("cut.csv.gz", gzip.compress(b"type,x\nA,1\n" * 1000, mtime=0)[:-20]),
        ("events.jsonl", b'{"type": "A"}\n{"type": \n'),
        ("events.json", b"[1, 2]"),
        ("cut.json", b'[{"type": "A"}, {"type"'),
        ("deep.json", b"[" * 100_000),
        ("latin.jsonl", b'{"type": "A", "x": "\xe9"}\n'),
        ("latin.csv", b"type,\xe9\nA,1\n"),
        ("twice.csv", b"type,x,x\nA,1,2\n"),
        ("empty.json", b""),
        ("events.xlsx", b""),
        ("events", b""),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ceql.DataError) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_value_of_another_type_far_down_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ceql.backends.text_files.BLOCK", 1000)
    path = tmp_path / "events.csv"
    path.write_text("type,x\n" + "A,1\n" * 1000 + "B,two\n")
    matches = ceql.match("SELECT * FROM S WHERE B", read_events(path).reader(lambda _: None))
    with pytest.raises(ceql.DataError, match="types are guessed") as caught:
        matches.count()
    assert str(path) in str(caught.value)
    typed = read_events(path, {"x": pa.string()}).reader(lambda _: None)
    assert ceql.match("SELECT * FROM S WHERE B", typed).count() == 1


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("damaged_files.py")), str(tmp_path), "128"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert [line.split()[1] for line in ended.stdout.splitlines()] == ["128"] * 6


def test_arrow_that_leads_out_of_its_buffers_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "events.arrow", ROWS)
    content = path.read_bytes()
    # The offsets of the column of types: where 'A' ends.
    at = content.index(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]))
    path.write_bytes(content[: at + 4] + b"\xff\xff\xff\x7f" + content[at + 8 :])
    with pytest.raises(FileError, match=re.escape(str(path))):
        read(path)


@pytest.mark.parametrize("text", ["2024-01-31T10:00Z", "2024-01-31 10:00:00.5+02:00", "2024-01-31t10-05"])
def test_a_zone_where_none_is_declared_is_refused(tmp_path: Path, text: str) -> None:
    for name, content in (("e.csv", f"type,at\nA,2024-01-31\nA,{text}\n"), ("e.jsonl", json.dumps({"at": text}))):
        (tmp_path / name).write_text(content)
        events = read_events(tmp_path / name, {"at": pa.timestamp("us")})
        with pytest.raises(FileError, match="'at' is declared without a zone") as caught:
            list(events.batches)
        assert str(caught.value).endswith("hint: declare it as timestamp")
    (tmp_path / "e.csv").write_text("type,at\nA,2024-01-31\nA,2024-01-31 10:00\nA,\n")
    assert len(next(read_events(tmp_path / "e.csv", {"at": pa.timestamp("us")}).batches)) == 3


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("type,x\n", "type,x\nA,7\n"),
        ("type,x\nA,\n", "type,x\nB,7\n"),
        ("type,x\nA,7\n", "type,x\n"),
        ("type,x\n", "type,x\n"),
    ],
)
def test_a_column_without_values_takes_its_type_from_another_file(tmp_path: Path, first: str, second: str) -> None:
    (tmp_path / "1.csv").write_text(first)
    (tmp_path / "2.csv").write_text(second)
    found = read_all_events([str(tmp_path)])
    values = pa.Table.from_batches(found.batches, found.schema)["x"]
    assert [one for one in values.to_pylist() if one is not None] == ([7] if "7" in first + second else [])
    assert found.schema.field("x").type == (pa.int64() if "7" in first + second else pa.null())


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
@pytest.mark.parametrize("column", [pa.array([1]), pa.array([{"\u00e9": 1}])], ids=["column", "field"])
def test_names_that_are_not_text_are_refused(tmp_path: Path, suffix: str, column: pa.Array) -> None:
    path = write(tmp_path / f"events{suffix}", pa.table({"type": ["A"], "\u00e9": column}))
    # Parquet keeps the names of its own schema, too.
    path.write_bytes(path.read_bytes().replace("\u00e9".encode(), b"\xff\xff"))
    with pytest.raises(FileError, match="not UTF-8") as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_an_empty_cell_is_null_and_no_word_is(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text('type,k,n,x,y\nA,,NA,1,\nA,"",7,,NaN\nA,NULL,8,2,1.5\n')
    found = read(path)
    assert found["k"].to_pylist() == [None, None, "NULL"]
    assert found["n"].to_pylist() == ["NA", "7", "8"]
    assert found["x"].to_pylist() == [1, None, 2]
    assert str(found["y"].to_pylist()) == "[None, nan, 1.5]"


TIMES = {
    "2024-01-31": "2024-01-31 00:00:00.000000Z",
    "2024-01-31T10": "2024-01-31 10:00:00.000000Z",
    "2024-01-31 10:20": "2024-01-31 10:20:00.000000Z",
    "2024-01-31T10:20:30": "2024-01-31 10:20:30.000000Z",
    "2024-01-31 10:20:30.5": "2024-01-31 10:20:30.500000Z",
    "2024-01-31T10:20:30.123456789Z": "2024-01-31 10:20:30.123456Z",
    "2024-01-31T10:20:30.5+02:00": "2024-01-31 08:20:30.500000Z",
    "2024-01-31T00:20-0530": "2024-01-31 05:50:00.000000Z",
    "1969-12-31T23:59:59.9999999+00": "1969-12-31 23:59:59.999999Z",
    "0001-01-01T00:00:00Z": "0001-01-01 00:00:00.000000Z",
    "2000-02-29T00:00Z": "2000-02-29 00:00:00.000000Z",
    "2000-02-29t00:00:00.5z": "2000-02-29 00:00:00.500000Z",
    "9999-12-31T23:59:59Z": "9999-12-31 23:59:59.000000Z",
}
NO_TIMES = [
    "2024",
    "2024-05",
    "10:00",
    "12345",
    "2024-1-31",
    "2024-01-31X10:00",
    "2024-13-01",
    "2023-02-29",
    "1900-02-29",
    "2024-04-31",
    "2024-01-00",
    "0000-01-01",
    "2024-01-31T24:00",
    "2024-01-31T10:60",
    "2024-01-31T10:00:60",
    "2024-01-31T10:00.",
    "2024-01-31T10:00:00.",
    "2024-01-31T",
    "2024-01-31T10:00:00.1234567890",
    "2024-01-31T10:00+19:00",
    "2024-01-31T10:00+2",
    "2024-01-31T10:00Z1",
    "2024-01-31Z",
    "20240131",
    "2024-01-31T10:00+02:0",
    "2024-01-31T10:00+",
    "2024-01-31T1x:00",
]


def test_iso_times() -> None:
    texts = pa.array([None, *TIMES, None])
    assert as_moments(texts).cast(pa.string()).to_pylist() == [None, *TIMES.values(), None]
    assert as_moments(texts.slice(4, 3)).equals(as_moments(texts).slice(4, 3))
    for text in NO_TIMES:
        with pytest.raises(NotATime):
            as_moments(pa.array(["2024-01-31", text]))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_times_are_found_in_text(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"events{suffix}"

    def put(texts: list[str]) -> Path:
        lines = [f"A,{text}" if suffix == ".csv" else json.dumps({"type": "A", "at": text}) for text in texts]
        path.write_text("".join(f"{line}\n" for line in (["type,at", *lines] if suffix == ".csv" else lines)))
        return path

    found = read(put(list(TIMES)))["at"]
    assert found.type == pa.timestamp("us", "UTC")
    assert found.cast(pa.string()).to_pylist() == list(TIMES.values())
    for text in NO_TIMES:
        if suffix == ".csv" and (text.isdigit() or text == "0000-01-01"):
            continue
        assert read(put([text]))["at"].to_pylist() == [text]
    assert read(put(["2024-01-31", "2024-02-01"]))["at"].type in (pa.date32(), pa.timestamp("us", "UTC"))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_declared_types_decide_what_text_holds(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"events{suffix}"
    values = {"a": "2024-01-31T10:00:00.5Z", "b": "2024-01-31 10:00", "c": "2024-01-31", "d": "2024-01-31", "e": 7}
    as_csv = f"{','.join(values)}\n{','.join(map(str, values.values()))}\n"
    path.write_text(as_csv if suffix == ".csv" else json.dumps(values))
    types = {
        "a": pa.string(),
        "b": pa.timestamp("us"),
        "c": pa.timestamp("us", "UTC"),
        "d": pa.date32(),
        "e": pa.string(),
        "not there": pa.int64(),
    }
    events = read_events(path, types)
    assert dict(zip(events.schema.names, events.schema.types, strict=True)) == {
        name: data_type for name, data_type in types.items() if name in values
    }
    (row,) = pa.Table.from_batches(events.batches).to_pylist()
    assert row == {
        "a": values["a"],
        "b": datetime(2024, 1, 31, 10),
        "c": datetime(2024, 1, 31, tzinfo=UTC),
        "d": date(2024, 1, 31),
        "e": "7",
    }


def test_a_text_that_is_no_time_far_down_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ceql.backends.text_files.BLOCK", 1000)
    path = tmp_path / "events.csv"
    path.write_text("type,at\n" + "A,2024-01-31T10:00\n" * 1000 + "B,soon\n")
    with pytest.raises(FileError, match="'at' has a value that is not a time: 'soon'\nhint: types are guessed"):
        read(path)


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_json_array_of_events_is_read(tmp_path: Path, suffix: str) -> None:
    rows = [{"type": "A", "x": 1, "s": "é]"}, {"type": "B", "x": None, "s": "\n"}]
    content = f"\n {json.dumps(rows, indent=2)}\n".encode()
    path = tmp_path / f"events{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    assert read(path).to_pylist() == rows


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("events.tsv", "type\tx\nA\t1\n", r"give --format csv --option delimiter='\\t'"),
        ("events.txt", "type;x\nA;1\n", "give --format csv --option delimiter=';'"),
        ("events.csv", "type;x\nA;1\n", "hint: give --option delimiter=';'"),
        ("events.csv", "type\tx\nA\t1\n", r"hint: give --option delimiter='\\t'"),
        ("events.xlsx", "", "give --format, or use one of .parquet"),
    ],
)
def test_what_separates_cells_is_told(tmp_path: Path, name: str, content: str, hint: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(FileError, match=hint):
        read(path)


@suffixes
def test_what_goes_wrong_leaves_the_old_file_alone(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(b"what was there")

    def fail(writer: Any) -> None:
        writer.write_batch(ROWS.to_batches()[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), write_rows(path, ROWS.schema) as writer:
        fail(writer)
    assert path.read_bytes() == b"what was there"
    assert list(tmp_path.iterdir()) == [path]


@suffixes
def test_an_unfinished_file_is_nobody_elses(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"{'long' * 60}{suffix}"
    other = tmp_path / "other"
    other.write_bytes(b"another's")
    names = set()
    for _ in range(2):
        path.unlink(missing_ok=True)
        path.symlink_to(other)
        with write_rows(path, ROWS.schema) as writer:
            names |= {one.name for one in tmp_path.iterdir()} - {"other", path.name}
            writer.write_batch(ROWS.to_batches()[0])
    assert len(names) == 2
    assert all(name.startswith(".long") for name in names)
    assert read(path).to_pylist() == ROWS.to_pylist()
    assert other.read_bytes() == b"another's"
    assert path.stat().st_mode == other.stat().st_mode
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name, "other"]


@suffixes
def test_folders_that_do_not_exist(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(OSError, match="No such file"), write_rows(tmp_path / "no" / f"rows{suffix}", ROWS.schema):
        pass


def test_suffixes_that_mean_nothing() -> None:
    with pytest.raises(FileError, match="from its suffix"), write_rows(Path("rows.xlsx"), ROWS.schema):
        pass


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"type,s\nA,caf\xe9\n", "the text of 's' is not UTF-8"),
        (b"type,caf\xe9\nA,1\n", "it has text that is not UTF-8"),
        (b"type,s\n" + b"A,cafe\n" * 1000 + b"A,caf\xe9\n", "invalid UTF8 data"),
    ],
    ids=["values", "header", "values-further-down"],
)
def test_csv_in_another_encoding_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, told: str
) -> None:
    monkeypatch.setattr("ceql.backends.text_files.BLOCK", 1000)
    path = tmp_path / "events.csv"
    path.write_bytes(content)
    with pytest.raises(FileError, match=told) as caught:
        list(read_events(path).batches)
    assert "iconv" in str(caught.value)
