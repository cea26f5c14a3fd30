"""One step's numbers: collected as 0-d tensors on the device, unpacked on the host into metrics × sites.

Every number is a 2-norm of some tensors that belong to a row and a site. Norms of disjoint tensors add as squares,
so a site may contribute any number of them (one per parameter, per call of a shared block, per micro-batch).

Legend: R rows, S sites, M metrics, V collected numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradtui import metrics as metrics_table
from gradtui.metrics import CLIPPED, TRUNK_SHARE
from gradtui.runs.schema import ABSENT, Floats

GRAD, GRAD_CLIPPED, WEIGHT, DELTA, STREAM, STREAM_SUM, STREAM_GRAD, TRUNK = range(8)
ROWS = 8

# What each metric is made of; a row that no chosen metric needs is not measured.
NEEDS: dict[str, tuple[int, ...]] = {
    "grad_norm": (GRAD,),
    "act_rms": (STREAM,),
    "stream_grad": (STREAM_GRAD,),
    "weight_norm": (WEIGHT,),
    "update_ratio": (WEIGHT, DELTA),
    "mean_share": (STREAM, STREAM_SUM),
    CLIPPED: (GRAD_CLIPPED,),
    TRUNK_SHARE: (TRUNK, STREAM_GRAD),
}


@dataclass(slots=True)
class StepAccumulator:
    """What a step has collected so far.

    `values` [V] are norms; `places` [V] says where each belongs: row · S + site. `elements` [S] counts the numbers
    behind STREAM, `width` [S] is the size of their last dimension. `combined` are the sums of all processes that
    train together, once they have been added up.
    """

    values: list[Tensor] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    elements: list[int] = field(default_factory=list)
    width: list[int] = field(default_factory=list)
    combined: Tensor | None = None

    def fold(self, sites: int) -> None:
        """Add up what there is, on the device, to one value per row and site."""
        if not self.values:
            return
        with torch.no_grad():
            wide = torch.float32 if self.values[0].device.type == "mps" else torch.float64
            values = torch.stack([value.to(wide) for value in self.values])
            index = torch.tensor(self.places, device=values.device)
            total = torch.zeros(ROWS * sites, dtype=values.dtype, device=values.device)
            total.index_add_(0, index, values.square())
            there = sorted(set(self.places))
            self.values = list(total[there].sqrt().unbind())
            self.places = there


@dataclass(frozen=True, slots=True)
class Totals:
    """Squares summed per row and site [R, S], which of them exist [R, S], and the elements behind STREAM [S]."""

    squares: NDArray[np.float64]
    there: NDArray[np.bool_]
    elements: NDArray[np.float64]

    def imprecise_sites(self) -> set[int]:
        """Sites with a gradient or activation whose square single precision may not have held."""
        rows = [GRAD, STREAM, STREAM_GRAD]
        square, there = self.squares[rows], self.there[rows]
        return set(np.flatnonzero((there & ((square < 1e-34) | np.isinf(square))).any(axis=0)).tolist())

    def unscaled(self, scalars: Mapping[str, float]) -> Totals:
        """Without the loss scale of mixed precision, where `scalars` says that it is still in them."""
        squares = self.squares
        for name, rows in (("stream_scale", [STREAM_GRAD, TRUNK]), ("grad_scale", [GRAD, GRAD_CLIPPED])):
            scale = scalars.get(name, 1.0)
            if scale != 1:
                squares = squares.copy()
                squares[rows] /= scale**2
        return Totals(squares, self.there, self.elements)


def sums(values: NDArray[np.float64], places: Sequence[int], elements: Sequence[int]) -> Totals:
    """Add up what a step has collected; `values` [V] as they came from the device."""
    sites = len(elements)
    index = np.asarray(places, dtype=np.intp)
    squares = np.bincount(index, np.square(values), ROWS * sites).astype(np.float64).reshape(ROWS, sites)
    there = np.zeros(ROWS * sites, dtype=bool)
    there[index] = True
    return Totals(squares, there.reshape(ROWS, sites), np.asarray(elements, dtype=np.float64))


def sums_of_all(numbers: NDArray[np.float64], sites: int) -> Totals:
    """What all processes have added up: squares [R · S], how many numbers made each [R · S], elements [S]."""
    cells = ROWS * sites
    there = numbers[cells : 2 * cells].reshape(ROWS, sites) > 0
    return Totals(numbers[:cells].reshape(ROWS, sites), there, numbers[2 * cells :])


def matrix(total: Totals, width: Sequence[int], metrics: Sequence[str]) -> Floats:
    """The metrics [M, S], ABSENT where a site has no such value."""
    square, there = total.squares, total.there
    values = np.empty((len(metrics), square.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        norm = np.sqrt(square)
        for row, metric in enumerate(metrics):
            match metric:
                case "act_rms":
                    # No tokens (an expert that none was sent to), no mean.
                    values[row] = np.where(total.elements == 0, ABSENT, np.sqrt(square[STREAM] / total.elements))
                case "update_ratio":
                    # A ratio to zero weights is undefined; a change of weights that stayed zero is none.
                    values[row] = np.where(square[WEIGHT] == 0, ABSENT, norm[DELTA] / norm[WEIGHT])
                case metrics_table.TRUNK_SHARE:
                    values[row] = norm[TRUNK] / norm[STREAM_GRAD]
                case "mean_share":
                    share = square[STREAM_SUM] / square[STREAM] / np.asarray(width)
                    values[row] = np.where(square[STREAM] == 0, 0, share)  # a zero stream has no mean
                case _:
                    values[row] = norm[NEEDS[metric][0]]
            for need in NEEDS[metric]:
                values[row, ~there[need]] = ABSENT
    return values
