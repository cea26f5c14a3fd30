"""Magnitude by layer and step: when something happened, and from which side. No plotext in here.

Colour mode draws two layers a row with half blocks in viridis, which is even to the eye and safe for the colour
blind. Shade mode says the same with five glyphs, for 16 colours and for NO_COLOR.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len

from gradtui.charts.cells import BOLD, DIM, PLAIN, Grid, Label, Style, clean, draw_axes, place_labels, sentence
from gradtui.charts.scale import DECADES, HUGE, cell_of, format_number, format_step
from gradtui.charts.spec import Array, HeatMap, Lines

Mode = Literal["color", "shade"]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

MIN_WIDTH, MIN_HEIGHT = 16, 5
MAX_GUTTER = 9
LEAST_DECADES = 2.0
"""A log scale spans at least this much below its top, so that an even flow is evenly bright."""

SHADES = "·░▒▓█"
LEVELS = 64
NONFINITE = "✕"
NONFINITE_STYLE = Style("#ffffff", "#d4145a", True)
BLOCKS = "▁▂▃▄▅▆▇█"

# Points of viridis (Smith and van der Walt, CC0), evenly spaced; colours between them are linear.
VIRIDIS = (
    (68, 1, 84),
    (71, 44, 122),
    (59, 81, 139),
    (44, 113, 142),
    (33, 144, 141),
    (39, 173, 129),
    (92, 200, 99),
    (170, 220, 50),
    (253, 231, 37),
)


def color_at(level: float) -> str:
    """The colour of a level from 0 to 1, as "#rrggbb"."""
    place = min(1.0, max(0.0, level)) * (len(VIRIDIS) - 1)
    index = min(len(VIRIDIS) - 2, int(place))
    share = place - index
    return "#" + "".join(
        f"{round(low + (high - low) * share):02x}"
        for low, high in zip(VIRIDIS[index], VIRIDIS[index + 1], strict=True)
    )


@cache
def _palette() -> tuple[str, ...]:
    return tuple(color_at(level / (LEVELS - 1)) for level in range(LEVELS))


# ------------------------------------------------------------------------------------------------------ resampling


class Field(NamedTuple):
    """Values in the units of the scale (log10 of them on a log scale); NaN where there is no data."""

    values: Floats
    bad: Flags


def _field(values: Array, nonfinite: Array | None, log: bool) -> Field:
    """The values in scale units and where they are not finite; what a log cannot take becomes −inf."""
    raw = np.atleast_2d(np.asarray(values, dtype=np.float64))
    bad = ~np.isfinite(raw)
    if log:
        with np.errstate(divide="ignore", invalid="ignore"):
            units = np.where(raw > 0, np.log10(raw), -np.inf)
    else:
        units = np.clip(raw, -HUGE, HUGE)
    units = np.where(bad, np.nan, units)
    if nonfinite is not None:
        mask = np.asarray(nonfinite, dtype=bool)
        if mask.shape == bad.shape:
            bad = bad | mask
    return Field(units, bad)


def _mean_groups(field: Field, starts: Counts, ends: Counts) -> Field:
    """Mean over columns [start, end) of each group; one bad value makes the whole group bad.

    Prefix sums: a group costs the same whatever its size. The mean is over the finite values.
    """
    counted = np.isfinite(field.values)
    zeros = np.zeros((field.values.shape[0], 1))
    sums = np.concatenate([zeros, np.cumsum(np.where(counted, field.values, 0.0), axis=1)], axis=1)
    counts = np.concatenate([zeros, np.cumsum(counted, axis=1)], axis=1)
    bads = np.concatenate([zeros, np.cumsum(field.bad, axis=1)], axis=1)
    total = counts[:, ends] - counts[:, starts]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (sums[:, ends] - sums[:, starts]) / total
    return Field(means, bads[:, ends] > bads[:, starts])


def _groups(items: int, cells: int) -> tuple[Counts, Counts]:
    """Which items [start, end) each of `cells` cells stands for; an item may fill several cells."""
    edges = np.arange(cells + 1) * items
    starts = edges[:-1] // cells
    return starts, np.maximum(starts + 1, -(-edges[1:] // cells) if items > cells else starts + 1)


def _step_groups(x: Floats, x_limits: tuple[float, float], columns: int) -> tuple[Counts, Counts]:
    """Which data columns [start, end) each cell of the step axis stands for; start == end where there is none."""
    gaps = np.diff(x)
    gaps = gaps[gaps > 0]
    pitch = float(np.median(gaps)) if len(gaps) else 1.0
    low, high = x_limits[0], x_limits[1] + pitch
    edges = low + (high - low) * (np.arange(columns + 1) / columns)
    edges[-1] = np.inf
    bounds = np.searchsorted(x, edges, side="left")
    starts, ends = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
    # A cell narrower than a step shows the step it lies in, until the last step ends.
    held = (ends == starts) & (starts > 0) & (edges[:-1] < x[-1] + pitch * (1 - 1e-9) if len(x) else False)
    starts = np.where(held, starts - 1, starts)
    return starts, np.where(held, starts + 1, ends)


def _scale(field: Field, heat: HeatMap) -> tuple[float, float]:
    """Both ends of the scale, in its units."""
    if heat.limits is not None:
        low, high = (float(limit) for limit in heat.limits)
        if math.isfinite(low) and math.isfinite(high) and low < high and (not heat.log or low > 0):
            return (math.log10(low), math.log10(high)) if heat.log else (low, high)
    known = field.values[np.isfinite(field.values)]
    if not len(known):
        return (-1.0, 0.0) if heat.log else (0.0, 1.0)
    low, high = float(known.min()), float(known.max())
    if heat.log:
        return max(high - DECADES, min(low, high - LEAST_DECADES)), high
    return (low, high) if high > low else (low - max(1.0, abs(low)), high)


# --------------------------------------------------------------------------------------------------------- drawing


def render_heatmap(heat: HeatMap, width: int, height: int, mode: Mode = "color") -> Lines:
    """Draw a heat map into exactly width × height cells; see `HeatMap`.

    mode: "color" for truecolor and 256 colours, "shade" for 16 colours and none. A cell that holds a value that
    is not finite shows ✕ in both. Never raises on account of the numbers.
    """
    width, height = max(0, width), max(0, height)
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return sentence(heat.too_small, width, height)
    field = _field(heat.values, heat.nonfinite, heat.log)
    layers, steps = field.values.shape
    x = np.arange(steps, dtype=np.float64) if heat.x is None else np.asarray(heat.x, dtype=np.float64).ravel()
    steps = min(steps, len(x))
    placed = np.isfinite(x[:steps])
    x, field = x[:steps][placed], Field(field.values[:, :steps][:, placed], field.bad[:, :steps][:, placed])
    x_limits = _x_limits(heat, x)
    seen = (x >= x_limits[0]) & (x <= x_limits[1])
    x, field = x[seen], Field(field.values[:, seen], field.bad[:, seen])
    if not layers or not len(x):
        return sentence(heat.empty, width, height)

    grid = Grid(width, height)
    rows = height - 2
    names = [clean(name) for name in heat.row_labels or ()] or [str(layer) for layer in range(layers)]
    left = min(max(max(cell_len(name) for name in names), heat.gutter, 2), MAX_GUTTER)
    columns = width - left - 1
    slots = 2 * rows if mode == "color" else rows
    across = _mean_groups(field, *_step_groups(x, x_limits, columns))
    starts, ends = _groups(layers, slots)
    both = _mean_groups(Field(across.values.T, across.bad.T), starts, ends)
    cells = Field(both.values.T, both.bad.T)

    low, high = _scale(field, heat)
    with np.errstate(invalid="ignore"):
        levels = np.clip((cells.values - low) / (high - low), 0.0, 1.0)
    # Nothing but zeros in a group leaves no mean; that is the bottom of the scale, not a lack of data.
    filled = np.zeros(columns, dtype=bool)
    group_starts, group_ends = _step_groups(x, x_limits, columns)
    filled[group_ends > group_starts] = True
    levels = np.where(np.isnan(levels) & filled[None, :], 0.0, levels)

    cursor = _cursor_column(heat, x_limits, columns)
    draw_axes(grid, 0, left, rows, columns, _row_ruler(names, starts, rows, slots, layers), ())
    if mode == "color":
        _draw_color(grid, left + 1, levels, cells.bad, cursor)
    else:
        _draw_shade(grid, left + 1, levels, cells.bad)
    _step_axis(grid, heat, x, x_limits, left, columns, cursor)
    _legend(grid, rows, left + 1, (low, high), heat.log, mode, cursor)
    return grid.lines()


def _x_limits(heat: HeatMap, x: Floats) -> tuple[float, float]:
    if heat.x_limits is not None:
        low, high = (float(limit) for limit in heat.x_limits)
        if math.isfinite(low) and math.isfinite(high) and low <= high:
            return low, high
    return (float(x[0]), float(x[-1])) if len(x) else (0.0, 0.0)
