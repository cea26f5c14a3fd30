"""What is shown at which terminal size. Pure."""

from __future__ import annotations

from dataclasses import dataclass

PANES = ("depth", "rms", "heat", "loss")
LEAST_WIDTH, LEAST_HEIGHT = 50, 14
WIDE, MEDIUM = (120, 34), (92, 24)
QUIZ_WIDTH = 54


@dataclass(frozen=True, slots=True)
class Layout:
    """`panes` in reading order, in `columns` columns; `side` is the list of presets, `bar` its one-line form."""

    fits: bool
    side: bool
    bar: bool
    panes: tuple[str, ...]
    columns: int
    quiz: int


def arrange(width: int, height: int, *, active: str, zoomed: bool, quiz: bool) -> Layout:
    """The layout of a terminal of `width` × `height` cells; `quiz` in the result is its width, 0 if hidden."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Layout(False, False, False, (), 1, 0)
    wide = width >= WIDE[0] and height >= WIDE[1]
    medium = width >= MEDIUM[0] and height >= MEDIUM[1]
    if not medium:
        # Too narrow for two things side by side: the quiz lies over the charts.
        return Layout(True, False, True, () if quiz else (active,), 1, width if quiz else 0)
    side = wide or not quiz
    quiz_width = QUIZ_WIDTH if wide else width // 2
    if zoomed:
        panes: tuple[str, ...] = (active,)
    elif wide and not quiz:
        panes = PANES
    else:
        panes = ("depth", active if active != "depth" else "heat")
    columns = 2 if len(panes) == len(PANES) else 1
    return Layout(True, side, not side, panes, columns, quiz_width if quiz else 0)
