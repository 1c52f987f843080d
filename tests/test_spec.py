"""Every case in `spec/` on every evaluator there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cases
import kernel_runner
from cases import Case
from ceql.syntax.clauses import attribute_measured
from reference import Completed, recognise
from simulation import simulate

CASES = cases.load()


def by_definition(case: Case) -> list[Completed]:
    query = case.compile()
    columns = [variable.name for variable in query.plan.variables]
    time_column = attribute_measured(query.plan.window, query.plan.silences)
    return recognise(query.tree, case.stream(query), columns, time_column, complete=case.complete)


def by_automaton(case: Case) -> list[Completed]:
    query = case.compile()
    return simulate(query, case.stream(query), complete=case.complete)


def by_engine(case: Case, **options: Any) -> list[Completed]:
    query = case.compile()
    types = case.attribute_types
    streams = list(dict.fromkeys(event["stream"] for event in case.events if "stream" in event))
    events: Any = kernel_runner.table(case.events, types)
    if streams:
        events = {
            stream: kernel_runner.table([event for event in case.events if event["stream"] == stream], types)
            for stream in streams
        }
    parts = [events]
    if options.get("restores") and not streams:
        parts = [events.slice(at, 1) for at in range(len(case.events))]
    return kernel_runner.recognise(query, parts, time_column=case.time_column, complete=case.complete, **options)


EVALUATORS: dict[str, Callable[[Case], list[Completed]]] = {
    "reference": by_definition,
    "automaton": by_automaton,
    "engine": lambda case: by_engine(case),
    "engine-positions": lambda case: by_engine(case, shape="positions"),
    "engine-collecting": lambda case: by_engine(case, collects_always=True),
    "engine-tight": lambda case: by_engine(case, memo_capacity=0, chunk_size=1),
    "engine-restoring": lambda case: by_engine(case, restores=True),
}


@pytest.mark.parametrize("evaluator", EVALUATORS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, evaluator: str) -> None:
    found = EVALUATORS[evaluator](case)
    # Neither the reference nor the simulation applies LIMIT: they find what it chooses from.
    limit = case.compile().plan.limit if evaluator.startswith("engine") else None
    if evaluator == "engine-positions":
        cases.check_positions(case, limit, found)
    else:
        cases.check(case, limit, found)


def test_there_are_cases_and_their_names_differ() -> None:
    names = [case.name for case in CASES]
    assert len(names) >= 150
    assert len(names) == len(set(names))
