from __future__ import annotations

from dataclasses import dataclass

import pytest
from rich.cells import cell_len

from gradtui.charts.spec import Lines, Span


@dataclass
class Screen:
    """Lines as a terminal shows them: one character and one span a cell ("" right of a wide character)."""

    lines: Lines

    def __post_init__(self) -> None:
        self.cells: list[list[tuple[str, Span]]] = []
        for line in self.lines:
            row: list[tuple[str, Span]] = []
            for span in line:
                for char in span.text:
                    row += [(char, span)] + [("", span)] * (cell_len(char) - 1)
            self.cells.append(row)

    @property
    def rows(self) -> list[str]:
        return ["".join(span.text for span in line) for line in self.lines]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    def find(self, char: str, color: str | None = None) -> list[tuple[int, int]]:
        """(row, column) of every cell that shows `char`."""
        return [
            (row, column)
            for row, cells in enumerate(self.cells)
            for column, (shown, span) in enumerate(cells)
            if shown == char and (color is None or span.color == color)
        ]

    def row_of_label(self, label: str) -> int:
        """The row of a y label."""
        (row,) = [row for row, text in enumerate(self.rows) if text.lstrip().startswith(label + "┤")]
        return row

    def fills(self, width: int, height: int) -> bool:
        return len(self.lines) == height and all(
            sum(cell_len(span.text) for span in line) == cell_len("".join(span.text for span in line)) == width
            for line in self.lines
        )


@pytest.fixture
def screen() -> type[Screen]:
    return Screen
