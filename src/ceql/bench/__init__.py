"""The experiments of the paper, and what they are measured against."""
