"""All keys, made from the action table, and how to read the screen."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from gradtui.i18n import Words
from gradtui.ui.actions import Action


class HelpScreen(ModalScreen[None]):
    """Closes on the keys that people try."""

    CSS_PATH = "help.tcss"
    BINDINGS = [("escape,question_mark,q,enter", "dismiss", "")]

    def __init__(self, actions: dict[str, Action], words: Words, runs: str) -> None:
        super().__init__()
        self._actions, self._words, self._runs = actions, words, runs

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as box:
            box.border_title = Text(self._words("help.title"))
            box.border_subtitle = Text(self._words("help.close"))
            yield Static(self._text(), markup=False)

    def _text(self) -> Text:
        words, text = self._words, Text()
        for name, action in self._actions.items():
            text.append(f"{action.key}{' ' * (10 - cell_len(action.key))}", "bold #56b4e9")
            text.append(f"{words(f'action.{name}')}\n")
        text.append(f"\n{words('help.reading')}\n", "bold")
        parts = ("marks", "row", "claims", "measures", "collapse")
        text.append("\n".join(words(f"help.{part}") for part in parts) + "\n")
        text.append(words("help.where", path=self._runs), "dim")
        return text
