"""From plan to automaton: built, simplified by small passes, determinized one transition at a time."""
