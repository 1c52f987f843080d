"""A reading is spent once, counts, and can be cancelled; one intake can serve several runs."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest

import ceql
from ceql.automaton.lazy import Alphabet
from ceql.engine.intake.events import EventEncoder, columns_read
from ceql.engine.intake.intake import Intake
from ceql.engine.options import Limits
from ceql.engine.run.run import Run
from ceql.engine.session import Session

QUERY = "SELECT * FROM S WHERE A AS a ; B AS b WITHIN 100 [t]"
TABLE = pa.table({"type": ["A", "B", "C", "B"] * 50, "t": range(200), "k": [1, 1, 2, 2] * 50})


def test_a_cancelled_reading_leaves_the_session_as_it_was() -> None:
    session = Session(QUERY, chunk_size=10)
    session.feed(TABLE.slice(0, 100)).count()
    before = session.stats
    matches = session.feed(TABLE.slice(100))
    batches = matches.batches()
    next(batches)
    assert session.stats.matches > before.matches
    matches.cancel()
    assert session.stats == before
    for read_on in (lambda: next(batches), matches.count):
        with pytest.raises(ceql.DataError, match=r"cancelled|read already"):
            read_on()
    rest = session.feed(TABLE.slice(100)).to_arrow()
    assert rest == ceql.match(QUERY, TABLE).to_arrow().slice(before.matches)


def test_a_reading_is_cancelled_before_it_begins_and_after_it_ended() -> None:
    session = Session(QUERY)
    matches = session.feed(TABLE)
    matches.cancel()
    assert session.stats.events == 0
    with pytest.raises(ceql.DataError, match="cancelled"):
        matches.count()
    matches = session.feed(TABLE)
    n_matches = matches.count()
    matches.cancel()
    assert (session.stats.events, session.stats.matches) == (len(TABLE), n_matches)


def test_another_thread_may_cancel() -> None:
    is_reached, may_go_on = Event(), Event()

    def parts() -> Any:
        yield from TABLE.slice(0, 100).to_batches()
        is_reached.set()
        assert may_go_on.wait(60)
        yield from TABLE.slice(100).to_batches()

    session = Session(QUERY)
    matches = session.feed(pa.RecordBatchReader.from_batches(TABLE.schema, parts()))
    errors: list[str] = []

    def read() -> None:
        with pytest.raises(ceql.DataError) as caught:
            matches.count()
        errors.append(caught.value.message)

    thread = Thread(target=read)
    thread.start()
    assert is_reached.wait(60)
    matches.cancel()
    may_go_on.set()
    thread.join()
    assert errors == ["the reading of these matches was cancelled"]
    assert session.stats.events == 0
    assert session.feed(TABLE).count() == ceql.match(QUERY, TABLE).count()


def test_what_is_cancelled_can_be_read_again_from_a_table() -> None:
    matches = ceql.match(QUERY, TABLE)
    next(matches.batches())
    matches.cancel()
    assert matches.count() == ceql.match(QUERY, TABLE).count()


def test_matches_of_a_session_tell_what_was_dropped() -> None:
    session = Session("SELECT * FROM S WHERE A PARTITION BY [k]")
    session.feed([{"type": "A", "k": None}, {"type": "A", "k": 1}]).count()
    matches = session.feed([{"type": "A", "k": 1}, {"type": "A", "k": None}, {"type": "A", "k": None}])
    assert (matches.count(), matches.dropped, session.stats.dropped) == (1, 2, 3)


def test_one_intake_serves_several_runs() -> None:
    texts = [
        QUERY,
        "SELECT * FROM S WHERE B : C WITHIN 5 [t]",
        "SELECT MAX * FROM S WHERE (A OR C)+ ; B PARTITION BY [k] WITHIN 9 EVENTS",
    ]
    queries = [ceql.compile(text, TABLE.schema) for text in texts]
    guards = [Alphabet.of(query.automaton).guards for query in queries]
    intake = Intake(
        queries[0].plan,
        TABLE.schema,
        type_column="type",
        read={name for own in guards for name in columns_read(own)},
        types_named=(),
        keeps_rows=True,
    )
    runs = []
    for query, own in zip(queries, guards, strict=True):
        encoder = EventEncoder(
            query.plan, own, intake.stored, time_column=None, sees_all=True, max_symbols=1000, sorting=None
        )
        runs.append((encoder, Run(query.plan, query.automaton, encoder.measure, Limits(), has_labels=True)))
    ends: list[list[int]] = [[] for _ in queries]
    for part in TABLE.to_batches(max_chunksize=30):
        rows = intake.take(part, None)
        for found, (encoder, run) in zip(ends, runs, strict=True):
            for block in encoder.encode(rows):
                for chunk in run.advance(block, is_read=lambda: True):
                    found += chunk.end.tolist()
        intake.n_events += len(rows)
    for found, query in zip(ends, queries, strict=True):
        expected = ceql.match(query, TABLE, shape="positions").to_arrow()["end"].to_pylist()
        assert found == expected
        assert len(expected) > 10
