"""Bounds as people write them, and what measured values make of a claim. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "holds with a caveat", "does not hold here"]
HOLDS: Verdict = "holds"
CAVEAT: Verdict = "holds with a caveat"
FAILS: Verdict = "does not hold here"

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


def judge(bound: Bound, values: Sequence[float], *, caveat: bool) -> Verdict:
    """What the values of all seeds, at least one, say.

    A claim holds where every seed lies within the bound. Where the median does but some seed does not, that is
    a caveat, as is the one that a claim itself carries.
    """
    inside = [bound.contains(value) for value in values]
    if inside and all(inside):
        return CAVEAT if caveat else HOLDS
    return CAVEAT if bound.contains(median(values)) else FAILS


def median(values: Sequence[float]) -> float:
    """The middle value (the lower of two); NaN where any value is NaN or there is none."""
    if not values or any(math.isnan(value) for value in values):
        return math.nan
    return sorted(values)[(len(values) - 1) // 2]
