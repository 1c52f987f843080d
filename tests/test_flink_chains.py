"""FlinkCEP's chains of steps, defined in a few lines, agree with `->` and NOT on random streams."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import ceql

streams = st.lists(st.sampled_from("AABBCCX"), max_size=12)
Found = list[tuple[int, ...]]


def followed_by(types: list[str], *steps: str, forbidden: str = "") -> Found:
    """Return the chains in which each step is the next event of its type, and nothing forbidden lies in a gap."""
    chains = [(at,) for at, event_type in enumerate(types) if event_type == steps[0]]
    for step in steps[1:]:
        following = [(chain, types[chain[-1] + 1 :]) for chain in chains]
        chains = [(*chain, chain[-1] + 1 + rest.index(step)) for chain, rest in following if step in rest]
    return [chain for chain in chains if not set(forbidden) & set(types[chain[0] + 1 : chain[-1]])]


def followed_by_any(types: list[str], first: str, forbidden: str, last: str) -> Found:
    """Return all pairs of a first and a last event with nothing forbidden in between."""
    pairs = [(at, end) for end in range(len(types)) for at in range(end)]
    return [
        (at, end)
        for at, end in pairs
        if (types[at], types[end]) == (first, last) and forbidden not in types[at + 1 : end]
    ]


def positions(formula: str, types: list[str]) -> Found:
    events = [{"type": event_type} for event_type in types]
    rows = ceql.match(f"SELECT * FROM S WHERE {formula}", events, shape="positions").to_arrow().to_pylist()
    return [tuple(row["positions"]) for row in rows]


@given(streams)
def test_followed_by(types: list[str]) -> None:
    assert sorted(positions("A -> B -> C", types)) == sorted(followed_by(types, "A", "B", "C"))


@given(streams)
def test_not_followed_by_in_the_middle(types: list[str]) -> None:
    assert sorted(positions("(A -> C) WITHOUT B", types)) == sorted(followed_by(types, "A", "C", forbidden="B"))
    assert sorted(positions("A ; NOT B ; C", types)) == sorted(followed_by_any(types, "A", "B", "C"))
