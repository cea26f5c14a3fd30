"""A text of one or a few lines: header, footer, verdict, the narrow list of lanes, the topology."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget


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
