"""The list of lanes with its filter, what the focused one is, and its topology."""

from __future__ import annotations

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Key
from textual.message import Message
from textual.widgets import Input, OptionList

from gradtui.ui.panels.panel import Panel, Say
from gradtui.ui.panels.preset_list import PresetList
from gradtui.ui.panels.text_line import TextLine
from gradtui.ui.panels.topology import sketch
from gradtui.ui.session.layout import Layout
from gradtui.ui.session.notice import Notice
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_state import ViewState
from gradtui.ui.text.folding import fold
from gradtui.ui.text.header import about

SIDE_WIDTH = 34
TOPOLOGY_HEIGHT, ABOUT_HEIGHT = 30, 40  # rows of a terminal that has room for them


class SidePanel(Vertical, Panel):
    """While the filter is open, letters narrow the list; `enter` takes what the list points at."""

    class Chosen(Message):
        """Show the lane with this id."""

        def __init__(self, lane: str) -> None:
            super().__init__()
            self.lane = lane

    class Filtered(Message):
        """List only what `pattern` lets through."""

        def __init__(self, pattern: str) -> None:
            super().__init__()
            self.pattern = pattern

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._names: list[str] = []
        self._focus = ""

    def compose(self) -> ComposeResult:
        yield Input(id="filter", compact=True)
        yield PresetList(id="presets")
        yield TextLine(id="about")
        yield TextLine(id="topology")

    def on_mount(self) -> None:
        self.filter.display = False

    @property
    def filter(self) -> Input:
        """Where one types what to look for."""
        return self.query_one("#filter", Input)

    @property
    def list(self) -> PresetList:
        """The list itself."""
        return self.query_one(PresetList)

    def lay_out(self, layout: Layout, view: ViewState) -> None:
        """A column of its own, or all of the screen."""
        self.display = layout.side
        self.styles.width = SIDE_WIDTH if layout.verdict or view.quiz else "1fr"

    def show(self, snapshot: LabSnapshot) -> None:
        """Bring list, description and topology up to date."""
        words, lane, box = snapshot.words, snapshot.lane, self.list
        box.border_title = Text(words("list.title" if snapshot.session.control is not None else "list.runs"))
        self._names = snapshot.names
        box.show(snapshot.session, self._names, words)
        if snapshot.session.focus != self._focus:
            self._focus = snapshot.session.focus
            box.point_at(self._focus)
        self.filter.placeholder = words("list.filter")
        preset = lane.preset if lane is not None else None
        topology, description = self.query_one("#topology", TextLine), self.query_one("#about", TextLine)
        width = max(self.size.width - 4, 8)
        topology.border_title = Text(words("topology.title"))
        topology.display = preset is not None and snapshot.height >= TOPOLOGY_HEIGHT
        text = Text()
        if preset is not None:
            topology.show(fold(sketch(preset.model, words), width))
            if snapshot.height >= ABOUT_HEIGHT:
                text = Text(preset.summary(words.language), "dim")
        elif lane is not None:
            text = about(lane, words)
        description.display = bool(text.plain)
        description.show(fold(text, width))

    def open_filter(self) -> None:
        """Type to filter."""
        self.filter.display = True
        self.filter.focus()

    def escape(self) -> bool:
        """Put the filter away and list all lanes; True if it was open."""
        was_open = bool(self.filter.display)
        self.filter.value = ""
        self.filter.display = False
        return was_open

    def on_key(self, event: Key) -> None:
        """In the filter, the arrows move through what matches."""
        if self.filter.has_focus and event.key in ("up", "down"):
            (self.list.action_cursor_up if event.key == "up" else self.list.action_cursor_down)()
            event.stop()
            event.prevent_default()

    @on(Input.Changed, "#filter")
    def _filtered(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Filtered(event.value))

    @on(Input.Submitted, "#filter")
    def _filter_taken(self, event: Input.Submitted) -> None:
        """Take the match that the list points at, the first one as a rule."""
        event.stop()
        names, pointed = self._names, self.list.pointed
        if names:
            self.post_message(self.Chosen(pointed if pointed in names else names[0]))
        else:
            self.post_message(Say(Notice("empty.filter", {"text": event.value}, "warning")))

    @on(OptionList.OptionSelected, "#presets")
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.post_message(self.Chosen(event.option_id))
