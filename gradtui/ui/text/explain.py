"""What a metric says of the focused run, in one or two sentences under the charts. Pure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradtui.analysis.shapes import Reading, times_apart
from gradtui.charts.scale import format_number
from gradtui.i18n import Words
from gradtui.metrics import GAIN, HIGH, LOW, METRICS, TRUNK_SHARE, Kind, Metric
from gradtui.ui.session.lane import Lane


def explain(lane: Lane | None, metric: str, cursor: int | None, words: Words) -> str:
    """What is measured of `metric` at `cursor`, or now; "" where the curves say it all."""
    if lane is None:
        return ""
    if METRICS[metric].is_reading:
        reading = lane.reading(METRICS[metric], cursor)
        if reading is None or not all(np.isfinite(vector).all() for vector in reading.vectors):
            return ""
        after = lane.ask(lambda run: run.reading(METRICS[metric].needs[-1], cursor))
        return READINGS[METRICS[metric].kind](METRICS[metric], reading, after, words)
    if metric == GAIN:
        return _gain(lane, cursor, words)
    return _trunk(lane, cursor, words) if metric == TRUNK_SHARE else ""


def measured_at(lane: Lane | None, metric: str, cursor: int | None) -> int | None:
    """The step at which what is shown of `metric` was measured, where that need not be the step of the rest."""
    if lane is None:
        return None
    if METRICS[metric].is_reading:
        reading = lane.reading(METRICS[metric], cursor)
        return None if reading is None else reading.step
    curve = lane.curve(metric, cursor) if metric == TRUNK_SHARE else None
    return None if curve is None else curve.step


def _gain(lane: Lane, cursor: int | None, words: Words) -> str:
    curve = lane.curve(GAIN, cursor)
    starts = lane.series.depth(GAIN).starts if lane.series else ()
    if curve is None or not len(curve.y) or not np.isfinite(curve.y).all() or starts:
        return ""
    product, below = format_number(float(np.prod(curve.y))), int((curve.y < 1).sum())
    return words("means.gain", product=product, below=below, count=len(curve.y))


def _trunk(lane: Lane, cursor: int | None, words: Words) -> str:
    curve = lane.curve(TRUNK_SHARE, cursor)
    if curve is None and lane.last_step >= 0 and lane.has(TRUNK_SHARE):
        return words("empty.trunk")
    if curve is None or not len(curve.y) or not np.isfinite(curve.y).all():
        return ""
    low, high, product = (format_number(float(f(curve.y))) for f in (np.min, np.max, np.prod))
    if low == high:
        return words("means.trunk_same", share=low, product=product)
    layer = int(curve.x[int(np.argmin(curve.y))])
    return words("means.trunk", low=low, high=high, layer=layer, product=product)


def _reading(metric: Metric, reading: Reading, _after: Reading | None, words: Words) -> str:
    """The range of a reading over layers, and the layer where it is largest."""
    table = np.array([v[[LOW, HIGH]] if len(v) > HIGH else v[[0, 0]] for v in reading.vectors])
    layer = int(reading.x[int(np.argmax(table[:, 1]))])
    low, high = format_number(float(table.min())), format_number(float(table.max()))
    return words(f"means.{metric.name}", low=low, high=high, layer=layer)


def _weights(metric: Metric, reading: Reading, _after: Reading | None, words: Words) -> str:
    """What the last mix gives to its first and its newest source."""
    last = reading.vectors[-1]
    first, newest, even = (format_number(float(v)) for v in (last[0], last[-1], 1 / len(last)))
    return words(f"means.{metric.name}", first=first, newest=newest, even=even, count=len(last))


def _spread(metric: Metric, reading: Reading, after: Reading | None, words: Words) -> str:
    """How far apart tokens lie before the norm and after it, in the layer where they lie apart most."""
    before = [times_apart(vector) for vector in reading.vectors]
    if np.isnan(before).all() or after is None or len(after.vectors) != len(reading.vectors):
        return ""
    worst = int(np.nanargmax(before))
    layer, much = int(reading.x[worst]), format_number(before[worst])
    if all(np.array_equal(a, b) for a, b in zip(reading.vectors, after.vectors, strict=True)):
        return words(f"means.{metric.name}_bare", before=much, layer=layer)
    left = format_number(times_apart(after.vectors[worst]))
    return words(f"means.{metric.name}", before=much, after=left, layer=layer)


READINGS: dict[Kind, Callable[[Metric, Reading, Reading | None, Words], str]] = {
    "reading": _reading,
    "spread": _spread,
    "weights": _weights,
}
