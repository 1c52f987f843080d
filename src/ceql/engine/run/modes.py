"""What a query asks of its matches, as numbers for compiled code."""

from __future__ import annotations

CONSUME_NOTHING, CONSUME_KEY, CONSUME_ALL = 0, 1, 2
"""What a match forgets: nothing, all runs of its partition key, or all runs. Without keys the last two are the same."""

KEEP_ALL, KEEP_NEXT, KEEP_LAST, KEEP_MAX = 0, 1, 2, 3
"""Which of the matches that one event completes are kept. Only sets of positions are compared: equal
sets under other labels or from another start are all kept.

NEXT keeps the set that holds the smallest position by which it differs from any other, LAST the one
that holds the largest, MAX those that no other strictly contains."""
