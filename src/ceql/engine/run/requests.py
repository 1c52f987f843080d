"""The reasons why compiled loops return to Python."""

from __future__ import annotations

DONE, MISS, GROW, FULL, DEEP, CROWDED, PAUSE, WAIT = range(8)
"""Everything is done; or a transition is unknown; or room is missing: in the arena, in the output, for a longer match,
for sets to choose from. PAUSE needs nothing, but lets Python react to signals. WAIT is for room for waiting matches."""

WORK_AT_ONCE = 1 << 26
"""Steps of a loop before it pauses: some tenths of a second."""
