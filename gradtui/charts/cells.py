"""A rectangle of terminal cells, and text that fits into it. Widths are cells, never `len`."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len

from gradtui.charts.spec import Lines, Span


class Style(NamedTuple):
    color: str | None = None
    background: str | None = None
    bold: bool = False
    dim: bool = False


PLAIN = Style()
DIM = Style(dim=True)
BOLD = Style(bold=True)

NONFINITE = "✕"  # the glyph for a value that is NaN or infinite, in every chart

JOINERS = "\u200d\ufe0e\ufe0f"


def clean(text: str) -> str:
    """Text without what would move the cursor, break the encoding or cling to its neighbour's cell."""
    if text.isascii() and text.isprintable():
        return text
    kept = []
    for char in text:
        category = unicodedata.category(char)
        if category in ("Cc", "Zl", "Zp"):
            kept.append(" ")
        elif category == "Cs":
            kept.append("�")
        elif category != "Cf" or char in JOINERS:
            kept.append(char)
    start, end = 0, len(kept)
    while start < end and (unicodedata.combining(kept[start]) or cell_len(kept[start]) == 0):
        start += 1
    while end > start and kept[end - 1] == "\u200d":
        end -= 1
    return "".join(kept[start:end])


def fit(text: str, width: int) -> str:
    """The text itself if it is at most `width` cells wide, else its beginning and an ellipsis."""
    text = clean(text)
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    end = min(len(text), 8 * width)
    while end and (cell_len(text[:end]) > width - 1 or (end < len(text) and _clings(text, end))):
        end -= 1
    return text[:end].rstrip() + "…"


def _clings(text: str, at: int) -> bool:
    """Whether cutting before text[at] would cut through what the reader sees as one character."""
    return text[at] in JOINERS or text[at - 1] == "\u200d" or bool(unicodedata.combining(text[at]))


class Grid:
    """Cells addressed by row (0 at the top) and column. Writing outside is ignored."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._text = [[" "] * width for _ in range(height)]
        self._style = [[PLAIN] * width for _ in range(height)]

    def put(self, row: int, column: int, char: str, style: Style = PLAIN) -> None:
        """Set one cell to a character that is one cell wide."""
        if 0 <= row < self.height and 0 <= column < self.width:
            self._text[row][column] = char
            self._style[row][column] = style

    def write(self, row: int, column: int, text: str, style: Style = PLAIN) -> int:
        """Write text of any width, cut to the room there is; returns the cells it took.

        The first cell holds all of it, the others nothing, so a character is never torn from what joins it.
        """
        if not (0 <= row < self.height and 0 <= column < self.width):
            return 0
        text = fit(text, self.width - column)
        taken = cell_len(text)
        if taken:
            self._text[row][column : column + taken] = [text] + [""] * (taken - 1)
            self._style[row][column : column + taken] = [style] * taken
        return taken

    def char(self, row: int, column: int) -> str:
        return self._text[row][column]

    def lines(self) -> Lines:
        lines: Lines = []
        for texts, styles in zip(self._text, self._style, strict=True):
            line: list[Span] = []
            start = 0
            for end in range(1, len(styles) + 1):
                if end == len(styles) or (styles[end] is not styles[start] and styles[end] != styles[start]):
                    line.append(Span("".join(texts[start:end]), *styles[start]))
                    start = end
            lines.append(line)
        return lines


def _wrap(text: str, width: int) -> list[str]:
    """Words in lines of at most `width` cells; a word that is wider (Chinese has no spaces) is cut."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and cell_len(line) + 1 + cell_len(word) <= width:
            line += " " + word
            continue
        if line:
            lines.append(line)
        line = word
        while cell_len(line) > width:
            end = len(line) - 1
            while end > 1 and (cell_len(line[:end]) > width or _clings(line, end)):
                end -= 1
            lines.append(line[:end])
            line = line[end:]
            if len(lines) > 100:
                return lines
    return [*lines, line] if line else lines


def sentence(text: str, width: int, height: int) -> Lines:
    """A sentence in the middle of an otherwise empty rectangle, wrapped, and cut where there is no room."""
    grid = Grid(width, height)
    if width < 1 or height < 1:
        return grid.lines()
    room = max(1, width - 2) if width > 4 else width
    wrapped = [fit(line, room) for line in _wrap(clean(text), room)]
    if len(wrapped) > height:
        wrapped = [*wrapped[: height - 1], fit(wrapped[height - 1] + " " * room + ".", room)]
    top = (height - len(wrapped)) // 2
    for index, line in enumerate(wrapped):
        grid.write(top + index, max(0, (width - cell_len(line)) // 2), line, DIM)
    return grid.lines()


class Label(NamedTuple):
    """Text to be centred under a cell; a lower rank is placed first."""

    column: int
    text: str
    rank: int = 1
    style: Style = PLAIN


def place_labels(grid: Grid, row: int, labels: Iterable[Label], name: str, left: int) -> None:
    """Write the labels under an x axis that begins at column `left`, none over another, and name the axis.

    The name stands left of the axis where it fits, else in the widest gap between two labels.
    """
    taken: list[tuple[int, int]] = []
    for label in sorted(labels, key=lambda label: label.rank):
        text = clean(label.text)
        size = cell_len(text)
        if not text.strip() or size > grid.width:
            continue
        start = min(max(0, label.column - (size - 1) // 2), grid.width - size)
        if all(start + size < begin or end + 1 < start + 1 for begin, end in taken):
            taken.append((start, start + size))
            grid.write(row, start, text, label.style)
    name = clean(name)
    size = cell_len(name)
    if not name.strip():
        return
    taken.sort()
    first = taken[0][0] if taken else grid.width
    if size < first and size <= left:
        grid.write(row, max(0, min(left, first - 1) - size), name, DIM)
        return
    edges = [(0, 0), *taken, (grid.width, grid.width)]
    gaps = [(after - end, end) for (_, end), (after, _) in pairwise(edges)]
    room, begin = max(gaps, key=lambda gap: (gap[0], -gap[1]))
    if room >= size + 4:
        grid.write(row, begin + (room - size) // 2, name, DIM)


MAX_GUTTER = 9


def gutter(labels: Iterable[str], least: int, name: str, width: int) -> int:
    """Cells for the y labels, left of the axis line, in a chart `width` cells wide."""
    cells = min(max([cell_len(label) for label in labels] + [least, 1]), MAX_GUTTER)
    # A name of the x axis a little wider than that is worth a few cells: it then stands at the axis' head.
    wanted = cell_len(clean(name))
    return wanted if cells < wanted <= cells + max(2, width // 12) else cells


def draw_axes(
    grid: Grid,
    top: int,
    left: int,
    rows: int,
    columns: int,
    y_labels: Iterable[tuple[int, str]],
    x_ticks: Iterable[int],
) -> None:
    """The two axis lines around a canvas whose upper left cell is (top, left + 1); `left` is their column.

    y_labels: (row from the bottom, label). x_ticks: columns of the canvas.
    """
    for row in range(rows):
        grid.put(top + row, left, "│", DIM)
    for row, text in y_labels:
        label = fit(text, left)
        grid.write(top + rows - 1 - row, left - cell_len(label), label)
        grid.put(top + rows - 1 - row, left, "┤", DIM)
    grid.put(top + rows, left, "└", DIM)
    for column in range(columns):
        grid.put(top + rows, left + 1 + column, "─", DIM)
    for column in x_ticks:
        grid.put(top + rows, left + 1 + column, "┬", DIM)
