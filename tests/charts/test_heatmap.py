from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradtui.charts.heatmap import SHADES, color_at, render_heatmap, shade_of
from gradtui.charts.spec import HeatMap

MODES = ("color", "shade")


def luminance(color: str | None) -> float:
    assert color is not None
    red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 130),
    st.integers(1, 700),
    st.integers(16, 200),
    st.integers(5, 60),
    st.sampled_from([math.nan, math.inf, -math.inf]),
    st.data(),
)
def test_one_poisoned_cell_is_visible_at_any_size(
    mode: Any, layers: int, steps: int, width: int, height: int, poison: float, data: Any
) -> None:
    values = np.ones((layers, steps))
    values[data.draw(st.integers(0, layers - 1)), data.draw(st.integers(0, steps - 1))] = poison
    lines = render_heatmap(HeatMap(values, cursor=float(steps // 2)), width, height, mode)
    assert any("✕" in span.text for line in lines[:-2] for span in line)


@pytest.mark.parametrize("mode", MODES)
def test_a_bucket_that_held_a_nan_is_marked(screen: Any, mode: Any) -> None:
    mask = np.zeros((4, 20), dtype=bool)
    mask[3, 10] = True
    shown = screen(render_heatmap(HeatMap(np.ones((4, 20)), nonfinite=mask), 46, 10, mode))
    marks = shown.find("✕")
    assert marks
    assert all(row <= 1 for row, _ in marks)


@pytest.mark.parametrize("mode", MODES)
def test_a_mark_stands_at_its_layer_and_step(screen: Any, mode: Any) -> None:
    values = np.ones((6, 10))
    values[2, 4] = math.nan
    shown = screen(render_heatmap(HeatMap(values), 42, 14, mode))
    left = shown.rows[-2].index("└") + 1
    columns = 42 - left
    assert {row for row, _ in shown.find("✕")} == {6, 7}
    assert {column for _, column in shown.find("✕")} == {
        column for column in range(left, 42) if (column - left) * 10 // columns == 4
    }


def test_layers_are_labelled_from_the_bottom(screen: Any) -> None:
    shown = screen(render_heatmap(HeatMap(np.ones((13, 50))), 55, 11))
    assert [row.split("┤")[0].strip() for row in shown.rows if "┤" in row] == ["12", "9", "6", "3", "0"]
    named = screen(render_heatmap(HeatMap(np.ones((2, 5)), row_labels=("嵌入", "头[b]")), 40, 8))
    assert [row.split("┤")[0].strip() for row in named.rows if "┤" in row] == ["头[b]", "嵌入"]


def test_shades_and_colors_grow_with_the_value() -> None:
    levels = [level / 100 for level in range(101)]
    ranks = [SHADES.index(shade_of(level)) for level in levels]
    assert ranks == sorted(ranks)
    assert set(ranks) == set(range(len(SHADES)))
    lights = [luminance(color_at(level)) for level in levels]
    assert all(after > before for before, after in itertools.pairwise(lights))


def test_a_collapse_from_the_bottom_looks_like_one(screen: Any) -> None:
    values = 10.0 ** np.linspace(-4, 0, 12)[:, None] * np.ones((1, 30))
    shade = screen(render_heatmap(HeatMap(values), 40, 14, "shade"))
    column = [SHADES.index(cells[20][0]) for cells in shade.cells[:-2]]
    assert column == sorted(column, reverse=True)
    assert column[0] == 4
    assert column[-1] == 0
    color = screen(render_heatmap(HeatMap(values), 40, 14, "color"))
    lights = [
        light
        for cells in color.cells[:-2]
        for light in (luminance(cells[20][1].color), luminance(cells[20][1].background))
    ]
    assert lights == sorted(lights, reverse=True)


def test_an_even_flow_is_evenly_bright(screen: Any) -> None:
    values = 10.0 ** np.random.default_rng(0).uniform(-0.1, 0.1, (12, 30))
    shown = screen(render_heatmap(HeatMap(values), 40, 14, "shade"))
    assert {cells[20][0] for cells in shown.cells[:-2]} == {"█"}


@pytest.mark.parametrize("mode", MODES)
def test_a_live_run_fills_its_share_of_the_axis(screen: Any, mode: Any) -> None:
    heat = HeatMap(np.ones((4, 50)), x_limits=(0.0, 199.0), x_name="step")
    shown = screen(render_heatmap(heat, 60, 10, mode))
    left = shown.rows[-2].index("└") + 1
    filled = [column for column in range(left, 60) if shown.cells[0][column][0] != " "]
    assert filled == list(range(left, left + len(filled)))
    assert abs(len(filled) - (60 - left) / 4) <= 1
    assert shown.rows[-1].split() == ["step", "0", "49", "199"]


def test_few_steps_are_drawn_wide(screen: Any) -> None:
    values = np.array([[1.0, 1e-4]])
    shown = screen(render_heatmap(HeatMap(values), 41, 7, "shade"))
    left = shown.rows[-2].index("└") + 1
    row = shown.rows[0][left:]
    half = len(row) / 2
    assert row == "█" * math.floor(half) + "·" * math.ceil(half)


def test_zero_is_the_bottom_of_a_log_scale_and_no_hole(screen: Any) -> None:
    shown = screen(render_heatmap(HeatMap(np.array([[1.0, 0.0, -1.0]])), 40, 7, "shade"))
    left = shown.rows[-2].index("└") + 1
    assert set(shown.rows[0][left:]) == {"█", "·"}


def test_the_cursor_is_marked_and_labelled(screen: Any) -> None:
    heat = HeatMap(np.ones((12, 100)), cursor=37.0, x_name="step")
    shown = screen(render_heatmap(heat, 60, 11))
    ((row, column),) = shown.find("▲")
    assert row == 9
    assert shown.rows[-1][column - 1 : column + 1].strip() == "37" or "37" in shown.rows[-1]
    assert {c for _, c in shown.find("│") if c > 10} == {column}


@pytest.mark.parametrize("mode", MODES)
def test_the_scale_is_explained_where_there_is_room(screen: Any, mode: Any) -> None:
    heat = HeatMap(np.ones((12, 100)), limits=(1e-5, 1.0))
    axis = screen(render_heatmap(heat, 60, 11, mode)).rows[-2]
    assert " 1e-5 " in axis
    assert axis.rstrip("─┬").endswith(" 1 ")
    assert "1e-5" not in screen(render_heatmap(heat, 24, 11, mode)).rows[-2]


@pytest.mark.parametrize("values", [np.empty((0, 0)), np.empty((5, 0)), np.empty((0, 5)), np.empty(0)])
def test_without_data_the_sentence_is_shown(screen: Any, values: Any) -> None:
    shown = screen(render_heatmap(HeatMap(values, empty="等待第一步"), 40, 9))
    assert shown.fills(40, 9)
    assert "等待第一步" in shown.text


def test_without_room_the_sentence_is_shown(screen: Any) -> None:
    for width, height in ((15, 9), (40, 4), (1, 1), (0, 0)):
        shown = screen(render_heatmap(HeatMap(np.ones((3, 3)), too_small="太小"), width, height))
        assert shown.fills(width, height)
        assert not shown.find("└")


awkward = st.one_of(st.floats(), st.sampled_from([0.0, -1.0, 1e300, 5e-324, math.nan, math.inf, 1.0]))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 20).flatmap(
        lambda steps: st.lists(st.lists(awkward, min_size=steps, max_size=steps), max_size=20)
    ),
    st.booleans(),
    st.sampled_from(MODES),
    st.none() | st.tuples(awkward, awkward),
    st.none() | st.tuples(awkward, awkward),
    st.none() | awkward,
    st.integers(0, 120),
    st.integers(0, 40),
)
def test_any_numbers_fill_the_rectangle(
    values: Any, log: bool, mode: Any, limits: Any, x_limits: Any, cursor: Any, width: int, height: int
) -> None:
    heat = HeatMap(
        np.array(values, dtype=float), log=log, limits=limits, x_limits=x_limits, cursor=cursor, x_name="step"
    )
    lines = render_heatmap(heat, width, height, mode)
    assert len(lines) == height
    assert all(sum(len(span.text) for span in line) == width for line in lines)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.sampled_from([1e-4, 1e4]), st.integers(8, 40))
def test_of_many_layers_in_one_row_the_one_that_differs_is_seen(
    mode: Any, layer: int, value: float, height: int
) -> None:
    values = np.ones((1000, 20))
    values[layer] = value
    even = render_heatmap(HeatMap(np.ones((1000, 20)), limits=(1e-4, 1e4)), 40, height, mode)
    lines = render_heatmap(HeatMap(values, limits=(1e-4, 1e4)), 40, height, mode)
    differing = [row for row in range(height - 2) if lines[row] != even[row]]
    slots = height - 2
    assert differing == [slots - 1 - layer * slots // 1000] or len(differing) == 1


def test_a_layer_without_values_among_many_hides_no_other() -> None:
    values = np.full((1000, 10), np.nan)
    values[::7] = 1.0
    lines = render_heatmap(HeatMap(values, nonfinite=np.zeros((1000, 10), bool)), 40, 12, "shade")
    assert all("✕" in "".join(span.text for span in line) for line in lines[:-2])  # NaN is never hidden


def test_each_stack_is_named_at_the_row_where_it_begins(screen: Any) -> None:
    heat = HeatMap(np.ones((12, 20)), bands=((0, "encoder"), (6, "decoder"), (99, "nowhere")))
    shown = screen(render_heatmap(heat, 60, 14, "shade"))
    assert shown.row_of_label("encoder") - shown.row_of_label("decoder") == 6
    assert "nowhere" not in shown.text


@pytest.mark.parametrize("mode", MODES)
def test_where_there_is_no_value_at_all_nothing_is_drawn_and_no_trouble_shown(screen: Any, mode: Any) -> None:
    values = np.full((4, 4), np.nan)
    values[np.tril_indices(4)] = 0.5
    absent = np.isnan(values)
    shown = screen(render_heatmap(HeatMap(values, absent=absent, log=False), 46, 10, mode))
    assert not shown.find("✕")
    bottom = shown.rows[-3]
    assert bottom.rstrip() != shown.rows[0].rstrip()
    assert len(bottom.rstrip()) < len(shown.rows[0].rstrip())  # layer 0 has one value, layer 3 has four
    values[0, 0] = math.inf
    assert screen(render_heatmap(HeatMap(values, absent=absent, log=False), 46, 10, mode)).find("✕")
