"""What the supervisor and a lane say to each other, over a pipe between the two processes."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

from gradtui.engine.protocol import LaneState, Start


@dataclass(frozen=True, slots=True)
class Order:
    """To a lane. `go` and `hold` are the scheduler's, the others the user's."""

    what: Literal["go", "hold", "pause", "resume", "step", "more", "lr", "stop"]
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """From a lane: its own view of its state, and why where that is not by order."""

    state: LaneState
    reason: str = ""


def enter_lane(conn: Connection, start: Start) -> None:
    """First function of a lane process: the supervisor can name it without loading torch itself."""
    from gradtui.engine.lane import run_lane

    run_lane(conn, start)
