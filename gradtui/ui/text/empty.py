"""Why there is nothing to see, and what to press. Pure."""

from __future__ import annotations

from gradtui.i18n import Words
from gradtui.metrics import TRUNK_SHARE
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.script import ending
from gradtui.ui.session.session import Session
from gradtui.ui.text.verdict import state_in_words


def emptiness(session: Session, lane: Lane | None, words: Words) -> str:
    """Why there is nothing to see, and what to press."""
    waits = lane is None or (lane.run in session.own and lane.last_step < 0 and not lane.in_trouble)
    if session.script is not None and waits:
        name = session.script.title
        if session.script.exit_code is None:
            return words("empty.script", name=name)
        return words("empty.script_ended", name=name, ending=ending(session.script, words))
    if lane is None:
        return words("empty.none") if session.control is not None else words("empty.runs", path=session.runs)
    if lane.recorded and (lane.in_trouble or lane.state == "died"):
        if lane.state == "died" and not lane.reason:
            return words("trouble.gone")
        key = "stopped" if lane.state == "stopped" else "failed"
        return words(f"trouble.{key}", reason=lane.reason or state_in_words(lane.state, words))
    if lane.in_trouble:
        key = lane.state if lane.state in ("paused", "diverged", "stopped") else "died"
        return words(f"trouble.{key}", reason=lane.reason)
    if lane.state == "starting" and not session.slots:
        return words("empty.engine")
    known = ("starting", "waiting", "idle", "running", "paused")
    return words(f"empty.{lane.state}" if lane.state in known else "empty.nothing")


def missing(lane: Lane | None, metric: str, words: Words) -> str:
    """That a run with data has not measured this metric, or has nothing to measure; nothing where it has."""
    if lane is None or lane.last_step < 0:
        return ""
    if lane.has(metric):
        return words("empty.trunk") if metric == TRUNK_SHARE and lane.curve(metric, None) is None else ""
    return words("empty.metric", metric=words(f"metric.{metric}"))
