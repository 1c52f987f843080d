"""The nodes of the arena (the paper's tECS), in flat arrays.

Nodes are numbered from 0; children have lower numbers than parents.

    kind     link         data                  start
    BOTTOM   END          row of the event      measure at the first event
    label    next node    row of the event      that of next
    label    END          row of the event      measure at the event, the first of a run and marked
    UNION    left node    right node            that of left, which is the greater
"""

from __future__ import annotations

from typing import Any

from ceql.engine.compiled import inlined
from ceql.engine.run.bits import U

UNION, BOTTOM = -1, -2
"""Kinds of nodes; an output node has its label's number, 0 or more, instead."""

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
    """Write the union of two nodes, of which the left one began later, or at the same time."""
    set_node(arena, node, UNION, left, right, arena.start[U(left)])
