"""What a chart is built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradtui.charts.heatmap import Mode
from gradtui.charts.spec import Chart, HeatMap
from gradtui.i18n import Words
from gradtui.metrics import Metric
from gradtui.ui.session.lane import Lane


@dataclass(frozen=True, slots=True)
class ChartContext:
    """`lanes` are the ones to draw, the focused one first; `cursor` is the step to show, None for the newest.

    `log` and `log_steps` say which axes are logarithmic, `mode` how maps are coloured, and `empty` is the sentence
    in place of a chart that has nothing to show.
    """

    lanes: tuple[Lane, ...]
    metric: Metric
    cursor: int | None
    log: bool
    log_steps: bool
    mode: Mode
    words: Words
    empty: str

    @property
    def focused(self) -> Lane | None:
        """The lane in focus."""
        return self.lanes[0] if self.lanes else None

    def name(self, lane: Lane) -> str:
        """What to call a lane in the legend."""
        return lane.name(self.words.language)


Figure = Chart | HeatMap
# Builds a figure for a pane of so many columns of cells: of a long run, no more is read than they can show.
ChartBuilder = Callable[[ChartContext, int], Figure]
