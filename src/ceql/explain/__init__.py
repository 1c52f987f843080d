"""Shows a query: its trees, its automaton, its plan, and what it costs. This package decides nothing; it only reads."""
