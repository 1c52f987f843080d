"""Symbols that stand for no event, but for what is known of the time."""

from __future__ import annotations

TIME_PASSES, EVENTS_END, ALL_ENDS = -1, -2, -3
"""Time has come to some point, and later events may have the same time; no event of that time or before comes any more;
no event comes any more, and every silence is kept."""
