"""Charts of what modules tell of themselves: percentiles over tokens by layer, and weights over depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtui.charts.heatmap import Mode, render_heatmap
from gradtui.charts.render import render_chart
from gradtui.charts.spec import Chart, HeatMap, Lines, Series
from gradtui.i18n import Words
from gradtui.ui.charts.painting import StepAxis, across
from gradtui.ui.measures import HIGH, LOW, MIDDLE, Measure
from gradtui.ui.panels.chart_pane import Painter
from gradtui.ui.session.lane import LaneView, Told

# What comes after a norm, and what all would be alike: beside the lane's own colour.
AFTER_COLOR, AFTER_MARK = "#f0e442", "▫"
EVEN_COLOR = "#8a94a6"
HALF = 0.5  # a sublayer mixes what the next one reads


def by_depth(
    measure: Measure, lanes: Sequence[LaneView], cursor: int | None, log: bool, words: Words, empty: str
) -> Painter:
    """The readings of `measure` by layer: all of the focused lane's, the middle ones of those beside it."""
    series = _weights(measure, lanes[:1], cursor, words) if measure.kind == "weights" else []
    if measure.kind == "spread" and lanes:
        series += _spread(measure, lanes[0], cursor, words)
    elif measure.kind == "reading":
        for lane in lanes[:1]:
            series += _percentiles(lane, measure.needs[0], cursor, words)
    if measure.kind != "weights":
        for lane in lanes[1:]:
            series += _percentiles(lane, measure.needs[0], cursor, words)[:1]
    places = [float(one.x.max()) for one in series if len(one.x)]
    chart = Chart(
        (*series, *across(measure.lines, series)),
        log=log,
        x_limits=(0, max([1.0, *places])),
        x_name=words("pane.layer"),
        markers=True,
        empty=empty,
        too_small=words("empty.small"),
    )
    return lambda width, height: render_chart(chart, width, height)


def _percentiles(lane: LaneView, name: str, cursor: int | None, words: Words) -> list[Series]:
    """The middle of a reading by layer, then its 5th and 95th percentile where it has them."""
    told = lane.told(name, cursor)
    return [] if told is None else _lines(told, lane.name(words.language), lane.color, lane.mark)


def _spread(measure: Measure, lane: LaneView, cursor: int | None, words: Words) -> list[Series]:
    """Percentiles before the norm and after it."""
    looks = ((lane.color, lane.mark), (AFTER_COLOR, AFTER_MARK))
    series = []
    for name, look in zip(measure.sources, looks, strict=True):
        told = lane.told(name, cursor)
        if told is not None:
            series += _lines(told, words(f"series.{name}"), *look)
    return series


def _lines(told: Told, label: str, color: str, mark: str) -> list[Series]:
    x = np.floor(told.x)
    table = np.array([vector if len(vector) > HIGH else vector[:1] for vector in told.vectors], np.float64)
    if table.shape[1] == 1:
        return [Series(label, x, table[:, 0], color, mark)]
    outer = [Series("", x, table[:, row], color, dim=True, named=False) for row in (LOW, HIGH)]
    return [Series(label, x, table[:, MIDDLE], color, mark), *outer]


def _weights(measure: Measure, lanes: Sequence[LaneView], cursor: int | None, words: Words) -> list[Series]:
    """What each sublayer's mix gives to the embedding, to its newest source, and what would be even."""
    told = lanes[0].told(measure.needs[0], cursor, False) if lanes else None
    if told is None:
        return []
    x = np.array(told.x) + HALF
    lane = lanes[0]
    return [
        Series(words("series.newest"), x, np.array([v[-1] for v in told.vectors]), lane.color, lane.mark),
        Series(words("series.embedding"), x, np.array([v[0] for v in told.vectors]), AFTER_COLOR, AFTER_MARK),
        Series(words("series.even"), x, np.array([1 / len(v) for v in told.vectors]), EVEN_COLOR, dim=True),
    ]


def heat(
    lane: LaneView | None,
    measure: Measure,
    cursor: int | None,
    *,
    log: bool,
    log_steps: bool,
    mode: Mode,
    words: Words,
    empty: str,
) -> Painter:
    """Layer × step; of weights over depth, sublayer × source at one step."""
    small = words("empty.small")

    def paint(width: int, height: int) -> Lines:
        if lane is None:
            found = None
        elif measure.kind == "weights":
            found = _matrix(lane, measure, cursor, log, words)
        else:
            found = _history(lane, measure, cursor, log, StepAxis.of([lane], log_steps), width)
        values, more = found if found is not None else (np.empty((0, 0)), {})
        return render_heatmap(HeatMap(values, empty=empty, too_small=small, **more), width, height, mode)

    return paint


def _matrix(
    lane: LaneView, measure: Measure, cursor: int | None, log: bool, words: Words
) -> tuple[np.ndarray, dict[str, Any]] | None:
    told = lane.told(measure.needs[0], cursor, False)
    if told is None:
        return None
    sources = max(map(len, told.vectors))
    values = np.full((len(told.vectors), sources), np.nan)
    absent = np.ones(values.shape, bool)
    for row, vector in enumerate(told.vectors):
        values[row, : len(vector)], absent[row, : len(vector)] = vector, False
    labels = tuple(f"{x + HALF:g}" for x in told.x)
    ticks = tuple((float(source), str(source)) for source in range(0, sources, max(1, sources // 8)))
    more: dict[str, Any] = {"row_labels": labels, "x_ticks": ticks, "x_name": words("pane.source")}
    return values, {**more, "absent": absent, "log": log}


def _history(
    lane: LaneView, measure: Measure, cursor: int | None, log: bool, axis: StepAxis, width: int
) -> tuple[np.ndarray, dict[str, Any]] | None:
    found = lane.told_over(measure.needs[0], width)
    if not found:
        return None
    values = np.array([[_number(measure, vector) for vector in told.vectors] for told in found]).T
    more: dict[str, Any] = {
        "x": axis.x([told.step for told in found]),
        "log": log and measure.kind != "spread",
        "x_limits": axis.limits,
        "x_ticks": axis.ticks or (),
        "x_format": axis.label,
        "row_labels": tuple(str(int(x)) for x in found[-1].x),
        "cursor": axis.cursor(cursor),
    }
    return values, more


def _number(measure: Measure, vector: np.ndarray) -> float:
    """A reading as one number: how many times its percentiles lie apart, or its middle."""
    if measure.kind == "spread":
        return apart(vector)
    return float(vector[MIDDLE] if len(vector) > MIDDLE else vector[0])


def apart(vector: np.ndarray) -> float:
    """How many times the 95th percentile is the 5th; NaN where that is zero, or there are none."""
    return float(vector[HIGH] / vector[LOW]) if len(vector) > HIGH and vector[LOW] > 0 else float("nan")
