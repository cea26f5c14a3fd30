"""What a script prints: the end of it, or wherever one has scrolled to."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from gradtui.i18n import Words
from gradtui.ui.panels.panel import Panel, Say
from gradtui.ui.session.layout import Layout
from gradtui.ui.session.notice import Notice, Severity
from gradtui.ui.session.output import Tail
from gradtui.ui.session.script import Script, ending
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_state import OUTPUT, ViewState

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


class OutputPanel(Vertical, Panel):
    """The output of the script that runs beside the screen, and a line that is sent to it."""

    def __init__(self, id: str, script: Script, output: Tail) -> None:
        super().__init__(id=id)
        self._script, self._output = script, output

    def compose(self) -> ComposeResult:
        yield OutputPane(id=OUTPUT)
        yield Input(id="stdin", compact=True)

    def on_mount(self) -> None:
        self.line.display = False

    @property
    def pane(self) -> OutputPane:
        """The output."""
        return self.query_one(OutputPane)

    @property
    def line(self) -> Input:
        """What is typed for the script."""
        return self.query_one("#stdin", Input)

    def key_hints(self, words: Words) -> str:
        """The keys that do something here; none where one types."""
        return words("script.keys") if self.pane.has_focus else ""

    def lay_out(self, layout: Layout, view: ViewState) -> None:
        """So many rows: 0 hides it, None is all the room there is."""
        self.display = layout.output != 0
        self.styles.height = "1fr" if layout.output is None else layout.output
        self.pane.set_class(view.active == OUTPUT, "active")

    def show(self, snapshot: LabSnapshot) -> None:
        """The end of what the script prints."""
        words, output = snapshot.words, self._output
        output.left_out = words("script.gap")
        self.line.placeholder = words("script.type")
        title = f"{words('pane.output', name=self._script.title)} · {ending(self._script, words)}"
        if not output.terminal.count:
            title += f" · {words('script.nothing_printed')}"
        self.pane.show(output, title, "" if self.pane.following else "↓ end")

    def action_type(self) -> None:
        """Type a line for the script's standard input."""
        if self._is_over():
            return
        self.line.display = True
        self.line.focus()

    def action_interrupt(self) -> None:
        """Send what ctrl+c sends in the script's own terminal."""
        if not self._is_over():
            self._script.interrupt()
            self._say("script.interrupted")

    def escape(self) -> bool:
        """Put the line away; True if it was there."""
        was_open, self.line.display = bool(self.line.display), False
        return was_open

    def _is_over(self) -> bool:
        over = self._script.exit_code is not None
        if over:
            self._say("script.over_already", "warning")
        return over

    @on(Input.Submitted, "#stdin")
    def _typed(self, event: Input.Submitted) -> None:
        event.stop()
        self._script.say(f"{event.value}\n")
        self._say("script.sent", text=event.value)
        event.input.value = ""
        self.post_message(self.Closed())

    class Closed(Message):
        """The line is no longer needed."""

    def _say(self, key: str, severity: Severity = "information", **values: str) -> None:
        self.post_message(Say(Notice(key, {"name": self._script.title, **values}, severity)))


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
