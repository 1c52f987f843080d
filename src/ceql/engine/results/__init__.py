"""Matches as Arrow data."""
