"""Text that is not UTF-8, and halves of characters, are told as what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ceql
from ceql.engine.intake.text import check_text, first_without_text
from ceql.engine.session import Session
from ceql.errors import CeqlError, DataError, QueryError


def unchecked(parts: list[bytes], data_type: pa.DataType) -> pa.Array:
    """Return bytes as a column of text, as a file may hold them."""
    if pa.types.is_string_view(data_type):
        return pa.array(parts, pa.binary_view()).view(data_type)
    width = np.int64 if pa.types.is_large_string(data_type) else np.int32
    offsets = np.cumsum([0, *map(len, parts)]).astype(width)
    return pa.Array.from_buffers(data_type, len(parts), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))])


@pytest.mark.parametrize(
    ("parts", "row"),
    [
        ([b"a", b"\xff", b"b"], 1),
        # Together these are one character.
        ([b"a", b"\xc3", b"\xa9"], 1),
        (["é".encode(), "日本".encode(), b"", b"long enough for a word\xe9"], 3),
        ([b"\xed\xa0\x80"], 0),
        ([b"a", b"", "é".encode(), "🙂".encode(), b"123456789", b""], None),
        ([b"", b""], None),
        ([], None),
    ],
)
@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string()], ids=str)
def test_the_row_is_told(parts: list[bytes], row: int | None, data_type: pa.DataType) -> None:
    column = unchecked(parts, data_type)
    assert first_without_text(column) == row
    shapes = [column, pa.concat_arrays([pa.array(["x", None], data_type), column]).slice(2)]
    shapes.append(pa.DictionaryArray.from_arrays(pa.array(range(len(parts)), pa.int8()), column))
    shapes.append(pa.ListArray.from_arrays(pa.array([*range(len(parts) + 1)], pa.int32()), column))
    for shape in shapes:
        if row is None:
            check_text(shape, "s", 5)
        else:
            with pytest.raises(DataError, match=f"the text of 's' in row {5 + row} is not UTF-8"):
                check_text(shape, "s", 5)


def test_text_behind_null_is_not_looked_at() -> None:
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32))
    validity = pa.py_buffer(b"\x02")
    check_text(pa.Array.from_buffers(pa.string(), 2, [validity, offsets, pa.py_buffer(b"\xffa")]), "s", 0)


@pytest.mark.parametrize("data_type", [pa.string(), pa.string_view()], ids=str)
@pytest.mark.parametrize(
    ("clause", "shape"),
    [
        *(("FILTER x[s LIKE 'a%']", "positions"), ("FILTER x[s < 'b']", "matches"), ("FILTER x[s = 'a']", "positions")),
        *(("PARTITION BY [s]", "positions"), ("", "matches"), ("", "events")),
    ],
)
def test_events_with_other_bytes_are_refused(data_type: pa.DataType, clause: str, shape: Any) -> None:
    session = Session(f"SELECT * FROM S WHERE A AS x {clause}", shape=shape)
    assert session.feed(pa.table({"type": ["A"], "s": pa.array(["a"], data_type)})).count() == 1
    events = pa.table({"type": ["A", "A"], "s": unchecked([b"a", b"caf\xe9, as ISO 8859-1 has it"], data_type)})
    with pytest.raises(DataError, match="the text of 's' in row 2 is not UTF-8"):
        session.feed(events).count()
    assert session.stats.events == 1


def test_columns_that_nothing_reads_may_hold_anything() -> None:
    events = pa.table({"type": ["A"], "s": unchecked([b"\xff"], pa.string())})
    assert ceql.match("SELECT * FROM S WHERE A", events, shape="positions").count() == 1


def test_a_type_column_with_other_bytes_is_refused() -> None:
    events = pa.table({"type": unchecked([b"A", b"\xff"], pa.string())})
    with pytest.raises(DataError, match="the text of 'type' in row 1 is not UTF-8"):
        ceql.match("SELECT * FROM S WHERE A", events, shape="positions").count()


def test_halves_of_characters_in_events() -> None:
    with pytest.raises(DataError, match=r"the values of 's' are not all text: '\\ud800' is half of a character"):
        ceql.match("SELECT * FROM S WHERE A", [{"type": "A", "s": "a\ud800"}])


@pytest.mark.parametrize("text", ["A AS x FILTER x[s = 'a\ud800']", "A AS `\ud800`", "A -- \udfff"])
def test_halves_of_characters_in_queries(text: str) -> None:
    with pytest.raises(QueryError, match="half of a character") as caught:
        ceql.compile(f"SELECT * FROM S WHERE {text}")
    assert str(caught.value).encode()


def test_a_query_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "query.ceql"
    file.write_bytes("\ufeffSELECT * FROM S WHERE A AS x".encode())
    events = [{"type": "A"}, {"type": "B"}]
    assert ceql.match(file, events).count() == 1
    assert ceql.compile(file).text == "SELECT * FROM S WHERE A AS x"
    assert Session(file).feed(events).count() == 1
    with pytest.raises(CeqlError, match=r"cannot read the query .*nowhere\.ceql: No such file"):
        ceql.match(tmp_path / "nowhere.ceql", events)
    with pytest.raises(CeqlError, match=r"cannot read the query .*: embedded null byte"):
        ceql.match(tmp_path / "null\0byte", events)
    file.write_bytes(b"SELECT * FROM S WHERE `\xe9`")
    with pytest.raises(CeqlError, match="is not UTF-8 at byte 23"):
        ceql.match(file, events)
    with pytest.raises(CeqlError, match=r"a query is text, the path of a file, .* not int"):
        ceql.match(5, events)  # type: ignore[arg-type]
