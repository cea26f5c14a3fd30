"""What can be read from a run file: one number a step. Pure NumPy.

Legend: N steps, M metrics, S sites, K stream points x_0 … x_L.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """A number a step, [N], made of these metrics; or, with `fact`, one number of the whole run.

    One that is `sparse` is recorded at some steps only, and is NaN at the others. `reading` names what a run tells
    of the same thing while it goes on: the 5th, 50th and 95th percentile at some sites.
    """

    what: str
    metrics: tuple[str, ...]
    of: Callable[[Rows], Numbers]
    fact: str = ""
    sparse: bool = False
    reading: str = ""


def _flow_ratio(rows: Rows) -> Numbers:
    stream_NK = rows.stream("stream_grad")
    return _divide(stream_NK[:, 0], stream_NK[:, -1])


def _deepest_share(rows: Rows) -> Numbers:
    """Where along the depth the largest stream gradient stands: 0 at x_0, 1 at x_L."""
    stream_NK = rows.stream("stream_grad")
    peak_N = np.nan_to_num(stream_NK, nan=-np.inf).argmax(axis=1)
    place_N: Numbers = np.where(np.isfinite(stream_NK).all(axis=1), peak_N / (stream_NK.shape[1] - 1), np.nan)
    return place_N


def _spread(rows: Rows) -> Numbers:
    stream_NK = rows.stream("stream_grad")
    return _divide(stream_NK.max(axis=1), stream_NK.min(axis=1))


def _mean_share(rows: Rows) -> Numbers:
    share_N: Numbers = rows.stream("mean_share").mean(axis=1)
    return share_N


def _growth(rows: Rows) -> Numbers:
    stream_NK = rows.stream("act_rms")
    return _divide(stream_NK[:, -1], stream_NK[:, 0])


def _trunk_shares(rows: Rows) -> Numbers:
    """The share of each sublayer; sites that are none have no share."""
    share_NS = rows.metric("trunk_share")
    there_S = ~np.isnan(share_NS).all(axis=0)
    return share_NS[:, there_S] if there_S.any() else np.full((len(share_NS), 1), np.nan)


def _trunk_share(rows: Rows) -> Numbers:
    return np.asarray(_trunk_shares(rows).min(axis=1), np.float64)


def _trunk_through(rows: Rows) -> Numbers:
    return np.asarray(_trunk_shares(rows).prod(axis=1), np.float64)


def _nonfinite(rows: Rows) -> Numbers:
    """1 where the loss or a value of the step is NaN or infinite, else 0."""
    return rows.bad.astype(np.float64)


def _divide(a: Numbers, b: Numbers) -> Numbers:
    with np.errstate(all="ignore"):
        return np.asarray(a / b, np.float64)


def _nothing(rows: Rows) -> Numbers:
    return np.full(len(rows.loss), np.nan)


_STREAM = ("stream_grad",)
QUANTITIES: dict[str, Quantity] = {
    "loss": Quantity("training loss in nats", (), lambda rows: rows.loss),
    "flow_ratio": Quantity("‖∂L/∂x_0‖ / ‖∂L/∂x_L‖", _STREAM, _flow_ratio),
    "peak_depth": Quantity("where the largest stream gradient stands, 0 = x_0, 1 = x_L", _STREAM, _deepest_share),
    "gradient_spread": Quantity("largest / smallest stream gradient across depth", _STREAM, _spread),
    "mean_share": Quantity("Σμ² / ΣRMS² of the stream, mean over depth", ("mean_share",), _mean_share),
    "stream_growth": Quantity("RMS(x_L) / RMS(x_0)", ("act_rms",), _growth),
    "trunk_share": Quantity("least share along the trunk", ("trunk_share",), _trunk_share, sparse=True),
    "trunk_through": Quantity(
        "product of all sublayers' shares along the trunk", ("trunk_share",), _trunk_through, sparse=True
    ),
    "nonfinite": Quantity("steps with a NaN or infinite value", (), _nonfinite),
    # Measured by the worker when training has ended, and kept as a fact of the run.
    "validation_loss": Quantity("loss in nats on held-out batches", (), _nothing, fact="validation_loss"),
    "sum_angle": Quantity(
        "‖x_L / ‖x_L‖ − s / ‖s‖‖ with s = x_0 + Σf, mean over tokens", (), _nothing, fact="sum_angle"
    ),
    "routed_spread": Quantity(
        "RMS(u) of the routed sum, 95th / 5th percentile over tokens, largest of all layers",
        (), _nothing, fact="routed_spread", reading="routed_rms",
    ),
    "latent_spread": Quantity(
        "RMS of what W↑ is given, 95th / 5th percentile over tokens, largest of all layers",
        (), _nothing, fact="latent_spread", reading="latent_rms",
    ),
}  # fmt: skip

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
    """`quantity` at the recorded steps start ≤ s < stop, [N]; raises RunError."""
    wanted: Sequence[str] = quantity.metrics
    parts = []
    for block in run.blocks(wanted, start, stop):
        bad = ~np.isfinite(block.loss) | ~np.isfinite(block.values).all(axis=(1, 2))
        values = np.where(block.values == ABSENT, np.nan, block.values.astype(np.float64))
        names = tuple(wanted) or run.metrics
        parts.append(quantity.of(Rows(block.loss, values, bad, names, run.sites)))
    return np.concatenate(parts) if parts else np.empty(0)


def read_spread(run: RunReader, quantity: Quantity, step: int) -> float:
    """95th / 5th percentile, largest of all sites, as a run told of it at or before `step`; NaN if it did not."""
    found = run.readings(quantity.reading, step)
    if found is None:
        return float("nan")
    with np.errstate(all="ignore"):
        return float(max((vector[-1] / vector[0] for vector in found[1].values()), default=float("nan")))


def read_fact(run: RunReader, quantity: Quantity) -> float:
    """A number that was measured when the run had ended; NaN where it has none."""
    value: Any = run.facts.get(quantity.fact)
    return float(value) if isinstance(value, int | float) else float("nan")
