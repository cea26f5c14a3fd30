"""All keys, made from the action table, how to read the screen, and the pages of the handbook."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Markdown, Static

from gradtui.help import TOPICS, page, title
from gradtui.i18n import Words
from gradtui.ui.actions import Action, describe

PARTS = ("marks", "row", "claims", "measures", "collapse")  # of how to read the screen


class HelpScreen(ModalScreen[None]):
    """Opens with the keys; the arrows turn to the handbook. Closes on the keys that people try."""

    CSS_PATH = "help.tcss"
    BINDINGS = [
        Binding("escape,question_mark,q,enter", "dismiss", show=False),
        Binding("right,tab,l", "turn(1)", show=False),
        Binding("left,shift+tab,h", "turn(-1)", show=False),
    ]

    def __init__(self, actions: dict[str, Action], words: Words, runs: str) -> None:
        super().__init__()
        self._actions, self._words, self._runs = actions, words, runs
        self._number = 0  # of the page: 0 is the keys, then the topics

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(self._keys(), id="help-keys", markup=False)
            yield Markdown(id="help-page", open_links=False)

    async def on_mount(self) -> None:
        await self._show()

    async def action_turn(self, by: int) -> None:
        """Another page."""
        self._number = (self._number + by) % (len(TOPICS) + 1)
        await self._show()

    async def _show(self) -> None:
        words, topic = self._words, TOPICS[self._number - 1] if self._number else ""
        box, text = self.query_one("#help", VerticalScroll), self.query_one("#help-page", Markdown)
        name = title(topic, words.language) if topic else words("help.title")
        box.border_title = Text(f"{name} · {self._number + 1}/{len(TOPICS) + 1}")
        box.border_subtitle = Text(words("help.close"))
        self.query_one("#help-keys").display = not topic
        text.display = bool(topic)
        if topic:
            await text.update(page(topic, words.language))
        box.scroll_home(animate=False)
        box.focus()

    def _keys(self) -> Text:
        words, text = self._words, Text()
        for name, action in self._actions.items():
            text.append(f"{action.key}{' ' * (10 - cell_len(action.key))}", "bold #56b4e9")
            text.append(f"{describe(name, words)}\n")
        text.append(f"\n{words('help.reading')}\n", "bold")
        text.append("\n".join(words(f"help.{part}") for part in PARTS) + "\n")
        text.append(words("help.where", path=self._runs), "dim")
        return text
