"""What a measure says of the focused run, in one or two sentences under the charts. Pure."""

from __future__ import annotations

import numpy as np

from gradtui.charts.scale import format_number
from gradtui.i18n import Words
from gradtui.metrics import TRUNK_SHARE
from gradtui.ui.charts.told import apart
from gradtui.ui.measures import GAIN, HIGH, LOW, MEASURES, Measure
from gradtui.ui.session.lane import LaneView, Told


def explain(lane: LaneView | None, metric: str, cursor: int | None, words: Words) -> str:
    """What is measured of `metric` at `cursor`, or now; empty where the curves say it all."""
    if lane is None or metric not in MEASURES:
        return ""
    measure = MEASURES[metric]
    if measure.told:
        told = lane.told(measure.needs[0], cursor, measure.kind != "weights")
        return "" if told is None else _told(lane, measure, told, cursor, words)
    if metric == GAIN:
        return _gain(lane, cursor, words)
    return _trunk(lane, cursor, words) if metric == TRUNK_SHARE else ""


def measured_at(lane: LaneView | None, metric: str, cursor: int | None) -> int | None:
    """The step at which what is shown of `metric` was measured, where that need not be the step of the rest."""
    if lane is None or metric not in MEASURES:
        return None
    measure = MEASURES[metric]
    if measure.told:
        told = lane.told(measure.needs[0], cursor)
        return None if told is None else told.step
    curve = lane.curve(metric, cursor) if metric == TRUNK_SHARE else None
    return None if curve is None else curve.step


def _gain(lane: LaneView, cursor: int | None, words: Words) -> str:
    curve = lane.curve(GAIN, cursor)
    if curve is None or not len(curve.y) or not np.isfinite(curve.y).all() or lane.starts(GAIN):
        return ""
    product, below = format_number(float(np.prod(curve.y))), int((curve.y < 1).sum())
    return words("means.gain", product=product, below=below, count=len(curve.y))


def _trunk(lane: LaneView, cursor: int | None, words: Words) -> str:
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


def _told(lane: LaneView, measure: Measure, told: Told, cursor: int | None, words: Words) -> str:
    if not all(np.isfinite(vector).all() for vector in told.vectors):
        return ""
    if measure.kind == "spread":
        return _spread(lane, measure, told, cursor, words)
    if measure.kind == "weights":
        last = told.vectors[-1]
        first, newest, even = (format_number(float(v)) for v in (last[0], last[-1], 1 / len(last)))
        return words("means.depth_weights", first=first, newest=newest, even=even, count=len(last))
    table = np.array([vector[[LOW, HIGH]] if len(vector) > HIGH else vector[[0, 0]] for vector in told.vectors])
    layer = int(told.x[int(np.argmax(table[:, 1]))])
    low, high = format_number(float(table.min())), format_number(float(table.max()))
    return words(f"means.{measure.name}", low=low, high=high, layer=layer)


def _spread(lane: LaneView, measure: Measure, told: Told, cursor: int | None, words: Words) -> str:
    """How far apart tokens lie before the norm and after it, in the layer where they lie apart most."""
    before = [apart(vector) for vector in told.vectors]
    if np.isnan(before).all():
        return ""
    worst = int(np.nanargmax(before))
    layer, much = int(told.x[worst]), format_number(before[worst])
    after = lane.told(measure.sources[1], cursor)
    if after is None or len(after.vectors) != len(told.vectors):
        return ""
    if all(np.array_equal(a, b) for a, b in zip(told.vectors, after.vectors, strict=True)):
        return words(f"means.{measure.name}_bare", before=much, layer=layer)
    return words(
        f"means.{measure.name}", before=much, after=format_number(apart(after.vectors[worst])), layer=layer
    )
