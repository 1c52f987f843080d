"""Shows every stage of a query: trees, automata, and what the query costs, in words."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ceql.automaton.cea import CEA, MARK, Guard, Label
from ceql.automaton.properties import compared_by, sees_every_event
from ceql.schema import Kind
from ceql.syntax import ast, plan
from ceql.syntax.ast import Consumption, Strategy, quoted_name
from ceql.syntax.times import write_time
from ceql.visible import visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PREDICATE_TEXT = 200
"""Longest predicate that a picture shows; the rest is cut, because graphs are read by eye."""


# --- predicates ---------------------------------------------------------------------


def predicate_text(predicate: plan.Expression) -> str:
    """Return a bound predicate as the query would write it."""
    return _predicate(predicate, 0)


def _predicate(predicate: plan.Expression, level: int) -> str:
    text, own_level = _predicate_and_level(predicate)
    return text if own_level >= level else f"({text})"


def _predicate_and_level(predicate: plan.Expression) -> tuple[str, int]:
    """Return the text and how strongly it binds, as in `ast`."""
    match predicate:
        case plan.HasType():
            name = quoted_name(predicate.event_type)
            return (name if predicate.stream is None else f"{quoted_name(predicate.stream)}>{name}"), 9
        case plan.Column():
            return quoted_name(predicate.name), 9
        case plan.Constant():
            return _constant(predicate), 6
        case plan.Any():
            return " OR ".join(_predicate(part, 1) for part in predicate.parts), 0
        case plan.All():
            return " AND ".join(_predicate(part, 2) for part in predicate.parts), 1
        case plan.Not():
            return f"NOT {_predicate(predicate.predicate, 2)}", 2
        case plan.Compare():
            return f"{_predicate(predicate.left, 4)} {predicate.operator} {_predicate(predicate.right, 4)}", 3
        case plan.InSet():
            items = [_constant(item) for item in predicate.items] + ["NULL"] * predicate.has_null
            return f"{_predicate(predicate.value, 4)} IN {{{', '.join(items)}}}", 3
        case plan.Matches():
            return f"{_predicate(predicate.value, 4)} RLIKE {_constant(plan.Constant(predicate.regex, Kind.STRING))}", 3
        case plan.IsNull():
            return f"{_predicate(predicate.value, 4)} IS NULL", 3
        case plan.Negative():
            return f"-{_predicate(predicate.value, 7)}", 6
        case plan.Arithmetic():
            level = 4 if predicate.operators[0] in "+-" else 5
            first, *rest = (_predicate(operand, level + 1) for operand in predicate.operands)
            return first + "".join(f" {sign} {one}" for sign, one in zip(predicate.operators, rest, strict=True)), level
    raise AssertionError(f"no rule for {type(predicate).__name__}")


def _constant(constant: plan.Constant) -> str:
    value: Any = constant.value
    if constant.kind.is_time and value is not None:
        value = write_time(value, constant.kind)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else str(value).upper() if isinstance(value, bool) else str(value)


# --- trees --------------------------------------------------------------------------

Tree = ast.Formula | plan.Formula


def render_tree(formula: Tree, format: str) -> str:
    """Return a formula's tree as indented text, DOT or Mermaid."""
    if format == "text":
        return "\n".join(_tree_lines(formula, "", ""))
    graph = _Graph(format, "TB")
    _add_tree(graph, formula)
    return graph.text()


def _described(node: Tree) -> tuple[str, tuple[Tree, ...]]:
    """Return what a node says of itself, and the formulas below it."""
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
            shown = (f"{quoted_name(variable)}[{predicate_text(one)}]" for variable, one in node.conditions)
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


def _add_tree(graph: _Graph, node: Tree) -> str:
    text, below = _described(node)
    name = graph.node(text, shape="box")
    for child in below:
        graph.edge(name, _add_tree(graph, child), "")
    return name


# --- automata -----------------------------------------------------------------------


def render_automaton(cea: CEA, format: str) -> str:
    """Return an automaton as a list of transitions, DOT or Mermaid."""
    if format == "text":
        head = f"{cea.n_states} states, {len(cea.transitions)} transitions; initial {cea.initial}, final {cea.final}"
        lines = (
            f"{one.source} -[{guard_text(one.guard)} / {label_text(one.label)}]-> {one.target}"
            for one in sorted(cea.transitions, key=lambda one: (one.source, one.target))
        )
        return "\n".join([head, *lines])
    graph = _Graph(format, "LR")
    for state in range(cea.n_states):
        is_final = state == cea.final
        graph.node(str(state), shape="final" if is_final else "initial" if state == cea.initial else "state")
    parallel: dict[tuple[int, int], list[str]] = defaultdict(list)
    for one in cea.transitions:
        parallel[one.source, one.target].append(f"{guard_text(one.guard)} / {label_text(one.label)}")
    for (source, target), texts in parallel.items():
        graph.edge(f"n{source}", f"n{target}", "\n".join(texts))
    return graph.text()


def guard_text(guard: Guard) -> str:
    """Return a transition's condition; the event type comes first."""
    parts = sorted((not isinstance(part, plan.HasType), _predicate(part, 2)) for part in guard)
    return " AND ".join(text for _, text in parts) or "TRUE"


def label_text(label: Label) -> str:
    """Return the variables that a transition binds, `-` for none."""
    return ", ".join("marked" if name == MARK else quoted_name(name) for name in sorted(label)) or "-"


# A backtick after the opening quote would begin Mermaid's Markdown.
_MERMAID_ENTITIES = (
    ("#", "#35;"),
    ('"', "#quot;"),
    ("`", "#96;"),
    ("<", "#lt;"),
    (">", "#gt;"),
    ("\n", "<br/>"),
)


class _Graph:
    """Writes the same graph in DOT or in Mermaid."""

    def __init__(self, format: str, direction: str) -> None:
        if format not in ("dot", "mermaid"):
            raise ValueError(f"unknown format {format!r}: choose 'text', 'dot' or 'mermaid'")
        self.is_dot = format == "dot"
        self.n_nodes = 0
        self.lines = [f"digraph query {{\n  rankdir={direction};"] if self.is_dot else [f"flowchart {direction}"]

    def node(self, text: str, shape: str) -> str:
        name = f"n{self.n_nodes}"
        self.n_nodes += 1
        shown = self._quoted(text)
        if self.is_dot:
            attributes = {"box": "box", "final": "doublecircle", "initial": "circle, style=bold"}.get(shape, "circle")
            self.lines.append(f"  {name} [label={shown}, shape={attributes}];")
        else:
            opening, closing = {"box": ("[", "]"), "final": ("(((", ")))"), "initial": ("([", "])")}.get(
                shape, ("((", "))")
            )
            self.lines.append(f"  {name}{opening}{shown}{closing}")
        return name

    def edge(self, source: str, target: str, text: str) -> None:
        if self.is_dot:
            self.lines.append(f"  {source} -> {target}" + (f" [label={self._quoted(text)}];" if text else ";"))
        else:
            self.lines.append(f"  {source} -->" + (f"|{self._quoted(text)}| " if text else " ") + target)

    def text(self) -> str:
        return "\n".join([*self.lines, "}"] if self.is_dot else self.lines)

    def _quoted(self, text: str) -> str:
        text = visible_lines(text)
        shown = text if len(text) <= MAX_PREDICATE_TEXT else text[: MAX_PREDICATE_TEXT - 3] + "..."
        if self.is_dot:
            return '"' + shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        for character, entity in _MERMAID_ENTITIES:
            shown = shown.replace(character, entity)
        return f'"{shown}"'


# --- the plan, and what it costs ----------------------------------------------------


def explain_plan(query: plan.Plan, cea: CEA) -> str:
    """Return the plan in words: clauses, result columns, formula, and the cost contract."""
    clauses = [
        f"streams       {', '.join(map(quoted_name, query.sources))}",
        f"strategy      {query.strategy.value}: {_STRATEGIES[query.strategy]}",
        f"partition by  {', '.join(map(quoted_name, query.partition_by)) or 'nothing: one stream for all events'}",
        f"window        {window_text(query)}",
        f"consumption   {query.consumption.value}: {_CONSUMPTIONS[query.consumption]}",
        f"limit         {'none' if query.limit is None else f'{query.limit} per completing event'}",
    ]
    columns = [
        f"{column.name}: {column.type}" + ("" if column.nullable else " not null") for column in query.result_schema
    ]
    sections = [
        ("Clauses", clauses),
        ("Result columns", columns),
        ("Formula", render_tree(query.formula, "text").split("\n")),
        ("Automaton", [f"{cea.n_states} states, {len(cea.transitions)} transitions, determinized while it runs"]),
        ("Cost", list(cost_contract(query, cea))),
    ]
    return "\n\n".join("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in sections)


_STRATEGIES = {
    Strategy.ALL: "every match",
    Strategy.NEXT: "at each last event, the matches that take the earliest events",
    Strategy.LAST: "at each last event, the matches that take the latest events",
    Strategy.MAX: "at each last event, the matches that no other contains",
    Strategy.STRICT: "the matches whose selected events have no gap between them",
}
_CONSUMPTIONS = {
    Consumption.NONE: "events serve any number of matches",
    Consumption.PARTITION: "a match forgets all earlier events of its partition",
    Consumption.ANY: "a match forgets all earlier events",
}


def window_text(query: plan.Plan) -> str:
    """Return the window in words."""
    match query.window:
        case plan.EventsWindow(count):
            return f"{count} events: first and last at most {count} positions apart"
        case plan.AttributeWindow(attribute, kind, size):
            amount = f"{size / 10**9:g} seconds" if kind.is_time else str(size)
            return f"{amount} by {quoted_name(attribute)}, both ends included"
    return "none"


def cost_contract(query: plan.Plan, cea: CEA) -> Iterator[str]:
    """Yield what is constant per event, what is not, and why."""
    yield "update: constant time per event, whatever the window and however many partial matches there are"
    yield "output: each match takes time linear in its size; none is computed before it is asked for"
    yield _state_cost(query)
    if (compared := compared_by(query, cea)) is not Strategy.ALL:
        yield (
            f"not constant: {compared.value} compares the best match of every start in the window, "
            "at each event that completes one"
        )
    if (explosion := exponential_output(query)) is not None:
        bound = f"LIMIT {query.limit} caps them" if query.limit is not None else FEWER_MATCHES
        yield f"not constant: {explosion}; {bound}"
    if sees_every_event(query, cea):
        yield "every event is read: ':', STRICT and WITHIN n EVENTS see also those that no predicate mentions"
    yield _parallelism(query)


FEWER_MATCHES = "add LIMIT n, or select MAX, NEXT or LAST"


def exponential_output(query: plan.Plan) -> str | None:
    """Return why a query may have exponentially many matches, None if it has not, LIMIT aside."""
    if query.strategy is not Strategy.ALL or not has_free_iteration(query.formula):
        return None
    return "+ under ALL finds every subset of the repeated events, exponentially many"


def _state_cost(query: plan.Plan) -> str:
    where = " of each partition" if query.partition_by else ""
    if query.window is None:
        return f"state: no WITHIN, so nothing expires and no state is pruned; it grows with the stream{where}"
    return f"state: linear in the events of one window{where}; what has left the window is dropped"


def _parallelism(query: plan.Plan) -> str:
    if query.consumption is Consumption.ANY:
        return "one task only: CONSUME BY ANY makes every match depend on all earlier ones"
    if query.partition_by:
        return "parallel: partitions are independent"
    if isinstance(query.window, plan.AttributeWindow) and query.consumption is Consumption.NONE:
        return "parallel: the stream can be cut in time, each piece with one window before it"
    if query.consumption is not Consumption.NONE:
        reason = f"CONSUME BY {query.consumption.value} makes every match depend on all earlier ones"
    elif isinstance(query.window, plan.EventsWindow):
        reason = "WITHIN n EVENTS counts all events"
    else:
        reason = "there is no window by time"
    return f"one task only: no PARTITION BY, and {reason}"


def has_free_iteration(formula: plan.Formula) -> bool:
    """Whether a formula repeats something in more ways than one between the same two events.

    Events that `:+` repeats are neighbours, so there is one way only, unless what is repeated skips or chooses.
    """
    return any(
        isinstance(node, plan.Iteration) and any(_has_ways(part) for part in _nodes(node)) for node in _nodes(formula)
    )


def _has_ways(node: Tree) -> bool:
    return (
        isinstance(node, plan.Or)
        or (isinstance(node, plan.Iteration) and node.may_skip)
        or (isinstance(node, plan.Sequence) and any(node.may_skip))
    )


def _nodes(formula: plan.Formula) -> Iterator[Tree]:
    pending: list[Tree] = [formula]
    while pending:
        node = pending.pop()
        yield node
        pending += _below(node)


def _below(node: Tree) -> tuple[Tree, ...]:
    if isinstance(node, plan.Sequence | plan.Or):
        return node.parts
    return () if isinstance(node, plan.Atom) else (node.formula,)  # type: ignore[union-attr]
