"""Matches of Spark DataFrames."""
