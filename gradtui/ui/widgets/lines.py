"""One-line and few-line texts: header, footer, verdict, the narrow list of presets, the topology."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual.widget import Widget

from gradtui.ui.actions import Action


class TextLine(Widget):
    """A text that is replaced as a whole and never read as markup."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._text = Text()

    def show(self, text: Text) -> None:
        """Replace the text; nothing is repainted if it is the same."""
        if text != self._text:
            self._text = text
            self.refresh(layout=self.styles.auto_dimensions)

    def render(self) -> Text:
        """The text."""
        return self._text


def spread(left: Text, right: Text, width: int) -> Text:
    """`left` and `right` at the two ends of a line of `width` cells; the left is cut first."""
    room = width - right.cell_len
    if room < 8:
        right, room = Text(), width
    left = left.copy()
    left.truncate(max(room - 1, 0), overflow="ellipsis", pad=False)
    gap = max(width - left.cell_len - right.cell_len, 0)
    return Text.assemble(left, " " * gap, right)


def footer_text(actions: dict[str, Action], language: str, width: int) -> Text:
    """As many keys as fit, the most needed first, in the order of the action table."""
    room, chosen = width, set()
    for name, action in sorted(actions.items(), key=lambda item: item[1].footer):
        length = cell_len(action.key) + cell_len(action.describe(language)) + 3
        if action.footer and length <= room:
            room -= length
            chosen.add(name)
    text = Text(no_wrap=True)
    for name, action in actions.items():
        if name in chosen:
            text.append(f" {action.key}", "bold")
            text.append(f" {action.describe(language)} ", "dim")
    return text
