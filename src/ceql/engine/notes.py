"""Notes on a run that succeeded, but may not have found what the user meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ceql.errors import listing


def unseen_types(named: Iterable[str], seen: Iterable[str]) -> str | None:
    """Return a note on event types in a query that never came; None if all came.

    >>> unseen_types({"A", "fial"}, {"A", "fail"})
    'there is no event of type fial; there are: A, fail'
    >>> unseen_types({"A"}, [])
    'there are no events'
    """
    there = sorted(seen)
    unseen = sorted(set(named) - set(there))
    if not unseen:
        return None
    if not there:
        return "there are no events"
    types = f"types {listing(unseen)}" if len(unseen) > 1 else f"type {unseen[0]}"
    return f"there is no event of {types}; there are: {listing(there)}"


def tied_events(n_events: int, order: Sequence[str]) -> str:
    """Return the note that the matches depend on the order of events that tie.

    >>> tied_events(1, ["at"])
    "1 event ties with an earlier event in 'at', and their order can change the matches; order them with order_by"
    """
    columns = ", ".join(f"'{name}'" for name in order)
    tie = f"{n_events:,} events tie with an earlier event" if n_events > 1 else "1 event ties with an earlier event"
    return f"{tie} in {columns}, and their order can change the matches; order them with order_by"
