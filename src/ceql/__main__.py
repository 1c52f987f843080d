"""Lets `python -m ceql` stand for the command `ceql`."""

from ceql.cli import app

app()
