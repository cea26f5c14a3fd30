"""What one repaint shows: the session and the view of it, put together once for all panels."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.charts.heatmap import Mode
from gradtui.i18n import Words
from gradtui.metrics import METRICS, SELECTABLE
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.layout import Layout
from gradtui.ui.session.session import Session
from gradtui.ui.session.site_table import columns_of
from gradtui.ui.session.view_state import ViewState

ACTIVATION = "act_rms"


@dataclass(frozen=True, slots=True)
class LabSnapshot:
    """What a panel needs to show itself: `width` × `height` is the screen, `mode` how maps are coloured."""

    session: Session
    view: ViewState
    words: Words
    layout: Layout
    mode: Mode
    width: int
    height: int

    @property
    def lane(self) -> Lane | None:
        """The focused lane."""
        return self.session.focused

    @property
    def names(self) -> list[str]:
        """The lanes that the filter lets through."""
        lanes, pattern = self.session.lanes, self.view.pattern
        return [name for name in lanes if lanes[name].matches(pattern)]

    @property
    def metrics(self) -> list[str]:
        """The metrics that can be shown of the focused run, in the order of the table."""
        there = [
            name for name in SELECTABLE if (self.lane.has(name) if self.lane else not METRICS[name].is_reading)
        ]
        if self.view.sites:  # a site has no other values than those of the table
            return [name for name in there if name in columns_of(there)]
        return there

    @property
    def metric(self) -> str:
        """The metric on show."""
        return self.view.shown_metric(self.metrics)

    @property
    def companion(self) -> str:
        """What the second pane shows: what belongs to the metric, else activations, else what there is."""
        there, shown = self.metrics, self.metric
        beside = METRICS[shown].companion
        if beside in there and beside != shown:
            return beside
        return next((name for name in (ACTIVATION, *there) if name in there and name != shown), ACTIVATION)
