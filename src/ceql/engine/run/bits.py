"""Sets of small numbers as bits of 64-bit words."""

from __future__ import annotations

from typing import Any

import numpy as np

from ceql.engine.inlining import inlined

IntArray = np.ndarray[Any, np.dtype[Any]]

U = np.uint64
"""Numba does not test unsigned indices for negative numbers."""

DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
BIT_OF = np.zeros(64, np.int64)
for _bit in range(64):
    BIT_OF[int((np.uint64((int(DE_BRUIJN) << _bit) & (2**64 - 1))) >> np.uint64(58))] = _bit
"""A power of two's exponent is `BIT_OF[(power * DE_BRUIJN) >> 58]`."""


@inlined
def lowest(bits: Any) -> Any:
    """Return the least number in a word that is not empty."""
    return BIT_OF[((bits & (~bits + U(1))) * DE_BRUIJN) >> U(58)]


@inlined
def without_lowest(bits: Any) -> Any:
    """Return a word without its least number."""
    return bits & (bits - U(1))


@inlined
def add(numbers: Any, number: Any) -> None:
    """Add a number to a set."""
    numbers[U(number >> 6)] |= U(1) << U(number & 63)


@inlined
def remove(numbers: Any, number: Any) -> None:
    """Remove a number from a set."""
    numbers[U(number >> 6)] &= ~(U(1) << U(number & 63))


def members(numbers: IntArray) -> IntArray:
    """Return the numbers in a set."""
    return np.flatnonzero(np.unpackbits(numbers.view(np.uint8), bitorder="little"))
