"""Sessions whose matches wait for a silence: nothing comes early, late or twice, whatever tells the time."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ceql
import kernel_runner
import strategies
from ceql.engine.session import Session
from ceql.errors import DataError
from ceql.syntax import ast
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
