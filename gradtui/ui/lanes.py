"""A lane as the screen sees it: a preset, or a run file, and what its run has to show."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gradtui.analysis.depth import Depth, by_depth, depth_of
from gradtui.analysis.flow import Flow, classify, flow_ratio
from gradtui.analysis.verdict import Verdict, judge
from gradtui.engine.protocol import LaneState
from gradtui.presets import Preset
from gradtui.runs import RunError
from gradtui.runs.reader import LossWindow, RunReader, Snapshot
from gradtui.runs.schema import METRICS, Event

State = LaneState | str

LOSS_STEPS = 10  # a batch is small and its loss noisy: what is shown is the mean of so many
SPARK_ROWS = 8  # at least so many rows of loss for the list's sparkline


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
        if self.reader and self.reader.facts.get("steps"):
            return int(self.reader.facts["steps"])
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

    def poll(self) -> bool:
        """Look for news in the run file; True if there is any. A file that is not there yet is no news."""
        if self.run is None:
            return False
        if self.reader is None:
            if not self.run.exists():
                return False
            try:
                self.reader = RunReader(self.run)
            except RunError:
                return False  # the writer is just making it
        elif not self.reader.refresh():
            return False
        if self.last_step >= 0:
            self._digest(self.reader)
        return True

    def _digest(self, reader: RunReader) -> None:
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

    def snapshot(self, cursor: int | None) -> Snapshot | None:
        """The frame at `cursor`, or the latest; the nearest earlier one if this lane has none there."""
        if self.reader is None or self.last_step < 0:
            return None
        step = self.last_step if cursor is None else self.reader.nearest_step(cursor)
        return self.reader.frame(step)

    def verdict(self, cursor: int | None) -> Verdict | None:
        """The verdict at `cursor`, or now."""
        snapshot = self.snapshot(cursor)
        if snapshot is None or self.reader is None:
            return None
        return judge(flow_of(self.reader, snapshot), snapshot.frame.step, self.events, self.first_ratio)

    def curve(self, metric: str, cursor: int | None) -> Curve | None:
        """`metric` over depth at `cursor`, or now."""
        snapshot = self.snapshot(cursor)
        if snapshot is None or self.reader is None or metric not in self.reader.metrics:
            return None
        depth = depth_of(self.reader.sites, metric)
        row = self.reader.metrics.index(metric)
        weights = snapshot.values[[METRICS.index("weight_norm")]]
        values, bad = by_depth(depth, metric, snapshot.values[[row]], weights, snapshot.nonfinite[[row]])
        there = ~np.isnan(values[0]) | bad[0]
        return Curve(np.flatnonzero(there).astype(float), np.where(bad[0], np.nan, values[0])[there])

    def depth(self, metric: str) -> Depth | None:
        """The points of depth of `metric` in this run."""
        return depth_of(self.reader.sites, metric) if self.reader else None

    def field(self, metric: str, columns: int) -> Field | None:
        """`metric` over depth and all steps so far, in about `columns` columns."""
        if self.reader is None or self.last_step < 0 or metric not in self.reader.metrics:
            return None
        window = self.reader.window(metric, 0, self.last_step + 1, columns)
        weights = None
        if metric == "update_ratio":
            weights = self.reader.window("weight_norm", 0, self.last_step + 1, columns).mean
        depth = depth_of(self.reader.sites, metric)
        values, bad = by_depth(depth, metric, window.mean, weights, window.nonfinite)
        return Field(window.steps, values.T, bad.T)

    def losses(self, columns: int) -> LossWindow | None:
        """Loss and learning rate over all steps so far."""
        if self.reader is None or self.last_step < 0:
            return None
        return self.reader.loss_window(0, self.last_step + 1, columns)

    def close(self) -> None:
        """Let go of the run file."""
        if self.reader:
            self.reader.close()
        self.reader = None


def flow_of(reader: RunReader, snapshot: Snapshot) -> Flow:
    """The flow of one recorded step."""
    row = METRICS.index("stream_grad")
    loss = snapshot.frame.loss
    bad = bool(snapshot.nonfinite.any()) or (loss is not None and not np.isfinite(loss))
    return classify(snapshot.values[row, list(reader.stream_sites)], bad)


def ratio_of(reader: RunReader, snapshot: Snapshot) -> float:
    """The flow ratio of one recorded step."""
    return flow_ratio(snapshot.values[METRICS.index("stream_grad"), list(reader.stream_sites)])
