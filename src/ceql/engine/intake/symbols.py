"""Turns columns into one small integer per event, its symbol: which guards of the automaton hold.

Guards are conjunctions, so they are decided column by column. The values of a column fall
into few classes in which its predicates are the same for all values (`classes`). Starting from
all guards, each column removes the guards that its class refutes. The sets of guards that are
left are numbered, and a table maps (set, class) to the next set: one look-up per column and
event. The set after the last column is the symbol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ceql.automaton.cea import Guard
from ceql.engine.intake.classes import TYPE, Columns, Stage, columns_of
from ceql.engine.intake.columns import frozen
from ceql.engine.intake.computed import Computer
from ceql.engine.intake.fold import fold, keep
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]

IRRELEVANT = 0
"""The symbol of events that satisfy no guard."""

MAX_TABLE = 1 << 14
"""Most entries of a table from (set, class) to set. Each column multiplies the possible sets; beyond this number, only
sets that occur are computed."""


class SymbolEncoder:
    """Turns record batches into symbols, which are numbered in the order in which they occur.

    `masks[symbol]` has bit i set if guard i holds. This is a memo: no match depends on how symbols are numbered.
    """

    def __init__(self, guards: tuple[Guard, ...]) -> None:
        self.masks: list[int] = [0]
        self._symbols: dict[int, int] = {0: IRRELEVANT}
        self._all_guards = [(1 << len(guards)) - 1]
        self._computer = Computer()
        self._stages = _stages(guards, self._computer)
        self._tables: list[_Table | None] = [None] * len(self._stages)
        self._nothing = np.zeros(0, np.int32)

    def encode(self, columns: Columns, symbols: IntArray, rows: IntArray | None = None) -> int:
        """Write each row's symbol to `symbols`; return how many were written.

        Where `rows` is given, irrelevant rows are left out, and the numbers of all others are written to `rows`.
        """
        n_rows = len(symbols)
        columns = self._computer.with_computed(columns, n_rows)
        may_drop, rows = rows is not None, np.empty(n_rows, np.int32) if rows is None else rows
        # A row's set of guards is sets[of_first[first[row]]].
        first, of_first, sets = self._zeros(n_rows), np.zeros(1, np.int32), self._all_guards
        for index, stage in enumerate(self._stages):
            classes, of_code, holding = stage.classes(columns, n_rows)
            if of_code is not None and len(sets) * len(of_code) > MAX_TABLE:
                classes, of_code = of_code[classes], None
            if len(sets) * len(holding) > MAX_TABLE:
                first, sets = self._fold_what_occurs(of_first[first], classes, sets, index, holding)
                of_first = np.arange(len(sets), dtype=np.int32)
                continue
            table = self._table(index, sets, holding, of_code)
            flat, width = table.next.reshape(-1), table.next.shape[1]
            if index == len(self._stages) - 1:
                return int(keep(frozen(first), of_first, frozen(classes), flat, width, may_drop, symbols, rows))
            if index == 0:
                first, of_first = classes, table.next[0]
            else:
                left = np.empty(n_rows, np.int32)
                fold(frozen(first), of_first, frozen(classes), flat, width, left)
                first, of_first = left, np.arange(len(table.after), dtype=np.int32)
            sets = table.after
        of_first = self._numbered(sets)
        every = np.arange(len(self.masks), dtype=np.int32)
        return int(keep(frozen(first), of_first, frozen(self._zeros(n_rows)), every, 1, may_drop, symbols, rows))

    def _zeros(self, n_rows: int) -> IntArray:
        if len(self._nothing) < n_rows:
            self._nothing = np.zeros(n_rows, np.int32)
        return self._nothing[:n_rows]

    def _fold_what_occurs(
        self, before: IntArray, classes: IntArray, sets: list[int], index: int, holding: list[int]
    ) -> tuple[IntArray, list[int]]:
        """Do a column's step only for pairs of set and class that occur in some row: all pairs would be too many."""
        pairs, of_row = np.unique(before.astype(np.int64) * len(holding) + classes, return_inverse=True)
        refuted = _refuted(self._stages[index].needs, holding)
        left = [sets[pair // len(holding)] & ~refuted[pair % len(holding)] for pair in pairs.tolist()]
        numbers = {mask: number for number, mask in enumerate(dict.fromkeys(left))}
        targets = np.array([numbers[mask] for mask in left], np.int32)
        return targets[of_row.reshape(-1)], list(numbers)

    def _numbered(self, masks: list[int]) -> IntArray:
        """Return the symbols of some sets of guards; new sets get new numbers."""
        for mask in masks:
            if mask not in self._symbols:
                self._symbols[mask] = len(self.masks)
                self.masks.append(mask)
        return np.array([self._symbols[mask] for mask in masks], np.int32)

    def _table(self, index: int, sets: list[int], holding: list[int], of_code: IntArray | None) -> _Table:
        table = self._tables[index]
        if table is None or not table.is_for(sets, holding, of_code):
            after, following = _refute(sets, self._stages[index].needs, holding)
            if index == len(self._stages) - 1:
                following = self._numbered(after)[following]
            if of_code is not None:
                following = np.ascontiguousarray(following[:, of_code])
            table = self._tables[index] = _Table(sets, holding, of_code, after, following)
        return table


@dataclass
class _Table:
    """One column's step: maps the sets `before` and the classes that `holding` describes to the sets `after`.

    `next` is indexed by class, or by code where codes have classes.
    """

    before: list[int]
    holding: list[int]
    of_code: IntArray | None
    after: list[int]
    next: IntArray

    def is_for(self, before: list[int], holding: list[int], of_code: IntArray | None) -> bool:
        """Whether the table was made from these very objects."""
        return self.before is before and self.holding is holding and self.of_code is of_code


def _refute(sets: list[int], needs: list[int], holding: list[int]) -> tuple[list[int], IntArray]:
    """Return the sets of guards left after a column, and the table from (set, class) to these sets.

    `needs[i]` are the guards that need the column's predicate i; `holding[c]` has bit i set where
    predicate i holds for class c.
    """
    numbers: dict[int, int] = {}
    table = np.empty((len(sets), len(holding)), np.int32)
    refuted = _refuted(needs, holding)
    for row, before in enumerate(sets):
        for column, mask in enumerate(refuted):
            table[row, column] = numbers.setdefault(before & ~mask, len(numbers))
    return list(numbers), table


def _refuted(needs: list[int], holding: list[int]) -> list[int]:
    """Return for each class the guards that it refutes."""
    refuted = []
    for satisfied in holding:
        mask = 0
        for index, guards in enumerate(needs):
            if not satisfied >> index & 1:
                mask |= guards
        refuted.append(mask)
    return refuted


def _stages(guards: tuple[Guard, ...], computer: Computer) -> list[Stage]:
    """Return one stage per set of columns that some predicate reads, the event type first."""
    found: dict[frozenset[str], dict[plan.Expression, int]] = {}
    for number, guard in enumerate(guards):
        for predicate in map(computer.simplified, guard):
            needing = found.setdefault(columns_of(predicate), {})
            needing[predicate] = needing.get(predicate, 0) | 1 << number
    order = sorted(found, key=lambda names: (names != {TYPE}, len(names), sorted(names)))
    return [Stage(tuple(sorted(names)), list(found[names]), list(found[names].values())) for names in order]
