"""All errors, in the user's words.

    CeqlError
    ├── QueryError      the query text is wrong: message, place, caret, hint
    ├── DataError       events do not fit the query, or time runs backwards
    ├── SnapshotError   a snapshot is damaged, or belongs to another query
    └── JobError        Spark could not finish a job

`warn` gives a `CeqlWarning`: nothing is wrong, but the result may not be what the user meant.

Every error keeps its fields as data and survives pickling, because errors travel
from worker processes to the driver.
"""

from __future__ import annotations

import difflib
import sys
import unicodedata
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ceql.visible import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

EXCERPT_WIDTH = 100
"""Longest piece of a source line that an error shows; machine-made queries have lines of megabytes."""


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of character offsets in the query text."""

    start: int
    end: int

    def line_and_column(self, text: str) -> tuple[int, int]:
        r"""Return the 1-based line and column at which the span starts.

        >>> Span(5, 6).line_and_column("ab\ncdef")
        (2, 3)
        """
        line = text.count("\n", 0, self.start) + 1
        column = self.start - (text.rfind("\n", 0, self.start) + 1) + 1
        return line, column


class CeqlError(Exception):
    """The base of all errors that ceql raises on purpose: what is wrong, and a hint how to fix it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return visible_lines(self.message if not self.hint else f"{self.message}\nhint: {self.hint}")


class QueryError(CeqlError):
    """The query text is wrong.

    `str(error)` shows message, place, caret and hint; user interfaces that underline by themselves use the fields.
    `related` is a second place that explains
    the first, for example the earlier of two clauses.
    """

    def __init__(
        self,
        message: str,
        text: str,
        span: Span,
        hint: str | None = None,
        related: Span | None = None,
    ) -> None:
        super().__init__(message, hint)
        # Unpickling calls the class with these.
        self.args = (message, text, span, hint, related)
        self.text = text
        self.span = span
        self.related = related

    @property
    def line(self) -> int:
        """The 1-based line of the mistake."""
        return self.span.line_and_column(self.text)[0]

    @property
    def column(self) -> int:
        """The 1-based column of the mistake, in characters."""
        return self.span.line_and_column(self.text)[1]

    def __str__(self) -> str:
        lines = [self.message, *_excerpt(self.text, self.span)]
        if self.related is not None:
            lines += ["see also", *_excerpt(self.text, self.related)]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return visible_lines("\n".join(lines))


class DataError(CeqlError):
    """Events do not fit the query's schema, or time runs backwards."""


class SnapshotError(CeqlError):
    """A snapshot is damaged, or belongs to another query or format."""


class JobError(CeqlError):
    """Spark could not finish a job, for a reason that is not in the data."""


class CeqlWarning(UserWarning):
    """Nothing went wrong, but the result may not be what the user meant; the message says why."""


def warn(note: str) -> None:
    """Give a `CeqlWarning` at the line outside of ceql that caused it."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "ceql":
        level, frame = level + 1, frame.f_back
    warnings.warn(note, CeqlWarning, stacklevel=level)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the known name that is closest to a mistyped name, if any is close.

    >>> did_you_mean("pric", ["name", "price"])
    "did you mean 'price'?"
    """
    by_lower: dict[str, list[str]] = {}
    for candidate in known:
        by_lower.setdefault(candidate.lower(), []).append(candidate)
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if not close:
        return None
    # If names differ only in case, take the name that is nearest to what the user wrote.
    nearest = max(by_lower[close[0]], key=lambda candidate: difflib.SequenceMatcher(None, candidate, name).ratio())
    return f"did you mean '{visible(nearest)}'?"


def listing(names: Iterable[str], limit: int = 12) -> str:
    """Return names joined by commas, cut after `limit` of them.

    >>> listing(["a", "b", "c"], limit=2)
    'a, b, ...'
    """
    shown = list(names)
    return ", ".join(map(visible, shown[:limit])) + (", ..." if len(shown) > limit else "")


def _excerpt(text: str, span: Span) -> list[str]:
    """Return the place line, the source line (cut around the span) and the caret line.

    A blank line has nothing to point at, so it gets only the place.
    """
    line, column = span.line_and_column(text)
    line_start = span.start - (column - 1)
    line_end = text.find("\n", line_start)
    source = text[line_start : line_end if line_end >= 0 else len(text)].rstrip("\r")
    place = f"  line {line}, column {column}"
    if not source.strip():
        return [place]

    first = column - 1
    last = max(first + 1, min(span.end - line_start, len(source)))
    cut_left = max(0, min(first - EXCERPT_WIDTH // 3, len(source) - EXCERPT_WIDTH))
    cut_right = min(len(source), cut_left + EXCERPT_WIDTH)
    prefix = "..." if cut_left else ""
    suffix = "..." if cut_right < len(source) else ""

    before = prefix + source[cut_left:first]
    marked = source[first : min(last, cut_right)]
    shown = _printable(prefix + source[cut_left:cut_right] + suffix)
    caret = " " * _width(before) + "^" * max(1, _width(marked))
    return [place, f"    {shown}".rstrip(), f"    {caret}"]


def _printable(text: str) -> str:
    """Return text with every character that does not print replaced, one for one."""
    return "".join(
        " " if ch.isspace() else ch if ch.isprintable() or unicodedata.combining(ch) else "\N{REPLACEMENT CHARACTER}"
        for ch in text
    )


def _width(text: str) -> int:
    """Return how many terminal columns text takes, so that carets are under wide characters."""
    return sum(0 if unicodedata.combining(ch) else 2 if unicodedata.east_asian_width(ch) in "WF" else 1 for ch in text)
