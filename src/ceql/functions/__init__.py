"""The functions that conditions can call. Each is one entry: name, types, and its meaning on values, columns and Spark.

To add a function, add an entry to the module of its subject. Everything else reads the entries.
"""

from ceql.functions.addresses import ADDRESSES
from ceql.functions.choice import CHOICES
from ceql.functions.entry import Function, common_kind
from ceql.functions.numbers import NUMBERS
from ceql.functions.text import TEXTS
from ceql.functions.times import TIMES

__all__ = ["FUNCTIONS", "Function", "common_kind"]

FUNCTIONS: dict[str, Function] = {entry.name: entry for entry in (*TEXTS, *NUMBERS, *CHOICES, *TIMES, *ADDRESSES)}
"""All functions by name, in capitals."""
