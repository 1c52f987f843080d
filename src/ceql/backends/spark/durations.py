"""Durations as Spark reads them in watermarks and triggers."""

from __future__ import annotations

import re

_PART = r"(\d+(\.\d+)?\s+seconds?|\d+\s+(microsecond|millisecond|minute|hour|day|week|month|year)s?)"
_DURATION = re.compile(rf"\s*{_PART}(\s+{_PART})*\s*", re.IGNORECASE)


def is_duration(text: str) -> bool:
    """Return whether a text is a duration.

    >>> [is_duration(text) for text in ("10 seconds", "1 hour 0.5 seconds", "soon", "5")]
    [True, True, False, False]
    """
    return _DURATION.fullmatch(text) is not None
