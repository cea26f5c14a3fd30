"""From sites to depth: one number per layer, or per stream point, for charts whose x axis is depth.

Legend: M metrics, S sites, N rows (steps), K points of depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradtui.metrics import STREAM_METRICS
from gradtui.runs.schema import Flags, Site

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Depth:
    """Which sites make up each point of depth, for one metric.

    A stream metric has L + 1 points x_0 … x_L, each a single site; any other has one point per layer, made
    of all sites in it.
    """

    groups: tuple[tuple[int, ...], ...]

    @property
    def points(self) -> int:
        """K, the number of points."""
        return len(self.groups)


def depth_of(sites: Sequence[Site], metric: str) -> Depth:
    """The points of depth of `metric` over `sites`."""
    if metric in STREAM_METRICS:
        points = sorted((s.stream, index) for index, s in enumerate(sites) if s.stream is not None)
        return Depth(tuple((index,) for _, index in points))
    layers: dict[int, list[int]] = {}
    for index, site in enumerate(sites):
        if site.layer is not None:
            layers.setdefault(site.layer, []).append(index)
    return Depth(tuple(tuple(layers[layer]) for layer in sorted(layers)))


def by_depth(
    depth: Depth,
    metric: str,
    values_NS: NDArray[np.floating[Any]],
    weights_NS: NDArray[np.floating[Any]] | None,
    bad_NS: Flags,
) -> tuple[Numbers, Flags]:
    """`metric` per point of depth, [N, K], and where a non-finite value is part of it, [N, K].

    Norms of a layer's sites add as squares; an update ratio is ‖Δθ‖ / ‖θ‖ of the whole layer and needs the
    sites' weight norms. NaN that is not `bad` means that nothing is there, and stays NaN.
    """
    values = np.empty((len(values_NS), depth.points))
    bad = np.empty(values.shape, dtype=bool)
    for k, group in enumerate(depth.groups):
        part, sites = values_NS[:, group].astype(np.float64), list(group)
        bad[:, k] = bad_NS[:, sites].any(axis=1)
        if len(sites) == 1:
            values[:, k] = part[:, 0]
            continue
        there = ~np.isnan(part)
        if metric == "update_ratio" and weights_NS is not None:
            weights = weights_NS[:, sites].astype(np.float64)
            moved = np.where(there, part * weights, 0)
            total = np.where(there, weights, 0)
            with np.errstate(all="ignore"):
                values[:, k] = np.sqrt(np.square(moved).sum(axis=1) / np.square(total).sum(axis=1))
        else:
            values[:, k] = np.sqrt(np.square(np.where(there, part, 0)).sum(axis=1))
            values[~there.any(axis=1), k] = np.nan
    return values, bad
