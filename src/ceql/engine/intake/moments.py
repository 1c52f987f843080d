"""Symbols that stand for no event, but for what is known of the time."""

from __future__ import annotations

TIME_COMES, TIME_IS_OVER, ALL_IS_OVER = -1, -2, -3
"""Time has come to some point, and more events may have that time; no event of that time or before comes any more; no
event comes any more at all, so that every silence is kept."""
