"""The paper's queries on its data sets, against a count that needs no automaton.

The count is dynamic programming over the stream: for each start inside the window, in how many ways the first k events
of the pattern were found so far. The patterns are read from the text of the queries by regular expressions, so that
neither the compiler nor the engine has a part in what is expected.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import eq, ge, gt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ceql
from ceql.bench import events as data
from ceql.bench.queries import LENGTHS, LIMIT, Dataset, PaperQuery, sequence, stock_query

DATA = Path(os.environ.get("CEQL_DATA", Path(__file__).parent.parent.parent.parent / "shared" / "data"))
N_EVENTS = {Dataset.stocks: 40_000, Dataset.smart_homes: 15_000, Dataset.taxis: 60_000}

ATOM = re.compile(r"(?:\((\w+) OR (\w+)\)|(\w+))(\+?) as (\w+)", re.IGNORECASE)
CONDITION = re.compile(r"(\w+) *(>=|>|=) *(?:'([^']*)'|([\d.]+))")
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"=": eq, ">": gt, ">=": ge}


@dataclass(frozen=True)
class Step:
    """Which events can come at a place of the pattern, and whether several can come there."""

    types: frozenset[str]
    conditions: tuple[tuple[str, str, str | float], ...]
    is_repeated: bool


def pattern(text: str) -> list[Step]:
    """Return the places of a query's pattern, read from its text."""
    where, conditions = re.search(r"WHERE (.*?)FILTER (.*?)(?:PARTITION|WITHIN)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    by_variable: dict[str, list[tuple[str, str, str | float]]] = {}
    for variable, inside in re.findall(r"(\w+)\[(.*?)\]", conditions, re.DOTALL):
        for column, operator, word, number in CONDITION.findall(inside):
            by_variable.setdefault(variable, []).append((column, operator, float(number) if number else word))
    # `(...) as L` holds all events of the pattern.
    shared = by_variable.pop("L", [])
    steps = []
    for either, other, alone, plus, variable in ATOM.findall(where):
        own = (*shared, *by_variable.get(variable, []))
        steps.append(Step(frozenset({either, other, alone} - {""}), own, plus == "+"))
    return steps


def masks(steps: list[Step], table: pa.Table) -> Any:
    """Return for each place which events can be there."""

    @cache
    def column(name: str) -> Any:
        values = table[name]
        return np.array(values.to_pylist()) if pa.types.is_dictionary(values.type) else values.to_numpy()

    found = []
    for step in steps:
        mask = np.isin(column("type"), list(step.types))
        for name, operator, value in step.conditions:
            mask &= OPERATORS[operator](column(name), value)
        found.append(mask)
    return np.array(found)


class Ways:
    """For each start inside the window, in how many ways the first k places are filled, k = 1, 2, ..."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.starts: deque[tuple[int, list[int]]] = deque()

    def take(self, time: int, window: int, which: list[bool]) -> int:
        """Return how many matches an event completes; from then on it is one of those before."""
        while self.starts and self.starts[0][0] < time - window:
            self.starts.popleft()
        completed = 0
        for _, ways in self.starts:
            # From the last place to the first, so that no event fills two.
            for at in range(len(self.steps) - 1, 0, -1):
                if not which[at]:
                    continue
                more = ways[at - 1] + (ways[at] if self.steps[at].is_repeated else 0)
                if at == len(self.steps) - 1:
                    completed += more
                else:
                    ways[at] += more
        if which[0]:
            self.starts.append((time, [1] + [0] * (len(self.steps) - 1)))
        return completed


def expected(query: PaperQuery, table: pa.Table, *, is_consuming: bool) -> int:
    """Return the number of matches, with CONSUME BY ANY LIMIT 1000 or all of them."""
    steps = pattern(query.text)
    size, attribute = re.search(r"WITHIN (\d+) \[(\w+)\]", query.text).groups()  # type: ignore[union-attr]
    key = re.search(r"PARTITION BY \[(\w+)\]", query.text)
    found = masks(steps, table)
    relevant = np.flatnonzero(found.any(axis=0))
    times = table[attribute].to_numpy()[relevant].tolist()
    keys = table[key[1]].to_numpy()[relevant].tolist() if key else [0] * len(times)
    by_key: dict[int, Ways] = {}
    total = 0
    for time, own_key, which in zip(times, keys, found[:, relevant].T.tolist(), strict=True):
        completed = by_key.setdefault(own_key, Ways(steps)).take(time, int(size), which)
        total += min(completed, LIMIT) if is_consuming else completed
        if completed and is_consuming:
            by_key.clear()
    return total


def found(text: str, table: pa.Table) -> int:
    return ceql.match(text, table, shape="positions").count()


@cache
def generated(dataset: Dataset) -> pa.Table:
    return data.generated(dataset, N_EVENTS[dataset]).combine_chunks()


@cache
def real(dataset: Dataset) -> pa.Table:
    path = DATA / data.REAL_FILES[dataset]
    if not path.exists():
        pytest.skip(f"no real events: {path} does not exist (set CEQL_DATA)")
    return data.real(dataset, DATA, 10**9)


QUERIES = [
    *(sequence(dataset, n) for dataset in Dataset for n in LENGTHS),
    *(stock_query(number) for number in range(1, 8)),
]
by_name = pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)


@by_name
def test_generated_events_under_the_papers_conditions(query: PaperQuery) -> None:
    table = generated(query.dataset)
    assert found(query.consuming, table) == expected(query, table, is_consuming=True)


@by_name
def test_every_match_of_generated_events(query: PaperQuery) -> None:
    table = generated(query.dataset).slice(0, 12_000)
    number = expected(query, table, is_consuming=False)
    # What cannot be enumerated in a test is not compared, but no query may be left out for that reason alone.
    part = table if number < 5_000_000 else table.slice(0, 2_000)
    assert found(query.exhaustive, part) == (number if part is table else expected(query, part, is_consuming=False))


@by_name
def test_real_events_under_the_papers_conditions(query: PaperQuery) -> None:
    table = real(query.dataset)
    assert found(query.consuming, table) == expected(query, table, is_consuming=True)


@pytest.mark.parametrize("dataset", Dataset)
def test_real_events_have_matches_of_short_sequences_and_none_of_the_primed_ones(dataset: Dataset) -> None:
    table = real(dataset)
    assert found(sequence(dataset, 3).consuming, table) > 100
    assert all(found(sequence(dataset, n, has_output=False).exhaustive, table) == 0 for n in LENGTHS)


def test_patterns_are_read_from_the_text() -> None:
    assert [len(pattern(query.text)) for query in QUERIES] == [*LENGTHS, *LENGTHS, *LENGTHS, 4, 4, 4, 4, 4, 4, 3]
    either = Step(frozenset({"BUY", "SELL"}), (("name", "=", "QQQ"), ("volume", "=", 4000.0)), is_repeated=True)
    assert pattern(stock_query(7).text)[1] == either
    shared = (("value", ">", 76.0), ("household_id", "=", 2.0))
    assert pattern(sequence(Dataset.smart_homes, 3).text)[1] == Step(frozenset({"LOAD"}), shared, is_repeated=False)
