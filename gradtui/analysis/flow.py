"""Classifies how gradients flow through the depth of a model.

The flow ratio is ‖∂L/∂x_0‖ / ‖∂L/∂x_L‖: what reaches the first layer of what enters the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

# One part in a hundred is far outside what any healthy topology shows at initialisation (0.5 to 3 over
# twelve layers, up to about 7 over a hundred), and far above what a collapse reaches (1e-3 and below).
VANISHED = 1e-2
FADING = 1e-1
EXPLODED = 1e3
# A hundred Pre-norm layers differ up to about 40 times across depth, twelve up to about 10.
UNEVEN = 30

State = Literal["healthy", "uneven", "fading", "vanished", "exploding", "nonfinite", "silent"]


@dataclass(frozen=True, slots=True)
class Flow:
    """`ratio` is the flow ratio, `spread` the largest over the smallest gradient across depth."""

    state: State
    ratio: float
    spread: float


def flow_ratio(stream_grad: ArrayLike) -> float:
    """‖∂L/∂x_0‖ / ‖∂L/∂x_L‖ of one step's stream gradients [L + 1]; NaN where it is undefined."""
    points = np.asarray(stream_grad, dtype=np.float64)
    if points.size < 2 or not np.isfinite(points[[0, -1]]).all() or points[-1] == 0:
        return float("nan")
    return float(points[0] / points[-1])


def classify(stream_grad: ArrayLike, nonfinite: bool = False) -> Flow:
    """The flow of one step from its stream gradients x_0 … x_L; `nonfinite` if any site had NaN or Inf."""
    points = np.asarray(stream_grad, dtype=np.float64)
    ratio = flow_ratio(points)
    if nonfinite or not np.isfinite(points).all():
        return Flow("nonfinite", ratio, float("nan"))
    if points.size < 2 or points[-1] == 0:
        return Flow("silent", ratio, float("nan"))
    low = float(points.min())
    spread = float(points.max()) / low if low > 0 else float("inf")
    if ratio < VANISHED:
        return Flow("vanished", ratio, spread)
    if ratio < FADING:
        return Flow("fading", ratio, spread)
    if ratio > EXPLODED:
        return Flow("exploding", ratio, spread)
    return Flow("uneven" if spread > UNEVEN else "healthy", ratio, spread)
