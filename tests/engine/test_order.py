"""Which matches LIMIT keeps, and the order of all: a function of the query and the stream alone."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

import ceql
import kernel_runner
import strategies
from ceql.engine.session import Session
from ceql.syntax import ast
from reference import has_few_valuations

MAX_MATCHES = 2000
TYPES = dict(zip(strategies.SCHEMA.names, strategies.SCHEMA.types, strict=True))
Events = list[dict[str, Any]]


def rows(query: ceql.Query, parts: list[Any], *, restores: bool = False, collects: bool = False, **options: Any) -> Any:
    """Return all result rows in the order in which they come."""
    session = Session(query, **options)
    session.limits = replace(session.limits, collects_always=collects)
    found = []
    for part in parts:
        found += session.feed(part).to_arrow().to_pylist()
        if restores:
            session = Session.restore(query, session.snapshot(), **options)
            session.limits = replace(session.limits, collects_always=collects)
    return found


def cut(data: st.DataObject, events: Events) -> list[Any]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=4)))
    return [
        kernel_runner.table(events[first:last], TYPES)
        for first, last in zip([0, *cuts], [*cuts, len(events)], strict=True)
    ]


# Five runs for each example: fewer of them will do.
FEWER = settings.get_profile("ceql").max_examples // 5


@settings(max_examples=FEWER)
@given(
    tree=strategies.queries(depth=4),
    events=strategies.events(16),
    limit=st.sampled_from([None, 1, 2, 5]),
    shape=st.sampled_from(["matches", "events", "positions"]),
    data=st.data(),
)
def test_order_does_not_depend_on_how_the_engine_is_run(
    tree: ast.Query, events: Events, limit: int | None, shape: str, data: st.DataObject
) -> None:
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    query = ceql.compile(str(dataclasses.replace(tree, limit=limit)), strategies.SCHEMA)
    parts = cut(data, events)
    whole = rows(query, [kernel_runner.table(events, TYPES)], shape=shape)
    assert rows(query, parts, shape=shape, memo_capacity=0, chunk_size=1) == whole
    assert rows(query, parts, shape=shape, collects=True) == whole
    assert rows(query, parts, shape=shape, restores=True) == whole
    assert rows(query, parts, shape=shape, restores=True, collects=True, memo_capacity=0, chunk_size=2) == whole


@settings(max_examples=FEWER)
@given(events=strategies.events(30), limit=st.sampled_from([1, 3]), data=st.data())
def test_many_open_runs_keep_their_order(events: Events, limit: int, data: st.DataObject) -> None:
    # Lists of one state grow beyond their room and are merged: the order must survive that.
    query = ceql.compile(f"SELECT * FROM S WHERE A ; A ; B WITHIN 9 [t] LIMIT {limit}", strategies.SCHEMA)
    parts = cut(data, events)
    whole = rows(query, [kernel_runner.table(events, TYPES)])
    assert rows(query, parts, collects=True) == whole
    assert rows(query, parts, restores=True) == whole
