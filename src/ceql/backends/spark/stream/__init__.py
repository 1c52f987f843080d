"""Matches of streaming DataFrames."""
