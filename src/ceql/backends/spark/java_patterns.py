"""Which regular expressions may be given to Java.

Java's matcher backtracks, and uses stack for repeated groups: the time for `a*a*a*b` grows with the fourth power of
the text's length, and `(a|b)*` crashes the JVM on a few thousand characters. This module bounds the steps it may take.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_REGEX = 1000
"""Most characters of a regular expression that is given to Java, which uses stack for each of them."""

MAX_STEPS = 1000
"""Most steps that Java may take for a regular expression at each character of the text."""


def is_safe_in_java(regex: str) -> bool:
    """Whether Java finds a portable regular expression in linear time, and its stack does not grow with the text.

    Java begins at every character of the text, unless the expression begins with `^`.
    """
    effort = None if len(regex) > MAX_REGEX else _Efforts(regex).read()
    if effort is None or effort.steps > MAX_STEPS:
        return False
    is_anchored = regex.startswith("^") and not effort.has_alternatives
    return effort.power <= (1 if is_anchored else 0)


@dataclass(frozen=True)
class _Effort:
    """How many steps a backtracking matcher takes from one character on, and in how many ways it can match.

    For a text of length n there are at most `steps` * n ** `power` steps, and `ways` * n ** `ways_power` ways.
    """

    steps: int = 0
    power: int = 0
    ways: int = 1
    ways_power: int = 0
    has_alternatives: bool = False

    def then(self, other: _Effort) -> _Effort:
        """Return the effort for this and then `other`, which is tried again for each way to match this."""
        steps, power = self.steps + self.ways * other.steps, max(self.power, self.ways_power + other.power)
        ways, ways_power = self.ways * other.ways, self.ways_power + other.ways_power
        return _Effort(steps, power, ways, ways_power, self.has_alternatives)

    def otherwise(self, other: _Effort) -> _Effort:
        """Return the effort for alternatives: `other` is tried where this one fails."""
        power, ways_power = max(self.power, other.power), max(self.ways_power, other.ways_power)
        return _Effort(self.steps + other.steps, power, self.ways + other.ways, ways_power, has_alternatives=True)


class _Efforts:
    """Reads a portable regular expression and adds up what Java may spend on it."""

    def __init__(self, regex: str) -> None:
        self.tokens = list(_TOKENS.finditer(regex))
        self.at = 0

    def read(self) -> _Effort | None:
        """Return the effort up to the end of the expression or of the group; None if a group is repeated."""
        done: _Effort | None = None
        branch = _Effort()
        while self.at < len(self.tokens) and self.tokens[self.at]["item"] != ")":
            token = self.tokens[self.at]
            self.at += 1
            if token["item"] == "|":
                done = branch if done is None else done.otherwise(branch)
                branch = _Effort()
                continue
            part = self._group(token) if token["item"] in ("(?:", "(?>") else self._repeated(token)
            if part is None:
                return None
            branch = branch.then(part)
        return branch if done is None else done.otherwise(branch)

    def _group(self, opening: re.Match[str]) -> _Effort | None:
        inner = self.read()
        closing = self.tokens[self.at]
        self.at += 1
        if inner is None or closing["times"] not in ("", "?"):
            return None
        if opening["item"] == "(?>":
            inner = _Effort(inner.steps, inner.power)
        return _Effort(inner.steps + 1, inner.power, inner.ways + (closing["times"] == "?"), inner.ways_power)

    def _repeated(self, token: re.Match[str]) -> _Effort:
        times = token["times"]
        if times in ("", "?"):
            return _Effort(1, ways=1 + len(times))
        low, comma, high = times.strip("{}").partition(",")
        if times[0] == "{" and (high or not comma):
            return _Effort(int(high or low), ways=int(high or low) - int(low) + 1)
        least = int(low) if times[0] == "{" else int(times == "+")
        if self.at == len(self.tokens):
            # At the end of the expression, the least number of repetitions is already a match.
            return _Effort(least + 1)
        return _Effort(least + 1, power=1, ways_power=1)


_TOKENS = re.compile(
    r"(?P<item>\\(?:x..|.)|\[(?:\\.|[^\]\\])*\]|\(\?[:>]|.)(?P<times>(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})?)\??",
    re.DOTALL,
)
"""A character, class or parenthesis, and how often it is repeated."""
