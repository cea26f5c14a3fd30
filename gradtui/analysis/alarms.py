"""Alarms: the steps at which something began or ended. Each is an event in the run file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gradtui.analysis.flow import EXPLODED, FADING, VANISHED, Gauge
from gradtui.metrics import METRICS, SITE_METRICS
from gradtui.runs.schema import Event, Floats, Site

NONFINITE, VANISH, RECOVER, EXPLODE = "nonfinite", "vanished", "recovered", "exploded"
ALARMS = frozenset({NONFINITE, VANISH, RECOVER, EXPLODE})


class AlarmTracker:
    """Turns frames, in order, into alarms.

    A vanished gradient is called recovered only above ten times the alarm's threshold, so that noise around
    one value does not ring twice.
    """

    def __init__(self, sites: Sequence[Site], metrics: Sequence[str] = SITE_METRICS) -> None:
        self._gauge = Gauge.of(sites, metrics)
        self._metrics = tuple(metrics)
        self._vanished = self._exploded = self._nonfinite = False

    def update(self, step: int, loss: float | None, values: Floats) -> list[Event]:
        """The alarms that `values` [metrics, sites] of this step raise."""
        if not np.isfinite(values).all() or (loss is not None and not np.isfinite(loss)):
            if self._nonfinite:
                return []
            self._nonfinite = True
            found = first_nonfinite(values, self._metrics)
            return [Event(step, NONFINITE, site, loss, direction) for site, direction in found]
        flow = self._gauge.read(values)
        ratio = flow.ratio
        alarms = []
        if not self._vanished and ratio < VANISHED:
            self._vanished = True
            alarms.append(Event(step, VANISH, flow.first, ratio))
        elif self._vanished and ratio > FADING:
            self._vanished = False
            alarms.append(Event(step, RECOVER, flow.first, ratio))
        if not self._exploded and ratio > EXPLODED:
            self._exploded = True
            alarms.append(Event(step, EXPLODE, flow.first, ratio))
        elif self._exploded and ratio < EXPLODED / 10:
            self._exploded = False
        return alarms


def first_nonfinite(values: Floats, metrics: Sequence[str] = SITE_METRICS) -> list[tuple[int | None, str]]:
    """Where trouble began in one frame: (site's index, direction of travel), what came first first.

    Both directions are named where both are hit: the forward pass from the first site on, the backward pass
    from the last one down. A value that is wrong only after the step is "update"; [(None, "loss")] if nothing
    but the loss is non-finite.
    """
    bad = ~np.isfinite(values)
    row = {name: index for index, name in enumerate(metrics)}

    def hit(phase: str) -> NDArray[np.intp]:
        """The sites with a non-finite value among the metrics that this phase computes."""
        rows = [row[name] for name in row if name in METRICS and METRICS[name].phase == phase]
        return np.flatnonzero(bad[rows].any(axis=0))

    forward, backward = hit("forward"), hit("backward")
    found: list[tuple[int | None, str]] = []
    if forward.size:
        found.append((int(forward[0]), "forward"))
    if backward.size:
        found.append((int(backward[-1]), "backward"))
    if not found:
        anywhere = np.flatnonzero(~np.isfinite(values).all(axis=0))
        found.append((int(anywhere[0]), "update") if anywhere.size else (None, "loss"))
    return found
