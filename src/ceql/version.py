"""The version, where both the package and its snapshots find it."""

__version__ = "0.1.0"
