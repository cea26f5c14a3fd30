"""Limits, ticks and numbers as text, shared by every chart. Positions on a log axis are log10 of the value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Limits = tuple[float, float]
Tick = tuple[float, str]

HUGE = 1e307
"""Beyond this a linear axis would overflow when two limits are subtracted."""
TINY = 1e-300
"""Below this a linear axis has no nice steps left (denormals); such a value is drawn as zero."""
DECADES = 12.0
"""How far below its top a log axis reaches: one stray 1e-40 must not flatten the curves that matter."""


# ---------------------------------------------------------------------------------------------- numbers as text


def _power(text: str) -> str:
    """Python's exponent, 2e-04, as a reader writes it: 2e-4."""
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent):+d}" if exponent else text


def format_number(value: float) -> str:
    """A value for a person, in at most six cells: 2e-4, 0.031, 3.1, 12, 1234, 2e+6, 0, NaN, ∞."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 9.995e-4 or size >= 9999.5:
        return _power(f"{value:.0e}")
    if size >= 99.5:
        return f"{value:.0f}"
    digits = 1 - math.floor(math.log10(size))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_step(step: float) -> str:
    """A step or a layer for an axis: 0, 37, 1234, 12.5k, 3M."""
    if not math.isfinite(step):
        return format_number(step)
    if step != round(step) and abs(step) < 1e4:
        return f"{step:.4g}"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(step) >= max(size, 1e4):
            return f"{step / size:.4g}{unit}" if abs(step) < 1e12 else _power(f"{step:.0e}")
    return f"{step:.0f}"


# -------------------------------------------------------------------------------------------------------- limits


def _outward(low: float, high: float, unit: float) -> Limits:
    return math.floor(low / unit + 1e-9) * unit, math.ceil(high / unit - 1e-9) * unit


def log_limits(low: float, high: float) -> Limits:
    """Limits for log10 values between `low` and `high`: at least a decade, at most `DECADES`, some air around.

    At least a decade, so that a healthy flow, even within a factor of two, looks even. The limits move in
    quarters of a decade, so that the axis does not tremble while the data moves.
    """
    low = max(low, high - DECADES)
    slack = max(0.0, 1.0 - (high - low)) / 2
    air = 0.03 * max(high - low, 1.0)
    return _outward(low - slack - air, high + slack + air, 0.25)


def linear_limits(low: float, high: float) -> Limits:
    """Limits for values between `low` and `high`, with some air around and never of zero width."""
    size = max(abs(low), abs(high))
    if size == 0:
        return -1.0, 1.0
    # A spread below a five-hundredth of the value is shown flat: labels would need too many digits to differ.
    least = 0.2 * size if low == high else 2e-3 * size
    slack = max(0.0, least - (high - low)) / 2
    air = 0.04 * max(high - low, least)
    unit = nice_step(max(high - low, least) / 10)
    floor, top = _outward(low - slack - air, high + slack + air, unit)
    # A norm or a loss is never negative: air must not invent a part of the axis below zero.
    return (0.0, top) if low >= 0 > floor else (floor, top)


# --------------------------------------------------------------------------------------------------------- ticks


def nice_step(least: float) -> float:
    """The smallest of 1, 2, 5 × 10ⁿ that is at least `least` (> 0)."""
    unit = 10.0 ** math.floor(math.log10(least))
    for factor in (1.0, 2.0, 5.0):
        if factor * unit >= least * (1 - 1e-9):
            return factor * unit
    return 10.0 * unit


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def _linear_labels(values: list[float], step: float) -> list[str]:
    size = max((abs(value) for value in values), default=0.0)
    order = math.floor(math.log10(step) + 1e-9)
    if size >= 99999.5 or (size and size < 1e-3):
        digits = max(0, math.floor(math.log10(size) + 1e-9) - order)
        return [_power(f"{value:.{digits}e}") if value else "0" for value in values]
    return [f"{value + 0.0:.{max(0, -order)}f}" for value in values]


def linear_ticks(low: float, high: float, count: int) -> list[Tick]:
    """At most `count` round values from `low` to `high`, evenly spaced, with labels of the same precision."""
    span = high - low
    if span <= 0 or count < 1:
        return []
    step = nice_step(span / count)
    while len(values := _multiples(low, high, step)) > count:
        step = nice_step(step * 1.5)
    return list(zip(values, _linear_labels(values, step), strict=True))


def _decade_label(mantissa: int, exponent: int, plain: bool) -> str:
    if not plain:
        return f"{mantissa}e{exponent:+d}"
    return f"{mantissa * 10**exponent}" if exponent >= 0 else f"{mantissa * 10.0**exponent:.{-exponent}f}"


def _decade_ticks(low: float, high: float, mantissas: tuple[int, ...], every: int) -> list[Tick]:
    exponents = range(math.floor(low), math.ceil(high) + 1)
    kept = [
        (position, mantissa, exponent)
        for exponent in exponents
        if exponent % every == 0
        for mantissa in mantissas
        if low - 1e-9 <= (position := exponent + math.log10(mantissa)) <= high + 1e-9
    ]
    plain = all(-3 <= exponent <= 3 for _, _, exponent in kept)
    return [(position, _decade_label(mantissa, exponent, plain)) for position, mantissa, exponent in kept]


def log_ticks(low: float, high: float, count: int) -> list[Tick]:
    """At most `count` ticks on a log axis from 10^low to 10^high: as fine as fits, down to parts of a decade."""
    if high - low < 0.6 and -290 < low and high < 290:
        inside = linear_ticks(10.0**low, 10.0**high, count)
        if len(inside) >= 2:
            return [(math.log10(float(value)), label) for value, label in inside if value > 0]
    choices: list[tuple[tuple[int, ...], int]] = [((1, 2, 5), 1), ((1, 3), 1)]
    choices += [((1,), every) for every in (1, 2, 3, 4, 5, 6, 10, 20, 50, 100, 200)]
    for mantissas, every in choices:
        ticks = _decade_ticks(low, high, mantissas, every)
        if len(ticks) <= count:
            return ticks
    return []


@dataclass(frozen=True, slots=True)
class Ruler:
    """Which label stands in which cell, along an axis of a known number of cells; cell 0 is the lowest value."""

    cells: tuple[tuple[int, str], ...]

    def width(self, measure: Callable[[str], int]) -> int:
        return max((measure(label) for _, label in self.cells), default=0)


def cell_of(fraction: float, cells: int) -> int:
    """The cell in which a fraction of the axis falls: 0 is the middle of the first cell, 1 of the last."""
    return min(cells - 1, max(0, int(0.5 + fraction * (cells - 1))))


def y_ruler(limits: Limits, log: bool, rows: int) -> Ruler:
    """Ticks for a y axis of `rows` rows (0 at the bottom), at least two rows apart where there is a choice."""
    low, high = limits
    count = max(2, (rows + 1) // 2)
    ticks = log_ticks(low, high, count) if log else linear_ticks(low, high, count)
    cells: dict[int, str] = {}
    for position, label in ticks:
        cells.setdefault(cell_of((position - low) / (high - low), rows), label)
    return Ruler(tuple(cells.items()))


LAYER_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 25, 30, 50, 100)


def layer_ticks(low: float, high: float, width: int) -> list[Tick]:
    """Ticks for an axis of whole layers: a step that ends on the last layer where there is one, else 1-2-5."""
    span = high - low
    room = max(2, width // 6)
    if low == round(low) and span == round(span) and 0 < span <= 400:
        for step in LAYER_STEPS:
            if span % step == 0 and span / step <= room:
                if span / step == 1 and span > 2:
                    break
                return [(low + k * step, format_step(low + k * step)) for k in range(int(span / step) + 1)]
    return step_ticks(low, high, width)


def step_ticks(low: float, high: float, width: int) -> list[Tick]:
    """Round values for an axis of steps, `width` cells long, sparse enough for their labels."""
    span = high - low
    if span <= 0:
        return [(low, format_step(low))]
    step = nice_step(span / max(1, width // 8))
    if low == round(low) and high == round(high):
        step = max(1.0, step)
    return [(value, format_step(_tidy(value))) for value in _multiples(low, high, step)]


def _tidy(value: float) -> float:
    return float(f"{value:.12g}")


def cells_for(ticks: Iterable[Tick], limits: Limits, cells: int) -> list[tuple[int, str]]:
    """Ticks as (cell, label), those outside the limits left out."""
    low, high = limits
    return [(cell_of((at - low) / (high - low), cells), label) for at, label in ticks if low <= at <= high]
