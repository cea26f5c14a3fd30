"""A lane as the screen sees it: a preset, or a run file, and what its run has to show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from gradtui.metrics import CLIPPED, SAMPLE_EVERY, STREAM_METRICS, TRUNK_SHARE
from gradtui.presets import Preset
from gradtui.runs import RunError
from gradtui.runs.reader import LossWindow, RunReader, Snapshot
from gradtui.runs.schema import PYRAMID_FACTOR, Event, Flags, Floats, Site
from gradtui.ui.measures import GAIN, GRADIENT, MEASURES

State = LaneState | str

LOSS_STEPS = 10  # a batch is small and its loss noisy: what is shown is the mean of so many
SPARK_ROWS = 8  # at least so many rows of loss for the list's sparkline
WEIGHTS = "weight_norm"
SKIPPED = "skipped"  # the kind of event that an optimizer step makes which a GradScaler left out
# Measured at some steps only; at the others no site has a value, and what was measured last counts.
SPARSE = frozenset({TRUNK_SHARE})
LOOK_BACK = (16, 256, 4096)  # so many steps, then more, are looked through for it
HALVES = {"mixer": 0.0, "feedforward": 0.5}  # where in its layer a sublayer lies
TOLD_COLUMNS = 64  # readings are looked up at so many steps of a long run


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
    """One metric over depth at one step: x is the layer (or stream point), y NaN where it is not finite.

    `step` is the step at which it was measured.
    """

    x: np.ndarray
    y: np.ndarray
    step: int = -1


@dataclass(frozen=True, slots=True)
class SiteCurve:
    """One metric of one site over steps or buckets of steps, [rows]; NaN where there is no value."""

    steps: np.ndarray
    low: np.ndarray
    mean: np.ndarray
    high: np.ndarray
    nonfinite: np.ndarray


@dataclass(frozen=True, slots=True)
class Field:
    """One metric over depth and steps: values [points, columns] and where a non-finite one is hidden."""

    steps: np.ndarray
    values: np.ndarray
    nonfinite: np.ndarray


@dataclass(frozen=True, slots=True)
class Told:
    """What some sites have told of themselves at a step: where each lies (its layer, or half a layer on), and a
    vector for each."""

    step: int
    x: tuple[float, ...]
    vectors: tuple[Floats, ...]


@dataclass(slots=True)
class LaneView:
    """One row of the list. `color` and `mark` are its own on every chart, focused or pinned.

    `recorded` is a run file that is only looked at: nothing can be started or stopped.
    """

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
    recorded: bool = False
    skipped: list[int] = field(default_factory=list)
    _gauge: Gauge | None = None
    _points: dict[str, Depth] = field(default_factory=dict)

    def name(self, language: str) -> str:
        """What to call it on screen."""
        return self.title_zh if language == "zh" and self.title_zh else self.title

    @property
    def group(self) -> str:
        """What its preset is listed under; nothing for a run that is only looked at."""
        return self.preset.group if self.preset is not None and not self.recorded else ""

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
    def facts(self) -> dict[str, Any]:
        """What the run file says about its run; nothing before there is one."""
        return self.reader.facts if self.reader else {}

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites of the run; none before there is one."""
        return self.reader.sites if self.reader else ()

    @property
    def every(self) -> int:
        """Only each so-manieth step is measured."""
        every = self.facts.get("every")
        return every if isinstance(every, int) and every > 0 else 1

    @property
    def blind(self) -> list[str]:
        """Sentences that name what cannot be seen of the model, and why."""
        return sentences(self.facts.get("blind"))

    def has(self, metric: str) -> bool:
        """Whether the run has `metric`, a metric of its file or a measure made of them or of readings.

        A run that has not begun may have any metric; what modules tell is known when they have told it.
        """
        measure = MEASURES.get(metric)
        if measure is None:
            return self.reader is None or metric in self.reader.metrics
        if self.reader is None:
            return not measure.told
        there = self._readings() if measure.told else self.reader.metrics
        return measure.needs[0] in (there or ())

    @_unless_unreadable
    def _readings(self) -> tuple[str, ...]:
        return self.reader.reading_names if self.reader is not None else ()

    @property
    def in_trouble(self) -> bool:
        """It does not train, and not because it was told so."""
        return bool(self.reason) or self.state == "diverged" or (self.recorded and self.state == "died")

    def begin(self, run: Path, seed: int) -> None:
        """Forget the earlier run; `run` is the file that the new one will write."""
        self.close()
        self.run, self.seed, self.state, self.reason = run, seed, "starting", ""
        self.events, self.first_ratio, self.flow, self.lr_scale = [], float("nan"), None, 1.0
        self._gauge, self._points = None, {}
        self.last_loss, self.spark, self.skipped = None, [], []

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
        self.skipped = [event.step for event in self.events if event.kind == SKIPPED]
        self.seconds = reader.seconds_per_step()
        if np.isnan(self.first_ratio):
            first = reader.frame(reader.first_step)
            self.first_ratio = self._flow_of(reader, first).ratio if first else float("nan")
        snapshot = reader.frame(reader.last_step)
        self.flow = self._flow_of(reader, snapshot) if snapshot else None
        recent = reader.loss_window(reader.last_step + 1 - LOSS_STEPS, reader.last_step + 1, LOSS_STEPS)
        known = recent.mean[~np.isnan(recent.mean) | recent.nonfinite]
        self.last_loss = float(np.where(recent.nonfinite.any(), np.nan, known.mean())) if known.size else None
        spark = reader.loss_window(0, reader.last_step + 1, SPARK_ROWS)
        self.spark = list(spark.mean[~np.isnan(spark.mean) | spark.nonfinite])

    def _flow_of(self, reader: RunReader, snapshot: Snapshot) -> Flow:
        if self._gauge is None:
            self._gauge = Gauge.of(reader.sites, reader.metrics)
        return flow_of(reader, snapshot, self._gauge)

    @_unless_unreadable
    def snapshot(self, cursor: int | None) -> Snapshot | None:
        """The frame at `cursor`, or the latest; the nearest earlier one if this lane has none there."""
        if self.reader is None or self.last_step < 0:
            return None
        step = self.last_step if cursor is None else self.reader.nearest_step(cursor)
        snapshot = self.reader.frame(step)
        return snapshot and self._completed(self.reader, snapshot)

    @property
    def closely(self) -> tuple[str, ...]:
        """The metrics that this run measures at some steps only."""
        listed = self.reader.facts.get("closely") if self.reader is not None else None
        names = listed if isinstance(listed, list) else []
        return tuple(name for name in names if self.reader is not None and name in self.reader.metrics)

    def _completed(self, reader: RunReader, snapshot: Snapshot) -> Snapshot:
        """With the last values of what was not measured at this very step."""
        for name in self.closely:
            row = reader.metrics.index(name)
            if not np.isnan(snapshot.values[row]).all() or snapshot.nonfinite[row].any():
                continue
            span = SAMPLE_EVERY * max(1, int(reader.facts.get("every") or 1))
            window = reader.window(name, max(snapshot.frame.step - span, 0), snapshot.frame.step, 2 * span)
            found = np.flatnonzero((~np.isnan(window.mean) | window.nonfinite).any(axis=1))
            if found.size:
                values, nonfinite = snapshot.values.copy(), snapshot.nonfinite.copy()
                values[row], nonfinite[row] = window.mean[found[-1]], window.nonfinite[found[-1]]
                snapshot = Snapshot(snapshot.frame, values, nonfinite)
        return snapshot

    @_unless_unreadable
    def verdict(self, cursor: int | None) -> Verdict | None:
        """The verdict at `cursor`, or now."""
        snapshot = self.snapshot(cursor)
        if snapshot is None or self.reader is None:
            return None
        flow = self._flow_of(self.reader, snapshot)
        return judge(flow, snapshot.frame.step, self.events, self.first_ratio)

    @_unless_unreadable
    def ratio_site(self, cursor: int | None) -> Site | None:
        """The site whose gradient the flow ratio at `cursor` is about."""
        snapshot = self.snapshot(cursor)
        if snapshot is None or self.reader is None:
            return None
        first = self._flow_of(self.reader, snapshot).first
        return None if first is None else self.reader.sites[first]

    @_unless_unreadable
    def curve(self, metric: str, cursor: int | None) -> Curve | None:
        """`metric` over depth at `cursor`, or now; of one that is measured at some steps only, the last one."""
        if metric == GAIN:
            return self._gain(cursor)
        snapshot = self.snapshot(cursor)
        if snapshot is None or self.reader is None or metric not in self.reader.metrics:
            return None
        if metric in SPARSE:
            return self._last_measured(self.reader, metric, snapshot.frame.step)
        row = self.reader.metrics.index(metric)
        weights = snapshot.values[[self.reader.metrics.index(WEIGHTS)]] if WEIGHTS in self.reader.metrics else None
        values, bad = combine(
            self.depth(metric), metric, snapshot.values[[row]], weights, snapshot.nonfinite[[row]]
        )
        there = ~np.isnan(values[0]) | bad[0]
        return Curve(self.places(metric)[there], np.where(bad[0], np.nan, values[0])[there], snapshot.frame.step)

    def _gain(self, cursor: int | None) -> Curve | None:
        """‖∂L/∂x_l‖ / ‖∂L/∂x_{l+1}‖ over l: what layer l makes of the gradient that enters it from above."""
        curve = self.curve(GRADIENT, cursor)
        if curve is None:
            return None
        starts = self.starts(GRADIENT)
        x, y = gains(curve.x, curve.y[:, None], starts)
        bad = np.isnan(gains(curve.x, np.where(np.isnan(curve.y), np.nan, 1.0)[:, None], starts)[1])
        there = ~np.isnan(y[:, 0]) | bad[:, 0]
        return Curve(x[there], y[there, 0], curve.step)

    def _last_measured(self, reader: RunReader, metric: str, step: int) -> Curve | None:
        groups = [group[0] for group in self.depth(metric).groups]
        for span in LOOK_BACK:
            window = reader.window(metric, max(step + 1 - span, 0), step + 1, span)
            values, bad = window.mean[:, groups], window.nonfinite[:, groups]
            there = ~np.isnan(values) | bad
            rows = np.flatnonzero(there.any(axis=1))
            if rows.size:
                row = rows[-1]
                y = np.where(bad[row], np.nan, values[row])[there[row]].astype(np.float64)
                return Curve(self.places(metric)[there[row]], y, int(window.steps[row]))
            if span > step:
                break
        return None

    def places(self, metric: str) -> np.ndarray:
        """Where the points of `depth` lie on the axis of depth."""
        groups = self.depth(metric).groups
        if metric in SPARSE:
            return np.array([_place(self.sites[group[0]]) for group in groups])
        return np.arange(len(groups), dtype=float)

    def starts(self, metric: str) -> tuple[int, ...]:
        """The points of depth at which a further stack begins; a gradient does not flow across."""
        return tuple(start for start, _ in self.bands(metric)[1:])

    def depth(self, metric: str) -> Depth:
        """The points of depth of `metric` in this run; none before there is one."""
        if metric not in self._points:
            if self.reader is None:
                return Depth(())
            self._points[metric] = points_of(self.reader.sites, metric)
        return self._points[metric]

    def bands(self, metric: str) -> tuple[tuple[int, str], ...]:
        """Where each stack begins on the axis of depth, and its name; empty where there is only one."""
        metric = GRADIENT if metric == GAIN else metric
        stacks = [self.sites[group[0]].stack for group in self.depth(metric).groups]
        begin = [k for k, stack in enumerate(stacks) if k == 0 or stack != stacks[k - 1]]
        return tuple((k, stacks[k]) for k in begin) if len(begin) > 1 else ()

    @_unless_unreadable
    def field(self, metric: str, columns: int) -> Field | None:
        """`metric` over depth and all steps so far, with at least `columns` columns, more of them early on.

        Of one that is measured at some steps only, these.
        """
        if metric == GAIN:
            flow = self.field(GRADIENT, columns)
            if flow is None:
                return None
            points, starts = np.arange(len(flow.values), dtype=float), self.starts(GRADIENT)
            above = gains(points, flow.values, starts)[1]
            bad = gains(points, np.where(flow.nonfinite, np.nan, 1.0), starts)[1]
            return Field(flow.steps, above, np.isnan(bad))
        if self.reader is None or self.last_step < 0 or metric not in self.reader.metrics:
            return None
        reader = self.reader
        ranges = pieces(self.last_step + 1, columns)
        windows = [reader.window(metric, *piece, columns) for piece in ranges]
        weights = None
        if metric == "update_ratio" and WEIGHTS in reader.metrics:
            weights = np.concatenate([reader.window(WEIGHTS, *piece, columns).mean for piece in ranges])
        mean, nonfinite = (
            np.concatenate([getattr(window, name) for window in windows]) for name in ("mean", "nonfinite")
        )
        values, bad = combine(self.depth(metric), metric, mean, weights, nonfinite)
        steps = np.concatenate([window.steps for window in windows])
        kept = forward_only(steps)
        if metric in SPARSE or metric in self.closely:
            kept = kept & (~np.isnan(values) | bad).any(axis=1)
            if not kept.any():
                return None
        return Field(steps[kept], values[kept].T, bad[kept].T)

    @_unless_unreadable
    def told(self, name: str, cursor: int | None, alike: bool = True) -> Told | None:
        """What sites have told last at `cursor`, or now; None where nothing has been told by then.

        With `alike` all vectors are as long as the first one: what a file holds beside them is left out.
        """
        if self.reader is None or self.last_step < 0:
            return None
        step = self.last_step if cursor is None else min(cursor, self.last_step)
        found = self.reader.readings(name, step)
        if found is None:
            return None
        sites = self.reader.sites
        vectors = {site: vector for site, vector in found[1].items() if 0 <= site < len(sites) and len(vector)}
        first = len(next(iter(vectors.values()), ()))
        kept = {site: vector for site, vector in vectors.items() if not alike or len(vector) == first}
        return Told(found[0], tuple(_place(sites[site]) for site in kept), tuple(kept.values())) if kept else None

    def told_over(self, name: str, columns: int) -> list[Told]:
        """All that has been told so far, in order; of a long run what there is at some of its steps."""
        count = min(columns, TOLD_COLUMNS)
        even = np.linspace(0, self.last_step, count)
        # Half of the room for the first steps, as on a logarithmic axis.
        early = np.geomspace(1, self.last_step + 1, count) - 1 if self.last_step > 0 else even
        steps = np.unique(np.rint(np.concatenate([even, early])).astype(int))
        found = {told.step: told for step in steps if (told := self.told(name, int(step))) is not None}
        return [found[step] for step in sorted(found)]

    @_unless_unreadable
    def site_curve(self, metric: str, site: int, columns: int) -> SiteCurve | None:
        """`metric` of one site over all steps so far, as `field` does for all of them."""
        if self.reader is None or self.last_step < 0 or metric not in self.reader.metrics:
            return None
        ranges = pieces(self.last_step + 1, columns)
        windows = [self.reader.window(metric, *piece, columns) for piece in ranges]
        names = ("low", "mean", "high", "nonfinite")
        steps = np.concatenate([window.steps for window in windows])
        kept = forward_only(steps)
        parts = (np.concatenate([getattr(window, name)[:, site] for window in windows])[kept] for name in names)
        return SiteCurve(steps[kept], *parts)

    def clipped(self, cursor: int | None) -> Curve | None:
        """The gradient of the weights after clipping, over depth; None where nothing is clipped."""
        if self.reader is None or CLIPPED not in self.reader.metrics:
            return None
        curve = self.curve(CLIPPED, cursor)
        return curve if curve is not None and len(curve.x) else None

    @_unless_unreadable
    def losses(self, columns: int) -> LossWindow | None:
        """Loss and learning rate over all steps so far, as `field` does."""
        if self.reader is None or self.last_step < 0:
            return None
        windows = [self.reader.loss_window(*piece, columns) for piece in pieces(self.last_step + 1, columns)]
        names = ("steps", "low", "mean", "high", "lr", "nonfinite")
        kept = forward_only(np.concatenate([window.steps for window in windows]))
        return LossWindow(*(np.concatenate([getattr(window, name) for window in windows])[kept] for name in names))

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
    # A multiple of what the next level holds, and no more than the reader gives one by one for so many columns.
    edge = PYRAMID_FACTOR**2 * max(1, columns // PYRAMID_FACTOR)
    edges = [0]
    while edges[-1] < steps:
        edges.append(min(edge, steps))
        edge *= PYRAMID_FACTOR
    return list(pairwise(edges))


def forward_only(steps: np.ndarray) -> Flags:
    """Which rows go on where all before them ended: the first bucket of a range may begin in the range before."""
    before = np.maximum.accumulate(np.concatenate([[-1], steps]))[:-1]
    return np.asarray(steps > before)


def points_of(sites: Sequence[Site], metric: str) -> Depth:
    """The points of depth of `metric`, for any model.

    Where no stream is known its metrics are shown by layer, and where no layer is known, by site in order.
    """
    if metric in SPARSE:
        members = [index for index, site in enumerate(sites) if site.layer is not None and site.kind in HALVES]
        return Depth(tuple((index,) for index in members))
    depth = depth_of(sites, metric)
    if not depth.points and metric in STREAM_METRICS:
        depth = depth_of(sites, WEIGHTS)
    return depth if depth.points else Depth(tuple((index,) for index in range(len(sites))))


def _place(site: Site) -> float:
    """Where a site lies on an axis of layers: a mixer at its layer, a feed-forward half a layer on."""
    return float(site.layer or 0) + HALVES.get(site.kind, 0.0)


def gains(x: np.ndarray, y_PN: np.ndarray, starts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Each point's value over the next one's: where they lie, [P − 1], and the quotients, [P − 1, N].

    Points that are no neighbours (one between them has no value, or a stack begins at one of `starts`) have none:
    NaN. So has what is divided by zero.
    """
    if len(x) < 2:
        return x[:0], y_PN[:0]
    apart = (np.diff(x) != 1) | np.isin(x[1:], np.asarray(starts, dtype=np.float64))
    with np.errstate(all="ignore"):
        quotients = np.where(y_PN[1:] > 0, y_PN[:-1] / y_PN[1:], np.nan)
    return x[:-1][~apart], quotients[~apart]


def combine(
    depth: Depth, metric: str, values_NS: np.ndarray, weights_NS: np.ndarray | None, bad_NS: Flags
) -> tuple[np.ndarray, Flags]:
    """`by_depth`, at once where each point is a single site; without weight norms all sites weigh the same."""
    if all(len(group) == 1 for group in depth.groups):
        members = [group[0] for group in depth.groups]
        return values_NS[:, members].astype(np.float64), bad_NS[:, members]
    if weights_NS is None and metric == "update_ratio":
        weights_NS = np.ones_like(values_NS)
    return by_depth(depth, metric, values_NS, weights_NS, bad_NS)


def sentences(fact: object) -> list[str]:
    """A fact that is a list of texts, whatever else a file may hold there."""
    return [str(item) for item in fact] if isinstance(fact, list) else []


def flow_of(reader: RunReader, snapshot: Snapshot, gauge: Gauge | None = None) -> Flow:
    """The flow of one recorded step."""
    loss = snapshot.frame.loss
    bad = bool(snapshot.nonfinite.any()) or (loss is not None and not np.isfinite(loss))
    gauge = gauge or Gauge.of(reader.sites, reader.metrics)
    return gauge.read(snapshot.values, bad)


def ratio_of(reader: RunReader, snapshot: Snapshot) -> float:
    """The flow ratio of one recorded step."""
    return flow_of(reader, snapshot).ratio
