"""A pane: a border, a title, and whatever a chart renderer paints into it."""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.events import Click
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from gradtui.charts.spec import Painter, Span


class ChartPane(Widget):
    """Paints lazily: a painter is called once per size and news, and only while the pane is visible."""

    class Chosen(Message):
        """The pane was clicked."""

        def __init__(self, pane: ChartPane) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._painter: Painter | None = None
        self._strips: list[Strip] = []
        self._painted_for: tuple[int, int] | None = None

    def show(self, title: str, subtitle: str, painter: Painter) -> None:
        """Replace what is painted."""
        self.border_title = Text(title)
        self.border_subtitle = Text(subtitle)
        self._painter = painter
        self._painted_for = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Textual's own protocol: one line of the pane's inside."""
        width, height = self.content_size
        base = self.rich_style
        if self._painter is None or width < 1 or height < 1:
            return Strip.blank(self.content_size.width, base)
        if self._painted_for != (width, height):
            lines = self._painter(width, height)
            self._strips = [_strip(line, base, width) for line in lines]
            self._painted_for = (width, height)
        return self._strips[y] if y < len(self._strips) else Strip.blank(width, base)

    def notify_style_update(self) -> None:
        """Paint again in the new style."""
        super().notify_style_update()
        self._painted_for = None

    def on_click(self, _event: Click) -> None:
        """A click makes this the active pane."""
        self.post_message(self.Chosen(self))


def _strip(line: list[Span], base: Style, width: int) -> Strip:
    segments = [
        Segment(span.text, base + _style(span.color, span.background, span.bold, span.dim)) for span in line
    ]
    return Strip(segments, width)


@lru_cache(maxsize=4096)
def _style(color: str | None, background: str | None, bold: bool, dim: bool) -> Style:
    return Style(color=color, bgcolor=background, bold=bold or None, dim=dim or None)
