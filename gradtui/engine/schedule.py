"""Which lanes may run when there are more lanes than cores. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def allot(priority: Sequence[str], runnable: Iterable[str], slots: int) -> set[str]:
    """At most `slots` of `runnable`: those in `priority` first, in its order, then in their own order."""
    wanted = list(runnable)
    rank = {lane: index for index, lane in enumerate(priority)}
    ordered = sorted(wanted, key=lambda lane: rank.get(lane, len(rank)))
    return set(ordered[:slots])
