"""Many numbers on few cells: levels on a scale from 0 to 1, pooled so that no trouble and no extreme is lost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gradtui.charts.scale import HUGE

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


class Levels(NamedTuple):
    """`values` [rows, columns] are levels from 0 to 1, NaN where unknown; `bad` says where one was not finite."""

    values: Floats
    bad: Flags


def in_units(values: Floats, log: bool) -> Floats:
    """Values, or their log10, NaN where not finite; −inf where a log has no value for them."""
    if not log:
        return np.where(np.isfinite(values), np.clip(values, -HUGE, HUGE), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.isfinite(values), np.where(values > 0, np.log10(values), -np.inf), np.nan)


def levels_of(units: Floats, low: float, high: float) -> Floats:
    """Where units lie between both ends of the scale, from 0 to 1; NaN where they are NaN."""
    with np.errstate(invalid="ignore"):
        return np.clip((units - low) / (high - low), 0.0, 1.0)


def mean_groups(levels: Levels, starts: Counts, ends: Counts) -> Levels:
    """Mean of the levels in columns [start, end) of each group; one bad value makes the whole group bad.

    A mean on a log scale is a mean of logs: one collapsed step darkens its group, a plain mean would hide it.
    Prefix sums, so that a group costs the same whatever its size.
    """
    known = np.isfinite(levels.values)

    def sums(values: Floats | Flags) -> Floats:
        total = np.zeros((values.shape[0], values.shape[1] + 1))
        np.cumsum(values, axis=1, out=total[:, 1:])
        return np.asarray(total[:, ends] - total[:, starts])

    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums(np.where(known, levels.values, 0.0)) / sums(known)
    return Levels(means, sums(levels.bad) > 0)


def extreme_groups(levels: Levels, starts: Counts, ends: Counts) -> Levels:
    """The lowest or the highest level of each group of columns, whichever is farther from the row's median.

    Of many layers in one cell the one that differs is worth seeing: a mean would hide one that has collapsed.
    The groups follow one another without a gap.
    """
    rows, count = levels.values.shape
    known = np.isfinite(levels.values)
    lowest = np.minimum.reduceat(np.where(known, levels.values, np.inf), starts, axis=1)
    highest = np.maximum.reduceat(np.where(known, levels.values, -np.inf), starts, axis=1)
    # Unknown levels sort last: the median of the known ones, without a warning for rows that have none.
    order = np.sort(np.where(known, levels.values, np.inf), axis=1)
    middle = np.minimum(known.sum(axis=1) // 2, count - 1)
    median = order[np.arange(rows), middle][:, None]
    with np.errstate(invalid="ignore"):
        farthest = np.where(median - lowest > highest - median, lowest, highest)
    farthest[~np.isfinite(farthest)] = np.nan
    return Levels(farthest, np.logical_or.reduceat(levels.bad, starts, axis=1))


def even_groups(items: int, cells: int) -> tuple[Counts, Counts]:
    """Which items [start, end) each of `cells` cells stands for; one of few items fills several cells."""
    edges = np.arange(cells + 1, dtype=np.int64) * items // cells
    return edges[:-1], np.maximum(edges[:-1] + 1, edges[1:])


class Steps(NamedTuple):
    """The step axis, from the start of its first step to the end of its last; `pitch` is one step long."""

    low: float
    high: float
    pitch: float
    columns: int

    def column(self, step: float) -> int:
        """The cell that a step lies in."""
        share = (step - self.low) / (self.high - self.low)
        return min(self.columns - 1, max(0, int(share * self.columns + 1e-9)))

    def groups(self, x: Floats) -> tuple[Counts, Counts]:
        """Which data columns [start, end) each cell stands for; start == end where there is no data."""
        edges = self.low + (self.high - self.low) * (np.arange(self.columns + 1) / self.columns)
        edges[:-1] -= 1e-9 * self.pitch
        edges[-1] = np.inf
        bounds = np.searchsorted(x, edges, side="left").astype(np.int64)
        starts, ends = bounds[:-1], bounds[1:]
        # A cell narrower than a step shows the step it lies in, until the last one ends.
        held = (ends == starts) & (starts > 0) & (edges[:-1] < x[-1] + self.pitch * (1 - 1e-6))
        return np.where(held, starts - 1, starts), np.where(held, starts, ends)
