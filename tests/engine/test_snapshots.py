"""Snapshots that are damaged or of something else are refused, whatever is wrong with them."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import ceql
from ceql.engine import snapshot as snapshots
from ceql.engine.session import Session

QUERY = "SELECT * FROM S WHERE A AS a ; B AS b PARTITION BY [k] WITHIN 5 [t]"
EVENTS = pa.table({"type": list("AABA"), "k": ["p", "q", "p", "é"], "t": [1, 2, 3, 4]})


@pytest.fixture(scope="module")
def snapshot() -> bytes:
    session = Session(QUERY)
    assert session.feed(EVENTS).count() == 1
    return session.snapshot()


def places(snapshot: bytes) -> list[int]:
    """Return every place of the beginning and the end, and some of those between."""
    return sorted({*range(100), *range(100, len(snapshot), 13), *range(len(snapshot) - 40, len(snapshot))})


def refused(snapshot: bytes, query: Any = QUERY, **options: Any) -> str:
    with pytest.raises(ceql.SnapshotError) as caught:
        Session.restore(query, snapshot, **options)
    return str(caught.value)


def test_the_whole_of_it_is_taken(snapshot: bytes) -> None:
    session = Session.restore(QUERY, snapshot)
    assert session.feed(pa.table({"type": ["B"], "k": ["é"], "t": [5]})).count() == 1
    assert Session.restore(QUERY, snapshot).snapshot() == snapshot


def test_every_beginning_of_one_is_refused(snapshot: bytes) -> None:
    messages = {refused(snapshot[:length]) for length in places(snapshot)}
    assert len(messages) == 2


def test_every_byte_counts(snapshot: bytes) -> None:
    random = Random(0)
    for at in places(snapshot):
        damaged = bytearray(snapshot)
        damaged[at] ^= 1 << random.randrange(8)
        assert refused(bytes(damaged))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 14, 30, 1000])
def test_random_bytes_are_refused(length: int) -> None:
    random = Random(length)
    assert "not a ceql snapshot" in refused(random.randbytes(length))
    assert refused(snapshots.MAGIC + random.randbytes(length))


def test_more_than_one_is_refused(snapshot: bytes) -> None:
    assert "damaged" in refused(snapshot + b"\0")
    assert "damaged" in refused(snapshot + snapshot)


def test_another_format_is_named(snapshot: bytes) -> None:
    assert "format version 7" in refused(snapshot[:8] + b"\x07\x00" + snapshot[10:])


@pytest.mark.parametrize(
    ("query", "options"),
    [
        (QUERY.replace("5 [t]", "6 [t]"), {}),
        (QUERY.replace("[k]", "[t]"), {}),
        (QUERY.replace("; B", "; A"), {}),
        (QUERY, {"shape": "events"}),
        (QUERY, {"type_column": "k"}),
        (QUERY, {"time_column": "t"}),
        (QUERY, {"order_by": ("t",)}),
    ],
)
def test_another_query_is_refused(snapshot: bytes, query: str, options: Any) -> None:
    assert "another query" in refused(snapshot, query, **options)


def test_what_a_compiled_query_says_of_time_counts_too() -> None:
    def compiled(time_column: str) -> ceql.Query:
        return ceql.compile("SELECT * FROM S WHERE A ; B", EVENTS, time_column=time_column)

    session = Session(compiled("t"))
    session.feed(EVENTS).count()
    assert Session.restore(compiled("t"), session.snapshot()).stats.events == 4
    assert "another query" in refused(session.snapshot(), compiled("k"))


def test_spaces_and_comments_are_no_other_query(snapshot: bytes) -> None:
    spaced = QUERY.replace(" WHERE", "\n-- the pattern\nwhere ")
    assert Session.restore(spaced, snapshot).stats.events == 4


@pytest.mark.parametrize("content", [{}, {"is_bound": True}, {"is_bound": True, "events": EVENTS}])
def test_content_that_lacks_something_is_refused(content: snapshots.Content) -> None:
    # The checksum is right, so it was written by something else that has the same name.
    identity = Session(QUERY)._identity()
    assert "damaged" in refused(snapshots.write(identity, content))


def test_a_header_that_is_none_is_refused() -> None:
    body = snapshots._HEAD.pack(snapshots.MAGIC, snapshots.VERSION, 10) + b"no json at all"
    assert "damaged" in refused(body + snapshots._checksum(body))
