"""What follows from a query is the same for whoever asks."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ceql
from ceql.automaton.properties import (
    compared_by,
    event_types,
    exponential_part,
    sees_every_event,
    why_not_by_key,
    why_not_by_time,
)
from ceql.engine.session import Session
from ceql.syntax.ast import Strategy

QUERIES = {
    "SELECT * FROM S WHERE A ; B": False,
    "SELECT * FROM S WHERE A+ WITHIN 9 [t]": False,
    "SELECT * FROM S WHERE A : B": True,
    "SELECT * FROM S WHERE A :+": True,
    "SELECT * FROM S WHERE (A ; B) :+": True,
    "SELECT * FROM S WHERE A ; B WITHIN 9 EVENTS": True,
    "SELECT STRICT * FROM S WHERE A ; B": True,
    # There is nothing between the events of a match that has one.
    "SELECT STRICT * FROM S WHERE A": False,
    "SELECT STRICT y FROM S WHERE A AS x ; B AS y": False,
    "SELECT * FROM S WHERE A : B FILTER A[FALSE]": False,
}


@pytest.mark.parametrize("text", QUERIES)
def test_everyone_knows_whether_events_may_be_left_out(text: str) -> None:
    query = ceql.compile(text, pa.schema([("type", pa.string()), ("t", pa.int64())]))
    assert sees_every_event(query.plan, query.automaton) == QUERIES[text]
    assert ("every event is read" in query.explain()) == QUERIES[text]
    session = Session(query)
    session.feed([{"type": "A", "t": 1}]).count()
    assert session.pipeline is not None
    assert session.pipeline.encoder.sees_all == QUERIES[text]


def test_event_types_are_those_that_a_match_can_have() -> None:
    assert event_types(ceql.compile("SELECT A FROM S WHERE A ; (B OR C)+").automaton) == {"A", "B", "C"}
    assert event_types(ceql.compile("SELECT * FROM S WHERE A OR (B ; C FILTER C[FALSE])").automaton) == {"A"}


@pytest.mark.parametrize(
    ("text", "is_compared"),
    [
        ("SELECT MAX * FROM S WHERE A ; B ; A", False),
        ("SELECT MAX * FROM S WHERE (A ; B) OR (B : A)", False),
        ("SELECT MAX B FROM S WHERE A+ ; B", False),
        ("SELECT MAX * FROM S WHERE A+ ; B", True),
        ("SELECT MAX * FROM S WHERE (A ; B) OR B", True),
        ("SELECT NEXT * FROM S WHERE A ; B", True),
        ("SELECT STRICT * FROM S WHERE A+", False),
    ],
)
def test_matches_are_compared_where_one_may_beat_another(text: str, is_compared: bool) -> None:
    query = ceql.compile(text)
    assert (compared_by(query.plan, query.automaton) is not Strategy.ALL) == is_compared
    assert ("compares the best match" in query.explain()) == is_compared


@pytest.mark.parametrize(
    ("text", "is_exponential"),
    [
        ("SELECT * FROM S WHERE A ; B", False),
        ("SELECT * FROM S WHERE A+", True),
        ("SELECT * FROM S WHERE A :+", False),
        ("SELECT * FROM S WHERE (A ; B) :+", True),
        ("SELECT * FROM S WHERE (A : B) :+", False),
        ("SELECT * FROM S WHERE (A OR B) :+", True),
        ("SELECT MAX * FROM S WHERE A+", False),
        ("SELECT * FROM S WHERE A+ LIMIT 1", True),
        ("SELECT * FROM S WHERE A* ; B", True),
        ("SELECT * FROM S WHERE A{3,} ; B", True),
        ("SELECT * FROM S WHERE A{3,9} ; B", False),
        ("SELECT * FROM S WHERE A->+ ; B", False),
        ("SELECT * FROM S WHERE A:{3,} ; B", False),
        ("SELECT * FROM S WHERE (A -> B)->+", False),
        ("SELECT * FROM S WHERE (A->{1,2} -> B)->+", True),
        ("SELECT * FROM S WHERE (A->{2} -> B)->+", False),
        ("SELECT * FROM S WHERE (A:{1,2} -> B):+", True),
        ("SELECT * FROM S WHERE (A:+ : B):+", False),
        ("SELECT * FROM S WHERE (A:+ AS x : A:+ AS y):+", True),
        ("SELECT * FROM S WHERE (A:+ : _ AS y):+", True),
    ],
)
def test_matches_are_many_where_something_is_repeated_in_several_ways(text: str, is_exponential: bool) -> None:
    query = ceql.compile(text)
    assert (exponential_part(query.plan) is not None) == is_exponential
    assert ("exponentially many" in query.explain()) == is_exponential


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "SELECT * FROM S WHERE A{5} ; B",
            "{5} under ALL finds every choice of 5 of the repeated events; add LIMIT",
        ),
        ("SELECT * FROM S WHERE A{2,3}", "select NEXT or LAST, or write ->{2,3}"),
        ("SELECT * FROM S WHERE (A ; B):{3}", "add LIMIT n, select NEXT or LAST"),
        ("SELECT * FROM S WHERE A{3} LIMIT 4", "LIMIT 4 caps them"),
        ("SELECT * FROM S WHERE A{2}", None),
        ("SELECT * FROM S WHERE A->{5}", None),
        ("SELECT * FROM S WHERE A:{5}", None),
        ("SELECT NEXT * FROM S WHERE A{5}", None),
    ],
)
def test_choices_of_many_events_are_told(text: str, told: str | None) -> None:
    explained = ceql.compile(text).explain()
    assert ("finds every choice" in explained) == (told is not None)
    assert (told or "") in explained


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "SELECT * FROM S WHERE A{5,} ; B",
            "{5,} the automaton has a copy of the part for each round, 8 states in all",
        ),
        ("SELECT * FROM S WHERE A{5,} ; B", "grow with the bound\n"),
        ("SELECT MAX * FROM S WHERE A{5,} ; B", "grow with the bound, under MAX with its square\n"),
        # All matches have five events, so MAX compares none.
        ("SELECT MAX * FROM S WHERE A{5}", "grow with the bound\n"),
        ("SELECT NEXT * FROM S WHERE A->{5,} ; B", "grow with the bound\n"),
        ("SELECT LAST * FROM S WHERE (A ; B):{5}", "grow with the bound, under LAST with its square\n"),
    ],
)
def test_what_bounds_multiply_is_told(text: str, told: str) -> None:
    assert told in ceql.compile(text).explain()


@pytest.mark.parametrize(
    ("clauses", "by_key", "by_time", "told"),
    [
        ("PARTITION BY [k] WITHIN 9 [t]", True, False, "parallel: partitions are independent"),
        ("PARTITION BY [k] CONSUME BY PARTITION", True, False, "parallel: partitions are independent"),
        ("WITHIN 9 [t]", False, True, "parallel: the stream can be cut into pieces of time"),
        ("PARTITION BY [k] CONSUME BY ANY", False, False, "one task only: CONSUME BY ANY makes partitions depend"),
        ("WITHIN 9 [t] CONSUME BY ANY", False, False, "one task only: CONSUME BY ANY makes partitions depend"),
        ("WITHIN 9 [t] CONSUME BY PARTITION", False, False, "no PARTITION BY, and CONSUME BY makes each match depend"),
        ("WITHIN 9 EVENTS", False, False, "one task only: the query has no PARTITION BY, and shards need WITHIN"),
        ("", False, False, "one task only: the query has no PARTITION BY, and shards need WITHIN"),
    ],
)
def test_work_can_be_divided_by_key_or_by_time(clauses: str, by_key: bool, by_time: bool, told: str) -> None:
    query = ceql.compile(f"SELECT * FROM S WHERE A ; B {clauses}")
    assert (why_not_by_key(query.plan) is None, why_not_by_time(query.plan) is None) == (by_key, by_time)
    assert told in query.explain()


BOTH = "SELECT * FROM S WHERE NOT (B OR C[v > 1]) FOR 90 seconds ; A AS a ; D AS d ; NOT E FOR 1 hour WITHIN 5 minutes"


def test_silences_are_explained() -> None:
    query = ceql.compile(BOTH, pa.schema([("type", pa.string()), ("t", pa.timestamp("us")), ("v", pa.int64())]))
    told = query.explain("plan")
    assert "  silence       for 90 seconds in t before a match\n" in told
    assert "  silence       for 3600 seconds in t after a match, which comes out at the end of it\n" in told
    assert "  NOT (B OR C[v > 1]) FOR ... ; … ; … ; NOT E FOR ...\n  ├─ AS a\n" in told
    assert (
        "  silence after a match: an event that completes matches waits until its time after FOR is over, "
        "as one entry that takes constant time\n"
        "  silence before a match: one time is held for each partition, in constant time per event\n"
    ) in told
    assert query.explain("ast").splitlines()[:5] == [
        ";",
        "├─ NOT ... FOR 90 seconds",
        "│  └─ OR",
        "│     ├─ B",
        "│     └─ C[v > 1]",
    ]
    lines = ["may not come before a run: (C AND v > 1) OR B", "may not come after a run: E"]
    assert query.explain("automaton").splitlines()[-2:] == lines
    assert all(f'[label="{line}", shape=box]' in query.explain("automaton", format="dot") for line in lines)
    assert '"may not come after a run: E"' in query.explain("automaton", format="mermaid")


def test_queries_without_silences_tell_of_none() -> None:
    query = ceql.compile("SELECT * FROM S WHERE A ; NOT B ; C")
    assert not any(word in query.explain() for word in ("silence", "FOR"))
    assert "may not come" not in query.explain("automaton")


@pytest.mark.parametrize(
    ("text", "is_bounded"),
    [
        ("SELECT * FROM S WHERE A OR B", True),
        ("SELECT * FROM S WHERE A ; NOT B FOR 5 [t]", True),
        ("SELECT * FROM S WHERE NOT B FOR 5 [t] ; A", True),
        ("SELECT * FROM S WHERE A ; C ; NOT B FOR 5 [t]", False),
        ("SELECT * FROM S WHERE A+ ; NOT B FOR 5 [t]", False),
    ],
)
def test_only_partial_matches_need_a_window(text: str, is_bounded: bool) -> None:
    told = ceql.compile(text).explain()
    assert ("state: a match is a single event, so no partial matches are held" in told) == is_bounded
    assert ("state: without WITHIN nothing expires" in told) != is_bounded
