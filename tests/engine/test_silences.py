"""Sessions whose matches wait for a silence: nothing comes early, late or twice, whatever tells the time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ceql
import kernel_runner
import strategies
from ceql.engine.session import Session
from ceql.errors import DataError
from ceql.syntax import ast
from ceql.syntax.plan import AttributeWindow
from reference import Completed, has_few_valuations, recognise

MAX_MATCHES = 300
TYPES = dict(zip(strategies.SCHEMA.names, strategies.SCHEMA.types, strict=True))
Events = list[dict[str, Any]]


@st.composite
def waiting_queries(draw: Any) -> ast.Query:
    """Return a query whose matches wait for a silence."""
    tree: ast.Query = draw(strategies.queries(depth=3))
    formula = draw(strategies.silent(tree.formula))
    assume(strategies.bound_variables(formula) >= {one.variable.text for one in tree.select.selected or ()})
    return replace(tree, formula=formula)


def table(events: Events) -> Any:
    return kernel_runner.table(events, TYPES)


def ends_of(matches: Any) -> list[int]:
    return [end for batch in matches.batches() for end in batch["end"].to_pylist()]


@strategies.some(60)
@given(tree=waiting_queries(), events=strategies.events(10), data=st.data())
def test_matches_come_when_the_clock_has_passed_their_deadline(
    tree: ast.Query, events: Events, data: st.DataObject
) -> None:
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    query = ceql.compile(str(tree), strategies.SCHEMA)
    whole = recognise(query.tree, events, [variable.name for variable in query.plan.variables], complete=True)
    after, session = query.plan.silence_after, new_session(query)
    found: list[int] = []
    done = now = 0
    while done < len(events):
        size = data.draw(st.sampled_from([1, 2, 3, 0]))
        batch, done = events[done : done + size], min(done + size, len(events))
        if batch and data.draw(st.booleans()):
            fail_on(session, batch, now)
        found += ends_of(session.feed(table(batch)))
        now = batch[-1]["t"] if batch else now
        if data.draw(st.booleans()):
            now = data.draw(st.integers(now, events[done]["t"] if done < len(events) else now + 4))
            found += ends_of(session.advance(now))
        if data.draw(st.booleans()):
            session = Session.restore(query, session.snapshot(), shape="positions", chunk_size=2)
            session.warns = False
        if after is not None:
            assert sorted(set(found)) == [one.end for one in whole if is_over(one, events, after.size, now)]
    found += ends_of(session.finish())
    assert found == sorted(found)
    assert len(found) == sum(len({(match.start, match.positions) for match in one.matches}) for one in whole)
    with pytest.raises(DataError, match="takes no more events"):
        session.feed(table(events))


def new_session(query: ceql.Query) -> Session:
    session = Session(query, shape="positions", chunk_size=2)
    session.warns = False
    return session


def is_over(completed: Completed, events: Events, size: int | Decimal, now: int) -> bool:
    return bool(events[completed.end]["t"] + size < now)


def fail_on(session: Session, batch: Events, now: int) -> None:
    """Feed a batch whose last event comes too early: the session must be as it was."""
    late = {**batch[-1], "t": min(now, batch[0]["t"]) - 1}
    with pytest.raises(DataError, match="time runs backwards"):
        session.feed(table([*batch, late])).count()


def test_time_may_not_go_back_before_what_advance_has_told() -> None:
    session = Session("SELECT * FROM S WHERE A ; NOT B FOR 5 [t]")
    session.feed([{"type": "A", "t": 1}])
    assert session.advance(6).count() == 0
    assert session.advance(7).count() == 1
    with pytest.raises(DataError, match="'t' is 6 after 7"):
        session.feed([{"type": "A", "t": 6}]).count()
    with pytest.raises(DataError, match="'t' is 6 after 7"):
        session.advance(6)
    session.feed([{"type": "A", "t": 7}])
    assert session.finish().count() == 1


def test_a_session_without_events_has_nothing_to_wait_for() -> None:
    session = Session("SELECT * FROM S WHERE A ; NOT B FOR 5 [t]")
    assert session.advance(6).count() == 0
    assert session.finish().count() == 0


def test_advance_forgets_what_no_event_can_complete_any_more() -> None:
    session = Session("SELECT * FROM S WHERE A ; B WITHIN 5 [t]")
    session.feed([{"type": "A", "t": 1}]).count()
    assert session.advance(100).count() == 0
    assert not session.expire(100)


def test_what_waits_is_held_until_its_deadline_and_not_longer() -> None:
    session = Session("SELECT * FROM S WHERE A AS a ; NOT B FOR 5 [t] PARTITION BY [k]")
    for key in range(100):
        session.feed([{"type": "A", "t": key, "k": key}]).count()
    session.snapshot()
    assert session.stats.live_nodes <= 2 * 6


KEYED = pa.schema([("type", pa.string()), ("t", pa.int64()), ("k", pa.int64())])


@pytest.mark.parametrize("breaking", ["A", "B"])
@pytest.mark.parametrize(("sizes", "n_after"), [([10, 300], 300), ([500], 10)])
def test_keys_that_came_first_in_a_batch_that_failed(breaking: str, sizes: list[int], n_after: int) -> None:
    session = Session("SELECT * FROM S WHERE NOT B FOR 5 [t] ; A PARTITION BY [k]")
    session.feed(keyed("A", 1, [None])).count()
    batches = [keyed(breaking, 2, range(size)) for size in sizes]
    with pytest.raises(DataError, match="time runs backwards"):
        session.feed(pa.Table.from_batches([*batches, keyed("A", 1, [0])])).count()
    assert session.feed(keyed("A", 2, range(n_after))).count() == n_after


def keyed(event_type: str, time: int, keys: Iterable[int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"type": event_type, "t": time, "k": key} for key in keys], KEYED)


def test_a_batch_without_rows_moves_no_window_of_events() -> None:
    query = "SELECT * FROM S WHERE A ; C ; NOT B FOR 3 [t] WITHIN 2 EVENTS"
    session = Session(query)
    session.feed(pa.record_batch({"type": [*"XXXXXA"], "t": [None] * 5 + [1]})).count()
    session.feed(pa.record_batch({"type": pa.array([], pa.string()), "t": pa.array([], pa.int64())})).count()
    session = Session.restore(query, session.snapshot())
    session.feed(pa.record_batch({"type": ["C"], "t": [2]})).count()
    assert session.finish().count() == 1


@pytest.mark.parametrize("now", [None, float("nan"), "noon", "1"])
def test_what_is_no_time_is_refused(now: Any) -> None:
    session = Session("SELECT * FROM S WHERE A ; NOT B FOR 5 [t]")
    session.feed([{"type": "A", "t": 1.0}]).count()
    with pytest.raises(DataError, match=r"cannot be|needs a time"):
        session.advance(now)
    session.feed([{"type": "A", "t": 1.0}]).count()
    with pytest.raises(DataError, match="time runs backwards"):
        session.feed([{"type": "A", "t": 0.5}]).count()
    assert session.finish().count() == 2


def test_time_may_not_go_back_under_a_window_beyond_64_bits() -> None:
    session = Session("SELECT * FROM S WHERE A ; C WITHIN 1e19 [t]")
    session.feed([{"type": "A", "t": 10}]).count()
    with pytest.raises(DataError, match="'t' is 5 after 10"):
        session.advance(5)


def test_doubles_may_be_silent_for_longer_than_64_bits() -> None:
    events = [{"type": "A", "t": 0.0}, {"type": "B", "t": 1e25}, {"type": "A", "t": 2e25}]
    after = ceql.match("SELECT * FROM S WHERE A ; NOT B FOR 1e30 [t]", events, complete=True, shape="positions")
    assert after.to_arrow()["end"].to_pylist() == [2]
    before = ceql.match("SELECT * FROM S WHERE NOT B FOR 1e30 [t] ; A", events, shape="positions")
    assert before.to_arrow()["end"].to_pylist() == [0]


def test_a_deadline_between_two_floats_is_the_earlier_one() -> None:
    events = pa.table({"type": ["A"], "t": pa.array([2.0**24], pa.float32())})
    matches = ceql.match("SELECT * FROM S WHERE A ; NOT B FOR 3 [t]", events, complete=True)
    assert matches.to_arrow()["match_end"].to_pylist() == [2.0**24 + 2]


@pytest.mark.parametrize("clauses", ["FOR 3 seconds [t] WITHIN 1 second", "FOR 3 seconds WITHIN 1 second [t]"])
def test_without_a_schema_all_durations_measure_the_attribute_that_one_names(clauses: str) -> None:
    plan = ceql.compile(f"SELECT * FROM S WHERE A ; NOT B {clauses}").plan
    assert isinstance(plan.window, AttributeWindow)
    assert [part.attribute for part in (plan.window, *plan.silences)] == ["t", "t"]


def test_a_deadline_is_a_whole_day_where_days_are_stored_as_milliseconds() -> None:
    events = pa.table({"type": ["A"], "t": pa.array([9 * 86_400_000], pa.int64()).view(pa.date64())})
    found = ceql.match("SELECT * FROM S WHERE A ; NOT B FOR 36 hours", events, complete=True).to_arrow()
    found.validate(full=True)
    assert found["match_end"].to_pylist() == [date(1970, 1, 11)]


def test_empty_streams_may_have_dictionaries_of_times() -> None:
    data_type = pa.dictionary(pa.int16(), pa.timestamp("us"))
    events = pa.table({"type": pa.array([], pa.string()), "t": pa.nulls(0, data_type)})
    query = "SELECT * FROM S, T WHERE A ; NOT B FOR 2 seconds"
    assert ceql.match(query, {"S": events, "T": events}, shape="positions").count() == 0
