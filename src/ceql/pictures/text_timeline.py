"""Matches as lines of text: one line per match, with its events at their place in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Marks = Sequence[tuple[float, str]]
"""The events of a match: the time of each, and a letter for its variable."""


def text_timeline(matches: Sequence[Marks], width: int, shown: Callable[[float], str] = str) -> list[str]:
    r"""Return one line per match over a common axis, and last the ends of the axis.

    >>> print("\n".join(text_timeline([[(0, "a"), (4, "b")], [(2, "a"), (4, "b"), (10, "c")]], 11)))
    a---b
      a-b-----c
    0        10
    """
    times = [time for marks in matches for time, _ in marks]
    first, last = min(times, default=0), max(times, default=0)
    scale = (width - 1) / ((last - first) or 1)
    lines = [_line([(round((time - first) * scale), letter) for time, letter in marks]) for marks in matches]
    begin, end = shown(first), shown(last)
    return [*lines, f"{begin}{end.rjust(width - len(begin))}"]


def _line(marks: Sequence[tuple[int, str]]) -> str:
    """Return letters at their places with dashes between; letters with the same place stand side by side."""
    line = ""
    for place, letter in sorted(marks, key=lambda mark: mark[0]):
        filler = "-" if line.strip() else " "
        line = line.ljust(place, filler) + letter
    return line


def marks_since_start(events: Sequence[tuple[int, dict[str, Any]]], letters: str, time: str) -> Marks:
    """Return the events of a match, each with the time since the first one; events come with a variable's number."""
    start = min(attributes[time] for _, attributes in events)
    return [(attributes[time] - start, letters[number]) for number, attributes in events]
