"""The claims about the focused preset, a line each, under the charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widget import Widget

from gradtui.charts.scale import format_number
from gradtui.i18n import Words
from gradtui.ui.panels.panel import Panel
from gradtui.ui.session.claim_marks import ClaimMarks
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.layout import Layout
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_state import ViewState
from gradtui.ui.text.folding import spread

if TYPE_CHECKING:
    from gradtui.verify.live import Marked

# None of these is among the marks of a verdict but the ones that mean the same.
MARKS = {"holds": ("✓", "#009e73"), "not yet": ("…", "dim"), "does not hold": ("✗", "#d55e00")}
LEAST_WIDTH = 20


class ClaimsPanel(Panel):
    """Hidden where the focused lane's preset has no claims, or there is no room for them."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._marks = ClaimMarks()
        self._text = Text()

    def has_claims(self, lane: Lane | None) -> bool:
        """Whether there is a claim that this lane's run decides by itself."""
        return bool(self._marks.of(lane))

    def lay_out(self, layout: Layout, view: ViewState) -> None:
        """Whether there is anything to show is known only when it is shown."""

    def show(self, snapshot: LabSnapshot) -> None:
        """Show the claims, if they are wanted or there is room for them."""
        layout, wanted, words = snapshot.layout, snapshot.view.claims, snapshot.words
        shown = bool(layout.panes) and (layout.roomy if wanted is None else wanted)
        marked = self._marks.of(snapshot.lane) if shown else []
        self.display = bool(marked)
        self.border_title = Text(f" {words('claims.title')}  {words('claims.keys')} ")
        width = self.parent.size.width - 2 if isinstance(self.parent, Widget) else 0
        text = claim_lines(marked, words, max(width, LEAST_WIDTH))
        if text != self._text:
            self._text = text
            self.refresh(layout=True)

    def render(self) -> Text:
        """The lines."""
        return self._text


def claim_lines(marked: Sequence[Marked], words: Words, width: int) -> Text:
    """One line a claim: its mark, what it says, and what is measured against which bound."""
    rows = []
    for one in marked:
        glyph, color = MARKS[one.mark]
        left = Text()
        left.append(f"{glyph} ", color)
        left.append(f"{one.claim.lesson} ", "dim")
        left.append(one.claim.says(words.language), "" if one.final else "dim")
        measured = "" if one.value != one.value else f"{format_number(one.value)} · "
        rows.append(spread(left, Text(f"{measured}{one.claim.bound}", "dim"), width))
    return Text("\n", no_wrap=True).join(rows)
