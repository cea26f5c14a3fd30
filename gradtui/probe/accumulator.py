"""What one training step has measured: numbers on the device, then totals on the host, then metrics.

Every number is the 2-norm of some tensor and belongs to a cell: one row (what was measured) and one site (where).
Norms of disjoint tensors add as squares, so a cell may get any number of them: one per parameter, per call of a
shared block, per micro-batch.

Legend: R rows, S sites, M metrics, V numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradtui.metrics import CLIPPED, TRUNK_SHARE
from gradtui.runs.schema import ABSENT, Floats

# The rows, each the 2-norm of: gradients before and after clipping, weights before the step, the change of the
# weights, a stream, its sum over the last dimension, its gradient, the part of that which came along the trunk.
GRAD, GRAD_CLIPPED, WEIGHT, DELTA, STREAM, STREAM_SUM, STREAM_GRAD, TRUNK = range(8)
ROWS = 8
STREAM_ROWS = frozenset({STREAM, STREAM_SUM, STREAM_GRAD, TRUNK})


@dataclass(slots=True)
class StepAccumulator:
    """The numbers that a step has measured so far.

    `values` [V] are 0-d tensors and `cells` [V] say where each belongs: row · S + site. `elements` [S] counts the
    numbers behind the row STREAM, `width` [S] is the size of their last dimension. `combined` is set once the
    processes that train together have added up their numbers; see `Totals.of_processes`.
    """

    elements: list[int]
    width: list[int]
    values: list[Tensor] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    combined: Tensor | None = None

    @classmethod
    def empty(cls, sites: int) -> StepAccumulator:
        """Nothing measured yet at any of so many sites."""
        return cls(elements=[0] * sites, width=[1] * sites)

    def extend(self, values: Sequence[Tensor], cells: Sequence[int]) -> None:
        """Add numbers and their cells."""
        self.values += values
        self.cells += cells

    def moved(self, site_of: Mapping[int, int], sites: int) -> StepAccumulator:
        """The same numbers for a model of `sites` sites: site s is `site_of[s]` there, others are left out."""
        result, count = StepAccumulator.empty(sites), len(self.elements)
        for value, cell in zip(self.values, self.cells, strict=True):
            row, site = divmod(cell, count)
            if site in site_of:
                result.values.append(value)
                result.cells.append(row * sites + site_of[site])
        for site, new in site_of.items():
            result.elements[new], result.width[new] = self.elements[site], self.width[site]
        return result

    def fold(self) -> None:
        """Add up the values on the device, to one per cell."""
        if not self.values:
            return
        with torch.no_grad():
            dtype = torch.float32 if self.values[0].device.type == "mps" else torch.float64
            values = torch.stack([value.to(dtype) for value in self.values])
            index = torch.tensor(self.cells, device=values.device)
            squares = torch.zeros(ROWS * len(self.elements), dtype=dtype, device=values.device)
            squares.index_add_(0, index, values.square())
            cells = sorted(set(self.cells))
            self.values = list(squares[cells].sqrt().unbind())
            self.cells = cells


@dataclass(frozen=True, slots=True)
class Totals:
    """A step's numbers, added up on the host.

    `squares` [R, S] are sums of squared norms, `present` [R, S] says which of them were measured at all,
    `elements` [S] and `width` [S] are those of `StepAccumulator`.
    """

    squares: NDArray[np.float64]
    present: NDArray[np.bool_]
    elements: NDArray[np.float64]
    width: NDArray[np.int64]

    @classmethod
    def of(cls, accumulator: StepAccumulator, numbers: NDArray[np.float64]) -> Totals:
        """Add up `numbers` [V], the accumulator's values as they came from the device."""
        sites = len(accumulator.elements)
        index = np.asarray(accumulator.cells, dtype=np.intp)
        squares = np.bincount(index, np.square(numbers), ROWS * sites).astype(np.float64)
        present = np.zeros(ROWS * sites, dtype=bool)
        present[index] = True
        elements = np.asarray(accumulator.elements, dtype=np.float64)
        shape = (ROWS, sites)
        return cls(squares.reshape(shape), present.reshape(shape), elements, np.asarray(accumulator.width))

    @classmethod
    def of_processes(cls, accumulator: StepAccumulator, numbers: NDArray[np.float64]) -> Totals:
        """Read the sums of all processes: squares [R · S], how many numbers made each [R · S], elements [S]."""
        sites = len(accumulator.elements)
        cells, shape = ROWS * sites, (ROWS, sites)
        squares, counts, elements = np.split(numbers, [cells, 2 * cells])
        return cls(squares.reshape(shape), counts.reshape(shape) > 0, elements, np.asarray(accumulator.width))

    def norm(self, row: int) -> NDArray[np.float64]:
        """The norms [S] of one row."""
        norm: NDArray[np.float64] = np.sqrt(self.squares[row])
        return norm

    def imprecise_sites(self) -> set[int]:
        """Sites with a gradient or activation whose square single precision may not have held."""
        rows = [GRAD, STREAM, STREAM_GRAD]
        squares, present = self.squares[rows], self.present[rows]
        return set(np.flatnonzero((present & ((squares < 1e-34) | np.isinf(squares))).any(axis=0)).tolist())

    def unscaled(self, scalars: Mapping[str, float]) -> Totals:
        """Divide by the loss scale of mixed precision, where `scalars` holds one."""
        squares = self.squares
        for name, rows in (("stream_scale", [STREAM_GRAD, TRUNK]), ("grad_scale", [GRAD, GRAD_CLIPPED])):
            scale = scalars.get(name, 1.0)
            if scale != 1:
                squares = squares.copy()
                squares[rows] /= scale**2
        return Totals(squares, self.present, self.elements, self.width)


@dataclass(frozen=True, slots=True)
class Formula:
    """How a metric is computed [S] from totals, and the rows that it needs."""

    rows: tuple[int, ...]
    compute: Callable[[Totals], NDArray[np.float64]]


def _norm_of(row: int) -> Formula:
    return Formula((row,), lambda totals: totals.norm(row))


def _rms(totals: Totals) -> NDArray[np.float64]:
    # Without elements (an expert that got no tokens) there is no mean.
    rms = np.sqrt(totals.squares[STREAM] / totals.elements)
    return np.where(totals.elements == 0, ABSENT, rms)


def _update_ratio(totals: Totals) -> NDArray[np.float64]:
    # A ratio to zero weights is undefined; a change of weights that stayed zero is none.
    return np.where(totals.squares[WEIGHT] == 0, ABSENT, totals.norm(DELTA) / totals.norm(WEIGHT))


def _mean_share(totals: Totals) -> NDArray[np.float64]:
    share = totals.squares[STREAM_SUM] / totals.squares[STREAM] / totals.width
    return np.where(totals.squares[STREAM] == 0, 0, share)  # a zero stream has no mean


FORMULAS: dict[str, Formula] = {
    "stream_grad": _norm_of(STREAM_GRAD),
    "grad_norm": _norm_of(GRAD),
    CLIPPED: _norm_of(GRAD_CLIPPED),
    "update_ratio": Formula((WEIGHT, DELTA), _update_ratio),
    "act_rms": Formula((STREAM,), _rms),
    "mean_share": Formula((STREAM, STREAM_SUM), _mean_share),
    "weight_norm": _norm_of(WEIGHT),
    TRUNK_SHARE: Formula((TRUNK, STREAM_GRAD), lambda totals: totals.norm(TRUNK) / totals.norm(STREAM_GRAD)),
}
"""Each measured metric of `gradtui.metrics`. A row that no chosen metric needs is not measured."""


def rows_for(metrics: Sequence[str]) -> frozenset[int]:
    """The rows that these metrics need."""
    return frozenset(row for metric in metrics for row in FORMULAS[metric].rows)


def metric_values(totals: Totals, metrics: Sequence[str]) -> Floats:
    """The metrics [M, S], ABSENT where a site has no such value."""
    values = np.empty((len(metrics), totals.squares.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for index, metric in enumerate(metrics):
            formula = FORMULAS[metric]
            values[index] = formula.compute(totals)
            for row in formula.rows:
                values[index, ~totals.present[row]] = ABSENT
    return values


class MeasuringHints:
    """What the steps that have arrived on the host say about how to measure the next ones.

    Written by whoever records the steps, which may be another thread; read where tensors are reduced. Holds no
    reference to the model.
    """

    def __init__(self, sites: int) -> None:
        self.sites = sites
        # Sites whose squares may not fit single precision; all of them as long as nothing is known.
        self.precise_sites: frozenset[int] = frozenset(range(sites))
        # Whether anything but the optimizer writes to the weights in a way that leaves no trace.
        self.weights_drift = False
        self._is_first = True

    def update(self, totals: Totals, scalars: Mapping[str, float]) -> None:
        """Learn from a step; `scalars` may hold its "drift", the change of weights found before the step."""
        imprecise = totals.imprecise_sites()
        # Once imprecise, always summed precisely: no site is to change back and forth.
        known = frozenset() if self._is_first else self.precise_sites
        self.precise_sites = known | imprecise
        self.weights_drift = self.weights_drift or scalars.get("drift", 0.0) > 0
        self._is_first = False
