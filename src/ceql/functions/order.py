"""The order of values."""

from __future__ import annotations

import math
from typing import Any


def order(left: Any, right: Any) -> int:
    """Return -1, 0 or 1 as left is less than, equal to or greater than right; NaN is the greatest number.

    >>> order(float("nan"), float("inf")), order(float("nan"), float("nan")), order(-0.0, 0.0)
    (1, 0, 0)
    """
    left_is_nan, right_is_nan = _is_nan(left), _is_nan(right)
    if left_is_nan or right_is_nan:
        return int(left_is_nan) - int(right_is_nan)
    return int(left > right) - int(left < right)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
