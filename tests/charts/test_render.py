from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from gradtui.charts.render import render_chart
from gradtui.charts.spec import Chart, Series

BLUE, ORANGE = "#4cc9f0", "#ffb000"
LAYERS = np.arange(13.0)


def curve(y: Any, color: str = BLUE, mark: str = "●", label: str = "Post-LN", **kwargs: Any) -> Series:
    y = np.asarray(y, dtype=float)
    return Series(label, np.arange(len(y), dtype=float), y, color, mark, **kwargs)


def braille(char: str) -> bool:
    return char != "" and 0x2800 < ord(char) <= 0x28FF


def test_every_decade_of_a_collapse_stands_on_its_label(screen: Any) -> None:
    shown = screen(render_chart(Chart((curve(10.0 ** np.linspace(-4, 0, 5)),), log=True, markers=True), 55, 14))
    marks = sorted(shown.find("●", BLUE), key=lambda cell: cell[1])
    assert [row for row, _ in marks] == [
        shown.row_of_label(label) for label in ("1e-4", "1e-3", "1e-2", "1e-1", "1e+0")
    ]


def test_layers_stand_above_their_ticks(screen: Any) -> None:
    shown = screen(render_chart(Chart((curve(np.ones(13)),), log=True, markers=True, x_name="layer"), 55, 14))
    axis, labels = shown.cells[-2], shown.rows[-1]
    ticks = [column for column, (char, _) in enumerate(axis) if char == "┬"]
    columns = sorted(column for _, column in shown.find("●"))
    assert ticks == columns[::2]
    assert labels.split() == ["layer", "0", "2", "4", "6", "8", "10", "12"]
    for tick, label in zip(ticks, labels.split()[1:], strict=True):
        assert abs(labels.index(f" {label}") + 1 - tick) <= 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-50.0, 50.0), min_size=2, max_size=9), st.integers(24, 90), st.integers(7, 30))
def test_the_line_passes_through_the_cell_of_every_value(y: list[float], width: int, height: int) -> None:
    limits = (-50.0, 50.0)
    lines = render_chart(Chart((curve(y, mark=""),), y_limits=limits), width, height)
    rows = height - 2
    text = ["".join(span.text for span in line) for line in lines]
    left = text[-2].index("└") + 1
    columns = width - left
    for index, value in enumerate(y):
        column = left + round(index / (len(y) - 1) * (columns - 1))
        row = (limits[1] - value) / (limits[1] - limits[0]) * (rows - 1)
        near = [
            text[r][c]
            for r in range(max(0, math.floor(row)), min(rows, math.floor(row) + 2))
            for c in range(max(left, column - 1), min(width, column + 2))
        ]
        assert any(braille(char) for char in near)


def test_marks_lie_on_their_line(screen: Any) -> None:
    y = 10.0 ** np.random.default_rng(1).uniform(-5, 0, 13)
    marked = screen(render_chart(Chart((curve(y),), log=True, markers=True), 55, 14))
    bare = screen(render_chart(Chart((curve(y, mark=""),), log=True, markers=True), 55, 14))
    assert len(marked.find("●")) == 13
    assert all(braille(bare.cells[row][column][0]) for row, column in marked.find("●"))


def test_a_line_keeps_the_color_of_its_series(screen: Any) -> None:
    chart = Chart((curve([1, 2, 1], "#010203"), curve([3, 4, 3], "#00ff7f", "▲", dim=True)))
    shown = screen(render_chart(chart, 40, 12))
    found = {(span.color, span.dim) for row in shown.cells[1:-2] for char, span in row if braille(char)}
    assert found == {("#010203", False), ("#00ff7f", True)}
    assert all(span.background is None for line in shown.lines for span in line)


def test_the_first_series_is_on_top(screen: Any) -> None:
    y = np.linspace(1, 2, 9)
    shown = screen(render_chart(Chart((curve(y, BLUE, "●"), curve(y, ORANGE, "▲")), markers=True), 40, 12))
    assert len(shown.find("●")) == 10
    assert shown.find("▲") == [(0, shown.rows[0].index("▲"))]


def test_over_time_a_series_is_marked_at_its_right_end(screen: Any) -> None:
    chart = Chart((curve(np.linspace(5, 3, 200)), curve(np.linspace(5, 2, 100), ORANGE, "▲")), x_name="step")
    shown = screen(render_chart(chart, 60, 12))
    ((_, right),) = [cell for cell in shown.find("●") if cell[0] > 0]
    ((_, half),) = [cell for cell in shown.find("▲") if cell[0] > 0]
    assert right == 59
    left = shown.rows[-2].index("└") + 1
    assert abs(half - (left + (59 - left) / 2)) <= 1


def test_a_nan_is_marked_on_the_edge_and_never_bridged(screen: Any) -> None:
    y = np.full(13, 1.0)
    y[6] = np.nan
    shown = screen(render_chart(Chart((curve(y),), log=True, markers=True), 55, 14))
    ((row, column),) = shown.find("✕", BLUE)
    marks = sorted(column for _, column in shown.find("●"))
    assert row == 0
    assert marks[5] < column < marks[6]
    line = shown.find("●")[0][0]
    between = shown.cells[line][marks[5] + 1 : marks[6]]
    assert sum(braille(char) for char, _ in between) <= 1


def test_two_series_that_fail_at_one_place_are_both_marked(screen: Any) -> None:
    chart = Chart((curve([1, math.inf, 1]), curve([2, math.nan, 2], ORANGE, "▲")), markers=True)
    shown = screen(render_chart(chart, 40, 12))
    ((row, column),) = shown.find("✕", BLUE)
    assert shown.find("✕", ORANGE) == [(row + 1, column)]


def test_a_vanished_gradient_is_marked_at_the_bottom(screen: Any) -> None:
    shown = screen(render_chart(Chart((curve([1.0, 0.0, 0.5, -1.0]),), log=True, markers=True), 40, 12))
    assert [row for row, _ in shown.find("▽", BLUE)] == [9, 9]


def test_a_run_that_is_all_nan_still_shows_it(screen: Any) -> None:
    shown = screen(render_chart(Chart((curve([math.nan] * 5),), log=True, empty="no data"), 40, 12))
    assert len(shown.find("✕")) == 5
    assert "no data" not in shown.text


def test_without_data_the_sentence_is_shown(screen: Any) -> None:
    shown = screen(render_chart(Chart((), empty="waiting for the first step"), 40, 12))
    assert shown.fills(40, 12)
    assert "waiting for the first step" in shown.text


def test_a_long_sentence_is_wrapped_and_chinese_is_measured(screen: Any) -> None:
    words = "引擎正在启动，第一步数据到达后这里会出现曲线，请稍候片刻。"
    shown = screen(render_chart(Chart((), empty=words), 24, 8))
    assert shown.fills(24, 8)
    assert "".join(shown.text.split()) == words


@pytest.mark.parametrize(("width", "height"), [(1, 1), (15, 20), (60, 4), (0, 0), (0, 5), (5, 0), (2, 3)])
def test_without_room_the_sentence_is_shown(screen: Any, width: int, height: int) -> None:
    shown = screen(render_chart(Chart((curve([1, 2]),), too_small="too small [b]"), width, height))
    assert shown.fills(width, height)
    assert not shown.find("┤")
    assert width < 15 or "too small [b]" in shown.text


def test_a_cursor_marks_its_step(screen: Any) -> None:
    chart = Chart((curve(np.linspace(5, 3, 201)),), cursor=100.0, x_name="step")
    shown = screen(render_chart(chart, 60, 12))
    ((_, column),) = shown.find("▲")
    assert {cell for _, cell in shown.find("┊")} == {column}
    assert shown.rows[-1][column - 1 : column + 2] == "100"
    assert "▲" not in screen(render_chart(Chart((curve([1, 2]),), cursor=9.0), 60, 12)).text


def test_ticks_and_limits_may_be_given(screen: Any) -> None:
    chart = Chart((curve([1, 5]),), x_ticks=((0.0, "嵌入"), (1.0, "头")), y_limits=(0.0, 10.0), x_name="x")
    shown = screen(render_chart(chart, 40, 13))
    assert shown.fills(40, 13)
    assert "嵌入" in shown.rows[-1]
    assert "头" in shown.rows[-1]
    assert shown.row_of_label("10") == 0


def test_charts_below_each_other_line_up(screen: Any) -> None:
    first = screen(render_chart(Chart((curve([1e-4, 1]),), log=True, gutter=6), 40, 12))
    second = screen(render_chart(Chart((curve([1, 2]),), gutter=6), 40, 12))
    assert first.rows[-2].index("└") == second.rows[-2].index("└") == 6


@pytest.mark.parametrize(
    "label", ["[red]Post[/]-LN", "后置归一化", "🧪 run", "a\u0301\u200dé", "\x1b[31mred\n\t", "\ud800", ""]
)
def test_labels_are_shown_as_they_are_and_measured(screen: Any, label: str) -> None:
    chart = Chart((curve([1, 2], label=label), curve([2, 1], ORANGE, "▲", label="x")))
    for width in (16, 23, 40):
        shown = screen(render_chart(chart, width, 9))
        assert shown.fills(width, 9)
    assert "\x1b" not in shown.text
    if label.isprintable() and label:
        assert label in shown.rows[0]


def test_long_labels_are_cut_and_short_ones_are_not(screen: Any) -> None:
    chart = Chart(
        (
            curve([1, 2], label="a very long name of a run that nobody can read"),
            curve([2, 1], ORANGE, "▲", label="Pre-LN"),
        )
    )
    top = screen(render_chart(chart, 40, 9)).rows[0]
    assert "Pre-LN" in top
    assert "a very long name of" in top
    assert "…" in top


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=40), st.text(max_size=12), st.integers(0, 60), st.integers(0, 12))
def test_no_text_breaks_the_rectangle(label: str, name: str, width: int, height: int) -> None:
    series = (curve([1, 2], label=label, mark=name[:1]), curve([2, 1], ORANGE, "▲", label=label + name))
    chart = Chart(series, x_name=name, x_ticks=((0.0, label), (1.0, name)), empty=label, too_small=label)
    for one in (chart, Chart((), empty=label, too_small=name)):
        lines = render_chart(one, width, height)
        assert len(lines) == height
        assert all(cell_len("".join(span.text for span in line)) == width for line in lines)


def test_dense_series_are_marked_in_different_columns(screen: Any) -> None:
    y = np.ones(101)
    chart = Chart((curve(y), curve(y, ORANGE, "▲")), markers=True)
    shown = screen(render_chart(chart, 60, 12))
    dots, triangles = ([c for r, c in shown.find(mark) if r > 0] for mark in "●▲")
    assert len(dots) > 5
    assert len(triangles) > 5
    assert not set(dots) & set(triangles)


def test_a_line_breaks_between_stacks_and_each_is_named_where_it_begins(screen: Any) -> None:
    series = curve(np.ones(8), breaks=(3.5,))
    chart = Chart((series,), bands=((0.0, "encoder"), (4.0, "a decoder [x]")), markers=True)
    shown = screen(render_chart(chart, 64, 12))
    boundary = {column for _, column in shown.find("╎")}
    assert len(boundary) == 1
    whole = screen(render_chart(Chart((curve(np.ones(8)),), markers=True), 64, 12))
    (row,) = {row for row, _ in shown.find("●")}
    (column,) = boundary
    assert shown.cells[row][column][0] == "╎"
    assert whole.cells[row][column][0] != "╎"
    axis = shown.rows[-2]
    assert axis.index("encoder") < column < axis.index("a decoder [x]")


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-5, 20), st.text(max_size=30)), max_size=4),
    st.integers(16, 80),
    st.integers(5, 30),
)
def test_bands_never_break_the_rectangle(bands: list[tuple[float, str]], width: int, height: int) -> None:
    chart = Chart((curve(np.arange(1.0, 9), breaks=(1.5, 3.5)),), log=True, bands=tuple(bands))
    lines = render_chart(chart, width, height)
    assert len(lines) == height
    assert all(sum(cell_len(span.text) for span in line) == width for line in lines)


def test_the_legend_names_the_curves_that_want_to_be_named(screen: Any) -> None:
    x = np.arange(4)
    curves = [Series("first", x, x + 1.0, "#ff0000"), Series("second", x, x + 2.0, "#00ff00")]
    line = Series("line", x, np.ones(4), "#0000ff", named=False)
    shown = screen(render_chart(Chart((*curves, line)), 50, 12))
    assert "first" in shown.rows[0]
    assert "second" in shown.rows[0]
    assert "line" not in shown.text
    assert "first" not in screen(render_chart(Chart((curves[0], line)), 50, 12)).text  # one curve needs no name
