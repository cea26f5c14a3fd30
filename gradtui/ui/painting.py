"""From lanes to charts: what each pane shows, as pure functions of lanes, metric and place in history."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len

from gradtui.charts.heatmap import Mode, render_heatmap, sparkline
from gradtui.charts.render import render_chart
from gradtui.charts.scale import format_number
from gradtui.charts.spec import Chart, HeatMap, Lines, Series, Span
from gradtui.ui.i18n import Words
from gradtui.ui.lanes import LaneView
from gradtui.ui.widgets.chart import Painter

LEAST_STEPS = 20


def depth_painter(
    lanes: Sequence[LaneView], metric: str, cursor: int | None, log: bool, words: Words, empty: str
) -> Painter:
    """`metric` over depth, one curve per lane, the focused one first."""
    series, deepest = [], 1.0
    for lane in lanes:
        curve = lane.curve(metric, cursor)
        if curve is None:
            continue
        deepest = max(deepest, float(curve.x.max(initial=0)))
        snapshot = lane.snapshot(cursor)
        step = f" · {snapshot.frame.step}" if snapshot and len(lanes) > 1 else ""
        series.append(Series(lane.name(words.language) + step, curve.x, curve.y, lane.color, lane.mark))
    chart = Chart(
        tuple(series),
        log=log,
        x_limits=(0, deepest),
        markers=True,
        empty=empty,
        too_small=words("empty.small"),
    )
    return lambda width, height: render_chart(chart, width, height)


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
    lane: LaneView | None, metric: str, cursor: int | None, log: bool, mode: Mode, words: Words, empty: str
) -> Painter:
    """`metric` over depth and steps of one lane."""
    small = words("empty.small")

    def paint(width: int, height: int) -> Lines:
        field = lane.field(metric, width) if lane else None
        if lane is None or field is None:
            return render_heatmap(
                HeatMap(np.empty((0, 0)), empty=empty, too_small=small), width, height, mode
            )
        heat = HeatMap(
            field.values,
            x=field.steps,
            nonfinite=field.nonfinite,
            log=log,
            x_limits=(0, axis_end(lane.last_step, lane.steps)),
            cursor=cursor,
            empty=empty,
            too_small=small,
        )
        return render_heatmap(heat, width, height, mode)

    return paint


def loss_painter(lanes: Sequence[LaneView], cursor: int | None, words: Words, empty: str) -> Painter:
    """Loss over steps, one curve per lane, and the focused lane's learning rate as a line below."""
    ends = [axis_end(lane.last_step, lane.steps) for lane in lanes if lane.last_step >= 0]
    end = max(ends, default=LEAST_STEPS)

    def paint(width: int, height: int) -> Lines:
        series = []
        for lane in lanes:
            window = lane.losses(width)
            if window is None:
                continue
            y = np.where(window.nonfinite, np.nan, window.mean)
            there = window.nonfinite | ~np.isnan(y)
            low, high = window.low[there], window.high[there]
            loss = "" if lane.last_loss is None else f" {format_number(lane.last_loss)}"
            label = lane.name(words.language) + (loss if len(lanes) > 1 else "")
            x, y = window.steps[there], y[there]
            series.append(Series(label, x, y, lane.color, lane.mark, low=low, high=high))
        chart = Chart(
            tuple(series),
            x_limits=(0, end),
            cursor=None if cursor is None else min(cursor, end),
            empty=empty,
            too_small=words("empty.small"),
        )
        rate = _rate_line(lanes[0], width, end, words) if lanes and height >= 8 and series else None
        if rate is None:
            return render_chart(chart, width, height)
        return [*render_chart(chart, width, height - 1), rate]

    return paint


def _rate_line(lane: LaneView, width: int, end: int, words: Words) -> list[Span] | None:
    window = lane.losses(width)
    if window is None or np.isnan(window.lr).all():
        return None
    name = f"{words('pane.lr')} {format_number(float(window.lr[-1]))} "
    room = width - cell_len(name)
    if room < 8:
        return None
    # The line fills its share of the axis, as the loss above it does.
    filled = max(1, math.ceil(room * (lane.last_step + 1) / (end + 1)))
    line = sparkline(window.lr, min(filled, room))
    return [Span(name, dim=True), Span(line.ljust(room), lane.color, dim=True)]
