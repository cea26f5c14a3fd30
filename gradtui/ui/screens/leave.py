"""What is to become of a script that still runs when the screen is left."""

from __future__ import annotations

from typing import Literal

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from gradtui.i18n import Words

Choice = Literal["stop", "leave", "cancel"]
CHOICES: tuple[Choice, ...] = ("stop", "leave", "cancel")


class LeaveScreen(ModalScreen[Choice]):
    """Three buttons, each with a key of its own."""

    CSS_PATH = "leave.tcss"
    BINDINGS = [
        Binding("s", "choose('stop')", show=False),
        Binding("l", "choose('leave')", show=False),
        Binding("escape,c", "choose('cancel')", show=False),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]

    def __init__(self, name: str, words: Words) -> None:
        super().__init__()
        self._name, self._words = name, words

    def compose(self) -> ComposeResult:
        with Vertical(id="leave") as box:
            box.border_title = Text(self._words("leave.title", name=self._name))
            yield Static(self._words("leave.question"), markup=False)
            with Horizontal():
                for choice in CHOICES:
                    yield Button(Text(self._words(f"leave.{choice}")), id=f"leave-{choice}", compact=True)
            yield Static(self._words("leave.hint"), id="leave-hint", markup=False)

    def on_mount(self) -> None:
        self.query_one("#leave-cancel").focus()

    def action_choose(self, choice: Choice) -> None:
        """Take one."""
        self.dismiss(choice)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(next(choice for choice in CHOICES if event.button.id == f"leave-{choice}"))
