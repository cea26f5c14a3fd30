"""Loss over steps, one curve per lane, and the focused lane's learning rate as a line below."""

from __future__ import annotations

import numpy as np
from rich.cells import cell_len

from gradtui.analysis.shapes import LOSS_STEPS
from gradtui.charts.render import render_chart
from gradtui.charts.scale import format_number
from gradtui.charts.sparkline import BLOCKS
from gradtui.charts.spec import Chart, Lines, Series, Span
from gradtui.ui.charts.context import ChartContext
from gradtui.ui.charts.steps import StepAxis
from gradtui.ui.session.lane import Lane

RATE_HEIGHT = 8  # rows of a pane that has one to spare for the learning rate


def loss_lines(context: ChartContext, width: int, height: int) -> Lines:
    """Loss and learning rate, drawn in `width` × `height` cells."""
    axis = StepAxis.of(context.lanes, context.log_steps)
    chart = loss_chart(context, width, axis)
    lane = context.focused
    rate = _rate_line(context, lane, width, axis) if lane is not None and height >= RATE_HEIGHT else None
    if rate is None:
        return render_chart(chart, width, height)
    return [*render_chart(chart, width, height - 1), rate]


def loss_chart(context: ChartContext, width: int, axis: StepAxis) -> Chart:
    """The losses in nats, each the mean of ten steps."""
    lanes = context.lanes
    without = any(lane.last_step >= 0 and lane.recent.loss is None for lane in lanes)
    series = [_loss_series(context, lane, axis, width) for lane in lanes]
    return Chart(
        tuple(one for one in series if one is not None),
        x_limits=axis.limits,
        x_ticks=axis.ticks,
        cursor=axis.cursor(context.cursor),
        empty=context.words("empty.loss") if without else context.empty,
        too_small=context.words("empty.small"),
    )


def _loss_series(context: ChartContext, lane: Lane, axis: StepAxis, width: int) -> Series | None:
    window = lane.ask(lambda run: run.losses(width))
    if window is None:
        return None
    there = window.nonfinite | ~np.isnan(window.mean)  # a step without a loss is a gap, a NaN is a mark
    steps, y = window.steps[there], window.mean[there]
    # Buckets of sixteen steps are smooth as they are.
    if len(steps) < 2 or steps[1] - steps[0] < LOSS_STEPS:
        y = trailing_mean(y, LOSS_STEPS)
    cursor = context.cursor
    here = len(steps) if cursor is None else int(np.searchsorted(steps, cursor, side="right"))
    loss = f" {format_loss(float(y[here - 1]))}" if len(context.lanes) == 2 and here else ""
    y = np.where(window.nonfinite[there], np.nan, y)
    return Series(context.name(lane) + loss, axis.x(steps), y, lane.color, lane.mark)


def trailing_mean(values: np.ndarray, count: int) -> np.ndarray:
    """The mean of each value and up to `count` − 1 before it, those that are not finite left out."""
    known = np.isfinite(values)
    totals = np.cumsum(np.concatenate([[0.0], np.where(known, values, 0.0)]))
    counts = np.cumsum(np.concatenate([[0], known]))
    start = np.maximum(np.arange(len(values)) + 1 - count, 0)
    with np.errstate(all="ignore"):
        return np.asarray((totals[1:] - totals[start]) / (counts[1:] - counts[start]))


def _rate_line(context: ChartContext, lane: Lane, width: int, axis: StepAxis) -> list[Span] | None:
    """The learning rate as a sparkline that fills its share of the step axis."""
    window = lane.ask(lambda run: run.losses(width))
    if window is None or np.isnan(window.lr).all():
        return None
    cursor = context.cursor
    here = len(window.lr) if cursor is None else int(np.searchsorted(window.steps, cursor, side="right"))
    name = f"{context.words('pane.lr')} {format_number(float(window.lr[max(here, 1) - 1]))} "
    room = width - cell_len(name)
    if room < RATE_HEIGHT:
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
