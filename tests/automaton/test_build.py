"""Automata: their size, the paper's queries, and where the paper's appendix has to be mended."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

import pytest

import ceql
from ceql.automaton.build import build
from ceql.automaton.cea import CEA, SKIP, TRUE, Transition
from ceql.automaton.passes import PASSES, collapse_labels, merge_equal_states, remove_impossible, simplify, trim
from ceql.syntax import plan
from simulation import simulate


def paper_queries() -> dict[str, Traversable]:
    folder = resources.files("ceql.paper")
    return {
        f"{group.name}/{file.name}": file
        for group in folder.iterdir()
        if group.is_dir()
        for file in group.iterdir()
        if file.name.endswith(".ceql")
    }


PAPER = paper_queries()


def automaton(formula: str) -> CEA:
    return ceql.compile(f"SELECT * FROM S WHERE {formula}").automaton


def n_matches(formula: str, events: str, select: str = "*") -> int:
    query = ceql.compile(f"SELECT {select} FROM S WHERE {formula}")
    return sum(len(completed.matches) for completed in simulate(query, [{"type": one} for one in events]))


def atoms_in(formula: plan.Formula) -> int:
    return sum(isinstance(part, plan.Atom) for part in formula.walk())


# --- the paper's queries ------------------------------------------------------------


def test_the_paper_is_there() -> None:
    assert len(PAPER) >= 37
    assert {name.split("/")[0] for name in PAPER} == {"figure", "stocks", "smart_homes", "taxis"}


@pytest.mark.parametrize("name", sorted(PAPER))
def test_paper_query_compiles(name: str) -> None:
    query = ceql.compile(PAPER[name].read_text(encoding="utf-8"))
    check_shape(query.automaton)
    # One state more than atoms at most; each iteration adds one between its rounds.
    n_iterations = query.text.count("+")
    assert 2 <= query.automaton.n_states <= atoms_in(query.plan.formula) + 1 + n_iterations


@pytest.mark.parametrize("letter", ["stocks/s", "smart_homes/h", "taxis/t"])
@pytest.mark.parametrize("length", [3, 6, 9, 12, 24])
@pytest.mark.parametrize(("suffix", "more"), [("", 0), ("_no_output", 1)])
def test_sequences_of_the_evaluation(letter: str, length: int, suffix: str, more: int) -> None:
    query = ceql.compile(PAPER[f"{letter}{length}{suffix}.ceql"].read_text(encoding="utf-8"))
    assert query.automaton.n_states == length + more + 1


# --- size ---------------------------------------------------------------------------


def check_shape(cea: CEA) -> None:
    """Fail unless nothing enters the initial state and nothing leaves the final one."""
    assert cea.initial != cea.final
    for one in cea.transitions:
        assert one.target != cea.initial
        assert one.source != cea.final
        assert 0 <= one.source < cea.n_states
        assert 0 <= one.target < cea.n_states
    assert len(set(cea.transitions)) == len(cea.transitions)


@pytest.mark.parametrize("operator", [";", ":"])
@pytest.mark.parametrize("n_atoms", [1, 2, 3, 10, 100, 1000])
def test_a_sequence_of_n_atoms_has_n_plus_1_states(operator: str, n_atoms: int) -> None:
    cea = automaton(f" {operator} ".join(f"T{index}" for index in range(n_atoms)))
    check_shape(cea)
    assert cea.n_states == n_atoms + 1
    n_loops = n_atoms - 1 if operator == ";" else 0
    assert len(cea.transitions) == n_atoms + n_loops
    loops = [one for one in cea.transitions if one.source == one.target]
    assert len(loops) == n_loops
    assert all((one.guard, one.label) == (TRUE, SKIP) for one in loops)


@pytest.mark.parametrize(
    ("formula", "n_states", "n_transitions"),
    [
        ("A", 2, 1),
        ("A OR B", 2, 2),
        ("A OR A", 2, 1),
        ("A AS x OR A AS x", 2, 1),
        ("A ; B OR A ; C", 4, 6),
        ("A ; C OR B ; C", 3, 4),
        ("(A OR B) ; C", 3, 4),
        ("A+", 3, 5),
        ("A:+", 3, 4),
        ("A ; B+ ; C", 5, 9),
        ("A FILTER A[x = 1]", 2, 1),
        ("A FILTER A[x = 1] AND A[x = 2]", 2, 1),
        ("A FILTER A[FALSE]", 2, 0),
        ("A FILTER A[NULL]", 2, 0),
        ("A FILTER A[TRUE]", 2, 1),
        ("A ; B FILTER B[FALSE]", 2, 0),
        ("A OR (B ; C FILTER C[FALSE])", 2, 1),
        ("A PROJECT []", 2, 1),
    ],
)
def test_sizes(formula: str, n_states: int, n_transitions: int) -> None:
    cea = automaton(formula)
    check_shape(cea)
    assert (cea.n_states, len(cea.transitions)) == (n_states, n_transitions)


@pytest.mark.parametrize("improve", PASSES, ids=lambda improve: improve.__name__)
@pytest.mark.parametrize("formula", ["A ; B+ OR C : A", "(A OR B ; C)+ ; D", "A FILTER A[FALSE]", "(A ; B)+ OR A"])
def test_passes_never_grow_an_automaton(improve: object, formula: str) -> None:
    query = ceql.compile(f"SELECT * FROM S WHERE {formula}")
    before = build(query.plan.formula)
    after = improve(before)  # type: ignore[operator]
    check_shape(after)
    assert after.n_states <= before.n_states
    assert len(after.transitions) <= len(before.transitions)
    assert simplify(simplify(before)) == simplify(before)


A, B = frozenset({plan.HasType("A")}), frozenset({plan.HasType("B")})
X = frozenset({"x"})


def test_trim_drops_states_that_lead_nowhere() -> None:
    cea = CEA(5, (Transition(0, A, X, 1), Transition(0, A, X, 2), Transition(3, A, X, 1), Transition(4, A, X, 4)), 0, 1)
    assert trim(cea) == CEA(2, (Transition(0, A, X, 1),), 0, 1)


def test_merging_joins_states_with_the_same_way_on() -> None:
    cea = CEA(
        4,
        (
            Transition(0, A, X, 2),
            Transition(0, B, X, 3),
            Transition(2, TRUE, SKIP, 2),
            Transition(3, TRUE, SKIP, 3),
            Transition(2, B, X, 1),
            Transition(3, B, X, 1),
        ),
        0,
        1,
    )
    merged = merge_equal_states(cea)
    assert merged.n_states == 3
    assert len(merged.transitions) == 4


def test_an_event_has_one_type_and_one_stream() -> None:
    streams = frozenset({plan.HasType("A", "S"), plan.HasType("A", "T")})
    cea = CEA(2, (Transition(0, A | B, X, 1), Transition(0, streams, X, 1), Transition(0, A, X, 1)), 0, 1)
    assert remove_impossible(cea).transitions == (Transition(0, A, X, 1),)


def test_collapsed_labels_only_mark() -> None:
    cea = collapse_labels(automaton("A AS x ; B AS y ; (C PROJECT [])"))
    assert {tuple(one.label) for one in cea.transitions} == {("",), ()}


def test_strict_has_three_phases_at_most() -> None:
    plain = ceql.compile("SELECT * FROM S WHERE A ; B+ ; C").automaton
    strict = ceql.compile("SELECT STRICT * FROM S WHERE A ; B+ ; C").automaton
    check_shape(strict)
    assert strict.n_states <= 3 * plain.n_states + 1


# --- where the appendix errs --------------------------------------------------------


@pytest.mark.parametrize("n_events", range(1, 9))
def test_iteration_finds_every_subset(n_events: int) -> None:
    # The appendix's automaton for R+, taken literally, finds 5 of the 7 on three events.
    assert n_matches("R+", "R" * n_events) == 2**n_events - 1


@pytest.mark.parametrize(
    ("formula", "events", "expected"),
    [
        ("R+", "RRR", 7),
        ("R+", "RXRXR", 7),
        ("R:+", "RRR", 6),
        ("R:+", "RXRXR", 3),
        ("(R ; R)+", "RRRR", 7),
        ("(R+)+", "RRR", 7),
        ("(A ; B)+", "ABAB", 4),
        ("A+ ; B", "AAB", 3),
        ("A+ ; B+", "AABB", 9),
        ("A ; B ; C", "AABBCC", 8),
        ("A : B", "AAB", 1),
    ],
)
def test_numbers_of_matches(formula: str, events: str, expected: int) -> None:
    assert n_matches(formula, events) == expected
