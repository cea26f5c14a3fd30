"""Magnitude by layer and step: when something happened, and from which side. No plotext in here.

Colour mode draws two layers a row with half blocks in viridis, which is even to the eye and safe for the
colour blind. Shade mode says the same with five glyphs, for 16 colours and for NO_COLOR.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np
from rich.cells import cell_len

from gradtui.charts.cells import (
    BOLD,
    DIM,
    NONFINITE,
    Grid,
    Label,
    Style,
    clean,
    draw_axes,
    gutter,
    place_labels,
    sentence,
)
from gradtui.charts.resampling import (
    Flags,
    Floats,
    Levels,
    Steps,
    even_groups,
    extreme_groups,
    in_units,
    levels_of,
    mean_groups,
)
from gradtui.charts.scale import DECADES, HUGE, format_number, layer_ticks
from gradtui.charts.spec import HeatMap, Lines

Mode = Literal["color", "shade"]

MIN_WIDTH, MIN_HEIGHT = 16, 5
LEAST_DECADES = 2.0
"""A log scale spans at least this much below its top, so that an even flow is evenly bright."""

SHADES = "·░▒▓█"
LEVELS = 64
NONFINITE_STYLE = Style("#ffffff", "#d4145a", True)
SHADE_NONFINITE_STYLE = Style("#ff5f87", None, True)

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


def _steps(heat: HeatMap, x: Floats, columns: int) -> Steps:
    gaps = np.diff(x)
    gaps = gaps[gaps > 0]
    pitch = float(np.median(gaps)) if len(gaps) else 1.0
    low, high = float(x[0]), float(x[-1])
    if heat.x_limits is not None:
        first, last = (float(limit) for limit in heat.x_limits)
        if math.isfinite(first) and math.isfinite(last) and first <= last:
            low, high = first, last
    # The last step has a length too: without it, one step would have none.
    return Steps(low, high + max(pitch, 1e-9 * abs(high)), pitch, columns)


def _scale(units: Floats, heat: HeatMap) -> tuple[float, float]:
    """Both ends of the scale, in its units."""
    if heat.limits is not None:
        low, high = (float(limit) for limit in heat.limits)
        if math.isfinite(low) and math.isfinite(high) and low < high and (not heat.log or low > 0):
            return (math.log10(low), math.log10(high)) if heat.log else (max(low, -HUGE), min(high, HUGE))
    known = units[np.isfinite(units)]
    if not len(known):
        return (-1.0, 0.0) if heat.log else (0.0, 1.0)
    low, high = float(known.min()), float(known.max())
    if heat.log:
        return max(high - DECADES, min(low, high - LEAST_DECADES)), high
    return (low, high) if high - low > 1e-9 * abs(high) else (low - max(1.0, abs(low)), high)


def render_heatmap(heat: HeatMap, width: int, height: int, mode: Mode = "color") -> Lines:
    """Draw a heat map into exactly width × height cells; see `HeatMap`.

    mode: "color" for truecolor and 256 colours, "shade" for 16 colours and none. A cell that holds a value
    that is not finite shows ✕ in both. Never raises on account of the numbers.
    """
    width, height = max(0, width), max(0, height)
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return sentence(heat.too_small, width, height)
    values, bad, x = _data(heat)
    layers = values.shape[0]
    if not layers or not len(x):
        return sentence(heat.empty, width, height)

    rows = height - 2
    names = [clean(name) for name in (heat.row_labels or ())[:layers]]
    names += [str(layer) for layer in range(len(names), layers)]
    heads = {row: clean(name) for row, name in heat.bands if 0 <= row < layers and name.strip()}
    names = [heads.get(row, name) for row, name in enumerate(names)]
    left = gutter(names, heat.gutter, heat.x_name, width)
    columns = width - left - 1
    steps = _steps(heat, x, columns)
    units = in_units(values, heat.log)
    low, high = _scale(units, heat)
    slots = 2 * rows if mode == "color" else rows
    across = mean_groups(Levels(levels_of(units, low, high), bad), *steps.groups(x))
    pool = mean_groups if layers <= slots else extreme_groups
    cells = pool(Levels(across.values.T, across.bad.T), *even_groups(layers, slots))

    grid = Grid(width, height)
    cursor = None
    if heat.cursor is not None and steps.low <= heat.cursor < steps.high:
        cursor = steps.column(heat.cursor)
    draw_axes(grid, 0, left, rows, columns, _row_labels(names, rows, tuple(heads)), ())
    if mode == "color":
        _draw_color(grid, left + 1, cells, cursor)
    else:
        _draw_shade(grid, left + 1, cells)
    _step_axis(grid, heat, steps, float(x[-1]), left, cursor)
    _legend(grid, left + 1, columns, _ends(low, high, heat.log), mode, cursor)
    return grid.lines()


def _data(heat: HeatMap) -> tuple[Floats, Flags, Floats]:
    """Values [layers, columns], where they or their bucket are not finite, and the step of each column."""
    values = np.asarray(heat.values, dtype=np.float64)
    if values.ndim != 2:
        values = values.reshape(1, -1) if values.ndim == 1 and values.size else np.empty((0, 0))
    bad = ~np.isfinite(values)
    if heat.absent is not None and (mask := np.asarray(heat.absent, dtype=bool)).shape == bad.shape:
        bad = bad & ~mask
        values = np.where(mask, np.nan, values)
    if heat.nonfinite is not None and (mask := np.asarray(heat.nonfinite, dtype=bool)).shape == bad.shape:
        bad = bad | mask
    count = values.shape[1]
    x = np.arange(count, dtype=np.float64) if heat.x is None else np.asarray(heat.x, dtype=np.float64).ravel()
    count = min(count, len(x))
    x, values, bad = x[:count], values[:, :count], bad[:, :count]
    placed = np.isfinite(x)
    if heat.x_limits is not None and heat.x_limits[0] <= heat.x_limits[1]:
        placed &= (x >= heat.x_limits[0]) & (x <= heat.x_limits[1])
    return values[:, placed], bad[:, placed], x[placed]


def _row_labels(names: list[str], rows: int, heads: tuple[int, ...]) -> list[tuple[int, str]]:
    """(row from the bottom, label), at the middle of each labelled layer's band; those of `heads` in any case."""
    room = max(2, (rows + 1) // 2)
    ticks = layer_ticks(0.0, float(len(names) - 1), 6 * (room - 1)) if len(names) > 1 else [(0.0, "")]
    if len(names) <= room:
        ticks = [(float(layer), "") for layer in range(len(names))]
    labels = {int((layer + 0.5) * rows / len(names)): names[int(layer)] for layer, _ in ticks}
    for layer in heads:
        row = int((layer + 0.5) * rows / len(names))
        for near in (row - 1, row, row + 1):
            labels.pop(near, None)
        labels[row] = names[layer]
    return list(labels.items())


def _draw_color(grid: Grid, left: int, cells: Levels, cursor: int | None) -> None:
    """Half blocks: the upper half of a cell in the foreground, the lower in the background."""
    columns, slots = cells.values.shape
    rows = slots // 2
    scaled = np.where(np.isfinite(cells.values), cells.values * (LEVELS - 1), -1.0)
    indices = np.rint(scaled).astype(int).tolist()
    bad = cells.bad.tolist()
    palette = _palette()
    for column in range(columns):
        index, poisoned = indices[column], bad[column]
        for row in range(rows):
            lower, upper = index[2 * row], index[2 * row + 1]
            if poisoned[2 * row] or poisoned[2 * row + 1]:
                glyph, style = NONFINITE, NONFINITE_STYLE
            elif column == cursor and lower >= 0 and upper >= 0:
                glyph, style = "│", Style("#ffffff", palette[(lower + upper) // 2])
            elif lower < 0 and upper < 0:
                continue
            elif lower < 0:
                glyph, style = "▀", _style(palette[upper], None)
            elif upper < 0:
                glyph, style = "▄", _style(palette[lower], None)
            else:
                glyph, style = "▀", _style(palette[upper], palette[lower])
            grid.put(rows - 1 - row, left + column, glyph, style)


@cache
def _style(color: str, background: str | None) -> Style:
    return Style(color, background)


def shade_of(level: float) -> str:
    """The glyph of a level from 0 to 1: the more ink, the larger."""
    return SHADES[min(len(SHADES) - 1, max(0, int(level * len(SHADES))))]


def _draw_shade(grid: Grid, left: int, cells: Levels) -> None:
    columns, rows = cells.values.shape
    levels, bad = cells.values.tolist(), cells.bad.tolist()
    for column in range(columns):
        for row in range(rows):
            level = levels[column][row]
            if bad[column][row]:
                grid.put(rows - 1 - row, left + column, NONFINITE, SHADE_NONFINITE_STYLE)
            elif level == level:
                grid.put(rows - 1 - row, left + column, shade_of(level))


def _step_axis(grid: Grid, heat: HeatMap, steps: Steps, newest: float, left: int, cursor: int | None) -> None:
    """First and last step of the axis, the newest step where the run is still going, and the cursor's."""
    row = grid.height - 2
    last = steps.high - steps.pitch
    labels = [Label(left + 1, heat.x_format(steps.low), 1)]
    if last > steps.low:
        labels.append(Label(left + steps.columns, heat.x_format(last), 2))
    if steps.low < newest < last:
        labels.append(Label(left + 1 + steps.column(newest), heat.x_format(newest), 3))
    between = [tick for tick in heat.x_ticks if steps.low < tick[0] < last]
    labels += [Label(left + 1 + steps.column(x), text, 4) for x, text in between]
    for label in labels:
        grid.put(row, label.column, "┬", DIM)
    if cursor is not None and heat.cursor is not None:
        labels.append(Label(left + 1 + cursor, heat.x_format(heat.cursor), 0, BOLD))
        grid.put(row, left + 1 + cursor, "▲", BOLD)
    place_labels(grid, grid.height - 1, labels, heat.x_name, left)


def _ends(low: float, high: float, log: bool) -> tuple[str, str]:
    """The values at the ends of the scale, as text."""
    if log:
        # 10^308.25 is as far as a float goes, and the logarithm of the largest is a little more.
        low, high = 10.0 ** min(low, 308.25), 10.0 ** min(high, 308.25)
    return format_number(low), format_number(high)


def _legend(grid: Grid, left: int, columns: int, ends: tuple[str, str], mode: Mode, cursor: int | None) -> None:
    """The scale, laid into the axis line at its right end, or at its left where the cursor stands."""
    low, high = ends
    bar = 8 if mode == "color" else len(SHADES)
    size = cell_len(low) + cell_len(high) + bar + 4
    if columns < 2 * size:
        return
    start = columns - size - 1
    if cursor is not None and cursor >= start:
        start = 2
    row = grid.height - 2
    at = left + start
    at += grid.write(row, at, f" {low} ")
    for index in range(bar):
        if mode == "color":
            grid.put(row, at + index, "█", Style(color_at(index / (bar - 1))))
        else:
            grid.put(row, at + index, SHADES[index])
    grid.write(row, at + bar, f" {high} ")
