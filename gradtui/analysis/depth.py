"""From sites to depth: one number per layer, or per stream point, for charts whose x axis is depth.

Legend: S sites, N rows (steps), K points of depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradtui.metrics import METRICS, Owner
from gradtui.runs.schema import Flags, Site, stream_points

Numbers = NDArray[np.float64]

# Where in its layer a sublayer lies.
HALVES = {"mixer": 0.0, "feedforward": 0.5}


@dataclass(frozen=True, slots=True)
class Depth:
    """The points of depth of one metric in one model.

    `groups` [K] are the indices of the sites that make up each point, `positions` [K] where the points lie on an
    axis of layers, `stacks` [K] the stack of residual blocks each belongs to ("" where a model has only one).
    """

    groups: tuple[tuple[int, ...], ...]
    positions: tuple[float, ...]
    stacks: tuple[str, ...]

    @classmethod
    def of(
        cls, sites: Sequence[Site], groups: Sequence[tuple[int, ...]], positions: Sequence[float] = ()
    ) -> Depth:
        """These groups of `sites`; the positions are 0, 1, 2 … unless given."""
        places = tuple(positions) or tuple(map(float, range(len(groups))))
        return cls(tuple(groups), places, tuple(sites[group[0]].stack for group in groups))

    @property
    def points(self) -> int:
        """K, the number of points."""
        return len(self.groups)

    @property
    def bands(self) -> tuple[tuple[int, str], ...]:
        """The point at which each stack begins, and its name; empty where there is only one stack."""
        begin = [k for k, stack in enumerate(self.stacks) if k == 0 or stack != self.stacks[k - 1]]
        return tuple((k, self.stacks[k]) for k in begin) if len(begin) > 1 else ()

    @property
    def starts(self) -> tuple[int, ...]:
        """The points at which a further stack begins; a gradient does not flow across."""
        return tuple(start for start, _ in self.bands[1:])


def depth_of(sites: Sequence[Site], metric: str) -> Depth:
    """The points of depth of `metric` over `sites`.

    A stream metric has L + 1 points x_0 … x_L, each a single site; a metric of sublayers two per layer; any other
    one per layer, made of all sites in it. No points where the model has none of these.
    """
    owner: Owner = METRICS[metric].owner if metric in METRICS else "site"
    if owner == "stream":
        return Depth.of(sites, [(index,) for index in stream_points(sites)])
    if owner == "sublayer":
        members = [index for index, site in enumerate(sites) if site.layer is not None and site.kind in HALVES]
        return Depth.of(sites, [(index,) for index in members], [position_of(sites[i]) for i in members])
    layers: dict[int, list[int]] = {}
    for index, site in enumerate(sites):
        if site.layer is not None:
            layers.setdefault(site.layer, []).append(index)
    return Depth.of(sites, [tuple(layers[layer]) for layer in sorted(layers)])


def depth_of_any(sites: Sequence[Site], metric: str) -> Depth:
    """As `depth_of`, for any model: a stream that is not known is counted by layer, and layers by site in order.

    A metric of sublayers has no points in a model without them.
    """
    depth = depth_of(sites, metric)
    if depth.points or (metric in METRICS and METRICS[metric].owner == "sublayer"):
        return depth
    layers = depth_of(sites, "weight_norm")
    return layers if layers.points else each_site(sites)


def each_site(sites: Sequence[Site]) -> Depth:
    """Every site a point of its own, in order."""
    return Depth.of(sites, [(index,) for index in range(len(sites))])


def position_of(site: Site) -> float:
    """Where a site lies on an axis of layers: a mixer at its layer, a feed-forward half a layer on."""
    return float(site.layer or 0) + HALVES.get(site.kind, 0.0)


def by_depth(
    depth: Depth,
    metric: str,
    values_NS: NDArray[np.floating[Any]],
    weights_NS: NDArray[np.floating[Any]] | None,
    bad_NS: Flags,
) -> tuple[Numbers, Flags]:
    """`metric` per point of depth, [N, K], and where a non-finite value is part of it, [N, K].

    Norms of a layer's sites add as squares; an update ratio is ‖Δθ‖ / ‖θ‖ of the whole layer, for which the
    sites' weight norms are `weights_NS` (None: all alike). NaN that is not `bad` means that nothing is there, and
    stays NaN.
    """
    if all(len(group) == 1 for group in depth.groups):
        members = [group[0] for group in depth.groups]
        return values_NS[:, members].astype(np.float64), bad_NS[:, members]
    if weights_NS is None:
        weights_NS = np.ones_like(values_NS)
    values = np.empty((len(values_NS), depth.points))
    bad = np.empty(values.shape, dtype=bool)
    for k, group in enumerate(depth.groups):
        part, sites = values_NS[:, group].astype(np.float64), list(group)
        bad[:, k] = bad_NS[:, sites].any(axis=1)
        if len(sites) == 1:
            values[:, k] = part[:, 0]
            continue
        there = ~np.isnan(part)
        if metric == "update_ratio":
            weights = weights_NS[:, sites].astype(np.float64)
            moved = np.where(there, part * weights, 0)
            total = np.where(there, weights, 0)
            with np.errstate(all="ignore"):
                values[:, k] = np.sqrt(np.square(moved).sum(axis=1) / np.square(total).sum(axis=1))
        else:
            values[:, k] = np.sqrt(np.square(np.where(there, part, 0)).sum(axis=1))
            values[~there.any(axis=1), k] = np.nan
    return values, bad


def gains(x: Numbers, y_KN: Numbers, starts: Sequence[int]) -> tuple[Numbers, Numbers]:
    """Each point's value divided by the next one's: positions [K − 1], and quotients [K − 1, N].

    Points that are no neighbours (one between them has no value, or a stack begins at one of `starts`) are left
    out. A division by zero is NaN.
    """
    if len(x) < 2:
        return x[:0], y_KN[:0]
    apart = (np.diff(x) != 1) | np.isin(x[1:], np.asarray(starts, dtype=np.float64))
    with np.errstate(all="ignore"):
        quotients = np.where(y_KN[1:] > 0, y_KN[:-1] / y_KN[1:], np.nan)
    return x[:-1][~apart], quotients[~apart]
