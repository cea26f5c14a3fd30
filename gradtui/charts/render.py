"""Curves as styled text. The only module that imports plotext, and only when the first chart is drawn.

plotext draws the lines, in braille, on a bare canvas; axes, ticks, legend and marks are set around and over
it here, where every cell is known exactly. A line's colour on plotext's canvas is the number of its series,
so what comes back says which series a cell belongs to, whatever colour that series has.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from typing import Any

from rich.cells import cell_len

from gradtui.charts.cells import (
    BOLD,
    DIM,
    NONFINITE,
    PLAIN,
    Grid,
    Label,
    Style,
    clean,
    draw_axes,
    fit,
    gutter,
    place_labels,
    sentence,
)
from gradtui.charts.gate import Gated, Window, pass_through, window
from gradtui.charts.scale import cell_of, cells_for, format_step, layer_ticks, step_ticks
from gradtui.charts.spec import Chart, Lines, Series

MIN_WIDTH, MIN_HEIGHT = 16, 5
LEGEND_FROM_HEIGHT = 7
MARK_GAP = 6
"""Cells between two marks of one series where its points are too dense to mark each."""

BELOW, ABOVE = "▽", "△"
CURSOR, BOUNDARY = "┊", "╎"

_SGR = re.compile(r"\x1b\[([0-9;]*)m([^\x1b]*)")
_lock = threading.Lock()


@cache
def _plotext() -> Any:
    """plotext, its one public figure stripped to a bare canvas over the unit square."""
    import plotext

    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    figure.canvas("default")
    figure.axes(False)
    figure.legend(False)
    for axis in ("x", "y"):
        figure.ruler(axis).ticks([])
        figure.ruler(axis).lim(0.0, 1.0)
    return plotext


@cache
def _braille(number: int) -> Any:
    plotext = _plotext()
    return plotext.marker("braille", plotext.pixel((number >> 16, number >> 8 & 255, number & 255)))


def preload() -> None:
    """Load plotext now (about 0.1 s), say while the engine starts, rather than with the first chart."""
    with _lock:
        _plotext()


def _canvas(gated: list[Gated], columns: int, rows: int) -> list[tuple[int, int, str, int]]:
    """Lines drawn by plotext, as (row, column, glyph, series number) for every cell that is not blank."""
    with _lock:
        figure = _plotext().figure
        figure.clear.data()
        figure.plot_size(columns, rows)
        for number in reversed(range(len(gated))):
            for xs, ys in gated[number].segments:
                figure.draw(figure.signal(xs, ys, marker=_braille(number)).lines())
        text: str = figure.build().string()
        figure.clear.data()
    cells = []
    for row, line in enumerate(text.split("\n")[:rows]):
        column = 0
        for codes, run in _SGR.findall(line):
            if codes in ("", "0"):
                column += len(run)
                continue
            red, green, blue = codes.split(";")[-3:]
            number = int(red) << 16 | int(green) << 8 | int(blue)
            for glyph in run:
                cells.append((row, column, glyph, number))
                column += 1
    return cells


def render_chart(chart: Chart, width: int, height: int) -> Lines:
    """Draw a chart into exactly width × height cells; see `Chart`.

    Marks on the edge: ✕ a value that is NaN or infinite, ▽ one below the axis (zero on a log axis), △ one
    above. Never raises on account of the numbers.
    """
    width, height = max(0, width), max(0, height)
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return sentence(chart.too_small, width, height)
    named = tuple(series for series in chart.series if series.named)
    top = 1 if len(named) > 1 and height >= LEGEND_FROM_HEIGHT else 0
    rows = height - top - 2
    view = window(chart, rows)
    if view is None:
        return sentence(chart.empty, width, height)

    grid = Grid(width, height)
    y_labels = cells_for(view.y_ticks, view.y, rows)
    left = gutter([text for _, text in y_labels], chart.gutter, chart.x_name, width)
    columns = width - left - 1

    ticks, labels, cursor = _x_axis(chart, view, columns, left)
    draw_axes(grid, top, left, rows, columns, y_labels, ticks)
    place_labels(grid, height - 1, labels, chart.x_name, left)
    if top:
        _legend(grid, named, left + 1)
    _boundaries(grid, chart, view, (top, left + 1, rows, columns))

    if cursor is not None:
        for row in range(rows):
            grid.put(top + row, left + 1 + cursor, CURSOR, DIM)
        grid.put(top + rows, left + 1 + cursor, "▲", BOLD)
    gated = [pass_through(series, view, columns) for series in chart.series]
    styles = [Style(series.color, None, False, series.dim) for series in chart.series]
    for row, column, glyph, number in _canvas(gated, columns, rows):
        grid.put(top + row, left + 1 + column, glyph, styles[number])
    for number in reversed(range(len(gated))):
        _marks(grid, chart, number, gated[number], (top, left + 1, rows, columns))
    _edge_marks(grid, gated, styles, (top, left + 1, rows, columns))
    _band_names(grid, chart, view, (top, left + 1, rows, columns))
    return grid.lines()


Box = tuple[int, int, int, int]
"""A canvas inside a grid: its top row, left column, rows and columns."""


def _x_axis(chart: Chart, view: Window, columns: int, left: int) -> tuple[list[int], list[Label], int | None]:
    """Columns of the ticks, their labels at columns of the grid, and the cursor's column if in sight."""
    choose = layer_ticks if chart.markers else step_ticks
    given = chart.x_ticks if chart.x_ticks is not None else choose(*view.x, columns)
    ticks = cells_for(given, view.x, columns)
    labels = [Label(left + 1 + column, text) for column, text in ticks]
    cursor = None
    if chart.cursor is not None and view.x[0] <= chart.cursor <= view.x[1]:
        cursor = cell_of((chart.cursor - view.x[0]) / (view.x[1] - view.x[0]), columns)
        if chart.x_ticks is None:
            labels.append(Label(left + 1 + cursor, format_step(chart.cursor), 0, BOLD))
    return [column for column, _ in ticks], labels, cursor


def _band_columns(chart: Chart, view: Window, columns: int) -> list[tuple[int, str]]:
    """The column at which each part of the x axis begins, and its name, from left to right."""
    low, high = view.x
    found = []
    for number, (start, name) in enumerate(sorted(chart.bands)):
        at = max(start - 0.5, low) if number else low
        if at < high:
            found.append((cell_of((at - low) / (high - low), columns), name))
    return found


def _boundaries(grid: Grid, chart: Chart, view: Window, box: Box) -> None:
    """A line where each further part of the x axis begins."""
    top, left, rows, columns = box
    for column, _ in _band_columns(chart, view, columns)[1:]:
        for row in range(rows):
            grid.put(top + row, left + column, BOUNDARY, DIM)


def _band_names(grid: Grid, chart: Chart, view: Window, box: Box) -> None:
    """The names of the parts, laid into the axis line: on the canvas they would hide what is drawn there."""
    top, left, rows, columns = box
    bands = _band_columns(chart, view, columns)
    for index, (column, name) in enumerate(bands):
        end = bands[index + 1][0] if index + 1 < len(bands) else columns
        text = fit(name, end - column - 4)
        if text.strip():
            grid.write(top + rows, left + column + 1, f" {text} ")


def _glyph(series: Series) -> str:
    mark = clean(series.mark)
    return mark if cell_len(mark) == 1 else ""


def _legend(grid: Grid, series: tuple[Series, ...], left: int) -> None:
    """Every series on the top row, its mark in its colour; long labels share what short ones leave."""
    room = grid.width - left - 2 * (len(series) - 1)
    heads = [(_glyph(one) or "─") + " " for one in series]
    texts = [clean(one.label) for one in series]
    wanted = [len(head) + cell_len(text) for head, text in zip(heads, texts, strict=True)]
    share = room
    while share > 1 and sum(min(size, share) for size in wanted) > room:
        share -= 1
    column = left
    for one, head, text in zip(series, heads, texts, strict=True):
        if column >= grid.width:
            break
        grid.write(0, column, head[:share], Style(one.color, None, not one.dim, one.dim))
        text = fit(text, min(share - len(head), grid.width - column - len(head)))
        column += len(head) + grid.write(0, column + len(head), text, DIM if one.dim else PLAIN) + 2


def _marks(grid: Grid, chart: Chart, number: int, gated: Gated, box: Box) -> None:
    """The series' own mark at its points, or at its right end."""
    top, left, rows, columns = box
    series = chart.series[number]
    glyph = _glyph(series)
    points = gated.points()
    if not glyph or not points:
        return
    cells = [(cell_of(x, columns), cell_of(1.0 - y, rows)) for x, y in points]
    if not chart.markers:
        cells = cells[-1:]
    elif len(cells) > 1 and 2 * (len(cells) - 1) > cells[-1][0] - cells[0][0]:
        # Dense: each series marks other columns, so that curves that run together keep both their marks.
        kept = [cells[0]]
        due = cells[0][0] + MARK_GAP // 2 + 2 * number
        for cell in cells[1:]:
            if cell[0] >= due:
                kept.append(cell)
                due = cell[0] + MARK_GAP
        cells = kept
    style = Style(series.color, None, not series.dim, series.dim)
    for column, row in cells:
        grid.put(top + row, left + column, glyph, style)


def _edge_marks(grid: Grid, gated: list[Gated], styles: list[Style], box: Box) -> None:
    """✕ ▽ △ on the edges, in their series' colour; where two series meet, the second stands further in."""
    top, left, rows, columns = box
    taken: dict[tuple[int, bool], int] = {}
    for one, style in zip(gated, styles, strict=True):
        for mark in one.marks:
            column = cell_of(mark.x, columns)
            depth = taken.get((column, mark.top), 0)
            if depth >= rows:
                continue
            taken[column, mark.top] = depth + 1
            glyph = NONFINITE if mark.kind == "nonfinite" else ABOVE if mark.kind == "above" else BELOW
            row = top + (depth if mark.top else rows - 1 - depth)
            grid.put(row, left + column, glyph, style._replace(bold=True))
