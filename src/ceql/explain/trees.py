"""A formula as a tree, from the query or from the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ceql.explain.graphs import Graph
from ceql.explain.predicates import predicate_text
from ceql.syntax import ast, plan
from ceql.syntax.ast import quoted_name

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
            return predicate_text(plan.HasType(node.event_type, node.stream)), ()
        case ast.As():
            return f"AS {node.variable}", (node.formula,)
        case plan.As():
            return f"AS {quoted_name(node.variable)}", (node.formula,)
        case ast.Iteration():
            return (":+" if node.is_contiguous else "+"), (node.formula,)
        case plan.Iteration():
            return ("+" if node.may_skip else ":+"), (node.formula,)
        case ast.Sequence():
            return _sequence_text(node.gaps), node.parts
        case plan.Sequence():
            return _sequence_text(node.may_skip), node.parts
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


def _sequence_text(gaps: tuple[bool, ...]) -> str:
    if len(set(gaps)) == 1:
        return ";" if gaps[0] else ":"
    return " ".join(";" if gap else ":" for gap in gaps)


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
