"""Pictures of automata and matches."""
