"""Determinizes the automaton one transition at a time, with the selection strategy built in.

A determinized state stands for one way to label the events so far, and for all runs with these labels. So two different
paths through determinized states give two different matches, and no match comes out twice.

Strategies compare complex events, that is sets of marked positions, that start and end
at the same events (Grez et al.; those with another start are compared when matches are
enumerated). So a determinized state also knows runs of other complex events: `equals` mark the same positions so far,
under any labels (`runs` are among them); `rivals` beat this complex event so far; and for LAST, `beaten` lose against
it so far, but may still overtake it. If a rival can take all the steps that a run can take, the run is dropped: what it
completes, the rival completes, too. The rival is then in the same state, or in one that simulates it (`simulation`): of
`A{5,}`, a run that has counted four events can do all that a run can do that has counted three. With m(X) and u(X) the
states reached from X by marking and by unmarked transitions, an event that is marked / not marked leads to

    NEXT  rivals' = m(rivals) | u(rivals)      /  u(rivals) | m(rivals) | m(equals)
    MAX   rivals' = m(rivals)                  /  u(rivals) | m(rivals) | m(equals)
    LAST  rivals' = m(rivals)                  /  u(rivals) | m(rivals) | m(equals) | m(beaten)
          beaten' = m(beaten) | u(equals) | u(rivals) | u(beaten)   /   u(beaten)

where equals' = m(equals) / u(equals), runs' are the successors of runs by the one label,
and each of rivals', equals', runs', beaten' leaves out what stands in one before it.

Nothing here is bounded by word sizes: automata may have hundreds of states and predicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ceql.automaton.cea import CEA, TRUE, Guard, Label
from ceql.automaton.predicates import Event, holds
from ceql.automaton.simulation import Simulation
from ceql.syntax.ast import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable

States = frozenset[int]
NO_STATES: States = frozenset()


class DetState(NamedTuple):
    """A determinized state, named by its sets of automaton states and by nothing else.

    The last three are empty if the strategy compares nothing.
    """

    runs: States
    equals: States = NO_STATES
    rivals: States = NO_STATES
    beaten: States = NO_STATES


Step = tuple[Label, DetState]
"""A label for the event, and the determinized state it leads to."""


@dataclass(frozen=True, slots=True)
class Alphabet:
    """The distinct guards of an automaton without TRUE; a symbol is the set of guards that hold.

    A symbol is an integer with bit i set for guard i.
    """

    guards: tuple[Guard, ...]

    @classmethod
    def of(cls, cea: CEA) -> Alphabet:
        """Return the guards in the order in which transitions first use them, those that forbid something last.

        TRUE has no place, even if it forbids: every event satisfies it.
        """
        taken = [transition.guard for transition in cea.transitions if transition.guard != TRUE]
        unless = (guard for transition in cea.transitions for guard in transition.unless)
        forbidden = {*unless, *cea.broken_before, *cea.broken_after} - {*taken, TRUE}
        ordered = sorted(forbidden, key=lambda guard: sorted(map(repr, guard)))
        return cls(tuple(dict.fromkeys([*taken, *ordered])))

    def symbol(self, event: Event) -> int:
        """Return the guards that an event satisfies."""
        return sum(1 << index for index, guard in enumerate(self.guards) if all(holds(part, event) for part in guard))


class Determinizer:
    """Computes steps of the determinized automaton; the caller keeps them.

    Steps come in an order that is a function of the automaton alone.
    """

    def __init__(self, cea: CEA, strategy: Strategy = Strategy.ALL) -> None:
        self.alphabet = Alphabet.of(cea)
        initial = frozenset((cea.initial,))
        self._compares = strategy in (Strategy.NEXT, Strategy.LAST, Strategy.MAX)
        self.start = DetState(initial, initial if self._compares else NO_STATES)
        self._final = cea.final
        self._strategy = strategy
        guard_bits = {guard: 1 << index for index, guard in enumerate(self.alphabet.guards)} | {TRUE: 0}
        labels = sorted({transition.label for transition in cea.transitions}, key=sorted)
        self._breaking = [[guard_bits[guard] for guard in guards] for guards in (cea.broken_before, cea.broken_after)]
        self._labels = labels
        self._is_marking = [bool(label) for label in labels]
        label_ids = {label: index for index, label in enumerate(labels)}
        self._outgoing: list[list[tuple[int, int, int, int]]] = [[] for _ in range(cea.n_states)]
        for transition in cea.transitions:
            unless = sum(guard_bits[guard] for guard in transition.unless)
            self._outgoing[transition.source].append(
                (guard_bits[transition.guard], unless, label_ids[transition.label], transition.target)
            )
        self._simulation = Simulation(self._outgoing, self._is_marking, cea.final)

    def accepts(self, state: DetState) -> bool:
        """Whether the events so far are a match."""
        return self._final in state.runs

    def broken(self, symbol: int) -> tuple[bool, bool]:
        """Return whether an event breaks the silence before a run that has not begun, and after one that has ended."""
        before, after = (any(symbol & bits == bits for bits in guards) for guards in self._breaking)
        return before, after

    def steps(self, state: DetState, symbol: int) -> tuple[Step, ...]:
        """Return each possible label of an event with the state it leads to; labels are distinct."""
        return tuple(self._compute(state, symbol))

    def _compute(self, state: DetState, symbol: int) -> Iterable[Step]:
        successors = self._successors(state.runs, symbol)
        compared = self._compare(state, symbol) if self._compares else None
        for label_id in sorted(successors):
            runs = successors[label_id]
            if compared is None:
                yield self._labels[label_id], DetState(runs)
                continue
            equals, rivals, beaten = compared[0] if self._is_marking[label_id] else compared[1]
            runs = self._without_hopeless(runs, rivals)
            if runs:
                equals -= rivals
                yield self._labels[label_id], DetState(runs, equals, rivals, beaten - rivals - equals)

    def _without_hopeless(self, runs: States, rivals: States) -> States:
        """Return the runs that can complete something that no rival completes."""
        follows = self._simulation.follows
        return frozenset(run for run in runs if not any(follows(rival, run) for rival in rivals))

    def _compare(
        self, state: DetState, symbol: int
    ) -> tuple[tuple[States, States, States], tuple[States, States, States]]:
        """Return the next equals, rivals and beaten, first if the event is marked, then if it is not."""
        marked_equals, skipped_equals = self._by_mark(self._successors(state.equals, symbol))
        marked_rivals, skipped_rivals = self._by_mark(self._successors(state.rivals, symbol))
        marked_beaten, skipped_beaten = self._by_mark(self._successors(state.beaten, symbol))
        all_rivals = marked_rivals | skipped_rivals
        if self._strategy is Strategy.LAST:
            overtakable = marked_beaten | skipped_equals | skipped_rivals | skipped_beaten
            marked = marked_equals, marked_rivals, overtakable
            return marked, (skipped_equals, all_rivals | marked_equals | marked_beaten, skipped_beaten)
        rivals_if_marked = all_rivals if self._strategy is Strategy.NEXT else marked_rivals
        marked = marked_equals, rivals_if_marked, NO_STATES
        return marked, (skipped_equals, all_rivals | marked_equals, NO_STATES)

    def _successors(self, states: States, symbol: int) -> dict[int, States]:
        found: dict[int, set[int]] = {}
        for state in states:
            for guard_bit, unless, label_id, target in self._outgoing[state]:
                if symbol & guard_bit == guard_bit and not symbol & unless:
                    found.setdefault(label_id, set()).add(target)
        return {label_id: frozenset(targets) for label_id, targets in found.items()}

    def _by_mark(self, successors: dict[int, States]) -> tuple[States, States]:
        """Return the successors by marking labels, and by the empty label."""
        marked, skipped = set[int](), set[int]()
        for label_id, targets in successors.items():
            (marked if self._is_marking[label_id] else skipped).update(targets)
        return frozenset(marked), frozenset(skipped)
