"""A lane as the screen sees it: a preset, or a run file, and what its run has to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gradtui.analysis.depth import Depth, by_depth, depth_of
from gradtui.analysis.flow import Flow, Gauge
from gradtui.analysis.verdict import Verdict, judge
from gradtui.engine.protocol import LaneState
from gradtui.presets import Preset
from gradtui.runs import RunError
from gradtui.runs.reader import LossWindow, RunReader, Snapshot
from gradtui.runs.schema import PYRAMID_FACTOR, Event

State = LaneState | str

LOSS_STEPS = 10  # a batch is small and its loss noisy: what is shown is the mean of so many
SPARK_ROWS = 8  # at least so many rows of loss for the list's sparkline


T = TypeVar("T")


def _unless_unreadable(method: Callable[..., T]) -> Callable[..., T | None]:
    """None, and a lane in trouble, where its run file turns out to be damaged."""

    @wraps(method)
    def guarded(lane: LaneView, *arguments: Any) -> T | None:
        try:
            return method(lane, *arguments)
        except RunError as error:
            lane.give_up(str(error))
            return None

    return guarded


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric over depth at one step: x is the layer (or stream point), y NaN where it is not finite."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True, slots=True)
class Field:
    """One metric over depth and steps: values [points, columns] and where a non-finite one is hidden."""

    steps: np.ndarray
    values: np.ndarray
    nonfinite: np.ndarray


@dataclass(slots=True)
class LaneView:
    """One row of the list. `color` and `mark` are its own on every chart, focused or pinned."""

    id: str
    title: str
    color: str
    mark: str
    preset: Preset | None = None
    title_zh: str = ""
    state: State = "idle"
    reason: str = ""
    seed: int = 0
    lr_scale: float = 1.0
    run: Path | None = None
    reader: RunReader | None = None
    events: list[Event] = field(default_factory=list)
    first_ratio: float = float("nan")
    flow: Flow | None = None
    seconds: float = float("nan")
    last_loss: float | None = None
    spark: list[float] = field(default_factory=list)

    def name(self, language: str) -> str:
        """What to call it on screen."""
        return self.title_zh if language == "zh" and self.title_zh else self.title

    @property
    def last_step(self) -> int:
        """The last recorded step, -1 before the first."""
        return self.reader.last_step if self.reader else -1

    @property
    def steps(self) -> int:
        """How many steps it is to take, 0 where that is not known."""
        steps = self.reader.facts.get("steps") if self.reader else None
        if isinstance(steps, int):
            return steps
        return self.preset.training.steps if self.preset else 0

    @property
    def in_trouble(self) -> bool:
        """It does not train, and not because it was told so."""
        return bool(self.reason) or self.state == "diverged"

    def begin(self, run: Path, seed: int) -> None:
        """Forget the earlier run; `run` is the file that the new one will write."""
        self.close()
        self.run, self.seed, self.state, self.reason = run, seed, "starting", ""
        self.events, self.first_ratio, self.flow, self.lr_scale = [], float("nan"), None, 1.0
        self.last_loss, self.spark = None, []

    def give_up(self, reason: str) -> None:
        """Stop reading the run file; its lane may go on."""
        self.close()
        self.run, self.state, self.reason = None, "died", reason

    @_unless_unreadable
    def poll(self) -> bool:
        """Look for news in the run file; True if there is any. A file that is not there yet is no news."""
        if self.run is None:
            return False
        if self.reader is None:
            if not self.run.exists():
                return False
            self.reader = RunReader(self.run)
        elif not self.reader.refresh():
            return False
        if self.last_step >= 0:
            self.digest(self.reader)
        return True

    def digest(self, reader: RunReader) -> None:
        """Keep what every repaint needs, so that it is computed once per news."""
        self.events = reader.events()
        self.seconds = reader.seconds_per_step()
        if np.isnan(self.first_ratio):
            first = reader.frame(reader.first_step)
            self.first_ratio = ratio_of(reader, first) if first else float("nan")
        snapshot = reader.frame(reader.last_step)
        self.flow = flow_of(reader, snapshot) if snapshot else None
        recent = reader.loss_window(reader.last_step + 1 - LOSS_STEPS, reader.last_step + 1, LOSS_STEPS)
        known = recent.mean[~np.isnan(recent.mean) | recent.nonfinite]
        self.last_loss = float(np.where(recent.nonfinite.any(), np.nan, known.mean())) if known.size else None
        self.spark = list(reader.loss_window(0, reader.last_step + 1, SPARK_ROWS).mean)

    @_unless_unreadable
    def snapshot(self, cursor: int | None) -> Snapshot | None:
        """The frame at `cursor`, or the latest; the nearest earlier one if this lane has none there."""
        if self.reader is None or self.last_step < 0:
            return None
        step = self.last_step if cursor is None else self.reader.nearest_step(cursor)
        return self.reader.frame(step)

    @_unless_unreadable
    def verdict(self, cursor: int | None) -> Verdict | None:
        """The verdict at `cursor`, or now."""
        snapshot = self.snapshot(cursor)
        if snapshot is None or self.reader is None:
            return None
        return judge(flow_of(self.reader, snapshot), snapshot.frame.step, self.events, self.first_ratio)

    @_unless_unreadable
    def curve(self, metric: str, cursor: int | None) -> Curve | None:
        """`metric` over depth at `cursor`, or now."""
        snapshot = self.snapshot(cursor)
        if snapshot is None or self.reader is None or metric not in self.reader.metrics:
            return None
        depth = depth_of(self.reader.sites, metric)
        row = self.reader.metrics.index(metric)
        weights = snapshot.values[[self.reader.metrics.index("weight_norm")]]
        values, bad = by_depth(depth, metric, snapshot.values[[row]], weights, snapshot.nonfinite[[row]])
        there = ~np.isnan(values[0]) | bad[0]
        return Curve(np.flatnonzero(there).astype(float), np.where(bad[0], np.nan, values[0])[there])

    def depth(self, metric: str) -> Depth | None:
        """The points of depth of `metric` in this run."""
        return depth_of(self.reader.sites, metric) if self.reader else None

    @_unless_unreadable
    def field(self, metric: str, columns: int) -> Field | None:
        """`metric` over depth and all steps so far, with at least `columns` columns, more of them early on."""
        if self.reader is None or self.last_step < 0 or metric not in self.reader.metrics:
            return None
        reader = self.reader
        windows = [reader.window(metric, *piece, columns) for piece in pieces(self.last_step + 1, columns)]
        weights = None
        if metric == "update_ratio":
            parts = [
                reader.window("weight_norm", *piece, columns) for piece in pieces(self.last_step + 1, columns)
            ]
            weights = np.concatenate([part.mean for part in parts])
        depth = depth_of(reader.sites, metric)
        mean, nonfinite = (
            np.concatenate([getattr(window, name) for window in windows]) for name in ("mean", "nonfinite")
        )
        values, bad = by_depth(depth, metric, mean, weights, nonfinite)
        return Field(np.concatenate([window.steps for window in windows]), values.T, bad.T)

    @_unless_unreadable
    def losses(self, columns: int) -> LossWindow | None:
        """Loss and learning rate over all steps so far, as `field` does."""
        if self.reader is None or self.last_step < 0:
            return None
        windows = [self.reader.loss_window(*piece, columns) for piece in pieces(self.last_step + 1, columns)]
        names = ("steps", "low", "mean", "high", "lr", "nonfinite")
        return LossWindow(*(np.concatenate([getattr(window, name) for window in windows]) for name in names))

    def close(self) -> None:
        """Let go of the run file."""
        if self.reader:
            self.reader.close()
        self.reader = None


def pieces(steps: int, columns: int) -> list[tuple[int, int]]:
    """Ranges that cover `steps` steps, each to be read at a coarser level than the one before.

    The first steps are where a collapse happens, and on a logarithmic axis they have half the room: however
    long the run, they are read one by one.
    """
    edge = PYRAMID_FACTOR**2 * max(1, -(-columns // PYRAMID_FACTOR))  # a multiple of what the next level holds
    edges = [0]
    while edges[-1] < steps:
        edges.append(min(edge, steps))
        edge *= PYRAMID_FACTOR
    return list(pairwise(edges))


def flow_of(reader: RunReader, snapshot: Snapshot) -> Flow:
    """The flow of one recorded step."""
    loss = snapshot.frame.loss
    bad = bool(snapshot.nonfinite.any()) or (loss is not None and not np.isfinite(loss))
    return Gauge.of(reader.sites, reader.metrics).read(snapshot.values, bad)


def ratio_of(reader: RunReader, snapshot: Snapshot) -> float:
    """The flow ratio of one recorded step."""
    return flow_of(reader, snapshot).ratio
