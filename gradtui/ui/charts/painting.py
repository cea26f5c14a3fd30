"""From lanes to charts: what each pane shows, as pure functions of lanes, metric and place in history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from rich.cells import cell_len

from gradtui.charts.heatmap import BLOCKS, Mode, render_heatmap
from gradtui.charts.render import render_chart
from gradtui.charts.scale import format_number, format_step
from gradtui.charts.spec import Chart, HeatMap, Lines, Series, Span, Ticks
from gradtui.i18n import Words
from gradtui.ui.measures import MEASURES
from gradtui.ui.panels.chart_pane import Painter
from gradtui.ui.session.lane import LOSS_STEPS, SPARSE, LaneView

LEAST_STEPS = 20
CLIPPED_MARK = "▵"
LINE_COLOR = "#8a94a6"


def depth_painter(
    lanes: Sequence[LaneView], metric: str, cursor: int | None, log: bool, words: Words, empty: str
) -> Painter:
    """`metric` over depth, one curve per lane, the focused one first."""
    series, after, deepest = [], [], 1.0
    bands = lanes[0].bands(metric) if lanes else ()
    breaks = tuple(start - 0.5 for start, _ in bands[1:])
    for lane in lanes:
        curve = lane.curve(metric, cursor)
        if curve is None:
            continue
        deepest = max(deepest, float(curve.x.max(initial=0)))
        snapshot = lane.snapshot(cursor)
        # Two curves have room for their steps in the legend, more only for their names.
        step = f" · {snapshot.frame.step}" if snapshot and len(lanes) == 2 else ""
        name = lane.name(words.language)
        series.append(Series(name + step, curve.x, curve.y, lane.color, lane.mark, breaks=breaks))
        clipped = lane.clipped(cursor) if metric == "grad_norm" else None
        if clipped is not None:
            label = words("pane.clipped")
            one = Series(label, clipped.x, clipped.y, lane.color, CLIPPED_MARK, dim=True, breaks=breaks)
            after.append(one)
    lines = MEASURES[metric].lines if metric in MEASURES else ()
    chart = Chart(
        (*series, *after, *across(lines, series)),
        bands=tuple((float(start), name) for start, name in short_names(bands)),
        log=log,
        x_limits=(0, deepest),
        x_name=words("pane.layer"),
        markers=True,
        empty=empty,
        too_small=words("empty.small"),
    )
    return lambda width, height: render_chart(chart, width, height)


def across(values: Sequence[float], series: Sequence[Series]) -> list[Series]:
    """Lines at these values through the whole of a chart of `series`, which keep them on its axis."""
    ends = np.array([x for one in series if len(one.x) for x in (one.x[0], one.x[-1])])
    if not ends.size:
        return []
    x = np.array([ends.min(), ends.max()])
    return [Series("", x, np.full(2, value), LINE_COLOR, dim=True, named=False) for value in values]


def short_names(bands: tuple[tuple[int, str], ...]) -> tuple[tuple[int, str], ...]:
    """The stacks with what is the same in all of their paths left out: `encoder`, not `model.encoder.layers`.

    A name of which nothing would be left stays whole.
    """
    paths = [name.split(".") for _, name in bands]
    shortest = min(map(len, paths), default=0)
    head = next((n for n in range(shortest) if len({path[n] for path in paths}) > 1), shortest)
    tail = next((n for n in range(shortest) if len({path[-1 - n] for path in paths}) > 1), shortest)
    return tuple(
        (start, ".".join(path[head : len(path) - tail]) or name)
        for (start, name), path in zip(bands, paths, strict=True)
    )


@dataclass(frozen=True, slots=True)
class StepAxis:
    """The axis of steps: even, or logarithmic so that the first steps, where a collapse happens, have room."""

    log: bool
    end: int

    @classmethod
    def of(cls, lanes: Sequence[LaneView], log: bool) -> StepAxis:
        """The axis that holds all that `lanes` have recorded."""
        ends = [axis_end(lane.last_step, lane.steps) for lane in lanes if lane.last_step >= 0]
        return cls(log, max(ends, default=LEAST_STEPS))

    def x(self, steps: ArrayLike) -> np.ndarray:
        """Where steps lie on the axis."""
        positions = np.asarray(steps, dtype=np.float64)
        return np.log10(positions + 1) if self.log else positions

    def cursor(self, step: int | None) -> float | None:
        """Where a step in history lies, at most at the end."""
        return None if step is None else float(self.x(min(step, self.end)))

    @property
    def limits(self) -> tuple[float, float]:
        """Both ends."""
        return 0.0, float(self.x(self.end))

    @property
    def ticks(self) -> Ticks | None:
        """0, 1, 2, 5, 10 … on a logarithmic axis; an even one finds its own."""
        if not self.log:
            return None
        steps = [0, *(m * 10**e for e in range(9) for m in (1, 2, 5) if m * 10**e <= self.end)]
        return tuple((float(self.x(step)), format_step(step)) for step in steps)

    def label(self, x: float) -> str:
        """The step at a position, as text."""
        return format_step(round(10**x - 1) if self.log else x)


def axis_end(last: int, steps: int) -> int:
    """The last step of a time axis: a round number that a running lane has not reached yet."""
    if last >= steps - 1 > 0:
        return last
    end = LEAST_STEPS
    while end <= last:
        # 20, 50, 100, 200, 500 …
        end = end * 5 // 2 if str(end)[0] == "2" else end * 2
    return min(end, max(steps - 1, last)) if steps else end


def heat_painter(
    lane: LaneView | None,
    metric: str,
    cursor: int | None,
    *,
    log: bool,
    log_steps: bool,
    mode: Mode,
    words: Words,
    empty: str,
) -> Painter:
    """`metric` over depth and steps of one lane."""
    small = words("empty.small")

    def paint(width: int, height: int) -> Lines:
        field = lane.field(metric, width) if lane else None
        if lane is None or field is None:
            nothing = HeatMap(np.empty((0, 0)), empty=empty, too_small=small)
            return render_heatmap(nothing, width, height, mode)
        axis = StepAxis.of([lane], log_steps)
        heat = HeatMap(
            field.values,
            x=axis.x(field.steps),
            nonfinite=field.nonfinite,
            absent=np.isnan(field.values) & ~field.nonfinite,
            row_labels=tuple(f"{x:g}" for x in lane.places(metric)) if metric in SPARSE else None,
            log=log,
            x_limits=axis.limits,
            x_ticks=axis.ticks or (),
            x_format=axis.label,
            bands=short_names(lane.bands(metric)),
            cursor=axis.cursor(cursor),
            empty=empty,
            too_small=small,
        )
        return render_heatmap(heat, width, height, mode)

    return paint


def site_painter(
    lanes: Sequence[LaneView],
    site: str,
    metric: str,
    cursor: int | None,
    *,
    log: bool,
    log_steps: bool,
    words: Words,
    empty: str,
) -> Painter:
    """`metric` of one site over the steps, for every lane that has a site of that name."""
    axis = StepAxis.of(lanes, log_steps)

    def paint(width: int, height: int) -> Lines:
        series = []
        for lane in lanes:
            index = next((i for i, one in enumerate(lane.sites) if one.name == site), None)
            curve = None if index is None else lane.site_curve(metric, index, width)
            if curve is None:
                continue
            there = curve.nonfinite | ~np.isnan(curve.mean)
            x, bad = axis.x(curve.steps[there]), curve.nonfinite[there]
            low, mean, high = (
                np.where(bad, np.nan, values[there]) for values in (curve.low, curve.mean, curve.high)
            )
            series.append(Series(lane.name(words.language), x, mean, lane.color, lane.mark, low=low, high=high))
        chart = Chart(
            tuple(series),
            log=log,
            x_limits=axis.limits,
            x_ticks=axis.ticks,
            cursor=axis.cursor(cursor),
            empty=empty,
            too_small=words("empty.small"),
        )
        return render_chart(chart, width, height)

    return paint


def loss_painter(
    lanes: Sequence[LaneView], cursor: int | None, *, log_steps: bool, words: Words, empty: str
) -> Painter:
    """Loss over steps, one curve per lane, and the focused lane's learning rate as a line below."""
    axis = StepAxis.of(lanes, log_steps)
    if any(lane.last_step >= 0 and lane.last_loss is None for lane in lanes):
        empty = words("empty.loss")

    def paint(width: int, height: int) -> Lines:
        series = [_loss_series(lane, axis, width, cursor, words, with_loss=len(lanes) == 2) for lane in lanes]
        chart = Chart(
            tuple(one for one in series if one is not None),
            x_limits=axis.limits,
            x_ticks=axis.ticks,
            cursor=axis.cursor(cursor),
            empty=empty,
            too_small=words("empty.small"),
        )
        rate = _rate_line(lanes[0], width, axis, cursor, words) if lanes and height >= 8 else None
        if rate is None:
            return render_chart(chart, width, height)
        return [*render_chart(chart, width, height - 1), rate]

    return paint


def _loss_series(
    lane: LaneView, axis: StepAxis, width: int, cursor: int | None, words: Words, with_loss: bool
) -> Series | None:
    window = lane.losses(width)
    if window is None:
        return None
    there = window.nonfinite | ~np.isnan(window.mean)  # a step without a loss is a gap, a NaN is a mark
    steps, y = window.steps[there], window.mean[there]
    # Buckets of sixteen steps are smooth as they are.
    if len(steps) < 2 or steps[1] - steps[0] < LOSS_STEPS:
        y = trailing_mean(y, LOSS_STEPS)
    here = len(steps) if cursor is None else int(np.searchsorted(steps, cursor, side="right"))
    loss = f" {format_loss(float(y[here - 1]))}" if with_loss and here else ""
    y = np.where(window.nonfinite[there], np.nan, y)
    return Series(lane.name(words.language) + loss, axis.x(steps), y, lane.color, lane.mark)


def trailing_mean(values: np.ndarray, count: int) -> np.ndarray:
    """The mean of each value and up to `count` − 1 before it, those that are not finite left out."""
    known = np.isfinite(values)
    sums = np.cumsum(np.concatenate([[0.0], np.where(known, values, 0.0)]))
    counts = np.cumsum(np.concatenate([[0], known]))
    start = np.maximum(np.arange(len(values)) + 1 - count, 0)
    with np.errstate(all="ignore"):
        return np.asarray((sums[1:] - sums[start]) / (counts[1:] - counts[start]))


def _rate_line(lane: LaneView, width: int, axis: StepAxis, cursor: int | None, words: Words) -> list[Span] | None:
    """The learning rate as a sparkline that fills its share of the step axis."""
    window = lane.losses(width)
    if window is None or np.isnan(window.lr).all():
        return None
    here = len(window.lr) if cursor is None else int(np.searchsorted(window.steps, cursor, side="right"))
    name = f"{words('pane.lr')} {format_number(float(window.lr[max(here, 1) - 1]))} "
    room = width - cell_len(name)
    if room < 8:
        return None
    cells = np.linspace(*axis.limits, room)
    rates = np.interp(cells[cells <= axis.x(lane.last_step)], axis.x(window.steps), window.lr)
    # From zero: half the height is half the rate.
    peak = max(float(np.nanmax(window.lr)), 1e-300)
    line = "".join(BLOCKS[min(len(BLOCKS) - 1, int(rate / peak * len(BLOCKS)))] for rate in rates)
    return [Span(name, dim=True), Span(line.ljust(room), lane.color, dim=True)]


def format_loss(loss: float) -> str:
    """A loss in nats with two decimals, or NaN or ∞ as it is."""
    return f"{loss:.2f}" if abs(loss) < 1000 else format_number(loss)
