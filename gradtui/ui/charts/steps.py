"""The axis of steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gradtui.charts.scale import format_step
from gradtui.charts.spec import Ticks
from gradtui.ui.session.lane import Lane

LEAST_STEPS = 20


@dataclass(frozen=True, slots=True)
class StepAxis:
    """The axis of steps: even, or logarithmic so that the first steps, where a collapse happens, have room."""

    log: bool
    end: int

    @classmethod
    def of(cls, lanes: Sequence[Lane], log: bool) -> StepAxis:
        """The axis that holds all that `lanes` have recorded."""
        ends = [axis_end(lane.last_step, lane.steps) for lane in lanes if lane.last_step >= 0]
        return cls(log, max(ends, default=LEAST_STEPS))

    def x(self, steps: ArrayLike) -> np.ndarray:
        """Where steps lie on the axis."""
        positions = np.asarray(steps, dtype=np.float64)
        return np.log10(positions + 1) if self.log else positions

    def cursor(self, step: int | None) -> float | None:
        """Where a step in history lies, at most at the end."""
        return None if step is None else float(self.x(min(step, self.end)))

    @property
    def limits(self) -> tuple[float, float]:
        """Both ends."""
        return 0.0, float(self.x(self.end))

    @property
    def ticks(self) -> Ticks | None:
        """0, 1, 2, 5, 10 … on a logarithmic axis; an even one finds its own."""
        if not self.log:
            return None
        steps = [0, *(m * 10**e for e in range(9) for m in (1, 2, 5) if m * 10**e <= self.end)]
        return tuple((float(self.x(step)), format_step(step)) for step in steps)

    def label(self, x: float) -> str:
        """The step at a position, as text."""
        return format_step(round(10**x - 1) if self.log else x)


def axis_end(last: int, steps: int) -> int:
    """The last step of a time axis: a round number that a running lane has not reached yet."""
    if last >= steps - 1 > 0:
        return last
    end = LEAST_STEPS
    while end <= last:
        # 20, 50, 100, 200, 500 …
        end = end * 5 // 2 if str(end)[0] == "2" else end * 2
    return min(end, max(steps - 1, last)) if steps else end
