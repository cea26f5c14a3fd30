"""What `RunSeries` answers with, and how the steps of a run are divided for a chart.

Legend: N rows (steps or buckets of steps), K points of depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gradtui.analysis.depth import Numbers
from gradtui.analysis.flow import Flow
from gradtui.metrics import HIGH, LOW
from gradtui.runs.schema import PYRAMID_FACTOR, Event, Flags, Floats

LOSS_STEPS = 10  # a batch is small and its loss noisy: what is shown is the mean of so many


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric over depth, measured at `step`: `x` [K] positions, `y` [K] with NaN where it is not finite."""

    x: Numbers
    y: Numbers
    step: int


@dataclass(frozen=True, slots=True)
class SiteCurve:
    """One metric of one site over steps or buckets of steps, [N]; NaN where there is no value."""

    steps: np.ndarray
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray
    nonfinite: np.ndarray


@dataclass(frozen=True, slots=True)
class Field:
    """One metric over depth and steps: `values` [K, N]; `nonfinite` [K, N] marks where one is not finite."""

    steps: np.ndarray
    values: np.ndarray
    nonfinite: np.ndarray


@dataclass(frozen=True, slots=True)
class Reading:
    """What modules reported at `step`: a vector for each site, and where the sites lie on the axis of layers."""

    step: int
    x: tuple[float, ...]
    vectors: tuple[Floats, ...]


@dataclass(frozen=True, slots=True)
class Recent:
    """What a list of runs shows of one: computed once whenever the run file has changed.

    `seconds` is the median duration of the last steps, `loss` the mean of the last `LOSS_STEPS` in nats (None: no
    loss is recorded), `spark` a few losses from the first step to the last, `skipped` the steps that a GradScaler
    left out.
    """

    events: tuple[Event, ...] = ()
    skipped: tuple[int, ...] = ()
    seconds: float = float("nan")
    flow: Flow | None = None
    loss: float | None = None
    spark: tuple[float, ...] = ()


def pieces(steps: int, columns: int) -> list[tuple[int, int]]:
    """Ranges that cover `steps` steps, each to be read at a coarser level than the one before.

    The first steps are where a collapse happens, and on a logarithmic axis they have half the room: however
    long the run, they are read one by one.
    """
    # A multiple of what the next level holds, and no more than the reader gives one by one for so many columns.
    edge = PYRAMID_FACTOR**2 * max(1, columns // PYRAMID_FACTOR)
    edges = [0]
    while edges[-1] < steps:
        edges.append(min(edge, steps))
        edge *= PYRAMID_FACTOR
    return list(pairwise(edges))


def forward_only(steps: np.ndarray) -> Flags:
    """Which rows [N] begin after all earlier rows: the first bucket of a range may begin in the range before."""
    before = np.maximum.accumulate(np.concatenate([[-1], steps]))[:-1]
    return np.asarray(steps > before)


def texts_of(fact: object) -> list[str]:
    """A fact that is a list of texts; [] for whatever else a file may hold there."""
    return [str(item) for item in fact] if isinstance(fact, list) else []


def times_apart(vector: np.ndarray) -> float:
    """The 95th percentile divided by the 5th; NaN where that is zero, or there are none."""
    return float(vector[HIGH] / vector[LOW]) if len(vector) > HIGH and vector[LOW] > 0 else float("nan")
