"""Modes of a query as numbers for compiled code: what its matches forget, and which are kept."""

from __future__ import annotations

CONSUME_NOTHING, CONSUME_KEY, CONSUME_ALL = 0, 1, 2
"""What a match forgets: nothing, all runs of its partition key, or all runs. Without keys the last two are the same."""

BREAKS_BEFORE, BREAKS_AFTER = 1, 2
"""Bits for the silences that an event breaks: that before a match that begins later, that after a match that ended."""

KEEP_ALL, KEEP_NEXT, KEEP_LAST, KEEP_MAX = 0, 1, 2, 3
"""Which of the matches that one event completes are kept. Only sets of positions are compared: equal
sets with other labels or another start are all kept.

NEXT keeps the set that, compared with any other set, has the smallest position in which they differ. LAST
keeps the set that has the largest. MAX keeps the sets that no other set strictly contains."""
