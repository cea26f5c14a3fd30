"""Charts of measured metrics and of the gain: over depth, over depth and steps, and one site over the steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtui.analysis.shapes import SiteCurve
from gradtui.charts.spec import Chart, HeatMap, Series
from gradtui.ui.charts.context import ChartContext
from gradtui.ui.charts.steps import StepAxis
from gradtui.ui.session.lane import Lane

CLIPPED_MARK = "▵"
LINE_COLOR = "#8a94a6"


def depth_chart(context: ChartContext, _width: int) -> Chart:
    """The metric over depth, one curve per lane; of the weights' gradient also what is left after clipping."""
    curves, after, deepest = [], [], 1.0
    name = context.metric.name
    bands = bands_of(context.focused, name)
    breaks = tuple(start - 0.5 for start, _ in bands[1:])
    for lane in context.lanes:
        view, curve = lane.view(context.cursor), lane.curve(name, context.cursor)
        if view is None or curve is None:
            continue
        deepest = max(deepest, float(curve.x.max(initial=0)))
        # Two curves have room for their steps in the legend, more only for their names.
        step = f" · {view.step}" if len(context.lanes) == 2 else ""
        curves.append(Series(context.name(lane) + step, curve.x, curve.y, lane.color, lane.mark, breaks=breaks))
        clipped = view.clipped if name == "grad_norm" else None
        if clipped is not None:
            after.append(
                Series(
                    context.words("pane.clipped"),
                    clipped.x,
                    clipped.y,
                    lane.color,
                    CLIPPED_MARK,
                    dim=True,
                    breaks=breaks,
                )
            )
    return Chart(
        (*curves, *after, *guide_lines(context.metric.guide_lines, curves)),
        bands=tuple((float(start), name) for start, name in bands),
        log=context.log,
        x_limits=(0, deepest),
        x_name=context.words("pane.layer"),
        markers=True,
        empty=context.empty,
        too_small=context.words("empty.small"),
    )


def heat_map(context: ChartContext, width: int) -> HeatMap:
    """The metric of the focused lane over depth and steps."""
    small, lane, name = context.words("empty.small"), context.focused, context.metric.name
    field = lane.ask(lambda run: run.field(name, width)) if lane else None
    if lane is None or lane.series is None or field is None:
        return HeatMap(np.empty((0, 0)), empty=context.empty, too_small=small)
    axis = StepAxis.of([lane], context.log_steps)
    positions = lane.series.depth(name).positions
    return HeatMap(
        field.values,
        x=axis.x(field.steps),
        nonfinite=field.nonfinite,
        absent=np.isnan(field.values) & ~field.nonfinite,
        row_labels=tuple(f"{x:g}" for x in positions) if context.metric.owner == "sublayer" else None,
        log=context.log,
        x_limits=axis.limits,
        x_ticks=axis.ticks or (),
        x_format=axis.label,
        bands=bands_of(lane, name),
        cursor=axis.cursor(context.cursor),
        empty=context.empty,
        too_small=small,
    )


def site_chart(context: ChartContext, width: int, site: str) -> Chart:
    """The metric of one site over the steps, for every lane that has a site of that name."""
    axis = StepAxis.of(context.lanes, context.log_steps)
    found = [(lane, _site_curve(lane, site, context.metric.name, width)) for lane in context.lanes]
    return Chart(
        tuple(_site_series(context, lane, curve, axis) for lane, curve in found if curve is not None),
        log=context.log,
        x_limits=axis.limits,
        x_ticks=axis.ticks,
        cursor=axis.cursor(context.cursor),
        empty=context.empty,
        too_small=context.words("empty.small"),
    )


def _site_curve(lane: Lane, site: str, metric: str, width: int) -> SiteCurve | None:
    index = next((i for i, one in enumerate(lane.sites) if one.name == site), None)
    return None if index is None else lane.ask(lambda run: run.site_curve(metric, index, width))


def _site_series(context: ChartContext, lane: Lane, curve: SiteCurve, axis: StepAxis) -> Series:
    there = curve.nonfinite | ~np.isnan(curve.mean)
    bad = curve.nonfinite[there]
    low, mean, high = (np.where(bad, np.nan, values[there]) for values in (curve.low, curve.mean, curve.high))
    return Series(context.name(lane), axis.x(curve.steps[there]), mean, lane.color, lane.mark, low=low, high=high)


def guide_lines(values: Sequence[float], series: Sequence[Series]) -> list[Series]:
    """Lines at these values through the whole of a chart of `series`, which keep them on its axis."""
    ends = np.array([x for one in series if len(one.x) for x in (one.x[0], one.x[-1])])
    if not ends.size:
        return []
    x = np.array([ends.min(), ends.max()])
    return [Series("", x, np.full(2, value), LINE_COLOR, dim=True, named=False) for value in values]


def bands_of(lane: Lane | None, metric: str) -> tuple[tuple[int, str], ...]:
    """Where the stacks of a lane's model begin on the axis of depth, and their names in short."""
    return short_names(lane.series.depth(metric).bands) if lane is not None and lane.series is not None else ()


def short_names(bands: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """Stacks without what all of their paths have in common: `encoder`, not `model.encoder.layers`.

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
