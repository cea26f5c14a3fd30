"""Bounds as people write them: < 1, ≤ 1, > 1, ≥ 1, 0.5 … 2."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

ALLOWED = "< 1, ≤ 1, > 1, ≥ 1, or 0.5 … 2"
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_ONE_SIDED = re.compile(rf"(<=|>=|<|>|≤|≥)\s*{_NUMBER}")
_RANGE = re.compile(rf"{_NUMBER}\s*(?:…|\.\.\.?)\s*{_NUMBER}")


@dataclass(frozen=True, slots=True)
class Bound:
    """An interval; `closed` says whether its finite ends belong to it."""

    low: float
    high: float
    closed: bool

    def contains(self, value: float) -> bool:
        """Whether `value` lies inside; NaN never does."""
        if self.closed:
            return self.low <= value <= self.high
        return self.low < value < self.high

    def settled(self, extreme: float, take: Literal["min", "max"]) -> bool | None:
        """What the smallest or largest value so far says of the final one, which may only go on in its direction.

        True: it will lie inside whatever comes; False: outside; None: still open.
        """
        if take == "max":
            beyond = extreme > self.high or (extreme == self.high and not self.closed)
            sure = self.high == math.inf
        else:
            beyond = extreme < self.low or (extreme == self.low and not self.closed)
            sure = self.low == -math.inf
        if beyond:
            return False
        return True if sure and self.contains(extreme) else None


def parse_bound(text: str) -> Bound | None:
    """The bound written as `text`, or None where it is not one of ALLOWED."""
    one = _ONE_SIDED.fullmatch(text.strip())
    if one:
        sign, number = one.group(1), float(one.group(2))
        if not math.isfinite(number):
            return None
        closed = sign in ("<=", ">=", "≤", "≥")
        return Bound(-math.inf, number, closed) if sign in ("<", "<=", "≤") else Bound(number, math.inf, closed)
    two = _RANGE.fullmatch(text.strip())
    if two:
        low, high = float(two.group(1)), float(two.group(2))
        return Bound(low, high, True) if math.isfinite(low) and math.isfinite(high) and low <= high else None
    return None
