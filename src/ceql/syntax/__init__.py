"""From query text to a plan: `parser` gives the tree, `bind` resolves names and types."""
