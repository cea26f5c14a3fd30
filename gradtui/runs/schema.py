"""What a run file holds: sites, metrics, frames, events, and the SQL that stores them."""

from __future__ import annotations


import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

METRICS: tuple[str, ...] = (
    "grad_norm",  # ‖∂L/∂θ‖₂ over the site's own parameters
    "act_rms",  # √mean(x²) of the stream leaving the site
    "stream_grad",  # ‖∂L/∂x‖₂ of the stream leaving the site
    "weight_norm",  # ‖θ‖₂ over the site's own parameters, before the step
    "update_ratio",  # ‖Δθ‖₂ / ‖θ‖₂ of the step that was taken
    "mean_share",  # Σμ² / Σr² over tokens of the stream leaving the site
)
STREAM_METRICS = frozenset({"act_rms", "stream_grad", "mean_share"})


class Site(msgspec.Struct, frozen=True):
    """A place that is measured.

    `layer` is the residual block's index (None outside the stack), `kind` one of embedding, mixer,
    feedforward, norm, head; `stream` is l where the tensor leaving this site is the stream point x_l
    (x_0 leaves the embedding, x_{l+1} leaves layer l), else None.
    """

    name: str
    layer: int | None
    kind: str
    stream: int | None = None


class RunError(Exception):
    """A run file that cannot be written or read; the message says which, why, and what to do."""
