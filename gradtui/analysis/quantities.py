"""What can be read from a run file as one number a step, or one of the whole run. Pure NumPy.

Legend: N steps, M metrics, S sites, K stream points x_0 … x_L.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradtui.metrics import HIGH, LOW, METRICS, TRUNK_SHARE
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import ABSENT, Flags, Site, stream_points

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rows:
    """Some steps of a run: `loss` [N], the metrics [N, M, S] with NaN where absent, and its sites.

    `bad` [N] says whether a step's loss or any of these metrics was NaN or infinite.
    """

    loss: Numbers
    values: Numbers
    bad: Flags
    metrics: tuple[str, ...]
    sites: tuple[Site, ...]

    def metric(self, name: str) -> Numbers:
        """A metric at every site, [N, S]."""
        return self.values[:, self.metrics.index(name)]

    def stream(self, name: str) -> Numbers:
        """A metric at the stream points in order of depth, [N, K]."""
        return self.metric(name)[:, list(stream_points(self.sites))]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number a step, [N], that `of` makes of these metrics.

    Without `of` it is one number of the whole run, measured when that has ended and kept as a fact of the
    quantity's name. `reading` then names readings of the same thing while the run goes on: percentiles at some
    sites.
    """

    what: str
    metrics: tuple[str, ...] = ()
    of: Callable[[Rows], Numbers] | None = None
    reading: str = ""

    @property
    def is_fact(self) -> bool:
        """Whether it is one number of the whole run."""
        return self.of is None

    @property
    def is_sampled(self) -> bool:
        """Whether it is recorded at sampled steps only, and NaN at the others."""
        return any(METRICS[name].sampled for name in self.metrics)


def _loss(rows: Rows) -> Numbers:
    return rows.loss


def _flow_ratio(rows: Rows) -> Numbers:
    stream_NK = rows.stream("stream_grad")
    return _divide(stream_NK[:, 0], stream_NK[:, -1])


def _peak_depth(rows: Rows) -> Numbers:
    stream_NK = rows.stream("stream_grad")
    peak_N = np.nan_to_num(stream_NK, nan=-np.inf).argmax(axis=1)
    depth_N: Numbers = np.where(np.isfinite(stream_NK).all(axis=1), peak_N / (stream_NK.shape[1] - 1), np.nan)
    return depth_N


def _gradient_spread(rows: Rows) -> Numbers:
    stream_NK = rows.stream("stream_grad")
    return _divide(stream_NK.max(axis=1), stream_NK.min(axis=1))


def _mean_share(rows: Rows) -> Numbers:
    share_N: Numbers = rows.stream("mean_share").mean(axis=1)
    return share_N


def _stream_growth(rows: Rows) -> Numbers:
    stream_NK = rows.stream("act_rms")
    return _divide(stream_NK[:, -1], stream_NK[:, 0])


def _trunk_share(rows: Rows) -> Numbers:
    return np.asarray(_trunk_shares(rows).min(axis=1), np.float64)


def _trunk_through(rows: Rows) -> Numbers:
    return np.asarray(_trunk_shares(rows).prod(axis=1), np.float64)


def _trunk_shares(rows: Rows) -> Numbers:
    """The share of each sublayer, [N, sublayers]; sites that are no sublayers have none."""
    share_NS = rows.metric(TRUNK_SHARE)
    there_S = ~np.isnan(share_NS).all(axis=0)
    return share_NS[:, there_S] if there_S.any() else np.full((len(share_NS), 1), np.nan)


def _nonfinite(rows: Rows) -> Numbers:
    """1 where the loss or a value of the step is NaN or infinite, else 0."""
    return rows.bad.astype(np.float64)


def _divide(a: Numbers, b: Numbers) -> Numbers:
    with np.errstate(all="ignore"):
        return np.asarray(a / b, np.float64)


_GRADIENT, _SHARE = METRICS["stream_grad"].needs, METRICS[TRUNK_SHARE].needs
QUANTITIES: dict[str, Quantity] = {
    "loss": Quantity("training loss in nats", of=_loss),
    "flow_ratio": Quantity("‖∂L/∂x_0‖ / ‖∂L/∂x_L‖", _GRADIENT, _flow_ratio),
    "peak_depth": Quantity("where the largest ‖∂L/∂x_l‖ is, 0 = x_0, 1 = x_L", _GRADIENT, _peak_depth),
    "gradient_spread": Quantity("largest / smallest ‖∂L/∂x_l‖ across depth", _GRADIENT, _gradient_spread),
    "mean_share": Quantity(f"{METRICS['mean_share'].symbol}, mean over depth", ("mean_share",), _mean_share),
    "stream_growth": Quantity("RMS(x_L) / RMS(x_0)", ("act_rms",), _stream_growth),
    "trunk_share": Quantity("least share of ∂L/∂x along the trunk", _SHARE, _trunk_share),
    "trunk_through": Quantity("product of all sublayers' shares along the trunk", _SHARE, _trunk_through),
    "nonfinite": Quantity("steps with a NaN or infinite value", of=_nonfinite),
    "validation_loss": Quantity("loss in nats on held-out batches"),
    "sum_angle": Quantity("‖x_L / ‖x_L‖ − s / ‖s‖‖ with s = x_0 + Σf, mean over tokens"),
    "routed_spread": Quantity(
        "RMS(u) of the routed sum, 95th / 5th percentile over tokens, largest of all layers", reading="routed_rms"
    ),
    "latent_spread": Quantity(
        "RMS of what W↑ is given, 95th / 5th percentile over tokens, largest of all layers", reading="latent_rms"
    ),
}

TAKES: dict[str, Callable[[Numbers], float]] = {
    "first": lambda series: float(series[0]),
    "last": lambda series: float(series[-1]),
    "mean": lambda series: float(series.mean()),
    "median": lambda series: float(np.median(series)),
    "min": lambda series: float(series.min()),
    "max": lambda series: float(series.max()),
    "sum": lambda series: float(series.sum()),
}


def read_series(run: RunReader, quantity: Quantity, start: int, stop: int) -> Numbers:
    """`quantity`, which is no fact, at the recorded steps start ≤ s < stop, [N]; raises RunError."""
    assert quantity.of is not None
    parts = []
    for block in run.blocks(quantity.metrics, start, stop):
        bad = ~np.isfinite(block.loss) | ~np.isfinite(block.values).all(axis=(1, 2))
        values = np.where(block.values == ABSENT, np.nan, block.values.astype(np.float64))
        names = quantity.metrics or run.metrics
        parts.append(quantity.of(Rows(block.loss, values, bad, names, run.sites)))
    return np.concatenate(parts) if parts else np.empty(0)


def read_spread(run: RunReader, quantity: Quantity, step: int) -> float:
    """95th / 5th percentile of the quantity's reading, largest of all sites, at or before `step`; NaN without one.

    Raises RunError.
    """
    found = run.readings(quantity.reading, step)
    if found is None:
        return float("nan")
    with np.errstate(all="ignore"):
        return float(max((vector[HIGH] / vector[LOW] for vector in found[1].values()), default=float("nan")))


def read_fact(run: RunReader, name: str) -> float:
    """The fact `name`, a number that was measured when the run had ended; NaN where it has none."""
    value: Any = run.facts.get(name)
    return float(value) if isinstance(value, int | float) else float("nan")
