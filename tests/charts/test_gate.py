from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradtui.charts.gate import Gated, Window, pass_through, window
from gradtui.charts.scale import cell_of
from gradtui.charts.spec import Chart, Series

awkward = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1e300, -1e300, 1e-300, 5e-324, 1.0]),
    st.floats(min_value=1e-9, max_value=10),
)
charts = st.builds(
    lambda ys, log, x_limits, y_limits: Chart(
        tuple(Series("s", np.arange(len(y), dtype=float), np.array(y), "#ffffff") for y in ys),
        log=log,
        x_limits=x_limits,
        y_limits=y_limits,
    ),
    st.lists(st.lists(awkward, max_size=60), max_size=3),
    st.booleans(),
    st.none() | st.tuples(awkward, awkward),
    st.none() | st.tuples(awkward, awkward),
)


def one(y: list[float], **kwargs: object) -> Chart:
    return Chart((Series("s", np.arange(len(y), dtype=float), np.array(y), "#ffffff"),), **kwargs)  # type: ignore[arg-type]


def gated(chart: Chart, columns: int = 40, rows: int = 12) -> Gated:
    view = window(chart, rows)
    assert view is not None
    return pass_through(chart.series[0], view, columns)


@settings(max_examples=300, deadline=None)
@given(charts, st.integers(1, 80), st.integers(1, 30))
def test_only_plain_floats_inside_the_window_pass_and_at_most_two_a_column(
    chart: Chart, columns: int, rows: int
) -> None:
    view = window(chart, rows)
    if view is None:
        return
    assert all(math.isfinite(limit) for limit in (*view.x, *view.y))
    assert view.x[0] < view.x[1]
    assert view.y[0] < view.y[1]
    for series in chart.series:
        result = pass_through(series, view, columns)
        points = result.points()
        for x, y in points:
            assert type(x) is float
            assert type(y) is float
            assert 0.0 <= x <= 1.0
            assert 0.0 <= y <= 1.0
        per_column = Counter(cell_of(x, columns) for x, _ in points)
        assert max(per_column.values(), default=0) <= 2
        assert all(0.0 <= mark.x <= 1.0 for mark in result.marks)


@settings(max_examples=200, deadline=None)
@given(charts, st.integers(1, 80))
def test_no_value_in_the_window_vanishes_without_a_trace(chart: Chart, columns: int) -> None:
    view = window(chart, 12)
    if view is None:
        return
    for series in chart.series:
        result = pass_through(series, view, columns)
        at = [(x - view.x[0]) / (view.x[1] - view.x[0]) for x in series.x if view.x[0] <= x <= view.x[1]]
        there = {cell_of(x, columns) for x, _ in result.points()} | {cell_of(m.x, columns) for m in result.marks}
        assert there == {cell_of(x, columns) for x in at}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=400), st.integers(1, 60), st.booleans())
def test_extrema_survive_in_every_column(y: list[float], columns: int, log: bool) -> None:
    chart = one(y, log=log)
    view = window(chart, 12)
    assert view is not None
    points = pass_through(chart.series[0], view, columns).points()
    low, high = view.y
    for column in range(columns):
        inside = [
            value
            for index, value in enumerate(y)
            if cell_of((index - view.x[0]) / (view.x[1] - view.x[0]), columns) == column
        ]
        kept = [low + up * (high - low) for across, up in points if cell_of(across, columns) == column]
        if log:
            kept = [10.0**value for value in kept]
        if inside:
            assert min(kept) == pytest.approx(min(inside), rel=1e-6)
            assert max(kept) == pytest.approx(max(inside), rel=1e-6)
        else:
            assert not kept


def test_a_line_breaks_at_a_value_that_is_not_finite_and_the_value_is_marked() -> None:
    result = gated(one([1.0, 2.0, math.nan, 3.0, math.inf, 4.0, -math.inf]))
    assert [len(xs) for xs, _ in result.segments] == [2, 1, 1]
    assert [(mark.kind, mark.top) for mark in result.marks] == [
        ("nonfinite", True),
        ("nonfinite", True),
        ("nonfinite", False),
    ]


def test_zero_and_negative_values_are_below_a_log_axis_and_plain_on_a_linear_one() -> None:
    y = [1.0, 0.0, 2.0, -1.0, 3.0]
    log = gated(one(y, log=True))
    assert [(mark.kind, mark.top) for mark in log.marks] == [("below", False)] * 2
    assert [len(xs) for xs, _ in log.segments] == [1, 1, 1]
    linear = gated(one(y))
    assert not linear.marks
    assert [len(xs) for xs, _ in linear.segments] == [5]


def test_values_off_a_given_window_are_clamped_and_marked() -> None:
    result = gated(one([0.5, 5.0, 50.0], y_limits=(1.0, 10.0)))
    assert result.segments == (([0.0, 0.5, 1.0], [0.0, pytest.approx(4 / 9), 1.0]),)
    assert {mark.kind for mark in result.marks} == {"below", "above"}


def test_points_left_and_right_of_the_window_are_left_out() -> None:
    result = gated(one([1.0, 2.0, 3.0, 4.0], x_limits=(1.0, 2.0)))
    assert [x for x, _ in result.points()] == [0.0, 1.0]


def test_extrema_of_downsampled_buckets_are_drawn() -> None:
    series = Series(
        "s",
        np.array([0.0, 1.0]),
        np.array([1.0, 1.0]),
        "#ffffff",
        low=np.array([0.5, 1.0]),
        high=np.array([9.0, 1.0]),
    )
    chart = Chart((series,))
    view = window(chart, 12)
    assert view is not None
    assert view.y[0] <= 0.5
    assert view.y[1] >= 9.0
    heights = [view.y[0] + up * (view.y[1] - view.y[0]) for _, up in pass_through(series, view, 40).points()]
    assert max(heights) == pytest.approx(9.0)
    assert min(heights) == pytest.approx(0.5)


def test_a_bucket_that_held_an_infinity_is_marked_although_its_mean_is_finite() -> None:
    series = Series(
        "s", np.arange(3.0), np.ones(3), "#ffffff", low=np.ones(3), high=np.array([1.0, math.inf, 1.0])
    )
    assert [mark.kind for mark in gated(Chart((series,))).marks] == ["nonfinite"]


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e300, -1e300, 1e-300, 5e-324, 1.7e308])
@pytest.mark.parametrize("count", [1, 5])
def test_a_constant_or_a_single_value_has_a_window_around_it(value: float, count: int) -> None:
    result = gated(one([value] * count))
    assert all(0.0 <= y <= 1.0 for _, y in result.points())
    assert len(result.points()) == count
    if abs(value) < 1e307:
        assert all(0.0 < y < 1.0 or value == 0.0 for _, y in result.points())


@pytest.mark.parametrize("chart", [Chart(()), one([]), one([1.0], x_limits=(5.0, 6.0))])
def test_a_chart_without_points_has_no_window(chart: Chart) -> None:
    assert window(chart, 12) is None


@pytest.mark.parametrize("limits", [(math.nan, 1.0), (2.0, 1.0), (1.0, 1.0), (-math.inf, math.inf), (-1.0, 1.0)])
def test_limits_that_make_no_axis_are_replaced(limits: tuple[float, float]) -> None:
    view = window(one([1.0, 10.0], log=True, y_limits=limits), 12)
    assert view is not None
    assert view.y[0] <= 0.0
    assert view.y[1] >= 1.0


def test_unsorted_points_are_drawn_from_left_to_right() -> None:
    series = Series("s", np.array([2.0, 0.0, 1.0]), np.array([3.0, 1.0, 2.0]), "#ffffff")
    result = pass_through(series, Window((0.0, 2.0), (1.0, 3.0), (), False), 40)
    assert result.segments == (([0.0, 0.5, 1.0], [0.0, 0.5, 1.0]),)
