"""Limits that do not exist: words of 64 bits, tables of 256 symbols, rows of 32 bits."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ceql
from ceql.engine.run import kernel, requests
from ceql.engine.session import Session


def test_a_hundred_predicates_in_a_row() -> None:
    n = 100
    formula = " ; ".join(f"(A AS v{index} FILTER v{index}[x = {index}])" for index in range(n))
    values = [value for index in range(n) for value in (index, n + index, (index + 50) % n)]
    found = ceql.match(f"SELECT * FROM S WHERE {formula} LIMIT 2", pa.table({"type": ["A"] * 3 * n, "x": values}))
    row = found.to_arrow().to_pylist()[0]
    assert [row[f"v{index}"]["x"] for index in range(n)] == list(range(n))


def test_predicates_over_seventy_columns() -> None:
    # Each event satisfies a set of its own: sets are made as they occur, not all 2^70 of them.
    n_columns, n_rows = 70, 300
    random = np.random.default_rng(5)
    data = {f"c{index}": random.integers(0, 2, n_rows) for index in range(n_columns)}
    parts = " OR ".join(f"(A AS v{index} FILTER v{index}[c{index} = 1])" for index in range(n_columns))
    table = pa.table({"type": ["A"] * n_rows, **data})
    found = ceql.match(f"SELECT * FROM S WHERE {parts}", table)
    assert found.count() == sum(int(values.sum()) for values in data.values())


def test_four_hundred_symbols() -> None:
    n = 400
    parts = " OR ".join(f"(A AS v{index} FILTER v{index}[x = {index}])" for index in range(n))
    table = pa.table({"type": ["A"] * (n + 1), "x": [*range(n), n]})
    assert ceql.match(f"SELECT * FROM S WHERE {parts}", table, shape="positions").to_arrow()["start"].to_pylist() == [
        *range(n)
    ]


def test_hundreds_of_determinized_states() -> None:
    # Was the eighth event from the end an A? What is known of the last eight needs 2^8 states.
    depth = 8
    formula = "(A OR B) :+ : A" + " : (A OR B)" * (depth - 1)
    types = ["AB"[bit] for bit in np.random.default_rng(2).integers(0, 2, 600)]
    session = Session(f"SELECT NONE FROM S WHERE {formula}")
    found = session.feed(pa.table({"type": types})).count()
    assert session.stats.memo_size > 128
    assert found == sum(end - depth + 1 for end in range(depth, len(types)) if types[end - depth + 1] == "A")


@pytest.mark.parametrize("partition", ["", "PARTITION BY [k]"])
def test_states_that_no_run_is_in_are_forgotten(partition: str) -> None:
    depth, n_events = 10, 3000
    random = np.random.default_rng(3)
    types = ["AB"[bit] for bit in random.integers(0, 2, n_events)]
    table = pa.table({"type": types, "k": random.integers(0, 3, n_events)})
    formula = "(A OR B) :+ : A" + " : (A OR B)" * (depth - 1)
    query = f"SELECT NONE FROM S WHERE {formula} {partition} WITHIN 40 EVENTS"
    known, bounded = Session(query, shape="positions"), Session(query, shape="positions", memo_capacity=10)
    sizes = []
    for begin in range(0, n_events, 500):
        part = table.slice(begin, 500)
        assert bounded.feed(part).to_arrow() == known.feed(part).to_arrow()
        sizes.append(bounded.stats.memo_size)
    assert known.stats.memo_size > 500
    assert max(sizes) * 8 <= 2 * 64 * 10


def test_symbols_are_forgotten() -> None:
    # Each event satisfies a set of predicates of its own.
    n_columns, n_rows = 20, 4000
    random = np.random.default_rng(6)
    table = pa.table(
        {"type": ["A"] * n_rows, **{f"c{index}": random.integers(0, 2, n_rows) for index in range(n_columns)}}
    )
    parts = " OR ".join(f"(A AS v{index} FILTER v{index}[c{index} = 1])" for index in range(n_columns))
    query = f"SELECT * FROM S WHERE A AS first ; ({parts}) WITHIN 3 EVENTS"
    known, bounded = Session(query), Session(query, memo_capacity=100)
    for begin in range(0, n_rows, 400):
        part = table.slice(begin, 400)
        assert bounded.feed(part).to_arrow() == known.feed(part).to_arrow()
    n_symbols = [
        len(session.pipeline.encoder.symbols.masks) for session in (bounded, known) if session.pipeline is not None
    ]
    assert n_symbols[0] < n_symbols[1] / 2


def far_ahead(session: Session, table: pa.Table, n_events: int) -> None:
    """Bind a session, and let it believe that it has seen many events."""
    session.feed(table.slice(0, 0)).count()
    assert session.pipeline is not None
    session.pipeline.intake.n_events = n_events


@pytest.mark.parametrize("first", [2**31 - 3, 2**40])
@pytest.mark.parametrize("clauses", ["", "WITHIN 3 EVENTS", "PARTITION BY [k] WITHIN 3 EVENTS", "WITHIN 3 [t]"])
def test_rows_beyond_32_bits(first: int, clauses: str) -> None:
    table = pa.table({"type": list("AABAB"), "k": ["p"] * 5, "t": range(5)})
    query = f"SELECT * FROM S WHERE A AS a ; B AS b {clauses}"
    expected = ceql.match(query, table, shape="positions").to_arrow().to_pylist()
    session = Session(query, shape="positions")
    far_ahead(session, table, first)
    found = []
    for at in range(5):
        found += session.feed(table.slice(at, 1)).to_arrow().to_pylist()
        session = Session.restore(query, session.snapshot(), shape="positions")
    assert [[at - first for at in row["positions"]] for row in found] == [row["positions"] for row in expected]
    rows = Session(query)
    far_ahead(rows, table, first)
    assert [row["b"]["t"] for row in rows.feed(table).to_arrow().to_pylist()] == [row["end"] for row in expected]


@pytest.mark.parametrize("clauses", ["", f"WITHIN {10**17} EVENTS", f"WITHIN {2**63} [t]", "WITHIN 15000 weeks [at]"])
def test_windows_longer_than_the_stream(clauses: str) -> None:
    n = 500
    table = pa.table({"type": ["A"] * n + ["B"], "t": range(n + 1), "at": pa.array(range(n + 1), pa.timestamp("s"))})
    assert ceql.match(f"SELECT * FROM S WHERE A ; B {clauses}", table).count() == n


def test_integers_at_both_ends_in_one_window() -> None:
    # Their distance does not fit 64 bits.
    for data_type, ends in ((pa.int64(), [-(2**63), 2**63 - 1]), (pa.uint64(), [0, 2**64 - 1])):
        table = pa.table({"type": ["A", "B", "A", "B"], "t": pa.array([ends[0], ends[0], ends[1], ends[1]], data_type)})
        assert ceql.match("SELECT * FROM S WHERE A ; B WITHIN 1 [t]", table).count() == 2


@pytest.mark.parametrize("clauses", ["", "CONSUME BY ANY", "WITHIN 1 EVENTS", "WITHIN 200000 [t]"])
def test_two_hundred_thousand_partitions(clauses: str) -> None:
    n = 200_000
    keys = np.tile(np.arange(n) * 2654435761 % 2**31, 2)
    table = pa.table({"type": pa.array(["A"] * n + ["B"] * n), "k": keys, "t": np.arange(2 * n)})
    found = ceql.match(f"SELECT * FROM S WHERE A ; B PARTITION BY [k] {clauses}", table, shape="positions").count()
    # CONSUME BY ANY forgets all As at the first match.
    assert found == (1 if "ANY" in clauses else n)


def test_a_million_matches_at_one_event() -> None:
    n = 1415
    table = pa.table({"type": ["A"] * n + ["B"]})
    query = "SELECT * FROM S WHERE A AS x ; A AS y ; B"
    assert ceql.match(query, table, shape="positions").count() == n * (n - 1) // 2 > 10**6
    n_rows = 0
    for batch in ceql.match(query, table, shape="positions").batches():
        assert len(batch) <= 1 << 16
        n_rows += len(batch)
        if n_rows > 200_000:
            break
    assert n_rows > 200_000
    assert ceql.match(f"{query} LIMIT 5", table).count() == 5


@pytest.mark.parametrize("chunk_size", [1, 1 << 16])
def test_matches_of_thousands_of_events(chunk_size: int) -> None:
    n = 1200
    session = Session("SELECT STRICT * FROM S WHERE A :+ : B", shape="positions", chunk_size=chunk_size)
    found = session.feed(pa.table({"type": ["A"] * n + ["B"]})).to_arrow()
    assert sorted(len(row) for row in found["positions"].to_pylist()) == list(range(2, n + 2))


@pytest.mark.parametrize("strategy", ["NEXT", "LAST", "MAX"])
def test_strategies_choose_at_thousands_of_events(strategy: str) -> None:
    n = 3000
    table = pa.table({"type": ["A", "B"] * n})
    session = Session(f"SELECT {strategy} * FROM S WHERE A ; B WITHIN 3 EVENTS", shape="positions")
    found = session.feed(table).to_arrow()["positions"].to_pylist()
    two = {"NEXT": lambda at: [[2 * at - 2, 2 * at + 1]], "LAST": lambda at: [[2 * at, 2 * at + 1]]}.get(strategy)
    if two is None:
        assert len(found) == 2 * n - 1
    else:
        assert found == [[0, 1], *(match for at in range(1, n) for match in two(at))]


@pytest.mark.parametrize("strategy", ["NEXT", "LAST", "MAX"])
def test_buffers_do_not_grow_with_every_event_that_has_many_rivals(strategy: str) -> None:
    session = Session(f"SELECT {strategy} * FROM S WHERE A AS x ; B AS y ; C AS z", chunk_size=10)
    assert session.feed([{"type": event_type} for event_type in "AAAAABBBBB"]).count() == 0
    sizes = []
    for _ in range(30):
        assert session.feed([{"type": "C"}]).count() == {"MAX": 25}.get(strategy, 1)
        assert session.pipeline is not None
        recognizer = session.pipeline.run.recognizer
        sizes.append((len(recognizer._output.start), len(recognizer._output.row), len(recognizer._walk.path_row)))
    assert len(set(sizes[1:])) == 1


@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_strings_of_any_length(data_type: pa.DataType) -> None:
    long = "ß" * 1_000_000
    values: list[Any] = [long, long[:-1], long + "x", "", None, long]
    table = pa.table({"type": pa.array(["A"] * 5 + [long], data_type), "s": pa.array(values, data_type)})
    assert ceql.match(f"SELECT * FROM S WHERE A FILTER A[s = '{long}']", table, shape="positions").count() == 1
    assert ceql.match("SELECT * FROM S WHERE A FILTER A[s LIKE '%ßx']", table, shape="positions").count() == 1
    assert ceql.match(f"SELECT * FROM S WHERE A ; `{long}` PARTITION BY [s]", table).count() == 1


def test_a_stream_of_small_batches_costs_what_it_holds() -> None:
    # Two thousand batches of one event, each completing a match: what is kept must not be joined anew each time.
    session = Session("SELECT * FROM S WHERE A AS a : A AS b")
    table = pa.table({"type": ["A"] * 2000, "x": range(2000)})
    assert sum(session.feed(table.slice(at, 1)).to_arrow().num_rows for at in range(2000)) == 1999
    assert session.pipeline is not None
    assert session.pipeline.intake.history is not None
    assert len(session.pipeline.intake.history._batches) < 200


def test_what_is_held_is_bounded_by_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ceql.engine.intake.intake.MIN_HISTORY", 1000)
    session = Session("SELECT * FROM S WHERE A AS a ; B AS b WITHIN 10 [t]")
    for at in range(50):
        times = range(at * 1000, at * 1000 + 1000)
        table = pa.table({"type": ["A", "C"] * 499 + ["C", "B"], "t": times})
        assert [row["b"]["t"] for row in session.feed(table).to_arrow().to_pylist()] == [times[-1]] * 4
    assert session.pipeline is not None
    assert session.pipeline.intake.history is not None
    assert session.pipeline.intake.history.n_rows < 5000
    assert session.stats.live_nodes < 50_000


def types(text: str) -> pa.Table:
    return pa.table({"type": list(text)})


EQUAL_STEPS = " ; ".join(["F"] * 60)


@pytest.mark.parametrize(
    ("query", "text", "n_matches"),
    [
        (f"SELECT NEXT * FROM S WHERE {EQUAL_STEPS} ; S", "F" * 62 + "S", 1),
        (f"SELECT LAST * FROM S WHERE {EQUAL_STEPS} ; S", "F" * 62 + "S", 1),
        (f"SELECT MAX * FROM S WHERE {EQUAL_STEPS} ; S", "F" * 62 + "S", 61 * 62 // 2),
        ("SELECT * FROM S WHERE " + " OR ".join(f"A AS v{index}" for index in range(1000)), "AAB", 2000),
        ("SELECT v0 FROM S WHERE " + " ; ".join(f"A AS v{index}" for index in range(141)), "A" * 145, 15),
        ("SELECT NEXT * FROM S WHERE " + " ; ".join(["(A OR C)+", "(A OR B)+"] * 6) + " ; D", "ACB" * 9 + "D", 1),
    ],
    ids=["next", "last", "max", "alternatives", "chain", "groups"],
)
@pytest.mark.parametrize("partition", ["", "PARTITION BY [k]"])
def test_one_event_may_need_many_transitions(query: str, text: str, n_matches: int, partition: str) -> None:
    table = types(text).append_column("k", pa.array([0] * len(text)))
    assert ceql.match(f"{query} {partition}", table).count() == n_matches


@pytest.mark.parametrize("strategy", ["NEXT", "LAST", "MAX"])
def test_labellings_of_the_same_events_are_compared_once(strategy: str) -> None:
    # Of the 2^60 ways to label the events of the longest match, one is asked for.
    query = f"SELECT {strategy} * FROM S WHERE (A AS x OR A AS y)+ ; B LIMIT 1"
    row = ceql.match(query, types("A" * 60 + "B")).to_arrow().to_pylist()[0]
    assert len(row["x"] or []) + len(row["y"] or []) == 60


def test_ways_to_the_best_match_are_left_where_they_end_in_vain() -> None:
    # Up to its first event, the match that begins with X is also one of the 2^60 that begin with Y.
    query = "SELECT NEXT * FROM S WHERE ((X ; A+) OR (Y ; (A AS u OR A AS v)+)) ; B"
    assert ceql.match(query, types("XY" + "A" * 60 + "B")).count() == 1


@pytest.mark.parametrize("strategy", ["NEXT", "LAST", "MAX"])
def test_what_is_compared_does_not_add_up(strategy: str) -> None:
    # One match of each start, of 3,000 events on average: a few bytes of each, or 140 MB.
    tracked = Session(f"SELECT {strategy} * FROM S WHERE A+ ; B", max_state_bytes=5_000_000, shape="positions")
    assert tracked.feed(types("A" * 6000 + "B")).count() == 1


def test_matches_that_cannot_be_compared_in_the_memory_given() -> None:
    session = Session("SELECT MAX * FROM S WHERE (A ; A ; C) OR (B ; C)", max_state_bytes=1_000_000)
    with pytest.raises(ceql.DataError, match="more than max_state_bytes = 1000000"):
        session.feed(types("A" * 300 + "BC")).count()
    assert session.feed(types("BC")).count() == 1


def test_long_comparisons_pause_for_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = []
    advance = kernel.advance

    def noting(*arguments: Any) -> int:
        reasons.append(advance(*arguments))
        return int(reasons[-1])

    monkeypatch.setattr(kernel, "advance", noting)
    query = "SELECT MAX * FROM S WHERE (A ; A ; C) OR (B ; C)"
    assert ceql.match(query, types("A" * 200 + "BC"), shape="positions").count() == 200 * 199 // 2 + 1
    assert requests.PAUSE in reasons


@pytest.mark.parametrize("n_starts", [2000, 2100, 3000, 4200, 20_000])
@pytest.mark.parametrize("strategy", ["NEXT", "LAST"])
def test_one_of_thousands_of_starts_is_chosen(strategy: str, n_starts: int) -> None:
    # What the second walk notes has to fit the table, too.
    query = f"SELECT {strategy} * FROM S WHERE A ; C"
    found = ceql.match(query, types("A" * n_starts + "C"), shape="positions").to_arrow()
    assert found["positions"].to_pylist() == [[0 if strategy == "NEXT" else n_starts - 1, n_starts]]


@pytest.mark.parametrize("clause", ["", "PARTITION BY [k]"])
def test_matches_that_nobody_reads_are_not_enumerated(clause: str) -> None:
    # 2^60 matches at one event: whoever has read some of them goes on.
    events = pa.table({"type": ["A"] * 60 + ["C"], "k": [1] * 61})
    session = Session(f"SELECT * FROM S WHERE A+ ; C {clause}", shape="positions", chunk_size=10)
    for part in (events, events.slice(60)):
        assert all(len(batch) for batch in islice(session.feed(part).batches(), 3))
    assert session.snapshot()


def many_states(depth: int) -> str:
    # Which of the last events are in x: each choice is a state of its own.
    return f"SELECT x FROM S WHERE (A AS x OR A) :+ : A AS x {': (A AS x OR A) ' * depth}: B LIMIT 1"


def test_thousands_of_states_at_once() -> None:
    session = Session(many_states(11), shape="positions")
    assert session.feed(types("A" * 16 + "B")).count() == 1
    assert session.stats.memo_size > 4096


def test_more_states_at_once_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ceql.engine.run.recognizer.MAX_STATES", 1000)
    session = Session(many_states(11), shape="positions")
    with pytest.raises(ceql.DataError, match="needs more than 1,000 states of its automaton at once"):
        session.feed(types("A" * 16 + "B")).count()
