"""What a chart is: numbers and words in, styled text out. Nothing here draws.

A renderer returns `Lines`: exactly `height` lists of spans, each list exactly `width` terminal cells wide.
Text that comes from a user (labels, sentences) is shown as it is; it is never read as markup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from gradtui.charts.scale import format_step

Array = npt.NDArray[Any]
Ticks = tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text in one style. Colours are "#rrggbb", or None for the terminal's own."""

    text: str
    color: str | None = None
    background: str | None = None
    bold: bool = False
    dim: bool = False


Lines = list[list[Span]]
# Draws a chart; arguments: columns, rows (cells).
Painter = Callable[[int, int], Lines]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One curve.

    x, y: the same length; x sorted (layers or steps). Values may be NaN, infinite, zero or negative: each is
      shown as a mark on the edge of the chart, none is dropped. Points with a non-finite x cannot be placed.
    low, high: where each y stands for a bucket of steps, the extrema inside that bucket.
    mark: one cell wide; tells curves apart without colour.
    dim: draw it in the background (a pinned run beside the focused one).
    breaks: x positions, sorted, across which the line is not drawn (from one stack of layers to the next).
    named: whether the legend lists it.
    """

    label: str
    x: Array
    y: Array
    color: str
    mark: str = ""
    dim: bool = False
    low: Array | None = None
    high: Array | None = None
    breaks: tuple[float, ...] = ()
    named: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """Curves over one pair of axes. The first series is drawn on top of the others.

    log: log10 y axis. x_limits, y_limits: the window, in the units of the data; None fits it to the data.
    x_ticks: (x, label) pairs; None lets the chart choose. cursor: an x to mark with a vertical line.
    markers: draw each series' mark at its data points (by depth), else at its right end only (over time).
    empty, too_small: the sentence shown where there is nothing to draw, or no room to draw it.
    gutter: least width of the column of y labels, so that stacked charts line up.
    bands: where each part of the x axis begins, and its name (the stacks of an encoder and a decoder).
    """

    series: tuple[Series, ...]
    log: bool = False
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    x_ticks: Ticks | None = None
    x_name: str = ""
    cursor: float | None = None
    empty: str = ""
    markers: bool = False
    too_small: str = ""
    gutter: int = 0
    bands: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class HeatMap:
    """Magnitude by layer (up) and step (right).

    values: [layers, columns]; row 0 is layer 0 and is drawn at the bottom.
    x: [columns], sorted: the step of each column (of a bucket: its first step); None counts from 0.
    nonfinite: [layers, columns]: buckets that hold a non-finite value although their mean is finite. Values
      that are themselves non-finite need no mask. Whatever the size, such a cell stays visible.
    absent: [layers, columns]: where there is no value at all, which is no trouble; such a cell stays empty.
    log: colour by log10; zero and below take the lowest colour. limits: values at the ends of the scale.
    x_limits: first and last step of the axis; a run that is still going fills its share of it.
    row_labels: a name per row; None numbers them from 0. cursor: a step.
    bands: the row at which each stack of layers begins, and its name, which stands for that row's label.
    gutter, empty, too_small: as in Chart.
    """

    values: Array
    x: Array | None = None
    nonfinite: Array | None = None
    absent: Array | None = None
    log: bool = True
    limits: tuple[float, float] | None = None
    x_limits: tuple[float, float] | None = None
    x_ticks: Ticks = ()
    x_format: Callable[[float], str] = format_step
    x_name: str = ""
    row_labels: tuple[str, ...] | None = None
    cursor: float | None = None
    empty: str = ""
    too_small: str = ""
    gutter: int = 0
    bands: tuple[tuple[int, str], ...] = ()
