"""How the lab looks at what is open: metric, scales, panes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradtui.metrics import METRICS, SELECTABLE

PANES = ("depth", "companion", "heat", "loss")
OUTPUT = "output"  # the pane of a script's output, beside the charts


@dataclass(frozen=True, slots=True)
class ViewState:
    """Immutable; keys make a new one.

    `metric` is the one that was chosen (a run may not have it), `log_scale` None the scale that suits it.
    `log_steps` puts steps on a logarithmic axis: a collapse happens in the first ones, which have room there.
    `active` is the pane that keys turn to, `pattern` what the list of lanes is filtered by. `listing` shows that
    list also where there is hardly room for it; `claims` None shows the claims where there is room.
    """

    metric: str = SELECTABLE[0]
    log_scale: bool | None = None
    log_steps: bool = True
    active: str = PANES[0]
    zoomed: bool = False
    quiz: bool = False
    sites: bool = False
    listing: bool = False
    claims: bool | None = None
    pattern: str = ""

    def with_metric(self, metric: str) -> ViewState:
        """Another metric, with the scale that suits it."""
        return replace(self, metric=metric, log_scale=None)

    def shown_metric(self, available: Sequence[str]) -> str:
        """The metric that was chosen, or the first of those that the focused run has."""
        return self.metric if self.metric in available or not available else available[0]

    def next_metric(self, available: Sequence[str]) -> str:
        """The metric after the shown one among those that the focused run has."""
        shown = self.shown_metric(available)
        return available[(available.index(shown) + 1) % len(available)] if shown in available else shown

    def is_log(self, metric: str) -> bool:
        """Whether values of `metric` are on a logarithmic axis."""
        return METRICS[metric].log if self.log_scale is None else self.log_scale

    def turn(self, by: int, panes: Sequence[str]) -> ViewState:
        """The next of `panes`, or the one before, is active."""
        return self.with_active(panes[(panes.index(self.active) + by) % len(panes)])

    def with_active(self, pane: str) -> ViewState:
        """This pane is active; the table of sites makes room for it."""
        return replace(self, active=pane, sites=False)
