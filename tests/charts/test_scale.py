from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.charts.scale import (
    DECADES,
    cells_for,
    fit_linear,
    fit_log,
    format_number,
    format_step,
    layer_ticks,
    linear_ticks,
    log_ticks,
    step_ticks,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.3e-4, "2e-4"),
        (9.996e-4, "0.001"),
        (0.0314, "0.031"),
        (0.5, "0.5"),
        (3.14, "3.1"),
        (1.0, "1"),
        (9.96, "10"),
        (12.4, "12"),
        (123.6, "124"),
        (1234.0, "1234"),
        (9999.7, "1e+4"),
        (2.4e6, "2e+6"),
        (-0.02, "-0.02"),
        (0.0, "0"),
        (5e-324, "5e-324"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
    ],
)
def test_a_number_is_written_short(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("step", "text"), [(0, "0"), (37, "37"), (9999, "9999"), (12500, "12.5k"), (3e6, "3M"), (0.25, "0.25")]
)
def test_a_step_is_written_short(step: float, text: str) -> None:
    assert format_step(step) == text


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_number_never_takes_more_room_than_an_axis_has(value: float) -> None:
    assert 0 < len(format_number(value)) <= 7


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (-4, 0, ["1e-4", "1e-3", "1e-2", "1e-1", "1e+0"]),
        (-9, -6, ["1e-9", "1e-8", "1e-7", "1e-6"]),
        (-1.8, 0.1, ["0.03", "0.1", "0.3", "1"]),
        (-0.7, 0.31, ["0.2", "0.5", "1", "2"]),
        (-12, 0, ["1e-12", "1e-9", "1e-6", "1e-3", "1e+0"]),
        (-5, -4, ["1e-5", "2e-5", "5e-5", "1e-4"]),
        (2, 3, ["100", "200", "500", "1000"]),
        (-320, -319, ["1e-320", "2e-320", "5e-320", "1e-319"]),
    ],
)
def test_a_log_axis_is_labelled_by_decade_and_finer_inside_one(low: float, high: float, labels: list[str]) -> None:
    assert [label for _, label in log_ticks(low, high, 5)] == labels


def test_a_log_axis_inside_half_a_decade_has_even_steps() -> None:
    ticks = log_ticks(math.log10(1.0), math.log10(1.4), 5)
    assert [label for _, label in ticks] == ["1.0", "1.1", "1.2", "1.3", "1.4"]
    assert ticks[1][0] == pytest.approx(math.log10(1.1))


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 6, ["0", "2", "4", "6"]),
        (2.4, 3.1, ["2.4", "2.6", "2.8", "3.0"]),
        (0, 0.0004, ["0", "1e-4", "2e-4", "3e-4", "4e-4"]),
        (0, 4e6, ["0", "1e+6", "2e+6", "3e+6", "4e+6"]),
        (-1, 1, ["-1.0", "-0.5", "0.0", "0.5", "1.0"]),
        (1.2e6, 1.24e6, ["1.20e+6", "1.21e+6", "1.22e+6", "1.23e+6", "1.24e+6"]),
    ],
)
def test_a_linear_axis_is_labelled_by_round_numbers(low: float, high: float, labels: list[str]) -> None:
    assert [label for _, label in linear_ticks(low, high, 5)] == labels


positive = st.floats(min_value=1e-300, max_value=1e300)


@given(positive, positive, st.integers(1, 60))
def test_labels_of_an_axis_are_different_and_mean_where_they_stand(a: float, b: float, rows: int) -> None:
    low, high = sorted((a, b))
    for fit, to_value in ((fit_linear, lambda at: at), (fit_log, lambda at: 10.0**at)):
        units = (low, high) if fit is fit_linear else (math.log10(low), math.log10(high))
        axis = fit(*units, max(2, rows))
        span = axis.limits[1] - axis.limits[0]
        labels = [label for _, label in axis.ticks]
        assert len(set(labels)) == len(labels)
        assert axis.limits[1] >= units[1] - 1e-9 * span
        assert axis.limits[0] <= max(units[0], units[1] - DECADES) + 1e-9 * abs(span) or fit is fit_linear
        for at, label in axis.ticks:
            size = max(abs(to_value(limit)) for limit in axis.limits) if fit is fit_linear else to_value(at)
            assert float(label) == pytest.approx(to_value(at), rel=1e-6, abs=1e-2 * size)


@given(positive, positive, st.integers(5, 60))
def test_every_decade_of_a_fitted_axis_stands_in_the_middle_of_its_row(a: float, b: float, rows: int) -> None:
    low, high = sorted((math.log10(a), math.log10(b)))
    axis = fit_log(low, high, rows)
    unit = (axis.limits[1] - axis.limits[0]) / (rows - 1)
    for at, label in axis.ticks:
        if label.lstrip("0.").startswith("1") and set(label.partition("e")[0]) <= set("01."):
            row = (at - axis.limits[0]) / unit
            assert row == pytest.approx(round(row), abs=1e-6)


def test_spare_rows_do_not_invent_values_below_zero() -> None:
    assert fit_linear(0.0, 5.0, 11).limits[0] == 0.0
    assert fit_linear(0.3, 5.0, 12).limits[0] >= 0.0


def test_a_healthy_flow_is_not_zoomed_until_it_looks_like_a_collapse() -> None:
    low, high = fit_log(math.log10(0.9), math.log10(1.1), 11).limits
    assert high - low >= 1.0


def test_one_tiny_value_does_not_flatten_a_log_axis() -> None:
    low, high = fit_log(-300.0, 0.0, 11).limits
    assert high - low <= DECADES * 1.5
    low, high = fit_log(-9.0, 0.0, 11).limits
    assert low <= -9.0 <= low + 2.5


@pytest.mark.parametrize(
    ("last", "width", "labels"),
    [
        (12, 50, ["0", "2", "4", "6", "8", "10", "12"]),
        (12, 30, ["0", "3", "6", "9", "12"]),
        (18, 50, ["0", "3", "6", "9", "12", "15", "18"]),
        (100, 50, ["0", "20", "40", "60", "80", "100"]),
        (1, 50, ["0", "1"]),
    ],
)
def test_the_last_layer_has_a_tick(last: int, width: int, labels: list[str]) -> None:
    assert [label for _, label in layer_ticks(0.0, float(last), width)] == labels


def test_steps_are_whole_numbers() -> None:
    assert [label for _, label in step_ticks(0.0, 3.0, 60)] == ["0", "1", "2", "3"]
    assert [label for _, label in step_ticks(0.0, 200.0, 50)] == ["0", "50", "100", "150", "200"]


def test_two_ticks_never_share_a_cell() -> None:
    assert cells_for([(0.0, "a"), (0.001, "b"), (1.0, "c"), (2.0, "out")], (0.0, 1.0), 10) == [
        (0, "a"),
        (9, "c"),
    ]
