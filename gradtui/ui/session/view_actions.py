"""What keys do to the view, by the action's name: a new view, and perhaps a notice. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gradtui.ui.session.notice import Notice
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_state import OUTPUT, PANES, ViewState

Result = tuple[ViewState, Notice | None]


def next_metric(snapshot: LabSnapshot) -> Result:
    """The next metric that the focused run has, with the scale that suits it."""
    following = snapshot.view.next_metric(snapshot.metrics)
    notice = Notice("notice.no_metric") if following == snapshot.metric else None
    return snapshot.view.with_metric(following), notice


def toggle_log(snapshot: LabSnapshot) -> Result:
    """Logarithmic or linear values."""
    return replace(snapshot.view, log_scale=not snapshot.view.is_log(snapshot.metric)), None


def toggle_log_steps(snapshot: LabSnapshot) -> Result:
    """Logarithmic or even steps."""
    return replace(snapshot.view, log_steps=not snapshot.view.log_steps), None


def zoom(snapshot: LabSnapshot) -> Result:
    """One pane only, or all again."""
    return replace(snapshot.view, zoomed=not snapshot.view.zoomed), None


def turn_pane(snapshot: LabSnapshot, by: int) -> Result:
    """Another pane; the output of a script is one of them."""
    return snapshot.view.turn(by, PANES if snapshot.session.script is None else (*PANES, OUTPUT)), None


VIEW_ACTIONS: dict[str, Callable[[LabSnapshot], Result]] = {
    "metric": next_metric,
    "log": toggle_log,
    "log_steps": toggle_log_steps,
    "zoom": zoom,
    "next_pane": partial(turn_pane, by=1),
    "previous_pane": partial(turn_pane, by=-1),
}
