"""What keys do to what is open, by the action's name; each may answer with a notice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gradtui.charts.scale import format_number
from gradtui.engine import protocol
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.notice import Notice
from gradtui.ui.session.run_control import RunControl
from gradtui.ui.session.session import Session

MORE_STEPS = 100

# What may be told to train further: its model is still there.
_HAS_MODEL = frozenset({"done", "running", "paused", "waiting"})


def pin(session: Session) -> Notice | None:
    """Pin the focused lane, or let it go."""
    lane = session.focused
    if lane is None:
        return None
    pinned = session.toggle_pin(lane.id)
    return Notice("notice.pinned" if pinned else "notice.unpinned", {"name": lane.name})


def square(session: Session) -> Notice | None:
    """Overlay LayerNorm/RMSNorm × Post/Pre, or put back what was there before."""
    overlaid = session.toggle_square()
    if overlaid is None:
        return Notice("notice.no_square", severity="warning")
    return Notice("notice.square") if overlaid else None


def travel(session: Session, steps: int) -> Notice | None:
    """Move through history."""
    return None if session.travel(steps) else Notice("notice.no_history", severity="warning")


def live(session: Session) -> None:
    """Follow the newest step again."""
    session.cursor = None


def pause(session: Session, runs: RunControl, lane: Lane) -> Notice | None:
    """Pause, or go on; start a lane that never ran."""
    if lane.state == "idle":
        session.select(lane.id)
    elif lane.state in ("done", "diverged"):
        return _no_step(lane)
    else:
        runs.send(protocol.Resume(lane.id) if lane.state == "paused" else protocol.Pause(lane.id))
    return None


def single_step(_session: Session, runs: RunControl, lane: Lane) -> Notice | None:
    """Pause and take one step."""
    if lane.state in protocol.RESTING:
        return _no_step(lane)
    runs.send(protocol.Step(lane.id))
    return None


def restart(session: Session, runs: RunControl, lane: Lane) -> None:
    """Begin again in a new run file, with the same seed."""
    runs.start(lane, lane.seed)
    session.cursor = None


def reseed(session: Session, runs: RunControl, lane: Lane) -> Notice | None:
    """Begin again in a new run file, with the next seed."""
    runs.start(lane, lane.seed + 1)
    session.cursor = None
    return Notice("notice.reseeded", {"name": lane.name, "seed": lane.seed})


def more(_session: Session, runs: RunControl, lane: Lane) -> Notice | None:
    """Train further than planned."""
    if lane.state not in _HAS_MODEL:
        return None
    runs.send(protocol.More(lane.id, MORE_STEPS))
    return Notice("notice.steps_added", {"name": lane.name})


def scale_lr(_session: Session, runs: RunControl, lane: Lane, *, factor: float) -> Notice | None:
    """Multiply the learning rate from the next step on."""
    if lane.state in (*protocol.RESTING, "idle"):
        return _no_step(lane)
    lane.lr_scale *= factor
    runs.send(protocol.SetLr(lane.id, lane.lr_scale))
    return Notice("notice.lr", {"scale": format_number(lane.lr_scale)})


def _no_step(lane: Lane) -> Notice:
    return Notice("notice.no_step", {"steps": lane.steps}, "warning")


def _training(do: Callable[[Session, RunControl, Lane], Notice | None]) -> Callable[[Session], Notice | None]:
    """Something that only a lane of the engine can be told."""

    def control(session: Session) -> Notice | None:
        lane = session.focused
        if session.control is None or lane is None or lane.recorded:
            return Notice("notice.watch_only", severity="warning")
        return do(session, session.control, lane)

    return control


CONTROLS: dict[str, Callable[[Session], Notice | None]] = {
    "pin": pin,
    "square": square,
    "back": partial(travel, steps=-1),
    "forth": partial(travel, steps=1),
    "back_far": partial(travel, steps=-10),
    "forth_far": partial(travel, steps=10),
    "live": live,
    "pause": _training(pause),
    "single_step": _training(single_step),
    "restart": _training(restart),
    "reseed": _training(reseed),
    "more": _training(more),
    "lr_down": _training(partial(scale_lr, factor=0.5)),
    "lr_up": _training(partial(scale_lr, factor=2.0)),
}
