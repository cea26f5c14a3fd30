"""A list of which only the rows in sight are ever made: a thousand rows scroll as ten do."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip


class Rows(ScrollView, can_focus=True):
    """Rows of one line each under a head line. A subclass says what is in them."""

    BINDINGS = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "first", show=False),
        Binding("end,G", "last", show=False),
        Binding("enter", "choose", show=False),
    ]
    COMPONENT_CLASSES = {"rows--cursor", "rows--head"}
    DEFAULT_CSS = """
    Rows { background: transparent; scrollbar-size-vertical: 1; overflow-x: hidden; overflow-y: scroll; }
    Rows > .rows--cursor { background: $boost; }
    Rows:focus > .rows--cursor { background: $surface-lighten-1; text-style: bold; }
    Rows > .rows--head { color: $text-muted; }
    """
    cursor: reactive[int] = reactive(0)

    class Chosen(Message):
        """Enter, or a click on the row that the cursor is on."""

        def __init__(self, rows: Rows, index: int) -> None:
            super().__init__()
            self.rows, self.index = rows, index

        @property
        def control(self) -> Rows:
            """The list that it came from."""
            return self.rows

    class HeadClicked(Message):
        """A click on the head line, at a cell."""

        def __init__(self, rows: Rows, cell: int) -> None:
            super().__init__()
            self.rows, self.cell = rows, cell

        @property
        def control(self) -> Rows:
            """The list that it came from."""
            return self.rows

    def count(self) -> int:
        """How many rows there are."""
        raise NotImplementedError

    def head(self, width: int) -> Text:
        """The line above the rows."""
        raise NotImplementedError

    def row(self, index: int, width: int) -> Text:
        """One row."""
        raise NotImplementedError

    def renew(self) -> None:
        """The rows have changed: paint those in sight again."""
        self.virtual_size = Size(self.scrollable_content_region.width, self.count() + 1)
        self.cursor = max(0, min(self.cursor, self.count() - 1))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Textual's own protocol: the head stays, the rows scroll beneath it."""
        width, base = self.scrollable_content_region.width, self.rich_style
        if y == 0:
            return self._strip(self.head(width), width, base + self.get_component_rich_style("rows--head"))
        index = y - 1 + self.scroll_offset.y
        if index >= self.count():
            return Strip.blank(width, base)
        style = base + self.get_component_rich_style("rows--cursor") if index == self.cursor else base
        return self._strip(self.row(index, width), width, style)

    def _strip(self, text: Text, width: int, style: Style) -> Strip:
        segments = Segment.apply_style(text.render(self.app.console), style)
        return Strip(segments).adjust_cell_length(width, style)

    def watch_cursor(self) -> None:
        """Keep the cursor in sight."""
        if not self.is_mounted:
            return
        room = max(self.scrollable_content_region.height - 1, 1)
        top = self.scroll_offset.y
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, force=True, immediate=True)
        elif self.cursor >= top + room:
            self.scroll_to(y=self.cursor - room + 1, animate=False, force=True, immediate=True)
        self.refresh(Region(0, 0, *self.size))

    def action_move(self, by: int) -> None:
        """Some rows up or down."""
        self.cursor = max(0, min(self.cursor + by, self.count() - 1))

    def action_page(self, by: int) -> None:
        """A page up or down."""
        self.action_move(by * max(self.scrollable_content_region.height - 2, 1))

    def action_first(self) -> None:
        """The first row."""
        self.cursor = 0

    def action_last(self) -> None:
        """The last row."""
        self.cursor = max(self.count() - 1, 0)

    def action_choose(self) -> None:
        """Take the row under the cursor."""
        if 0 <= self.cursor < self.count():
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: Click) -> None:
        """A click moves the cursor; a second one on the same row takes it."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        if offset.y == 0:
            self.post_message(self.HeadClicked(self, offset.x))
            return
        index = offset.y - 1 + self.scroll_offset.y
        if index >= self.count():
            return
        again = index == self.cursor and self.has_focus
        self.cursor = index
        if again:
            self.action_choose()
