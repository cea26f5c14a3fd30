"""Limits, ticks and numbers as text, shared by every chart.

In axis units a position on a log axis is the log10 of the value, on a linear axis the value itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

Limits = tuple[float, float]
Tick = tuple[float, str]

HUGE = 1e307
"""Beyond this a linear axis would overflow when two limits are subtracted."""
TINY = 1e-300
"""Below this a linear axis has no nice steps left (denormals); such a value is drawn as zero."""
DECADES = 12.0
"""How far below its top a log axis reaches: one stray 1e-40 must not flatten the curves that matter."""


# ------------------------------------------------------------------------------------- numbers as text


def _power(text: str) -> str:
    """Python's exponent, 2e-04, as a reader writes it: 2e-4."""
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent):+d}" if exponent else text


def format_number(value: float) -> str:
    """A value for a person, in at most seven cells: 2e-4, 0.031, 3.1, 12, 1234, 2e+6, 0, NaN, ∞."""
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


# ----------------------------------------------------------------------------------------------- ticks


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
    """At most `count` ticks on a log axis from 10^low to 10^high, as fine as fits, down to parts of one."""
    if high - low < 0.6 and low > -290 and high < 290:
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


FIRST, ENDS = 0.5016585662, 1.003174718
"""Half a cell and a whole one with plotext's nudge: on a tie its line and our mark must fall in one cell."""


def cell_of(fraction: float, cells: int) -> int:
    """The cell in which a fraction of an axis falls: 0 is the middle of the first cell, 1 of the last."""
    return min(cells - 1, max(0, int(FIRST + (cells - ENDS) * fraction)))


def cells_for(ticks: Iterable[Tick], limits: Limits, cells: int) -> list[tuple[int, str]]:
    """Ticks as (cell, label), those outside the limits left out, the first kept where two share a cell."""
    low, high = limits
    slack = 1e-9 * (high - low)
    labels: dict[int, str] = {}
    for at, label in ticks:
        if low - slack <= at <= high + slack:
            labels.setdefault(cell_of((at - low) / (high - low), cells), label)
    return list(labels.items())


# -------------------------------------------------------------------------- an axis that fits its data
#
# One row of a chart is one unit, and every tick is a whole number of units: so a tick stands exactly in the
# middle of its row, ticks are evenly spaced, and the axis moves by whole rows while the data moves.


class Axis(NamedTuple):
    """Limits (the middles of the first and the last row) and ticks, in axis units."""

    limits: Limits
    ticks: list[Tick]


def _placed(low: float, high: float, unit: float, rows: int, positive: bool) -> Limits | None:
    """Limits on multiples of `unit` with the data in their middle, or None where `rows` rows do not reach.

    positive: the axis stays above zero where the data does. A norm or a loss is never negative, and spare
    rows must not suggest that it could be.
    """
    first = math.floor(low / unit + 1e-9)
    spare = first + rows - 1 - math.ceil(high / unit - 1e-9)
    if spare < 0:
        return None
    first -= min(spare // 2, first) if positive and first >= 0 else spare // 2
    return first * unit, (first + rows - 1) * unit


LOG_UNITS = tuple(
    sorted(
        [(1 / rows, 1) for rows in range(1, 41)]
        + [(every / rows, every) for every in (2, 3, 4, 5, 6, 8, 10, 20, 50, 100, 200) for rows in (1, 2, 3)]
    )
)
"""(decades a row, decades a tick); where that is one, ticks may be finer or coarser, as the room allows."""
LEAST_ROWS = 5
"""Below this many rows whole units waste too much of them: the axis ends where the data does."""


def fit_log(low: float, high: float, rows: int) -> Axis:
    """An axis of `rows` rows (at least 2) for log10 values from `low` to `high`.

    It spans at least a decade, so that a healthy flow, even within a factor of two, looks even; and no more
    than about `DECADES` below the top.
    """
    low = max(low, high - DECADES)
    slack = max(0.0, 1.0 - (high - low)) / 2
    low, high = low - slack, high + slack
    if rows < LEAST_ROWS:
        return given_axis((low, high), True, rows)
    count = max(2, (rows + 1) // 2)
    for unit, every in LOG_UNITS:
        if (limits := _placed(low, high, unit, rows, positive=False)) is not None:
            ticks = log_ticks(*limits, count) if every == 1 else _decade_ticks(*limits, (1,), every)
            return Axis(limits, ticks)
    return given_axis((low, high), True, rows)


def fit_linear(low: float, high: float, rows: int) -> Axis:
    """An axis of `rows` rows (at least 2) for values from `low` to `high`.

    A spread below a five-hundredth of the value is shown flat: labels would need too many digits to differ.
    """
    size = max(abs(low), abs(high))
    least = 2e-3 * size if size else 1.0
    if high - low < 1e-9 * size:
        least = 0.2 * size
    slack = max(0.0, least - (high - low)) / 2
    low, high = low - slack, high + slack
    if rows < LEAST_ROWS:
        return given_axis((low, high), False, rows)
    ten = 10.0 ** math.floor(math.log10((high - low) / (rows - 1)))
    tick_rows = (2, 3) if rows < 16 else (2, 3, 4, 5)
    units = [(ten * factor / every, ten * factor) for factor in (1, 2, 5, 10, 20, 50, 100) for every in tick_rows]
    for unit, step in sorted(units):
        if (limits := _placed(low, high, unit, rows, positive=True)) is not None:
            values = _multiples(*limits, step)
            return Axis(limits, list(zip(values, _linear_labels(values, step), strict=True)))
    return given_axis((low, high), False, rows)


def given_axis(limits: Limits, log: bool, rows: int) -> Axis:
    """An axis whose limits are given: they need not be ticks."""
    count = max(2, (rows + 1) // 2)
    return Axis(limits, (log_ticks if log else linear_ticks)(*limits, count))


# ------------------------------------------------------------------------------------- layers and steps


LAYER_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 25, 30, 50, 100)


def layer_ticks(low: float, high: float, width: int) -> list[Tick]:
    """Ticks for an axis of whole layers, at a distance that gives the last layer a tick too, else 1, 2, 5 …"""
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
