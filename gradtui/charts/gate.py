"""The gate in front of plotext.

plotext 6 aborts the whole process on a NaN inside a line and on values far outside the limits of an axis.
So nothing reaches it but plain floats inside the unit square, few of them; whatever cannot be drawn as a
point of a line (NaN, infinity, zero on a log axis, a value off the window) comes out as a mark on the edge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gradtui.charts.scale import ENDS, FIRST, HUGE, TINY, Axis, Limits, Tick, fit_linear, fit_log, given_axis
from gradtui.charts.spec import Array, Chart, Series

Floats = npt.NDArray[np.float64]
Kind = Literal["nonfinite", "below", "above"]
Segment = tuple[list[float], list[float]]


@dataclass(frozen=True, slots=True)
class Window:
    """What part of the plane is shown. x in the data's units; y in its units too, or log10 of them."""

    x: Limits
    y: Limits
    y_ticks: tuple[Tick, ...]
    log: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that no line can show, at a fraction x of the width, on the top or the bottom edge.

    kind: "nonfinite" is NaN or ±infinity; "below" and "above" are off the window (on a log axis zero and the
    negative numbers are "below").
    """

    x: float
    kind: Kind
    top: bool


@dataclass(frozen=True, slots=True)
class Gated:
    """A series that is safe to draw: x and y are fractions of the window, (0, 0) at its lower left corner."""

    segments: tuple[Segment, ...]
    marks: tuple[Mark, ...]

    def points(self) -> list[tuple[float, float]]:
        return [point for xs, ys in self.segments for point in zip(xs, ys, strict=True)]


def _floats(values: Array) -> Floats:
    return np.asarray(values, dtype=np.float64).ravel()


def _columns(series: Series) -> tuple[Floats, tuple[Floats, ...]]:
    """x, and y with its envelope; cut to one length, sorted by x, without the points that have no place."""
    x = _floats(series.x)
    ys = [_floats(values) for values in (series.y, series.low, series.high) if values is not None]
    length = min(len(x), *(len(values) for values in ys))
    x, ys = x[:length], [values[:length] for values in ys]
    placed = np.isfinite(x)
    if not placed.all():
        x, ys = x[placed], [values[placed] for values in ys]
    if len(x) > 1 and (x[1:] < x[:-1]).any():
        order = np.argsort(x, kind="stable")
        x, ys = x[order], [values[order] for values in ys]
    return np.clip(x, -HUGE, HUGE), tuple(ys)


def _axis_units(values: Floats, log: bool) -> Floats:
    """Values in axis units; −inf where a log axis would need one below its end, NaN where not finite."""
    if log:
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log10(values)
        return np.where(np.isposinf(values) | np.isnan(values), np.nan, np.where(values > 0, logs, -np.inf))
    units = np.where(np.isfinite(values), values, np.nan)
    return np.where(np.abs(units) < TINY, 0.0, units)


def _limits_given(limits: tuple[float, float] | None, log: bool) -> tuple[float, float] | None:
    """Limits from a caller, in axis units, or None where they make no axis."""
    if limits is None:
        return None
    low, high = (float(limit) for limit in limits)
    if not (math.isfinite(low) and math.isfinite(high)) or (log and (low <= 0 or high <= 0)):
        return None
    low, high = (math.log10(low), math.log10(high)) if log else (max(low, -HUGE), min(high, HUGE))
    wide = high - low > 1e-9 * max(abs(low), abs(high), TINY * 1e9)
    return (low, high) if wide else None


def window(chart: Chart, rows: int) -> Window | None:
    """The window of a chart that is `rows` rows high, or None where no series has a point to show in it."""
    columns = [_columns(series) for series in chart.series]
    columns = [(x, ys) for x, ys in columns if len(x)]
    if not columns:
        return None
    x_limits = _limits_given(chart.x_limits, log=False)
    if x_limits is None:
        low = min(float(x[0]) for x, _ in columns)
        high = max(float(x[-1]) for x, _ in columns)
        half = max(0.5, 1e-6 * abs(low))
        x_limits = (low, high) if high - low > 1e-9 * abs(high) else (low - half, low + half)
    shown = [(x >= x_limits[0]) & (x <= x_limits[1]) for x, _ in columns]
    if not any(keep.any() for keep in shown):
        return None
    y_limits = _limits_given(chart.y_limits, chart.log)
    if y_limits is not None:
        axis = given_axis(y_limits, chart.log, rows)
    else:
        values = [y[keep] for (_, ys), keep in zip(columns, shown, strict=True) for y in ys]
        axis = _fitted(_axis_units(np.concatenate(values), chart.log), chart.log, max(2, rows))
    return Window(x_limits, axis.limits, tuple(axis.ticks), chart.log)


def _fitted(units: Floats, log: bool, rows: int) -> Axis:
    units = units[np.isfinite(units)]
    if not len(units):
        return fit_log(-1.0, 0.0, rows) if log else fit_linear(0.0, 1.0, rows)
    units = np.clip(units, -HUGE, HUGE)
    return (fit_log if log else fit_linear)(float(units.min()), float(units.max()), rows)


def _with_envelope(x: Floats, ys: tuple[Floats, ...]) -> tuple[Floats, Floats]:
    """Each point with its extrema, in an order that does not zigzag: rising data goes low, y, high."""
    if len(ys) == 1:
        return x, ys[0]
    y = ys[0]
    rising = np.ones(len(x), dtype=bool)
    if len(x) > 1:
        with np.errstate(invalid="ignore"):
            rising[:-1] = y[1:] >= y[:-1]
        rising[-1] = rising[-2]
    low, high = (ys[1], ys[2]) if len(ys) == 3 else (ys[1], ys[1])
    stacked = np.stack([np.where(rising, low, high), y, np.where(rising, high, low)], axis=1)
    return np.repeat(x, 3), stacked.ravel()


def decimate(columns: npt.NDArray[np.int64], values: Floats) -> npt.NDArray[np.int64]:
    """Indices of the lowest and the highest value of every column, in order; `columns` is sorted."""
    if len(columns) == 0:
        return np.empty(0, dtype=np.int64)
    order = np.lexsort((values, columns))
    starts = np.flatnonzero(np.r_[True, columns[1:] != columns[:-1]])
    ends = np.r_[starts[1:], len(columns)] - 1
    return np.unique(np.concatenate([order[starts], order[ends]]))


def pass_through(series: Series, view: Window, columns: int) -> Gated:
    """What of a series may be drawn in a window that is `columns` cells wide.

    At most two points a column leave, the extrema among them; the line is broken wherever a value that is not
    finite lies between two points, and so is it where the axis ends below (zero on a log axis).
    """
    x, ys = _columns(series)
    keep = (x >= view.x[0]) & (x <= view.x[1])
    x, ys = x[keep], tuple(values[keep] for values in ys)
    x, y = _with_envelope(x, ys)
    units = _axis_units(y, view.log)
    across = np.clip((x - view.x[0]) / (view.x[1] - view.x[0]), 0.0, 1.0)
    low, high = view.y
    finite = np.isfinite(units)
    up = np.zeros(len(units))
    up[finite] = (np.clip(units[finite], low, high) - low) / (high - low)
    up = np.clip(up, 0.0, 1.0)
    cell = np.floor(FIRST + (columns - ENDS) * across).astype(np.int64)

    at = np.flatnonzero(finite)
    at = at[decimate(cell[at], up[at])]
    breaks = np.cumsum(~finite)[at]
    if series.breaks:
        breaks = breaks + np.searchsorted(np.asarray(series.breaks, dtype=np.float64), x[at])
    segments = tuple(
        (across[part].tolist(), up[part].tolist())
        for part in np.split(at, np.flatnonzero(np.diff(breaks)) + 1)
        if len(part)
    )
    slack = 1e-9 * (high - low)
    down = np.isneginf(y)
    off: tuple[tuple[Kind, bool, npt.NDArray[np.bool_]], ...] = (
        ("nonfinite", True, np.isnan(units) & ~down),
        ("nonfinite", False, np.isnan(units) & down),
        ("below", False, np.isneginf(units) | (finite & (units < low - slack))),
        ("above", True, finite & (units > high + slack)),
    )
    marks: list[Mark] = []
    for kind, top, where in off:
        if where.any():
            _, first = np.unique(cell[where], return_index=True)
            marks += [Mark(place, kind, top) for place in across[where][first].tolist()]
    return Gated(segments, tuple(marks))
