"""Shows a query: its trees, its automaton, its plan, and what it costs. Nothing is decided here: all of it is read."""
