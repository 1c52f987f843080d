"""Events from files and rows to files, in every format."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import ceql
from ceql.backends.files import SUFFIXES, FileError, read_events, write_rows
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
    monkeypatch.setattr("ceql.backends.files.CSV_BLOCK", 1000)
    path = tmp_path / "events.csv"
    path.write_text("type,x\n" + "A,1\n" * 1000 + "B,two\n")
    matches = ceql.match("SELECT * FROM S WHERE B", read_events(path).reader(lambda _: None))
    with pytest.raises(ceql.DataError, match="types are guessed") as caught:
        matches.count()
    assert str(path) in str(caught.value)
    typed = read_events(path, {"x": pa.string()}).reader(lambda _: None)
    assert ceql.match("SELECT * FROM S WHERE B", typed).count() == 1


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
    with pytest.raises(FileError, match="by its suffix"), write_rows(Path("rows.xlsx"), ROWS.schema):
        pass
