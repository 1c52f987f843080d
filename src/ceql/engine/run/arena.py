"""The nodes of the arena (the paper's tECS), in flat arrays.

Nodes are numbered from 0; children have lower numbers than parents.

    kind     link         data                  start
    BOTTOM   END          row of the event      measure at the first event
    label    next node    row of the event      that of next
    label    END          row of the event      measure at the event, the first of a run and marked
    UNION    left node    right node            that of left, which is the greater
"""

from __future__ import annotations

UNION, BOTTOM = -1, -2
"""Kinds of nodes; an output node has its label's number, 0 or more, instead."""

END = -1
"""The link of a node that begins a run."""

CONSUME_NOTHING, CONSUME_KEY, CONSUME_ALL = 0, 1, 2
"""What a match forgets: nothing, all runs of its partition key, or all runs. Without keys the last two are the same."""
