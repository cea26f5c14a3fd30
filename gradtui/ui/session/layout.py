"""What is shown at which terminal size. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradtui.ui.session.view_state import OUTPUT, PANES, ViewState

LEAST_WIDTH, LEAST_HEIGHT = 50, 14
WIDE, MEDIUM = (120, 34), (92, 24)
QUIZ_WIDTH = 54
OUTPUT_ROWS = {"wide": 10, "medium": 7}  # with its border
WAITING_ROWS = 7  # what is left of the charts while there is only output to see

Output = Literal["none", "docked", "big"]


@dataclass(frozen=True, slots=True)
class Layout:
    """`panes` in reading order, in `columns` columns; `side` is the list of lanes, `bar` its one-line form.

    `quiz` is its width, `output` the rows of the script's output and `charts` those of the panes: 0 is hidden,
    None is all the room that is left. `sites` is the table of sites in the panes' place. `roomy` says that
    there is room for more than charts and a verdict.
    """

    fits: bool
    side: bool
    bar: bool
    panes: tuple[str, ...]
    columns: int
    quiz: int
    output: int | None = 0
    charts: int | None = None
    sites: bool = False
    roomy: bool = False

    @property
    def verdict(self) -> bool:
        """Whether there is something that a verdict belongs to."""
        return bool(self.panes) or self.sites or self.output is None

    @property
    def visible(self) -> dict[str, bool]:
        """Which parts of the screen are shown, by the name of their widget."""
        return {
            "too-small": not self.fits,
            "header": self.fits,
            "bar": self.bar,
            "body": self.fits,
            "verdict": self.verdict,
            "footer": self.fits,
            "main": self.verdict,
        }


def arrange(width: int, height: int, view: ViewState, output: Output = "none") -> Layout:
    """The layout of a terminal of `width` × `height` cells.

    `output` is "big" while there is nothing else to see, and "none" where no script runs.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Layout(False, False, False, (), 1, 0)
    wide = width >= WIDE[0] and height >= WIDE[1]
    medium = width >= MEDIUM[0] and height >= MEDIUM[1]
    if view.quiz and not medium:
        # Too narrow for two things side by side: the quiz lies over the charts.
        return Layout(True, False, True, (), 1, width)
    if view.listing and not medium:
        return Layout(True, True, False, (), 1, 0)
    side = wide or (medium and (view.listing or not (view.quiz or view.sites)))
    quiz = (QUIZ_WIDTH if wide else width // 2) if view.quiz else 0
    chart = view.active if view.active in PANES else PANES[0]
    if output != "none" and view.active == OUTPUT and (view.zoomed or not medium):
        return Layout(True, side, not side, (), 1, quiz, None)
    docked = 0 if output == "none" or not medium else OUTPUT_ROWS["wide" if wide else "medium"]
    if view.sites:
        return Layout(True, side, not side, (), 1, quiz, 0 if view.zoomed else docked, sites=True)
    if output == "big" and not view.zoomed:
        return Layout(True, side, not side, (chart,), 1, quiz, None, WAITING_ROWS)
    if view.zoomed or not medium:
        return Layout(True, side, not side, (chart,), 1, quiz, 0)
    panes = PANES if wide and not view.quiz else (PANES[0], chart if chart != PANES[0] else "heat")
    columns = 2 if len(panes) == len(PANES) else 1
    return Layout(True, side, not side, panes, columns, quiz, docked, roomy=wide)
