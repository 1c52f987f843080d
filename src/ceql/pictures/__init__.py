"""Pictures of automata and matches, each one text that needs nothing else: SVG, or HTML."""

from ceql.pictures.automaton_svg import automaton_svg
from ceql.pictures.timeline_html import Timeline, timeline

__all__ = ["Timeline", "automaton_svg", "timeline"]
