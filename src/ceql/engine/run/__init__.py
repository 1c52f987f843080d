"""The automaton at work: kernel, arena, run state."""
