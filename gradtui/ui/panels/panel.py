"""What a panel of the lab is, and what it says to the screen that it is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message
from textual.widget import Widget

from gradtui.i18n import Words
from gradtui.ui.session.layout import Layout
from gradtui.ui.session.notice import Notice
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_state import ViewState

if TYPE_CHECKING:
    from gradtui.lesson.questions import Show


class Panel(Widget):
    """A part of the lab with its own widgets, keys and words. The screen asks each panel the same three things."""

    def lay_out(self, layout: Layout, view: ViewState) -> None:
        """Take the room that the layout has for this panel, or hide."""
        raise NotImplementedError

    def show(self, snapshot: LabSnapshot) -> None:
        """Show what there is now; asked only while the panel is displayed."""
        raise NotImplementedError

    def open_filter(self) -> None:
        """Type to filter what is listed here."""

    def escape(self) -> bool:
        """Leave what is open inside this panel; False where nothing is."""
        return False

    def key_hints(self, words: Words) -> str:
        """The keys of its own that do something now, for the footer; "" where the lab's keys do."""
        return ""


class Say(Message):
    """Show this to the user."""

    def __init__(self, notice: Notice) -> None:
        super().__init__()
        self.notice = notice


class Changed(Message):
    """What is on show has changed: repaint."""


class Left(Message):
    """The keys belong to the lab again; with `close`, the table of sites makes room for the charts."""

    def __init__(self, *, close: bool = False) -> None:
        super().__init__()
        self.close = close


class ShowEvidence(Message):
    """Bring what proves an answer onto the charts."""

    def __init__(self, show: Show) -> None:
        super().__init__()
        self.show = show
