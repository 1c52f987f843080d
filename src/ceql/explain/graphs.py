"""Graphs in the languages of Graphviz (DOT) and Mermaid."""

from __future__ import annotations

from ceql.visible import visible_lines

MAX_NODE_TEXT = 200
"""Longest text of a node or an edge. The rest is cut, because graphs are read by eye."""

# A backtick after the opening quote would begin Mermaid's Markdown.
_MERMAID_ENTITIES = (
    ("#", "#35;"),
    ('"', "#quot;"),
    ("`", "#96;"),
    ("<", "#lt;"),
    (">", "#gt;"),
    ("\n", "<br/>"),
)


class Graph:
    """Writes the same graph in DOT or in Mermaid."""

    def __init__(self, format: str, direction: str) -> None:
        if format not in ("dot", "mermaid"):
            raise ValueError(f"unknown format {format!r}: choose 'text', 'dot' or 'mermaid'")
        self.is_dot = format == "dot"
        self.n_nodes = 0
        self.lines = [f"digraph query {{\n  rankdir={direction};"] if self.is_dot else [f"flowchart {direction}"]

    def node(self, text: str, shape: str) -> str:
        """Add a node and return its name; `shape` is "box", "initial", "final" or "state"."""
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
        """Add an edge between two nodes, given by their names."""
        if self.is_dot:
            self.lines.append(f"  {source} -> {target}" + (f" [label={self._quoted(text)}];" if text else ";"))
        else:
            self.lines.append(f"  {source} -->" + (f"|{self._quoted(text)}| " if text else " ") + target)

    def text(self) -> str:
        """Return the whole graph."""
        return "\n".join([*self.lines, "}"] if self.is_dot else self.lines)

    def _quoted(self, text: str) -> str:
        text = visible_lines(text)
        shown = text if len(text) <= MAX_NODE_TEXT else text[: MAX_NODE_TEXT - 3] + "..."
        if self.is_dot:
            return '"' + shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        for character, entity in _MERMAID_ENTITIES:
            shown = shown.replace(character, entity)
        return f'"{shown}"'
