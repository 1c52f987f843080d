"""Runs the automaton: kernel, arena, run state."""
