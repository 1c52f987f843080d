"""Which states can do all that other states can do."""

from __future__ import annotations

from ceql.automaton.simulation import Simulation

A, B, C = 1, 2, 4
SKIP, MARK, OTHER_MARK = 0, 1, 2
IS_MARKING = [False, True, True]
FINAL = 4


def counting(*, repeats: bool, may_stop: bool) -> Simulation:
    """Return the simulation of states 1 to 3, each of which has taken one A more, and of the final state."""
    outgoing = [[], *([(0, 0, SKIP, state), (A, 0, MARK, state + 1)] for state in (1, 2)), [(0, 0, SKIP, 3)], []]
    if repeats:
        outgoing[3].append((A, 0, MARK, 3))
    for state in (1, 2, 3) if may_stop else (3,):
        outgoing[state].append((B, 0, MARK, FINAL))
    return Simulation(outgoing, IS_MARKING, FINAL)


def test_without_an_upper_bound_more_follows_less() -> None:
    states = counting(repeats=True, may_stop=False)
    assert [states.follows(follower, leader) for follower, leader in ((3, 1), (3, 2), (2, 1))] == [True] * 3
    assert not any(states.follows(follower, leader) for follower, leader in ((1, 2), (2, 3), (1, 3), (FINAL, 3)))


def test_up_to_a_bound_less_follows_more() -> None:
    states = counting(repeats=False, may_stop=True)
    assert all(states.follows(follower, leader) for follower, leader in ((1, 2), (2, 3), (1, 3)))
    assert not any(states.follows(follower, leader) for follower, leader in ((3, 2), (2, 1)))


def test_exact_counts_differ() -> None:
    states = counting(repeats=False, may_stop=False)
    assert not any(states.follows(one, other) for one in (1, 2, 3) for other in (1, 2, 3) if one != other)
    assert states.follows(2, 2)


def test_steps_are_compared_by_guards_exceptions_and_marks() -> None:
    steps = {
        "any event": (0, 0, MARK),
        "A": (A, 0, MARK),
        "A as another variable": (A, 0, OTHER_MARK),
        "A but not C": (A, C, MARK),
        "A, not marked": (A, 0, SKIP),
    }
    final = len(steps)
    states = Simulation([*([(*step, final)] for step in steps.values()), []], IS_MARKING, final)
    number = {name: index for index, name in enumerate(steps)}

    def follows(follower: str, leader: str) -> bool:
        return states.follows(number[follower], number[leader])

    assert follows("any event", "A")
    assert follows("A", "A as another variable")
    assert follows("A", "A but not C")
    assert not follows("A", "any event")
    assert not follows("A but not C", "A")
    assert not follows("A, not marked", "A")
    assert not follows("A", "A, not marked")
