"""Every case in `spec/` on every evaluator there is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import cases
from cases import Case
from reference import Completed, recognise
from simulation import simulate

CASES = cases.load()


def by_definition(case: Case) -> list[Completed]:
    query = case.compile()
    return recognise(query.tree, case.events, [variable.name for variable in query.plan.variables], case.time_column)


EVALUATORS: dict[str, Callable[[Case], list[Completed]]] = {
    "reference": by_definition,
    "automaton": lambda case: simulate(case.compile(), case.events),
    "automaton-memo-1": lambda case: simulate(case.compile(), case.events, capacity=1),
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
