"""Sessions: batches, snapshots in other processes, errors that leave everything as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest

import ceql
from ceql.engine.run import recognizer as recognizer_module
from ceql.engine.run.undo import Undo
from ceql.engine.session import Session

TESTS = Path(__file__).parent.parent
SCHEMA = pa.schema(
    [("type", pa.string()), ("t", pa.int64()), ("k", pa.string()), ("x", pa.float64()), ("d", pa.string())]
)


def stream(n_events: int = 120) -> pa.Table:
    """Return events that look random and are always the same."""
    random = Random(7)
    rows = [
        {
            "type": random.choice("AABC"),
            "t": at // 2,
            "k": random.choice(["p", "q", "é", None]),
            "x": float(random.randrange(8)),
            "d": f"row {at}",
        }
        for at in range(n_events)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


QUERIES = {
    "sequence": "SELECT * FROM S WHERE A AS a ; B AS b ; C AS c WITHIN 12 [t]",
    "iteration": "SELECT * FROM S WHERE A AS a ; B+ AS b ; C AS c WITHIN 8 EVENTS",
    "partitions": "SELECT * FROM S WHERE A AS a ; B AS b PARTITION BY [k] WITHIN 20 EVENTS",
    "limit": "SELECT * FROM S WHERE A AS a ; (A OR B) AS b ; C AS c WITHIN 15 [t] LIMIT 3",
    "next": "SELECT NEXT * FROM S WHERE A ; B+ ; C PARTITION BY [k] WITHIN 10 [t]",
    "last": "SELECT LAST * FROM S WHERE A ; B+ ; C WITHIN 10 EVENTS LIMIT 1",
    "max": "SELECT MAX * FROM S WHERE A+ ; C FILTER A[x > 3] WITHIN 5 [t]",
    "strict": "SELECT STRICT * FROM S WHERE A :+ ; B",
    "any": "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] CONSUME BY ANY",
    "consume": "SELECT * FROM S WHERE A ; B ; C PARTITION BY [k] CONSUME BY PARTITION LIMIT 2",
    "forget": "SELECT * FROM S WHERE A ; B ; C CONSUME BY ANY",
    "forget the rest": "SELECT LAST * FROM S WHERE A ; B ; C WITHIN 30 [t] CONSUME BY PARTITION",
    "none": "SELECT NONE FROM S WHERE A ; C WITHIN 3 [t]",
}
queries = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
shapes = pytest.mark.parametrize("shape", ["matches", "events", "positions"])


def rows_of(query: str, parts: list[Any], **options: Any) -> list[Any]:
    session = Session(query, **options)
    return [row for part in parts for row in session.feed(part).to_arrow().to_pylist()]


def parts_of(table: pa.Table, size: int) -> list[pa.Table]:
    return [table.slice(at, size) for at in range(0, len(table), size)]


@shapes
@queries
def test_any_cutting_gives_the_same_rows(query: str, shape: str) -> None:
    table = stream()
    whole = rows_of(query, [table], shape=shape)
    # A match that selects nothing has no rows where each row is an event.
    assert bool(whole) == (shape != "events" or "NONE" not in query)
    for size in (1, 7, 50):
        assert rows_of(query, parts_of(table, size), shape=shape) == whole


@queries
def test_one_session_equals_match(query: str) -> None:
    table = stream()
    assert rows_of(query, [table]) == ceql.match(query, table).to_arrow().to_pylist()


GO_ON = """
import sys, pyarrow as pa
from pathlib import Path
from ceql import Session
from engine.test_sessions import QUERIES, stream
folder, shape, at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for name, query in QUERIES.items():
    session = Session.restore(query, (folder / name).read_bytes(), shape=shape)
    table = session.feed(stream().slice(at)).to_arrow()
    with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as file:
        file.write_table(table)
"""


@pytest.mark.parametrize(("shape", "at"), [("matches", 57), ("events", 60), ("positions", 1)])
def test_a_snapshot_goes_on_in_another_process(tmp_path: Path, shape: Any, at: int) -> None:
    table = stream()
    for name, query in QUERIES.items():
        session = Session(query, shape=shape)
        session.feed(table.slice(0, at)).count()
        (tmp_path / name).write_bytes(session.snapshot())
    # Other hashes of strings: whatever were ordered by them would come out differently.
    environment = os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": str(TESTS)}
    arguments = [sys.executable, "-c", GO_ON, str(tmp_path), shape, str(at)]
    subprocess.run(arguments, check=True, env=environment, cwd=TESTS)
    for name, query in QUERIES.items():
        session = Session(query, shape=shape)
        first = session.feed(table.slice(0, at)).to_arrow()
        second = pa.ipc.open_file(tmp_path / f"{name}.arrow").read_all()
        whole = Session(query, shape=shape).feed(table).to_arrow()
        assert first.to_pylist() + second.to_pylist() == whole.to_pylist(), name
        assert second.schema == whole.schema


def test_a_snapshot_before_the_first_batch() -> None:
    query = QUERIES["sequence"]
    session = Session.restore(query, Session(query).snapshot())
    assert session.feed(stream()).to_arrow() == Session(query).feed(stream()).to_arrow()


def test_counters_survive_a_snapshot() -> None:
    session = Session(QUERIES["partitions"])
    n_matches = session.feed(stream()).count()
    restored = Session.restore(QUERIES["partitions"], session.snapshot())
    assert (restored.stats.events, restored.stats.matches) == (120, n_matches)
    assert restored.stats.live_nodes == session.stats.live_nodes > 0
    assert restored.stats.state_bytes > 0


# --- matches that are not read ------------------------------------------------------


@pytest.mark.parametrize("n_read", [0, 1, 5])
@queries
def test_matches_not_read_are_passed_over(query: str, n_read: int) -> None:
    table = stream()
    session = Session(query, chunk_size=2)
    read = []
    matches = session.feed(table.slice(0, 80))
    for match in matches if n_read else ():
        read.append(match)
        if len(read) == n_read:
            break
    rest = session.feed(table.slice(80)).to_arrow().to_pylist()
    expected = Session(query)
    first = expected.feed(table.slice(0, 80)).count()
    assert len(read) == min(n_read, first)
    assert rest == expected.feed(table.slice(80)).to_arrow().to_pylist()
    assert session.stats.events == len(table)


def test_a_batch_that_nobody_asks_for_still_counts() -> None:
    query = QUERIES["sequence"]
    session = Session(query)
    session.feed(stream().slice(0, 80))
    restored = Session.restore(query, session.snapshot())
    assert restored.stats.events == 80
    expected = rows_of(query, [stream()])
    assert restored.feed(stream().slice(80)).count() == sum(row["c"]["t"] >= 40 for row in expected)


def test_a_reader_that_was_overtaken_hears_of_it() -> None:
    session = Session(QUERIES["sequence"], chunk_size=2)
    batches = session.feed(stream()).batches()
    assert len(next(batches)) == 2
    session.feed(stream(0))
    with pytest.raises(ceql.DataError, match="skipped"):
        list(batches)


def test_a_batch_is_read_once() -> None:
    session = Session(QUERIES["sequence"])
    matches = session.feed(stream())
    assert matches.count() > 0
    with pytest.raises(ceql.DataError, match="read already"):
        matches.count()


def test_a_preview_uses_up_a_batch_but_not_the_session() -> None:
    query = QUERIES["sequence"]
    session = Session(query, chunk_size=2)
    assert "<table>" in session.feed(stream().slice(0, 80))._repr_html_()
    expected = Session(query)
    expected.feed(stream().slice(0, 80)).count()
    assert session.feed(stream().slice(80)).to_arrow() == expected.feed(stream().slice(80)).to_arrow()


# --- threads ------------------------------------------------------------------------


class SlowReader:
    """Events that another thread begins to read, and stops at until it is let go."""

    def __init__(self) -> None:
        self.is_reached, self.may_go_on = Event(), Event()
        self.table = pa.RecordBatchReader.from_batches(SCHEMA, self._batches())

    def _batches(self) -> Any:
        yield from stream().slice(0, 60).to_batches()
        self.is_reached.set()
        assert self.may_go_on.wait(60)
        yield from stream().slice(60).to_batches()


@pytest.mark.parametrize("query", [QUERIES["sequence"], QUERIES["any"]])
def test_a_second_thread_is_refused_while_the_first_is_at_work(query: str) -> None:
    session, slow = Session(query, shape="positions"), SlowReader()
    found: list[int] = []
    matches = session.feed(slow.table)
    thread = Thread(target=lambda: found.append(matches.count()))
    thread.start()
    assert slow.is_reached.wait(60)
    tries: list[Any] = [
        lambda: session.feed(stream()),
        session.snapshot,
        lambda: session.expire(1),
    ]
    for attempt in tries:
        with pytest.raises(ceql.DataError, match="another thread"):
            attempt()
    assert session.stats.events == 60
    slow.may_go_on.set()
    thread.join()
    assert found == [ceql.match(query, stream(), shape="positions").count()]
    assert session.stats.events == 120


def test_threads_that_take_turns_see_one_stream() -> None:
    query = QUERIES["sequence"]
    session = Session(query)
    found: list[Any] = []

    def feed(part: pa.Table) -> None:
        found.extend(session.feed(part).to_arrow().to_pylist())

    for part in parts_of(stream(), 11):
        thread = Thread(target=feed, args=(part,))
        thread.start()
        thread.join()
    assert found == rows_of(query, [stream()])


def test_many_threads_at_once_get_an_answer_or_an_error() -> None:
    session = Session("SELECT * FROM S WHERE A ; B WITHIN 100 EVENTS", shape="positions")
    table = pa.table({"type": ["A", "B"] * 20_000})
    errors: list[str] = []

    def feed() -> None:
        for _ in range(5):
            try:
                session.feed(table).count()
            except ceql.DataError as error:
                errors.append(error.message)

    threads = [Thread(target=feed) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.stats.events % len(table) == 0
    assert {error.split(":")[0] for error in errors} <= {
        "the session is already in use",
        "these matches were skipped when the session took the next batch",
    }


def test_a_reader_cannot_feed_the_session_that_reads_it() -> None:
    session = Session(QUERIES["sequence"])

    def feeding() -> Any:
        session.feed(stream())
        yield from stream().to_batches()

    with pytest.raises(ceql.DataError, match="the reader of its own events"):
        session.feed(pa.RecordBatchReader.from_batches(SCHEMA, feeding())).count()
    assert session.feed(stream()).count() == ceql.match(QUERIES["sequence"], stream()).count()


# --- errors -------------------------------------------------------------------------


class InterruptedFeedError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "n_calls"), [(KeyboardInterrupt, 0), (KeyboardInterrupt, 2), (InterruptedFeedError, 1)]
)
@queries
def test_an_interrupted_batch_is_undone(
    monkeypatch: pytest.MonkeyPatch, query: str, n_calls: int, error: type[BaseException]
) -> None:
    table = stream()
    # Chunks of one match: the kernel is called again after each.
    session = Session(query, shape="events", chunk_size=1)
    first = session.feed(table.slice(0, 60)).to_arrow().to_pylist()
    before = session.stats
    advance, calls = recognizer_module.Recognizer._advance, []

    def interrupted(self: Any, *arguments: Any, **options: Any) -> int:
        calls.append(None)
        if len(calls) > n_calls:
            raise error
        return advance(self, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(recognizer_module.Recognizer, "_advance", interrupted)
        with pytest.raises(error):
            session.feed(table.slice(60)).to_arrow()
    assert (session.stats.events, session.stats.matches) == (before.events, before.matches)
    assert first + session.feed(table.slice(60)).to_arrow().to_pylist() == rows_of(query, [table], shape="events")


@pytest.mark.parametrize("memo_capacity", [0, 1000])
@queries
def test_a_refused_batch_is_undone(query: str, memo_capacity: int) -> None:
    table = stream()
    # Without room in the memo, states get new numbers again and again.
    session = Session(query, shape="events", memo_capacity=memo_capacity)
    first = session.feed(table.slice(0, 60)).to_arrow().to_pylist()
    before = session.stats

    def failing() -> Any:
        yield from table.slice(60, 30).to_batches()
        raise InterruptedFeedError

    with pytest.raises(InterruptedFeedError):
        session.feed(pa.RecordBatchReader.from_batches(SCHEMA, failing())).count()
    assert session.stats.events == before.events
    assert session.stats.matches == before.matches
    rest = session.feed(table.slice(60)).to_arrow().to_pylist()
    assert first + rest == rows_of(query, [table], shape="events")


@pytest.mark.parametrize("setting", ["", "collecting", "small memo"])
@queries
def test_batches_that_fail_leave_no_trace(monkeypatch: pytest.MonkeyPatch, query: str, setting: str) -> None:
    # Keys are forgotten between any two parts of a batch.
    monkeypatch.setattr("ceql.engine.pipeline.MIN_KEYS", 1)
    monkeypatch.setattr("ceql.engine.intake.intake.MIN_HISTORY", 10)
    rows = stream(150).to_pylist()
    for at, row in enumerate(rows):
        # Each key occurs for some time only.
        row["k"] = row["k"] and f"{row['k']}{at // 20}"
    table = pa.Table.from_pylist(rows, SCHEMA)
    session = Session(query, shape="events", memo_capacity=0 if setting == "small memo" else 1000)
    session.limits = replace(session.limits, collects_always=setting == "collecting")

    def failing(at: int) -> Any:
        for begin, end in ((0, 1), (1, 6), (6, 26)):
            yield from table.slice(at + begin, end - begin).to_batches()
        raise InterruptedFeedError

    random, at = Random(5), 0
    found: list[Any] = []
    while at < len(table):
        size = random.choice([1, 3, 20])
        found += session.feed(table.slice(at, size)).to_arrow().to_pylist()
        at += size
        for _ in range(2):
            before = session.stats
            with pytest.raises(InterruptedFeedError):
                session.feed(pa.RecordBatchReader.from_batches(SCHEMA, failing(at))).count()
            assert (session.stats.events, session.stats.matches) == (before.events, before.matches)
            assert session.stats.live_nodes == before.live_nodes
    assert found == rows_of(query, [table], shape="events")
    assert session.pipeline is not None
    if session.pipeline.encoder.keys is not None:
        assert session.pipeline.encoder.keys.n_keys < 40
    assert Session.restore(query, session.snapshot(), shape="events").stats.events == len(table)


def test_match_ids_are_the_same_after_an_error() -> None:
    query = "SELECT * FROM S WHERE A ; C"
    events = [{"type": one} for one in "AAC"]
    session = Session(query, shape="events")

    def failing() -> Any:
        yield pa.RecordBatch.from_pylist(events)
        raise InterruptedFeedError

    matches = session.feed(pa.RecordBatchReader.from_batches(pa.schema([("type", pa.string())]), failing())).batches()
    first = next(matches).to_pylist()
    with pytest.raises(InterruptedFeedError):
        next(matches)
    assert session.feed(events).to_arrow().to_pylist() == first


def test_a_first_batch_that_fails_binds_nothing() -> None:
    session = Session("SELECT * FROM S WHERE A ; B WITHIN 5 [t]")
    with pytest.raises(ceql.DataError, match="time runs backwards at row 1: 't' is 1 after 2"):
        session.feed(pa.table({"type": ["A", "B"], "t": [2, 1]})).count()
    assert session.query is None
    assert session.feed(pa.table({"type": ["A", "B"], "t": [1.0, 2.0]})).count() == 1


@pytest.mark.parametrize("batch", [0, 1])
def test_time_that_runs_backwards(batch: int) -> None:
    session = Session("SELECT * FROM S WHERE A ; B WITHIN 5 [t]")
    parts = [pa.table({"type": ["A"], "t": [7]}), pa.table({"type": ["A", "B"], "t": [7, 8]})]
    session.feed(parts[0]).count()
    if batch:
        session.feed(parts[1]).count()
    before = session.snapshot()
    with pytest.raises(ceql.DataError, match=rf"at row {2 + 2 * batch}: 't' is 6 after 9"):
        session.feed(pa.table({"type": ["C", "B"], "t": [9, 6]})).count()
    assert session.snapshot() == before
    assert session.feed(pa.table({"type": ["B"], "t": [9]})).count() == 1 + batch


@pytest.mark.parametrize(
    ("sort", "streams", "hint"),
    [
        (False, "S", "sort the events, or pass sort=True"),
        (True, "S", "sort=True sorts within one batch only, and this batch begins before the end"),
        (False, "S, T", "streams are merged within one batch only, and this batch begins before the end"),
    ],
)
@pytest.mark.parametrize("clause", ["WITHIN 5 [t]", ""])
def test_a_batch_that_begins_before_the_end_of_the_last(sort: bool, streams: str, hint: str, clause: str) -> None:
    session = Session(f"SELECT * FROM {streams} WHERE A ; B {clause}", sort=sort, time_column="t")
    first, older = (
        dict.fromkeys(streams.split(", "), pa.table({"type": ["A", "B"], "t": times})) for times in ([7, 8], [6, 9])
    )
    session.feed(first).count()
    with pytest.raises(ceql.DataError, match="'t' is 6 after 8") as caught:
        session.feed(older).count()
    assert str(caught.value.hint).startswith(hint)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("soon", "'t' cannot be 'soon': it is of type integer"),
        (2**70, f"'t' cannot be {2**70}: it is of type integer"),
        (8, "time runs backwards: 't' is 8 after 9"),
        (None, "advance needs a time\nhint: finish says that no event comes any more"),
    ],
)
def test_time_that_advance_cannot_tell(value: object, told: str) -> None:
    session = Session("SELECT * FROM S WHERE A ; NOT B FOR 5 [t]")
    session.feed([{"type": "A", "t": 9}]).count()
    with pytest.raises(ceql.DataError) as caught:
        session.advance(value)
    assert str(caught.value) == told
    # The session goes on as if it had not been asked.
    assert session.advance(20).count() == 1


@pytest.mark.parametrize(
    ("time", "value", "told"),
    [
        (1.5, float("nan"), "'t' cannot be nan: it is of type double"),
        (datetime(2024, 1, 1), "2024-01-02", "'t' cannot be '2024-01-02': it is of type timestamp without zone"),
    ],
)
def test_values_that_are_no_time(time: object, value: object, told: str) -> None:
    session = Session("SELECT * FROM S WHERE A ; NOT B FOR " + ("5 [t]" if isinstance(time, float) else "5 seconds"))
    session.feed([{"type": "A", "t": time}]).count()
    with pytest.raises(ceql.DataError) as caught:
        session.advance(value)
    assert str(caught.value) == told


def test_a_finished_session_takes_nothing() -> None:
    session = Session("SELECT * FROM S WHERE A ; NOT B FOR 5 [t]")
    session.feed([{"type": "A", "t": 1}]).count()
    assert session.finish().count() == 1
    calls = [lambda: session.feed([{"type": "A", "t": 2}]), lambda: session.advance(3), session.finish]
    for call in calls:
        with pytest.raises(ceql.DataError) as caught:
            call()
        assert str(caught.value) == "the session is finished: it takes no more events\nhint: begin a new session"


def test_max_state_bytes() -> None:
    # The limit is looked at when the arena is full, so there must be more than fits at first.
    query = "SELECT * FROM S WHERE A ; B"
    table = pa.table({"type": ["A"] * 20_000})
    session = Session(query, max_state_bytes=5_000_000, shape="positions")
    session.feed(table).count()
    n_events = session.stats.events
    large = pa.table({"type": ["A"] * 400_000})
    with pytest.raises(ceql.DataError, match="more than max_state_bytes = 5000000"):
        session.feed(large).count()
    assert session.feed([{"type": "B"}]).count() == n_events


def test_max_state_bytes_counts_the_rows_that_are_kept() -> None:
    query = "SELECT * FROM S WHERE A ; B WITHIN 100 EVENTS"
    kept = pa.table({"type": ["A"] * 10, "text": ["x" * 200_000] * 10})
    session = Session(query, max_state_bytes=5_000_000)
    for _ in range(5):
        session.feed(kept.slice(0, 1)).count()
    # Rows that no open match needs are let go first.
    for _ in range(5):
        session.feed(pa.table({"type": ["C"] * 101, "text": ["x" * 40_000] * 101})).count()
    assert session.stats.state_bytes < 5_000_000
    with pytest.raises(ceql.DataError, match="more than max_state_bytes = 5000000"):
        session.feed(pa.concat_tables([kept] * 3)).count()
    assert session.stats.events == 510


def test_options_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="unknown shape 'rows'"):
        Session("SELECT * FROM S WHERE A", shape="rows")  # type: ignore[arg-type]


KEYED = "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k], [j] WITHIN 5 [t]"


def keyed_events(n_events: int = 3000) -> list[dict[str, Any]]:
    """A stream that meets new keys for ever and leaves old ones behind."""
    chance = Random(1)
    return [
        {"type": chance.choice("AB"), "t": i // 3, "k": f"k{chance.randrange(i // 50 + 1)}", "j": chance.randrange(3)}
        for i in range(n_events)
    ]


@pytest.mark.parametrize("expires", [False, True], ids=["", "expiring"])
@pytest.mark.parametrize("min_keys", [3, 1 << 17])
def test_keys_without_open_matches_are_forgotten(monkeypatch: pytest.MonkeyPatch, min_keys: int, expires: bool) -> None:
    monkeypatch.setattr("ceql.engine.pipeline.MIN_KEYS", min_keys)
    events = keyed_events()
    expected = ceql.match(KEYED, events).to_arrow().to_pylist()
    session, found = Session(KEYED), []
    for first in range(0, len(events), 37):
        part = events[first : first + 37]
        found += [row for batch in session.feed(part).batches() for row in batch.to_pylist()]
        if expires:
            session.expire(part[-1]["t"])
            assert session.pipeline is not None
            assert session.pipeline.encoder.keys is not None
            # No more than the events of one window.
            assert session.pipeline.encoder.keys.n_keys <= 3 * 6
        if first % 5 == 0:
            session = Session.restore(KEYED, session.snapshot())
    assert found == expected
    assert len(expected) > 100


@pytest.mark.parametrize("query", [KEYED, KEYED.replace("5 [t]", "4 EVENTS")])
def test_forgotten_keys_come_back_by_the_same_dictionary(monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    monkeypatch.setattr("ceql.engine.pipeline.MIN_KEYS", 2)
    table = pa.Table.from_pylist(keyed_events(600))
    table = table.set_column(2, "k", table["k"].combine_chunks().dictionary_encode())
    session, found = Session(query), []
    for part in parts_of(table, 11):
        found += session.feed(part).to_arrow().to_pylist()
    assert found == ceql.match(query, table).to_arrow().to_pylist()
    assert len(found) > 10


def key_column(names: list[str], encoded: bool) -> pa.Array:
    return pa.array(names).dictionary_encode() if encoded else pa.array(names)


@pytest.mark.parametrize("event_type", ["A", "X"], ids=["wanted", "unwanted"])
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
@pytest.mark.parametrize("window", ["2 [t]", "2 EVENTS"])
def test_what_is_remembered_of_keys_is_what_is_alive(event_type: str, encoded: bool, window: str) -> None:
    session = Session(f"SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN {window}", shape="positions")
    sizes = []
    for at in range(0, 200_000, 20_000):
        names = [f"user number {number}" for number in range(at, at + 20_000)]
        types = ["Y"] * 19_999 + [event_type] if "EVENTS" in window else [event_type] * 20_000
        session.feed(pa.table({"type": types, "k": key_column(names, encoded), "t": range(at, at + 20_000)})).count()
        assert session.pipeline is not None
        assert session.pipeline.encoder.keys is not None
        sizes.append(session.stats.state_bytes)
        assert sizes[-1] > session.pipeline.encoder.keys.n_bytes
    assert max(sizes) < 32_000_000
    # Keys are told by events of their own where windows count these: each last one is open for ever.
    n_open = {("A", "2 [t]"): 3, ("A", "2 EVENTS"): 10}.get((event_type, window), 0)
    assert session.holds == bool(n_open)
    assert len(session.snapshot()) < 4_000
    assert len(session.pipeline.encoder.keys.dictionaries[0]) == session.pipeline.encoder.keys.n_keys == n_open
    assert session.stats.state_bytes < 1_500_000


def test_max_state_bytes_counts_the_keys() -> None:
    query = "SELECT * FROM S WHERE A ; B PARTITION BY [k]"
    session = Session(query, shape="positions", max_state_bytes=5_000_000)
    session.feed(pa.table({"type": ["A"], "k": ["x" * 1_000_000]})).count()
    assert 1_000_000 < session.stats.state_bytes < 2_000_000
    with pytest.raises(ceql.DataError, match="more than max_state_bytes = 5000000"):
        session.feed(pa.table({"type": ["A"] * 5, "k": [letter * 1_000_000 for letter in "abcde"]})).count()
    # Nothing is left of the batch.
    assert session.stats.state_bytes < 2_000_000
    assert session.feed(pa.table({"type": ["B"], "k": ["x" * 1_000_000]})).count() == 1
    # Those of which nothing is open do not count.
    for letter in "abcdefghi":
        session.feed(pa.table({"type": ["B"], "k": [letter * 1_000_000]})).count()
    assert session.stats.events == 11


def test_an_event_costs_what_it_touches(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is saved for an undo is told by its size, because no test may depend on a clock.
    for partition, consume in (("", ""), ("PARTITION BY [k]", ""), ("", "CONSUME BY ANY")):
        session = Session(f"SELECT * FROM S WHERE A ; B {partition} {consume}", shape="positions")
        session.feed(pa.table({"type": ["A"] * 50_000, "k": [at % 100 for at in range(50_000)]})).count()
        undos: list[Undo] = []
        with monkeypatch.context() as patched:
            patched.setattr(
                "ceql.engine.run.run.Undo", lambda state, undos=undos: undos.append(Undo(state)) or undos[-1]
            )
            session.feed(pa.table({"type": ["A"], "k": [7]})).count()
        assert not undos[0].has_all
        assert sum(len(keys.slots) for keys in undos[0]._keys) == (2 if partition else 0)


def test_an_expired_session_holds_nothing() -> None:
    session = Session(KEYED)
    session.feed(keyed_events(500)).count()
    size = len(session.snapshot())
    assert session.holds
    assert not session.expire(10**6)
    assert not session.holds
    assert len(session.snapshot()) < size


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 4 EVENTS",
        "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 5 [t] CONSUME BY ANY",
        "SELECT MAX * FROM S WHERE A+ AS x ; B AS y PARTITION BY [k] WITHIN 5 [t] CONSUME BY PARTITION",
    ],
)
def test_forgetting_keys_changes_no_match(monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    monkeypatch.setattr("ceql.engine.pipeline.MIN_KEYS", 2)
    events = keyed_events(600)
    session, found = Session(query), []
    for first in range(0, len(events), 11):
        found += [row for batch in session.feed(events[first : first + 11]).batches() for row in batch.to_pylist()]
    assert found == ceql.match(query, events).to_arrow().to_pylist()
    assert len(found) > 10
