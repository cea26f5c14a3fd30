"""What a run file holds: sites, metrics, frames, events, and the tables that store them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

APPLICATION_ID = 0x67726164  # "grad": tells a run file from any other SQLite file
SCHEMA_VERSION = 2  # 1 had no stacks
PYRAMID_FACTOR = 16
PYRAMID_LEVELS = 5  # level k holds one bucket per 16ᵏ steps; 16⁵ ≈ 10⁶

# A site without parameters has no gradient norm, and neither has one that backward never reached: that is neither
# zero nor NaN. All metrics are ≥ 0, so a negative number says "not there" without hiding among the non-finite
# values, which mean trouble.
ABSENT = -1.0

TABLES = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sites (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, layer INTEGER, kind TEXT NOT NULL, stream INTEGER,
    stack TEXT NOT NULL
);
CREATE TABLE frames (
    step INTEGER PRIMARY KEY, wall REAL NOT NULL, seconds REAL NOT NULL,
    loss REAL, lr REAL, flags INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, step INTEGER NOT NULL, wall REAL NOT NULL,
    kind TEXT NOT NULL, site INTEGER, value REAL, text TEXT NOT NULL
);
CREATE TABLE readings (
    step INTEGER NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (step, name)
) WITHOUT ROWID;
CREATE TABLE pyramid (
    level INTEGER NOT NULL, bucket INTEGER NOT NULL, steps INTEGER NOT NULL,
    loss_min REAL, loss_mean REAL, loss_max REAL, loss_nonfinite INTEGER NOT NULL, lr REAL,
    low BLOB NOT NULL, mean BLOB NOT NULL, high BLOB NOT NULL, nonfinite BLOB NOT NULL,
    PRIMARY KEY (level, bucket)
);
-- The loss of a long run is read from here: its numbers lie together, not between the values of all sites.
CREATE INDEX losses ON pyramid (level, bucket, loss_min, loss_mean, loss_max, lr, loss_nonfinite);
"""

# SQLite stores NaN as NULL, so a frame's flags say whether a missing loss was NaN or never measured.
FLAG_LOSS_NAN = 1


class Site(msgspec.Struct, frozen=True):
    """A place that is measured.

    `layer` is the residual block's index (None outside the stack); `kind` is embedding, mixer, feedforward, norm
    or head in a preset's model, and in any other block (a whole residual block), input (the tensor that enters a
    stack: no parameters) or module. `stream` is l where the tensor leaving this site is the stream point x_l
    (x_0 leaves the embedding or is the input, x_{l+1} leaves layer l), else None.

    A model may have several stacks (encoder and decoder): `stack` is the name of the one a site belongs to, empty
    where there is only one or none. Layers and stream points are counted through: where the encoder has layers
    0 … 5 and x_0 … x_6, the decoder has layers 6 … 11 and x_7 … x_13.
    """

    name: str
    layer: int | None
    kind: str
    stream: int | None = None
    stack: str = ""


def stream_points(sites: Sequence[Site]) -> tuple[int, ...]:
    """The index of the site that each stream point x_0 … x_L leaves, in order of depth."""
    points = [(site.stream, index) for index, site in enumerate(sites) if site.stream is not None]
    return tuple(index for _, index in sorted(points))


@dataclass(frozen=True, slots=True)
class Frame:
    """What one optimizer step measured.

    `values` is [metrics, sites] float32 in the order of the run's metrics and sites; `wall` is Unix
    time in seconds, `seconds` how long the step took, `loss` in nats, None where none was given.
    """

    step: int
    wall: float
    seconds: float
    loss: float | None
    lr: float | None
    values: Floats


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a step: an alarm, a changed learning rate, a note. `site` is a site's index."""

    step: int
    kind: str
    site: int | None = None
    value: float | None = None
    text: str = ""
