"""Event streams to try queries on."""
