"""The nodes of the arena (the paper's tECS), in flat arrays.

Nodes are numbered from 0; children have lower numbers than parents.

    kind     link         data                  start
    BOTTOM   END          row of the event      measure at the first event
    label    next node    row of the event      start of the next node
    label    END          row of the event      measure at the event, which is marked and the first of a run
    UNION    left node    right node            start of the left node, which is not less than the right one's
"""

from __future__ import annotations

from typing import Any

from ceql.engine.inlining import inlined
from ceql.engine.run.bits import U

UNION, BOTTOM = -1, -2
"""Kinds of nodes; the kind of an output node is the number of its label, 0 or more."""

END = -1
"""The link of a node that begins a run."""


@inlined
def set_node(arena: Any, node: Any, kind: Any, link: Any, data: Any, start: Any) -> None:
    """Write a node."""
    arena.kind[U(node)] = kind
    arena.link[U(node)] = link
    arena.data[U(node)] = data
    arena.start[U(node)] = start


@inlined
def set_union(arena: Any, node: Any, left: Any, right: Any) -> None:
    """Write the union of two nodes; the left node began later than the right one, or at the same time."""
    set_node(arena, node, UNION, left, right, arena.start[U(left)])
