"""Snapshots that are damaged or of something else are refused, whatever is wrong with them."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ceql
from ceql.engine.run import snapshot as snapshots
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
    identity = Session(QUERY)._setup.identity
    assert "damaged" in refused(snapshots.write(identity, content))


def test_a_header_that_is_none_is_refused() -> None:
    body = snapshots._HEAD.pack(snapshots.MAGIC, snapshots.VERSION, 10) + b"no json at all"
    assert "damaged" in refused(body + snapshots._checksum(body))


# --- forged ones, with a checksum that is right ---------------------------------------

FORGED_QUERIES = {
    "sequence": "SELECT * FROM S WHERE A AS a ; B AS b ; C AS c WITHIN 12 [t]",
    "events by key": "SELECT * FROM S WHERE A AS a ; B+ AS b ; C AS c PARTITION BY [k] WITHIN 20 EVENTS",
    "two keys": "SELECT MAX * FROM S WHERE A ; B+ ; C PARTITION BY [k], [j] WITHIN 10 [x]",
    "consume": "SELECT * FROM S WHERE A ; B ; C PARTITION BY [j] CONSUME BY PARTITION",
    "silences": "SELECT * FROM S WHERE NOT C FOR 3 [t] ; A AS a ; B+ AS b ; NOT C[x < 0] FOR 9 [t] WITHIN 12 [t]",
    "silences by key": "SELECT MAX * FROM S WHERE NOT C FOR 3 [x] ; A ; B ; NOT C FOR 9 [x] PARTITION BY [j]",
}

QUERY_BY_EVENTS = FORGED_QUERIES["events by key"]


def some_events(n_events: int, first: int = 0) -> pa.Table:
    random = Random(first)
    rows = [
        {
            "type": random.choice("AABC"),
            "t": at,
            "k": random.choice(["p", "q", "é", None]),
            "j": random.randrange(3),
            "x": at / 3,
        }
        for at in range(first, first + n_events)
    ]
    return pa.Table.from_pylist(rows)


def content_of(query: str) -> tuple[str, snapshots.Content]:
    session = Session(query)
    session.feed(some_events(60)).count()
    return session._setup.identity, snapshots.read(session._setup.identity, session.snapshot())


def forged(query: str, name: str, change: Any) -> bytes:
    identity, content = content_of(query)
    content[name] = change(content[name])
    return snapshots.write(identity, content)


def with_value(place: Any, value: Any) -> Any:
    def change(array: Any) -> Any:
        array[place] = value
        return array

    return change


@pytest.mark.parametrize("value", [-4, -3, 10**6, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize(
    "name",
    ["link", "kind", "data", "pool", "key_first", "key_length", "key_room", "key_codes", "row_ids", "key_events"],
)
def test_a_number_that_points_nowhere_is_refused(name: str, place: int, value: int) -> None:
    assert "damaged" in refused(forged(QUERY_BY_EVENTS, name, with_value(place, value)), QUERY_BY_EVENTS)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("key", lambda _: 77),
        ("key", lambda _: -2),
        ("key", lambda _: None),
        ("n_emitted", lambda _: -1),
        ("n_emitted", lambda _: 2**70),
        ("n_emitted", lambda _: "1"),
        ("active", with_value(0, 2**63)),
        ("active", lambda active: np.concatenate([active] * 9)),
        ("key_active", lambda active: active * 0),
        ("list_length", lambda lengths: lengths + 100),
        ("list_nodes", lambda nodes: nodes - 10**6),
        ("start", lambda start: start[::-1]),
        ("start", lambda start: start + 10**6),
        ("kind", lambda kind: kind.astype(np.int64)),
        ("kind", lambda kind: kind[:-1]),
        ("data", lambda data: data.astype(np.float64)),
        ("key_epoch", lambda epoch: epoch[:, np.newaxis]),
        ("pool", lambda pool: list(map(int, pool))),
        ("key_codes", lambda codes: np.zeros_like(codes)),
        ("key_values_0", lambda values: pa.concat_tables([values, values])),
        ("key_values_0", lambda _: pa.table({"value": [1, 2, 3]})),
        ("rows", lambda rows: rows.slice(1)),
        ("rows", lambda rows: rows.drop_columns(["x"])),
        ("states", lambda states: [*states, [[10**6], [], [], []]]),
        ("states", lambda states: states[::-1]),
        ("states", lambda states: states[:2]),
        ("states", lambda states: [["a"]] * len(states)),
        ("labels", lambda labels: [["nobody"] for _ in labels]),
        ("labels", lambda _: []),
        ("n_events", lambda _: 1),
        ("n_matches", lambda _: "x"),
        ("last", lambda _: [None]),
        ("last", lambda _: [2**70]),
        ("ordinals", lambda _: [None, []]),
        ("ordinals", lambda _: [0, [[1, "x"]]]),
        ("events", lambda _: pa.table({"type": ["A"]})),
    ],
)
def test_content_that_no_session_writes_is_refused(name: str, change: Any) -> None:
    assert refused(forged(QUERY_BY_EVENTS, name, change), QUERY_BY_EVENTS)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("roots", with_value(0, 10**6)),
        ("roots", with_value(-1, -1)),
        ("roots", lambda roots: roots[:-1]),
        ("waiting_first", with_value(-1, 2**62)),
        ("waiting_length", with_value(0, 0)),
        ("waiting_length", lambda lengths: lengths + 1),
        ("waiting_row", with_value(-1, 10**6)),
        ("waiting_row", with_value(0, -1)),
        ("waiting_time", lambda times: times[::-1]),
        ("waiting_key", with_value(-1, 1)),
        ("waiting_key", lambda keys: keys - 1),
        ("broken_after", lambda rows: rows[:0]),
        ("broken_before", lambda times: times.astype(np.float64)),
        ("last", lambda _: [None]),
        ("has_ended", lambda _: 1),
    ],
)
def test_what_waits_must_be_what_a_session_writes(name: str, change: Any) -> None:
    query = FORGED_QUERIES["silences"]
    assert "damaged" in refused(forged(query, name, change), query)


def test_matches_may_not_end_after_the_event_that_waits_for_them() -> None:
    session = Session(FORGED_QUERIES["silences"], shape="positions")
    session.feed(some_events(60)).count()
    identity = session._setup.identity
    content = snapshots.read(identity, session.snapshot())
    content["waiting_row"] -= 1
    snapshot = snapshots.write(identity, content)
    assert "end later" in refused(snapshot, FORGED_QUERIES["silences"], shape="positions")


def random_change(random: Random, content: snapshots.Content) -> None:
    names = [name for name, value in content.items() if isinstance(value, np.ndarray) and value.size]
    for _ in range(random.choice([1, 1, 2])):
        numbers = content[random.choice(names)].reshape(-1)
        n = len(content["kind"])
        value = random.choice([0, 1, 2, 3, 17, n - 1, n, random.randrange(2 * n), random.randrange(2**31)])
        signed = value if numbers.dtype.kind == "u" else random.choice([value, -value])
        numbers[random.randrange(len(numbers))] = np.asarray(signed).astype(numbers.dtype)


@pytest.mark.parametrize("query", FORGED_QUERIES.values(), ids=FORGED_QUERIES)
def test_forged_numbers_are_refused_or_do_no_harm(query: str) -> None:
    identity, _ = content_of(query)
    session = Session(query)
    session.feed(some_events(60)).count()
    snapshot, outcomes = session.snapshot(), []
    for seed in range(150):
        content = snapshots.read(identity, snapshot)
        random_change(Random(seed), content)
        try:
            session = Session.restore(query, snapshots.write(identity, content), chunk_size=50)
        except ceql.SnapshotError:
            outcomes.append("refused")
            continue
        for first in (60, 90):
            for batch in islice(session.feed(some_events(30, first)).batches(), 10):
                batch.validate(full=True)
        assert session.snapshot()
        outcomes.append("accepted")
    assert outcomes.count("refused") > 70


def test_bytes_of_arrow_that_are_damaged_are_refused_or_do_no_harm() -> None:
    identity, content = content_of(QUERY_BY_EVENTS)
    snapshot = snapshots.write(identity, {name: content[name] for name in ("rows", "key_values_0")})
    snapshots.read(identity, snapshot)
    random, n_refused = Random(3), 0
    for _ in range(300):
        damaged = bytearray(snapshot[:-16])
        damaged[random.randrange(len(damaged) // 4, len(damaged))] = random.randrange(256)
        try:
            for table in snapshots.read(identity, bytes(damaged) + snapshots._checksum(bytes(damaged))).values():
                table.to_pylist()
        except (ValueError, OSError, KeyError, TypeError, ceql.SnapshotError):
            n_refused += 1
    assert n_refused > 20
