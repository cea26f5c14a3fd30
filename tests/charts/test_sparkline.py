"""A line of block characters follows its values, and never hides one that is not finite."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gradtui.charts.sparkline import sparkline

awkward = st.one_of(st.floats(), st.sampled_from([0.0, -1.0, math.nan, math.inf, 5e-324, 1.7e308]))


def test_a_sparkline_follows_the_values() -> None:
    assert sparkline(np.arange(8.0), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline(10.0 ** np.arange(8.0), 8, log=True) == "▁▂▃▄▅▆▇█"
    assert sparkline(np.array([1.0, 2.0]), 4) == "▁█  "
    assert sparkline(np.array([]), 3) == "   "
    assert sparkline(np.array([3.0, 3.0]), 2) == "▅▅"
    assert sparkline(np.array([1.0]), 0) == ""


def test_a_sparkline_never_hides_a_nan() -> None:
    values = np.linspace(1, 2, 1000)
    values[517] = math.nan
    line = sparkline(values, 20)
    assert line.count("✕") == 1
    assert line.index("✕") == 10
    assert sparkline(np.array([math.nan, math.inf]), 2) == "✕✕"


@settings(max_examples=100, deadline=None)
@given(st.lists(awkward, max_size=80), st.integers(0, 40), st.booleans())
def test_a_sparkline_is_as_wide_as_asked(values: list[float], width: int, log: bool) -> None:
    assert len(sparkline(np.array(values), width, log)) == width
