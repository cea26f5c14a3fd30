"""Charts of what modules report of themselves: percentiles over tokens by layer, and weights over depth."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gradtui.analysis.series import RunSeries
from gradtui.analysis.shapes import Reading, times_apart
from gradtui.charts.spec import Chart, HeatMap, Series
from gradtui.metrics import HIGH, LOW, MIDDLE, Metric
from gradtui.ui.charts.context import ChartContext
from gradtui.ui.charts.measured import guide_lines
from gradtui.ui.charts.steps import StepAxis

# What comes after a norm, and what all would be alike: beside the lane's own colour.
AFTER_COLOR, AFTER_MARK = "#f0e442", "▫"
EVEN_COLOR = "#8a94a6"
HALF = 0.5  # a sublayer mixes what the next one reads


def reading_chart(context: ChartContext, _width: int) -> Chart:
    """One reading by layer: percentiles of the focused lane, medians of the others."""
    curves: list[Series] = []
    for lane in context.lanes:
        reading = lane.reading(context.metric, context.cursor)
        series = [] if reading is None else _percentiles(reading, context.name(lane), lane.color, lane.mark)
        curves += series if lane is context.focused else series[:1]
    return _by_layer(context, curves)


def spread_chart(context: ChartContext, _width: int) -> Chart:
    """Percentiles before a norm and after it of the focused lane, medians before it of the others."""
    curves: list[Series] = []
    for lane in context.lanes:
        looks = ((lane.color, lane.mark), (AFTER_COLOR, AFTER_MARK))
        if lane is not context.focused:
            before = lane.reading(context.metric, context.cursor)
            curves += [] if before is None else _percentiles(before, context.name(lane), *looks[0])[:1]
            continue
        for source, look in zip(context.metric.sources, looks, strict=True):
            reading = lane.ask(partial(RunSeries.reading, name=source, step=context.cursor))
            if reading is not None:
                curves += _percentiles(reading, context.words(f"series.{source}"), *look)
    return _by_layer(context, curves)


def weights_chart(context: ChartContext, _width: int) -> Chart:
    """What each sublayer's mix gives to the embedding, to its newest source, and what would be even."""
    lane, words = context.focused, context.words
    reading = lane.reading(context.metric, context.cursor) if lane else None
    if lane is None or reading is None:
        return _by_layer(context, [])
    x, vectors = np.array(reading.x) + HALF, reading.vectors
    newest, embedding, even = (
        np.array(values) for values in zip(*((v[-1], v[0], 1 / len(v)) for v in vectors), strict=True)
    )
    return _by_layer(
        context,
        [
            Series(words("series.newest"), x, newest, lane.color, lane.mark),
            Series(words("series.embedding"), x, embedding, AFTER_COLOR, AFTER_MARK),
            Series(words("series.even"), x, even, EVEN_COLOR, dim=True),
        ],
    )


def reading_map(context: ChartContext, width: int) -> HeatMap:
    """A reading of the focused lane over layer and step, one number each (`as_number`)."""
    lane, metric = context.focused, context.metric
    found = lane.ask(lambda run: run.reading_history(metric.needs[0], width)) if lane else None
    if lane is None or not found:
        return _empty_map(context)
    axis = StepAxis.of([lane], context.log_steps)
    return HeatMap(
        np.array([[as_number(metric, vector) for vector in reading.vectors] for reading in found]).T,
        x=axis.x([reading.step for reading in found]),
        log=context.log and metric.kind != "spread",
        x_limits=axis.limits,
        x_ticks=axis.ticks or (),
        x_format=axis.label,
        row_labels=tuple(str(int(x)) for x in found[-1].x),
        cursor=axis.cursor(context.cursor),
        empty=context.empty,
        too_small=context.words("empty.small"),
    )


def weights_map(context: ChartContext, _width: int) -> HeatMap:
    """Weights over depth at one step: a row for each sublayer, a column for each source."""
    reading = context.focused.reading(context.metric, context.cursor) if context.focused else None
    if reading is None:
        return _empty_map(context)
    sources = max(map(len, reading.vectors))
    values = np.full((len(reading.vectors), sources), np.nan)
    absent = np.ones(values.shape, bool)
    for row, vector in enumerate(reading.vectors):
        values[row, : len(vector)], absent[row, : len(vector)] = vector, False
    return HeatMap(
        values,
        absent=absent,
        log=context.log,
        row_labels=tuple(f"{x + HALF:g}" for x in reading.x),
        x_ticks=tuple((float(source), str(source)) for source in range(0, sources, max(1, sources // 8))),
        x_name=context.words("pane.source"),
        empty=context.empty,
        too_small=context.words("empty.small"),
    )


def as_number(metric: Metric, vector: np.ndarray) -> float:
    """A reading as one number: how many times its percentiles lie apart, or its median."""
    if metric.kind == "spread":
        return times_apart(vector)
    return float(vector[MIDDLE] if len(vector) > MIDDLE else vector[0])


def _percentiles(reading: Reading, label: str, color: str, mark: str) -> list[Series]:
    """The median by layer, then the 5th and 95th percentile where there are any."""
    x = np.floor(reading.x)
    table = np.array([vector if len(vector) > HIGH else vector[:1] for vector in reading.vectors], np.float64)
    if table.shape[1] == 1:
        return [Series(label, x, table[:, 0], color, mark)]
    outer = [Series("", x, table[:, row], color, dim=True, named=False) for row in (LOW, HIGH)]
    return [Series(label, x, table[:, MIDDLE], color, mark), *outer]


def _by_layer(context: ChartContext, series: list[Series]) -> Chart:
    more: dict[str, Any] = {"empty": context.empty, "too_small": context.words("empty.small")}
    deepest = max([1.0, *(float(one.x.max()) for one in series if len(one.x))])
    return Chart(
        (*series, *guide_lines(context.metric.guide_lines, series)),
        log=context.log,
        x_limits=(0, deepest),
        x_name=context.words("pane.layer"),
        markers=True,
        **more,
    )


def _empty_map(context: ChartContext) -> HeatMap:
    return HeatMap(np.empty((0, 0)), empty=context.empty, too_small=context.words("empty.small"))
