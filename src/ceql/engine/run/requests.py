"""What compiled loops come back to Python for."""

from __future__ import annotations

DONE, MISS, GROW, FULL, DEEP, CROWDED, PAUSE = range(7)
"""All is done; an unknown transition is needed; or room is: in the arena, in the output, for a longer match, for sets
to choose from. With PAUSE nothing is needed, but Python has had no chance to react to signals for a while."""

WORK_AT_ONCE = 1 << 26
"""Steps of a loop before it pauses: some tenths of a second."""
