"""Determinization beyond the sizes of machine words, and with a memo that forgets at once."""

from __future__ import annotations

import random
from math import comb
from typing import Any

import pyarrow as pa
import pytest

import ceql
import kernel_runner
from ceql.automaton.cea import TRUE
from ceql.automaton.lazy import Alphabet, Determinizer, DetState
from ceql.automaton.predicates import Event
from ceql.syntax import plan
from ceql.syntax.ast import Strategy
from reference import recognise
from simulation import simulate

Events = list[dict[str, Any]]
A_TYPE, B_TYPE = frozenset({plan.HasType("A")}), frozenset({plan.HasType("B")})
X = frozenset({"x"})


def stream(types: str | list[str]) -> Events:
    return [{"type": one, "x": index} for index, one in enumerate(types)]


def n_matches(query: ceql.Query, events: Events) -> int:
    return sum(len(completed.matches) for completed in simulate(query, events))


def reached(query: ceql.Query, events: Events) -> set[DetState]:
    """Return the determinized states that runs from every event visit."""
    determinizer = Determinizer(query.automaton, query.plan.strategy)
    states: set[DetState] = set()
    active: set[DetState] = set()
    for event in events:
        symbol = determinizer.alphabet.symbol(Event(event["type"], event))
        active = {state for one in (*active, determinizer.start) for _, state in determinizer.steps(one, symbol)}
        states |= active
    return states


# --- large automata -----------------------------------------------------------------


@pytest.mark.parametrize("length", [70, 300])
def test_hundreds_of_states(length: int) -> None:
    query = ceql.compile("SELECT * FROM S WHERE " + " ; ".join(f"T{index}" for index in range(length)))
    assert query.automaton.n_states == length + 1
    types = [f"T{index}" for index in range(length)]
    assert n_matches(query, stream(types)) == 1
    # One event doubled at each end: two choices for each.
    assert n_matches(query, stream([types[0], *types, types[-1]])) == 4
    assert n_matches(query, stream(types[1:])) == 0


@pytest.mark.parametrize("length", [3, 5])
def test_choices_among_equal_events(length: int) -> None:
    query = ceql.compile("SELECT * FROM S WHERE " + " ; ".join(["A"] * length))
    assert n_matches(query, stream("A" * 12)) == comb(12, length)


def test_more_determinized_states_than_bits_in_a_word() -> None:
    # Nothing is selected, so one determinized state has to remember which of the last seven events were As.
    query = ceql.compile("SELECT NONE FROM S WHERE S ; A" + " : (A OR B)" * 7)
    types = "S" + "".join(random.Random(7).choices("AB", k=500))
    events = stream(types)
    assert len(reached(query, events)) > 63
    assert n_matches(query, events) == types[:-7].count("A")


def test_a_hundred_determinized_states() -> None:
    alternatives = " OR ".join(f"(A{index} PROJECT []) ; B{index}" for index in range(100))
    query = ceql.compile(f"SELECT * FROM S WHERE {alternatives}")
    types = [f"A{index}" for index in range(100)]
    # Before the Bs come, a run has one of a hundred states; each is reached by its own A alone.
    assert len(reached(query, stream(types))) == 100
    assert n_matches(query, stream([*types, *(f"B{index}" for index in range(100))])) == 100


def test_sets_of_many_states() -> None:
    parts = " OR ".join(f"((A PROJECT []) ; (B FILTER B[x = {index}]))" for index in range(80))
    query = ceql.compile(f"SELECT * FROM S WHERE {parts}")
    events = [{"type": "A", "x": 0}, *({"type": "B", "x": index} for index in (3, 79, 80))]
    assert max(len(state.runs) for state in reached(query, events)) == 80
    assert [completed.end for completed in simulate(query, events)] == [1, 2]


@pytest.mark.parametrize("strategy", ["MAX", "NEXT", "LAST"])
def test_runs_that_have_counted_less_are_dropped(strategy: str) -> None:
    query = ceql.compile(f"SELECT {strategy} * FROM S WHERE A{{5,}} ; B")
    # Runs that have left an A out can do no more than those that took it.
    assert len(reached(query, stream("AAAAAAAAB"))) <= 8
    assert n_matches(query, stream("AAAAB")) == 0
    assert n_matches(query, stream("AAAAAAAAB")) == 1


def test_runs_that_may_still_take_more_are_kept() -> None:
    query = ceql.compile("SELECT MAX * FROM S WHERE A{1,3} ; B")
    assert n_matches(query, stream("AAAAB")) == comb(4, 3)


# --- many predicates ----------------------------------------------------------------


@pytest.mark.parametrize("n_guards", [65, 130])
def test_more_guards_than_bits_in_a_word(n_guards: int) -> None:
    parts = " : ".join(f"(A FILTER A[x >= {index}])" for index in range(n_guards))
    query = ceql.compile(f"SELECT * FROM S WHERE {parts}")
    determinizer = Determinizer(query.automaton)
    assert len(determinizer.alphabet.guards) == n_guards
    events = stream("A" * n_guards)
    # Event i satisfies the guards 0 .. i, so the pattern fits where it starts at the first event.
    symbols = [determinizer.alphabet.symbol(Event("A", event)) for event in events]
    assert symbols == [2 ** (index + 1) - 1 for index in range(n_guards)]
    assert n_matches(query, events) == 1
    assert n_matches(query, events[1:]) == 0


# --- the alphabet -------------------------------------------------------------------


def test_alphabet_lists_each_guard_once() -> None:
    query = ceql.compile(
        "SELECT * FROM S WHERE A ; (B FILTER B[x > 1]) ; A ; (B FILTER B[x > 1]) ; (B FILTER B[x > 2])"
    )
    alphabet = Alphabet.of(query.automaton)
    assert len(alphabet.guards) == 3
    assert TRUE not in alphabet.guards


@pytest.mark.parametrize(
    ("event", "symbol"),
    [
        (Event("A", {"x": 5}), 0b001),
        (Event("B", {"x": 0}), 0b000),
        (Event("B", {"x": 2}), 0b010),
        (Event("B", {"x": 3}), 0b110),
        (Event("B", {"x": None}), 0b000),
        (Event("C", {}), 0b000),
    ],
)
def test_symbols(event: Event, symbol: int) -> None:
    query = ceql.compile("SELECT * FROM S WHERE A ; (B FILTER B[x > 1]) ; (B FILTER B[x > 2])")
    assert Alphabet.of(query.automaton).symbol(event) == symbol


# --- the memo -----------------------------------------------------------------------

QUERIES = [
    "SELECT * FROM S WHERE A ; B+ ; C",
    "SELECT NEXT * FROM S WHERE A+ ; (B OR C)+",
    "SELECT LAST * FROM S WHERE A+ ; B",
    "SELECT MAX * FROM S WHERE (A ; B)+ ; C",
    "SELECT STRICT x FROM S WHERE A AS x ; B+ ; C AS x",
]


@pytest.mark.parametrize("text", QUERIES)
def test_the_automaton_finds_what_is_defined(text: str) -> None:
    query = ceql.compile(text)
    events = stream("ABACBABCAB")
    found = simulate(query, events)
    assert found == recognise(query.tree, events, [variable.name for variable in query.plan.variables])
    table = kernel_runner.table(events, {"type": pa.string(), "x": pa.int64()})
    for capacity in (0, 1, 2, 10):
        assert kernel_runner.recognise(query, [table], memo_capacity=capacity) == found


def test_steps_have_distinct_labels_in_a_fixed_order() -> None:
    query = ceql.compile("SELECT * FROM S WHERE (A AS x OR A AS y OR A AS z) ; A AS x")
    determinizer = Determinizer(query.automaton)
    steps = determinizer.steps(determinizer.start, determinizer.alphabet.symbol(Event("A", {})))
    labels = [sorted(label) for label, _ in steps]
    assert labels == [["x"], ["y"], ["z"]]


def test_only_comparing_strategies_carry_rivals() -> None:
    cea = ceql.compile("SELECT * FROM S WHERE A+ ; B").automaton
    for strategy in Strategy:
        start = Determinizer(cea, strategy).start
        compares = strategy in (Strategy.NEXT, Strategy.LAST, Strategy.MAX)
        assert start.equals == (start.runs if compares else frozenset())
