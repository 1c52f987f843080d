"""An automaton as a list of transitions or as a graph."""

from __future__ import annotations

from collections import defaultdict

from ceql.automaton.cea import CEA
from ceql.explain.graphs import Graph
from ceql.explain.predicates import silences_text, transition_text


def render_automaton(cea: CEA, format: str) -> str:
    """Return an automaton as a list of transitions, DOT or Mermaid."""
    if format == "text":
        head = f"{cea.n_states} states, {len(cea.transitions)} transitions; initial {cea.initial}, final {cea.final}"
        transitions = sorted(cea.transitions, key=lambda transition: (transition.source, transition.target))
        lines = (f"{one.source} -[{transition_text(one)}]-> {one.target}" for one in transitions)
        return "\n".join([head, *lines, *silences_text(cea)])
    graph = Graph(format, "LR")
    for state in range(cea.n_states):
        is_final = state == cea.final
        graph.node(str(state), shape="final" if is_final else "initial" if state == cea.initial else "state")
    parallel: dict[tuple[int, int], list[str]] = defaultdict(list)
    for transition in cea.transitions:
        parallel[transition.source, transition.target].append(transition_text(transition))
    for (source, target), texts in parallel.items():
        graph.edge(f"n{source}", f"n{target}", "\n".join(texts))
    for text in silences_text(cea):
        graph.node(text, shape="box")
    return graph.text()
