"""Where a lane process begins. Loads no torch itself, so that the supervisor can name it."""

from __future__ import annotations

from multiprocessing.connection import Connection

from gradtui.engine.protocol import Start

# What the forkserver imports once, so that every lane starts with it in memory. The first optimizer imports
# `torch._dynamo`, which takes about a second.
PRELOAD = ("torch", "torch._dynamo", "gradtui.engine.preload")


def enter_lane(conn: Connection, start: Start) -> None:
    """Run a lane in this process, obeying what comes over `conn`."""
    from gradtui.engine.lane import run_lane

    run_lane(conn, start)
