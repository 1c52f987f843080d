"""Pictures of automata and matches. Each is a single SVG or HTML text that needs nothing else."""

from ceql.pictures.automaton_svg import automaton_svg
from ceql.pictures.timeline_html import Timeline, timeline

__all__ = ["Timeline", "automaton_svg", "timeline"]
