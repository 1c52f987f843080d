"""Prepares events for the automaton: symbols, measures, slots of keys, rows that are kept."""
