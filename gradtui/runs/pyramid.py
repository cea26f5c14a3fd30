"""Min, mean and max over 16, 256, 4096 … steps, so that a window costs the same at any length of run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from gradtui.runs.schema import ABSENT, PYRAMID_FACTOR, PYRAMID_LEVELS, Flags, Floats, Frame


@dataclass(slots=True)
class Bucket:
    """Running extrema of the finite values of some consecutive frames; arrays are [metrics, sites]."""

    level: int
    index: int
    steps: int
    last_step: int
    low: Floats
    high: Floats
    total: NDArray[np.float64]
    count: NDArray[np.int64]
    nonfinite: Flags
    absent: Flags
    loss_low: float
    loss_high: float
    loss_total: float
    loss_count: int
    loss_nonfinite: bool
    lr: float | None
    closed: bool = False

    @property
    def full(self) -> bool:
        """Nothing will be added to it: it holds its last step, or a later one has come."""
        return self.closed or self.last_step + 1 == (self.index + 1) * int(PYRAMID_FACTOR**self.level)

    @property
    def mean(self) -> Floats:
        """Mean over the finite values; NaN where there was none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return (self.total / self.count).astype(np.float32)

    def row(self) -> tuple[object, ...]:
        """The bucket as a row of the pyramid table; what is absent in all its steps stays marked absent."""

        def marked(values: Floats) -> bytes:
            return np.where(self.absent, np.float32(ABSENT), values).astype(np.float32).tobytes()

        finite = self.loss_count > 0
        return (
            self.level,
            self.index,
            self.steps,
            self.loss_low if finite else None,
            self.loss_total / self.loss_count if finite else None,
            self.loss_high if finite else None,
            int(self.loss_nonfinite),
            self.lr,
            marked(self.low),
            marked(self.mean),
            marked(self.high),
            self.nonfinite.astype(np.uint8).tobytes(),
        )


class Pyramid:
    """Folds frames, in order of their steps, into one open bucket per level."""

    def __init__(self) -> None:
        self._open: dict[int, Bucket] = {}

    def fold(self, frames: Sequence[Frame]) -> Iterator[Bucket]:
        """Add `frames`; yields every bucket that changed, finished or still open."""
        if not frames:
            return
        level = 1
        pieces = [
            _summarise(index, list(group))
            for index, group in groupby(frames, key=lambda frame: frame.step // PYRAMID_FACTOR)
        ]
        while True:
            for piece in pieces:
                previous = self._open.get(level)
                if previous is not None and previous.index == piece.index:
                    piece = _merge(previous, piece)
                elif previous is not None and not previous.full:
                    # No step of it will come any more, though not all of its steps were measured.
                    previous.closed = True
                    yield previous
                self._open[level] = piece
                yield piece
            if level == PYRAMID_LEVELS:
                return
            level += 1
            pieces = [
                replace(reduce(_merge, group), level=level, index=index, closed=False)
                for index, group in groupby(pieces, key=lambda piece: piece.index // PYRAMID_FACTOR)
            ]


def _summarise(index: int, frames: Sequence[Frame]) -> Bucket:
    values_NMS = np.stack([frame.values for frame in frames])
    finite = np.isfinite(values_NMS)
    absent = values_NMS == ABSENT
    present = finite & ~absent
    known = np.where(present, values_NMS, np.float32(np.nan))
    losses = np.array([np.nan if f.loss is None else f.loss for f in frames], dtype=np.float64)
    good = losses[np.isfinite(losses)]
    return Bucket(
        level=1,
        index=index,
        steps=len(frames),
        last_step=frames[-1].step,
        low=np.fmin.reduce(known),
        high=np.fmax.reduce(known),
        total=np.where(present, values_NMS, 0).sum(axis=0, dtype=np.float64),
        count=present.sum(axis=0),
        nonfinite=np.logical_not(finite.all(axis=0)),
        absent=absent.all(axis=0),
        loss_low=float(good.min()) if good.size else np.inf,
        loss_high=float(good.max()) if good.size else -np.inf,
        loss_total=float(good.sum()),
        loss_count=int(good.size),
        loss_nonfinite=any(f.loss is not None and not np.isfinite(f.loss) for f in frames),
        lr=frames[-1].lr,
    )


def _merge(a: Bucket, b: Bucket) -> Bucket:
    return Bucket(
        level=a.level,
        index=a.index,
        steps=a.steps + b.steps,
        last_step=b.last_step,
        low=np.fmin(a.low, b.low),
        high=np.fmax(a.high, b.high),
        total=a.total + b.total,
        count=a.count + b.count,
        nonfinite=a.nonfinite | b.nonfinite,
        absent=a.absent & b.absent,
        loss_low=min(a.loss_low, b.loss_low),
        loss_high=max(a.loss_high, b.loss_high),
        loss_total=a.loss_total + b.loss_total,
        loss_count=a.loss_count + b.loss_count,
        loss_nonfinite=a.loss_nonfinite or b.loss_nonfinite,
        lr=b.lr,
    )
