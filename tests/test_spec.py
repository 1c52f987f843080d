"""Every case in `spec/` on every evaluator there is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import cases
from cases import Case
from ceql.automaton.lazy import DEFAULT_CAPACITY
from reference import Completed, recognise
from simulation import simulate

CASES = cases.load()


def by_definition(case: Case) -> list[Completed]:
    query = case.compile()
    columns = [variable.name for variable in query.plan.variables]
    return recognise(query.tree, case.stream(query), columns, getattr(query.plan.window, "attribute", None))


def by_automaton(case: Case, capacity: int) -> list[Completed]:
    query = case.compile()
    return simulate(query, case.stream(query), capacity=capacity)


EVALUATORS: dict[str, Callable[[Case], list[Completed]]] = {
    "reference": by_definition,
    "automaton": lambda case: by_automaton(case, DEFAULT_CAPACITY),
    "automaton-memo-1": lambda case: by_automaton(case, 1),
}


@pytest.mark.parametrize("evaluator", EVALUATORS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, evaluator: str) -> None:
    # Neither the reference nor the simulation applies LIMIT: they find what it chooses from.
    cases.check(case, None, EVALUATORS[evaluator](case))


def test_there_are_cases_and_their_names_differ() -> None:
    names = [case.name for case in CASES]
    assert len(names) >= 150
    assert len(names) == len(set(names))
