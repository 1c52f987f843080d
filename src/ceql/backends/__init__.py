"""Thin adapters between data and engine; they contain no semantics."""
