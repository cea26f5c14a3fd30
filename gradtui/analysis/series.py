"""Everything one asks of a run: values over depth at one step, over the steps, and what they mean.

There is one way out of a run file: `RunReader` reads rows, `RunSeries` turns them into curves and verdicts, and
charts and texts show those. Each step is read once, however many charts show it.

Legend: M metrics, S sites, N rows (steps or buckets of steps), K points of depth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtui.analysis.depth import Depth, by_depth, depth_of_any, gains, position_of
from gradtui.analysis.flow import Flow, Gauge
from gradtui.analysis.shapes import (
    LOSS_STEPS,
    Curve,
    Field,
    Reading,
    Recent,
    SiteCurve,
    forward_only,
    pieces,
    texts_of,
)
from gradtui.analysis.verdict import Verdict, judge
from gradtui.metrics import CLIPPED, GAIN, METRICS, SAMPLE_EVERY, TRUNK_SHARE
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import Flags, Site
from gradtui.runs.shapes import LossWindow, Snapshot

SPARK_ROWS = 8  # at least so many rows of loss for a sparkline
LOOK_BACK = (16, 256, 4096)  # the steps that are searched for the last value of a metric that is sampled
READING_STEPS = 64  # readings are looked up at so many steps of a long run
WEIGHTS = "weight_norm"


class StepView:
    """One step of a run: its values, its flow and its verdict. Made by `RunSeries.at`.

    `snapshot` has, beside what was measured at this very step, the last values of sampled metrics.
    """

    def __init__(self, series: RunSeries, snapshot: Snapshot) -> None:
        self.snapshot, self.step = snapshot, snapshot.frame.step
        self._series = series
        self._curves: dict[str, Curve | None] = {}
        self.flow = series.flow_of(snapshot)
        self.verdict: Verdict = judge(self.flow, self.step, series.recent.events, series.first_ratio)

    @property
    def ratio_site(self) -> Site | None:
        """The site whose gradient is the numerator of the flow ratio."""
        return None if self.flow.first is None else self._series.sites[self.flow.first]

    def curve(self, metric: str) -> Curve | None:
        """`metric` over depth; None where the run has not measured it by then."""
        if metric not in self._curves:
            self._curves[metric] = self._gain() if metric == GAIN else self._measured(metric)
        return self._curves[metric]

    @property
    def clipped(self) -> Curve | None:
        """The gradient of the weights after clipping; None where nothing is clipped."""
        curve = self.curve(CLIPPED)
        return curve if curve is not None and len(curve.x) else None

    def _measured(self, metric: str) -> Curve | None:
        series, metrics = self._series, self._series.metrics
        if metric not in metrics:
            return None
        if metric == TRUNK_SHARE:
            return series.last_measured(metric, self.step)
        row, values, nonfinite = metrics.index(metric), self.snapshot.values, self.snapshot.nonfinite
        weights = values[[metrics.index(WEIGHTS)]] if WEIGHTS in metrics else None
        depth = series.depth(metric)
        y_1K, bad_1K = by_depth(depth, metric, values[[row]], weights, nonfinite[[row]])
        return _curve(depth, y_1K[0], bad_1K[0], self.step)

    def _gain(self) -> Curve | None:
        """‖∂L/∂x_l‖ / ‖∂L/∂x_{l+1}‖ over l: what layer l makes of the gradient that enters it from above."""
        [source] = METRICS[GAIN].sources
        curve = self.curve(source)
        if curve is None:
            return None
        starts = self._series.depth(source).starts
        x, y = gains(curve.x, curve.y[:, None], starts)
        bad = np.isnan(gains(curve.x, np.where(np.isnan(curve.y), np.nan, 1.0)[:, None], starts)[1])
        there = ~np.isnan(y[:, 0]) | bad[:, 0]
        return Curve(x[there], y[there, 0], curve.step)


class RunSeries:
    """The numbers of one run file, by depth and by step. Every method that reads the file raises RunError."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self.recent = Recent()
        self.gauge = Gauge.of(reader.sites, reader.metrics)
        self._depths: dict[str, Depth] = {}
        self._view: StepView | None = None
        self.first_ratio = float("nan")
        if self.last_step >= 0:
            self.digest()

    def refresh(self) -> bool:
        """Look for news in the file; True if there is any."""
        if not self.reader.refresh():
            return False
        if self.last_step >= 0:
            self.digest()
        return True

    def close(self) -> None:
        """Close the file."""
        self.reader.close()

    def digest(self) -> None:
        """Compute `recent` anew, and forget the step that was read last."""
        reader = self.reader
        self._view = None
        if np.isnan(self.first_ratio):
            first = reader.frame(reader.first_step)
            self.first_ratio = self.flow_of(first).ratio if first else float("nan")
        latest = reader.frame(reader.last_step)
        recent = reader.loss_window(reader.last_step + 1 - LOSS_STEPS, reader.last_step + 1, LOSS_STEPS)
        known = recent.mean[~np.isnan(recent.mean) | recent.nonfinite]
        spark = reader.loss_window(0, reader.last_step + 1, SPARK_ROWS)
        events = tuple(reader.events())
        self.recent = Recent(
            events,
            tuple(event.step for event in events if event.kind == "skipped"),
            reader.seconds_per_step(),
            self.flow_of(latest) if latest else None,
            float(np.where(recent.nonfinite.any(), np.nan, known.mean())) if known.size else None,
            tuple(spark.mean[~np.isnan(spark.mean) | spark.nonfinite]),
        )

    # --- what kind of run it is

    @property
    def facts(self) -> dict[str, Any]:
        """What the run file says about its run."""
        return self.reader.facts

    @property
    def sites(self) -> tuple[Site, ...]:
        """The measured sites, in forward order."""
        return self.reader.sites

    @property
    def metrics(self) -> tuple[str, ...]:
        """The measured metrics, in the order of a frame."""
        return self.reader.metrics

    @property
    def last_step(self) -> int:
        """The last recorded step, -1 before the first."""
        return self.reader.last_step

    @property
    def every(self) -> int:
        """Every so many steps are measured; 1 is all."""
        every = self.facts.get("every")
        return every if isinstance(every, int) and every > 0 else 1

    @property
    def unseen(self) -> list[str]:
        """Sentences that name what the probe could not see of the model, and why."""
        return texts_of(self.facts.get("blind"))

    @property
    def sampled(self) -> tuple[str, ...]:
        """The metrics that this run measures at sampled steps only."""
        return tuple(name for name in texts_of(self.facts.get("closely")) if name in self.metrics)

    def has(self, metric: str) -> bool:
        """Whether the run has `metric`, measured or made of what was measured or reported."""
        if metric not in METRICS:
            return metric in self.metrics
        first = METRICS[metric].needs[0]
        return first in (self.reader.reading_names if METRICS[metric].is_reading else self.metrics)

    def depth(self, metric: str) -> Depth:
        """The points of depth of `metric` in this model."""
        source = METRICS[GAIN].sources[0] if metric == GAIN else metric
        if source not in self._depths:
            self._depths[source] = depth_of_any(self.sites, source)
        return self._depths[source]

    # --- one step

    def at(self, step: int | None) -> StepView | None:
        """The step `step`, or the latest where that is None; of one that has no frame, the nearest earlier one."""
        if self.last_step < 0:
            return None
        wanted = self.last_step if step is None else self.reader.nearest_step(step)
        if self._view is None or self._view.step != wanted:
            snapshot = self.reader.frame(wanted)
            self._view = None if snapshot is None else StepView(self, self._completed(snapshot))
        return self._view

    def flow_of(self, snapshot: Snapshot) -> Flow:
        """The flow of one recorded step."""
        loss = snapshot.frame.loss
        bad = bool(snapshot.nonfinite.any()) or (loss is not None and not np.isfinite(loss))
        return self.gauge.read(snapshot.values, bad)

    def _completed(self, snapshot: Snapshot) -> Snapshot:
        """With the last values of sampled metrics, where they were not measured at this very step."""
        step = snapshot.frame.step
        for name in self.sampled:
            row = self.metrics.index(name)
            if not np.isnan(snapshot.values[row]).all() or snapshot.nonfinite[row].any():
                continue
            span = SAMPLE_EVERY * self.every
            window = self.reader.window(name, max(step - span, 0), step, 2 * span)
            found = np.flatnonzero((~np.isnan(window.mean) | window.nonfinite).any(axis=1))
            if found.size:
                values, nonfinite = snapshot.values.copy(), snapshot.nonfinite.copy()
                values[row], nonfinite[row] = window.mean[found[-1]], window.nonfinite[found[-1]]
                snapshot = Snapshot(snapshot.frame, values, nonfinite)
        return snapshot

    def last_measured(self, metric: str, step: int) -> Curve | None:
        """`metric` over depth at the last step up to `step` at which it was measured; None where there is none."""
        depth = self.depth(metric)
        members = [group[0] for group in depth.groups]
        for span in LOOK_BACK:
            window = self.reader.window(metric, max(step + 1 - span, 0), step + 1, span)
            values, bad = window.mean[:, members], window.nonfinite[:, members]
            rows = np.flatnonzero((~np.isnan(values) | bad).any(axis=1))
            if rows.size:
                row = rows[-1]
                return _curve(depth, values[row], bad[row], int(window.steps[row]))
            if span > step:
                break
        return None

    def reading(self, name: str, step: int | None = None, *, alike: bool = True) -> Reading | None:
        """The last reading called `name` at or before `step` (None: now); None where there is none by then.

        With `alike`, vectors that are not as long as the first one are left out.
        """
        if self.last_step < 0:
            return None
        found = self.reader.readings(name, self.last_step if step is None else min(step, self.last_step))
        if found is None:
            return None
        vectors = {
            site: vector for site, vector in found[1].items() if 0 <= site < len(self.sites) and len(vector)
        }
        length = len(next(iter(vectors.values()), ()))
        kept = {site: vector for site, vector in vectors.items() if not alike or len(vector) == length}
        x = tuple(position_of(self.sites[site]) for site in kept)
        return Reading(found[0], x, tuple(kept.values())) if kept else None

    # --- all steps

    def field(self, metric: str, columns: int) -> Field | None:
        """`metric` over depth and all steps so far, in at least `columns` columns where there are as many steps.

        The first steps are read one by one (`pieces`); of a sampled metric, only the steps that have a value.
        """
        if metric == GAIN:
            return self._gain_field(columns)
        if self.last_step < 0 or metric not in self.metrics:
            return None
        ranges = pieces(self.last_step + 1, columns)
        windows = [self.reader.window(metric, *piece, columns) for piece in ranges]
        weights = None
        if metric == "update_ratio" and WEIGHTS in self.metrics:
            weights = np.concatenate([self.reader.window(WEIGHTS, *piece, columns).mean for piece in ranges])
        mean, nonfinite = (
            np.concatenate([getattr(window, name) for window in windows]) for name in ("mean", "nonfinite")
        )
        values, bad = by_depth(self.depth(metric), metric, mean, weights, nonfinite)
        steps = np.concatenate([window.steps for window in windows])
        kept = forward_only(steps)
        if metric == TRUNK_SHARE or metric in self.sampled:
            kept = kept & (~np.isnan(values) | bad).any(axis=1)
            if not kept.any():
                return None
        return Field(steps[kept], values[kept].T, bad[kept].T)

    def _gain_field(self, columns: int) -> Field | None:
        [source] = METRICS[GAIN].sources
        flow = self.field(source, columns)
        if flow is None:
            return None
        points, starts = np.arange(len(flow.values), dtype=float), self.depth(source).starts
        above = gains(points, flow.values, starts)[1]
        bad = gains(points, np.where(flow.nonfinite, np.nan, 1.0), starts)[1]
        return Field(flow.steps, above, np.isnan(bad))

    def site_curve(self, metric: str, site: int, columns: int) -> SiteCurve | None:
        """`metric` of one site over all steps so far, in columns as `field` has them."""
        if self.last_step < 0 or metric not in self.metrics:
            return None
        windows = [self.reader.window(metric, *piece, columns) for piece in pieces(self.last_step + 1, columns)]
        steps = np.concatenate([window.steps for window in windows])
        kept = forward_only(steps)
        names = ("low", "mean", "high", "nonfinite")
        parts = (np.concatenate([getattr(window, name)[:, site] for window in windows])[kept] for name in names)
        return SiteCurve(steps[kept], *parts)

    def losses(self, columns: int) -> LossWindow | None:
        """Loss (nats) and learning rate over all steps so far, in columns as `field` has them."""
        if self.last_step < 0:
            return None
        windows = [self.reader.loss_window(*piece, columns) for piece in pieces(self.last_step + 1, columns)]
        names = ("steps", "low", "mean", "high", "lr", "nonfinite")
        kept = forward_only(np.concatenate([window.steps for window in windows]))
        return LossWindow(*(np.concatenate([getattr(window, name) for window in windows])[kept] for name in names))

    def reading_history(self, name: str, columns: int) -> list[Reading]:
        """The readings called `name` so far, in order; of a long run those at some of its steps."""
        count = min(columns, READING_STEPS)
        even = np.linspace(0, self.last_step, count)
        # Half of the room for the first steps, as on a logarithmic axis.
        early = np.geomspace(1, self.last_step + 1, count) - 1 if self.last_step > 0 else even
        steps = np.unique(np.rint(np.concatenate([even, early])).astype(int))
        found = {one.step: one for step in steps if (one := self.reading(name, int(step))) is not None}
        return [found[step] for step in sorted(found)]


def _curve(depth: Depth, y: np.ndarray, bad: Flags, step: int) -> Curve:
    """The points that have a value; NaN where it is not finite."""
    there = ~np.isnan(y) | bad
    x = np.array(depth.positions, dtype=np.float64)
    return Curve(x[there], np.where(bad, np.nan, y)[there].astype(np.float64), step)
