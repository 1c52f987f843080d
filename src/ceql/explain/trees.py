"""A formula as a tree, from the query or from the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ceql.explain.graphs import Graph
from ceql.explain.predicates import predicate_text
from ceql.syntax import ast, plan
from ceql.syntax.ast import quoted_name, repetition_text

if TYPE_CHECKING:
    from collections.abc import Iterator

Tree = ast.Formula | plan.Formula


def render_tree(formula: Tree, format: str) -> str:
    """Return a formula's tree as indented text, DOT or Mermaid."""
    if format == "text":
        return "\n".join(_tree_lines(formula, "", ""))
    graph = Graph(format, "TB")
    _add_tree(graph, formula)
    return graph.text()


def _described(node: Tree) -> tuple[str, tuple[Tree, ...]]:
    """Return the text of a node, and the formulas below it."""
    match node:
        case ast.Atom():
            return str(node), ()
        case plan.Atom():
            name = "_" if node.event_type is None else predicate_text(plan.HasType(node.event_type, node.stream))
            return name + "".join(f"[{predicate_text(predicate)}]" for predicate in node.predicates), ()
        case ast.As():
            return f"AS {node.variable}", (node.formula,)
        case plan.As():
            return f"AS {quoted_name(node.variable)}", (node.formula,)
        case ast.Iteration() | plan.Iteration():
            return repetition_text(node.gap, node.least, node.most), (node.formula,)
        case ast.Absence():
            return "NOT" if node.duration is None else f"NOT ... FOR {node.duration.length}", (node.formula,)
        case ast.Sequence():
            return _sequence_text([gap.value for gap in node.gaps]), node.parts
        case plan.Sequence():
            gaps = [
                gap.value if absent is None else f"; NOT {_line(absent.formula)} ;"
                for gap, absent in zip(node.gaps, node.absent, strict=True)
            ]
            return _sequence_text(gaps, *_silences(node)), node.parts
        case ast.Permutation() | plan.Permutation():
            return "PERMUTE", node.parts
        case ast.Without():
            return f"WITHOUT {node.absent.at_least(9)}", (node.formula,)
        case plan.Without():
            return f"WITHOUT {_line(node.absent.formula)}", (node.formula,)
        case ast.Or() | plan.Or():
            return "OR", node.parts
        case ast.Filter():
            return f"FILTER {node.condition}", (node.formula,)
        case plan.Filter():
            shown = (f"{quoted_name(variable)}[{predicate_text(predicate)}]" for variable, predicate in node.conditions)
            return f"FILTER {' AND '.join(shown)}", (node.formula,)
        case ast.Project():
            return f"PROJECT [{', '.join(map(str, node.variables))}]", (node.formula,)
        case plan.Project():
            return f"PROJECT [{', '.join(sorted(map(quoted_name, node.variables)))}]", (node.formula,)
    raise AssertionError(f"no rule for {type(node).__name__}")


def _silences(node: plan.Sequence) -> tuple[str, str]:
    """Return what may not come for some time before the parts and after them; nothing if there is no such thing."""
    before, after = (
        "" if absent is None else f"NOT {_line(absent.formula)} FOR ..." for absent in (node.before, node.after)
    )
    return before, after


def _sequence_text(gaps: list[str], before: str = "", after: str = "") -> str:
    """Return what lies between the parts of a sequence, and around it; dots stand for the parts if this differs."""
    if len(set(gaps)) == 1 and not before and not after:
        return gaps[0]
    return " ; ".join(filter(None, [before, " ".join(["…", *(f"{gap} …" for gap in gaps)]), after]))


def _line(node: Tree) -> str:
    """Return a formula that finds single events on one line."""
    text, below = _described(node)
    parts = [_line(child) for child in below]
    return text if not parts else f"({f' {text} '.join(parts)})" if len(parts) > 1 else f"({parts[0]} {text})"


def _tree_lines(node: Tree, first: str, rest: str) -> Iterator[str]:
    text, below = _described(node)
    yield first + text
    for index, child in enumerate(below):
        is_last = index == len(below) - 1
        yield from _tree_lines(child, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  "))


def _add_tree(graph: Graph, node: Tree) -> str:
    text, below = _described(node)
    name = graph.node(text, shape="box")
    for child in below:
        graph.edge(name, _add_tree(graph, child), "")
    return name
