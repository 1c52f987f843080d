"""What events become before the automaton sees them: symbols, measures, slots of keys, rows that are kept."""
