"""What a script prints: the end of it, or wherever one has scrolled to."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text
from textual.binding import Binding
from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from gradtui.ui.session.output import Tail

WHEEL_LINES = 3


class OutputPane(Widget, can_focus=True):
    """Lines that are wider than the pane are wrapped; only the lines in sight are ever laid out."""

    BINDINGS = [
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "first", show=False),
        Binding("end,G", "last", show=False),
    ]

    class Chosen(Message):
        """The pane was clicked."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._tail: Tail | None = None
        self._bottom: int | None = None  # the number of the last line in sight; None follows the newest
        self._rows: list[Text] | None = None
        self._rows_for = (0, 0)

    @property
    def following(self) -> bool:
        """New output comes into sight by itself."""
        return self._bottom is None

    def show(self, tail: Tail, title: str, subtitle: str) -> None:
        """Show what `tail` holds now."""
        self._tail = tail
        self.border_title, self.border_subtitle = Text(title), Text(subtitle)
        self._forget()

    def _forget(self) -> None:
        self._rows = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Textual's own protocol: one line of the pane's inside."""
        width, height = self.content_size
        base = self.rich_style
        if self._rows is None or self._rows_for != (width, height):
            self._rows, self._rows_for = self._lay_out(width, height), (width, height)
        if y >= len(self._rows):
            return Strip.blank(width, base)
        segments = list(self._rows[y].render(self.app.console))
        strip = Strip(Segment.apply_style(segments, base))
        return strip.adjust_cell_length(width, base)

    def _lay_out(self, width: int, height: int) -> list[Text]:
        """The rows in sight, from the bottom up."""
        if self._tail is None or width < 1 or height < 1:
            return []
        terminal, rows = self._tail.terminal, list[Text]()
        number = terminal.count - 1 if self._bottom is None else self._bottom
        while number >= terminal.dropped and len(rows) < height:
            rows = wrapped(terminal.line(number), width) + rows
            number -= 1
        return rows[-height:]

    def action_scroll(self, by: int) -> None:
        """Some lines up or down; past the newest follows it again."""
        if self._tail is None:
            return
        terminal = self._tail.terminal
        newest = terminal.count - 1
        bottom = (newest if self._bottom is None else self._bottom) + by
        bottom = max(bottom, min(terminal.dropped + max(self.content_size.height, 1) - 1, newest))
        self._bottom = None if bottom >= newest else bottom
        self._forget()

    def action_page(self, by: int) -> None:
        """A pane's height up or down."""
        self.action_scroll(by * max(self.content_size.height - 1, 1))

    def action_first(self) -> None:
        """As far back as is kept."""
        if self._tail is not None:
            self.action_scroll(-self._tail.terminal.count)

    def action_last(self) -> None:
        """Follow what is printed."""
        self._bottom = None
        self._forget()

    def on_mouse_scroll_up(self, _event: MouseScrollUp) -> None:
        self.action_scroll(-WHEEL_LINES)

    def on_mouse_scroll_down(self, _event: MouseScrollDown) -> None:
        self.action_scroll(WHEEL_LINES)

    def on_click(self, _event: Click) -> None:
        self.post_message(self.Chosen())


def wrapped(line: Text, width: int) -> list[Text]:
    """A line of output in rows of at most `width` cells, cut wherever the room ends, as a terminal does."""
    plain = line.plain
    if len(plain) <= width and (plain.isascii() or cell_len(plain) <= width):
        return [line]
    breaks, room = [], 0
    for at, character in enumerate(plain):
        size = cell_len(character)
        if room + size > width:
            breaks.append(at)
            room = 0
        room += size
    return list(line.divide(breaks))
