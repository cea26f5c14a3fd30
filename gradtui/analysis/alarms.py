"""Alarms: the steps at which something began or ended. Each is an event in the run file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtui.analysis.flow import EXPLODED, FADING, VANISHED, flow_ratio
from gradtui.runs.schema import METRICS, Event, Floats, Site

NONFINITE, VANISH, RECOVER, EXPLODE = "nonfinite", "vanished", "recovered", "exploded"
ALARMS = frozenset({NONFINITE, VANISH, RECOVER, EXPLODE})

_ACT, _STREAM_GRAD, _GRAD = (METRICS.index(name) for name in ("act_rms", "stream_grad", "grad_norm"))


class AlarmTracker:
    """Turns frames, in order, into alarms.

    A vanished gradient is called recovered only above ten times the alarm's threshold, so that noise around
    one value does not ring twice.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        self._stream = [index for index, site in enumerate(sites) if site.stream is not None]
        self._ends = [self._stream[0], self._stream[-1]] if self._stream else []
        self._vanished = self._exploded = self._nonfinite = False

    def update(self, step: int, loss: float | None, values: Floats) -> list[Event]:
        """The alarms that `values` [metrics, sites] of this step raise."""
        if not np.isfinite(values).all() or (loss is not None and not np.isfinite(loss)):
            if self._nonfinite:
                return []
            self._nonfinite = True
            site, direction = first_nonfinite(values)
            return [Event(step, NONFINITE, site, loss, direction)]
        ratio = flow_ratio(values[_STREAM_GRAD, self._ends])
        alarms = []
        if not self._vanished and ratio < VANISHED:
            self._vanished = True
            alarms.append(Event(step, VANISH, self._stream[0], ratio))
        elif self._vanished and ratio > FADING:
            self._vanished = False
            alarms.append(Event(step, RECOVER, self._stream[0], ratio))
        if not self._exploded and ratio > EXPLODED:
            self._exploded = True
            alarms.append(Event(step, EXPLODE, self._stream[0], ratio))
        elif self._exploded and ratio < EXPLODED / 10:
            self._exploded = False
        return alarms


def first_nonfinite(values: Floats) -> tuple[int | None, str]:
    """Where trouble began in one frame: a site's index and the direction of travel it is first in.

    The forward pass comes first; if all activations are finite, the backward pass is searched from the
    head down. (None, "loss") if only the loss is non-finite.
    """
    forward = np.flatnonzero(~np.isfinite(values[_ACT]))
    if forward.size:
        return int(forward[0]), "forward"
    backward = np.flatnonzero(~np.isfinite(values[[_STREAM_GRAD, _GRAD]]).all(axis=0))
    if backward.size:
        return int(backward[-1]), "backward"
    anywhere = np.flatnonzero(~np.isfinite(values).all(axis=0))
    return (int(anywhere[0]), "update") if anywhere.size else (None, "loss")
