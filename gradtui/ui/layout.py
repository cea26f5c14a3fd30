"""What is shown at which terminal size. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PANES = ("depth", "rms", "heat", "loss")
OUTPUT = "output"
LEAST_WIDTH, LEAST_HEIGHT = 50, 14
WIDE, MEDIUM = (120, 34), (92, 24)
QUIZ_WIDTH = 54
OUTPUT_ROWS = {"wide": 10, "medium": 7}  # with its border
WAITING_ROWS = 7  # what is left of the charts while there is only output to see

Output = Literal["none", "docked", "big"]


@dataclass(frozen=True, slots=True)
class Layout:
    """`panes` in reading order, in `columns` columns; `side` is the list of presets, `bar` its one-line form.

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


def arrange(
    width: int,
    height: int,
    *,
    active: str,
    zoomed: bool,
    quiz: bool,
    output: Output = "none",
    sites: bool = False,
    listing: bool = False,
) -> Layout:
    """The layout of a terminal of `width` × `height` cells.

    `output` is "big" while there is nothing else to see, and "none" where no script runs; `active` is a pane, or
    the output. `listing` shows the list of presets also where it has room only in place of everything else.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Layout(False, False, False, (), 1, 0)
    wide = width >= WIDE[0] and height >= WIDE[1]
    medium = width >= MEDIUM[0] and height >= MEDIUM[1]
    if quiz and not medium:
        # Too narrow for two things side by side: the quiz lies over the charts.
        return Layout(True, False, True, (), 1, width)
    if listing and not medium:
        return Layout(True, True, False, (), 1, 0)
    side = wide or (medium and not quiz and not sites)
    quiz_width = (QUIZ_WIDTH if wide else width // 2) if quiz else 0
    chart = active if active in PANES else PANES[0]
    if output != "none" and active == OUTPUT and (zoomed or not medium):
        return Layout(True, side, not side, (), 1, quiz_width, None)
    docked = 0 if output == "none" or not medium else OUTPUT_ROWS["wide" if wide else "medium"]
    if sites:
        return Layout(True, side, not side, (), 1, quiz_width, 0 if zoomed else docked, sites=True)
    if output == "big" and not zoomed:
        return Layout(True, side, not side, (chart,), 1, quiz_width, None, WAITING_ROWS)
    if zoomed or not medium:
        return Layout(True, side, not side, (chart,), 1, quiz_width, 0)
    panes = PANES if wide and not quiz else ("depth", chart if chart != "depth" else "heat")
    columns = 2 if len(panes) == len(PANES) else 1
    return Layout(True, side, not side, panes, columns, quiz_width, docked, roomy=wide)
