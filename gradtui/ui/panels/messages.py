"""What a panel says to the screen that it is on."""

from __future__ import annotations

from textual.message import Message

from gradtui.ui.session.notice import Notice


class Say(Message):
    """Show this to the user."""

    def __init__(self, notice: Notice) -> None:
        super().__init__()
        self.notice = notice


class Changed(Message):
    """What is on show has changed: repaint."""


class Left(Message):
    """The keys belong to the lab again."""
