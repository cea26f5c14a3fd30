"""Classifies how gradients flow through the depth of a model.

The flow ratio is ‖∂L/∂x_0‖ / ‖∂L/∂x_L‖: what reaches the first layer of what enters the last one.

Legend: M metrics, S sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradtui.runs.schema import Flags, Site

# One part in a hundred is far outside what any healthy topology shows at initialisation (0.5 to 3 over
# twelve layers, up to about 7 over a hundred), and far above what a collapse reaches (1e-3 and below).
VANISHED = 1e-2
FADING = 1e-1
EXPLODED = 1e3
# A hundred Pre-norm layers differ up to about 40 times across depth, twelve up to about 10.
UNEVEN = 30

State = Literal["healthy", "uneven", "fading", "vanished", "exploding", "nonfinite", "silent"]
# Of several stacks the one that is worst off speaks for the model.
_WORST_FIRST: tuple[State, ...] = (
    "nonfinite", "vanished", "exploding", "fading", "uneven", "healthy", "silent",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flow:
    """`ratio` is the flow ratio, `spread` the largest over the smallest gradient across depth.

    `first` is the index of the site that the ratio's numerator belongs to, None where there is no ratio;
    `steepest` that of the site across which the gradient changes most (from what leaves it to what enters it),
    where it changes by more than all layers of a healthy stack together.
    """

    state: State
    ratio: float
    spread: float
    first: int | None = None
    steepest: int | None = None


@dataclass(frozen=True, slots=True)
class Gauge:
    """Where a model's gradient flow is read: rows of the metrics, and the sites of each stack."""

    stream_row: int | None
    grad_row: int | None
    streams: tuple[tuple[int, ...], ...]
    layers: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, sites: Sequence[Site], metrics: Sequence[str]) -> Gauge:
        """The gauge of a run with these sites and metrics."""
        row = {name: index for index, name in enumerate(metrics)}
        stacks = list(dict.fromkeys(s.stack for s in sites if s.layer is not None or s.stream is not None))

        def members(stack: str, what: str) -> tuple[int, ...]:
            found = [(getattr(s, what), i) for i, s in enumerate(sites) if s.stack == stack]
            return tuple(i for place, i in sorted(f for f in found if f[0] is not None))

        return cls(
            row.get("stream_grad"),
            row.get("grad_norm"),
            tuple(members(stack, "stream") for stack in stacks),
            tuple(members(stack, "layer") for stack in stacks),
        )

    def read(self, values_MS: NDArray[np.floating], nonfinite: bool = False) -> Flow:
        """The flow of one step from `values_MS`, with NaN or a negative number where there is no value.

        `nonfinite` says that any value, or the loss, was NaN or infinite. Where the stream cannot be seen, the
        layers' weight gradients are read instead.
        """
        flows = []
        for stream, layers in zip(self.streams, self.layers, strict=True):
            flow = Flow("silent", float("nan"), float("nan"))
            for row, members in ((self.stream_row, stream), (self.grad_row, layers)):
                if row is None or flow.state != "silent":
                    continue
                flow = classify(values_MS[row, list(members)], nonfinite, members)
            flows.append(flow)
        if not flows:
            flows.append(Flow("nonfinite" if nonfinite else "silent", float("nan"), float("nan")))
        return min(flows, key=lambda flow: _WORST_FIRST.index(flow.state))


def flow_ratio(gradients: ArrayLike) -> float:
    """What reaches the first point of what enters the last one; NaN where it is undefined.

    Points without a gradient (frozen, never reached, exactly zero) are passed over: nothing flows there that
    could vanish.
    """
    points = np.asarray(gradients, dtype=np.float64)
    points = points[_flowing(points)]
    if points.size < 2 or not np.isfinite(points[[0, -1]]).all():
        return float("nan")
    return float(points[0] / points[-1])


def classify(gradients: ArrayLike, nonfinite: bool = False, sites: Sequence[int] = ()) -> Flow:
    """The flow of one step from its gradients in order of depth; `sites` are the points' sites.

    NaN among the gradients is a value that does not exist, unless `nonfinite` says that there is trouble.
    """
    points = np.asarray(gradients, dtype=np.float64)
    there = _flowing(points)
    ratio = flow_ratio(points)
    if nonfinite or np.isinf(points).any():
        return Flow("nonfinite", ratio, float("nan"))
    flowing = points[there]
    if flowing.size < 2:
        return Flow("silent", ratio, float("nan"))
    spread = float(flowing.max() / flowing.min())
    first = sites[int(np.flatnonzero(there)[0])] if sites else None
    jumps = np.abs(np.log10(flowing[1:] / flowing[:-1]))
    steepest = None
    if sites and jumps.max() > np.log10(UNEVEN):
        # What lies between two points is the block that the later one leaves.
        steepest = sites[int(np.flatnonzero(there)[1 + int(jumps.argmax())])]
    return Flow(_state(ratio, spread), ratio, spread, first, steepest)


def _flowing(points: NDArray[np.float64]) -> Flags:
    with np.errstate(invalid="ignore"):
        return points > 0


def _state(ratio: float, spread: float) -> State:
    if ratio < VANISHED:
        return "vanished"
    if ratio < FADING:
        return "fading"
    if ratio > EXPLODED:
        return "exploding"
    return "uneven" if spread > UNEVEN else "healthy"
