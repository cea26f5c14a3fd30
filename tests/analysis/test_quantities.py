"""What is read from a run file is what was written there, and what is missing or not finite is not made up."""

from __future__ import annotations

import contextlib
import math

import numpy as np

from gradtui.analysis.quantities import QUANTITIES, Rows, read_series
from gradtui.metrics import SITE_METRICS
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import ABSENT


def series(path, name, start=0, stop=100):
    with contextlib.closing(RunReader(path)) as run:
        return read_series(run, QUANTITIES[name], start, stop)


def test_flow_ratio_spread_and_depth_of_the_peak(make_run):
    path = make_run(ratios=[1.0, 0.1, 20.0])
    np.testing.assert_allclose(series(path, "flow_ratio"), [1, 0.1, 20], rtol=1e-5)
    np.testing.assert_allclose(series(path, "gradient_spread"), [1, 10, 20], rtol=1e-5)
    assert series(path, "peak_depth")[1:].tolist() == [1, 0]


def test_steps_start_to_stop_are_taken(make_run):
    path = make_run(ratios=[1.0] * 5, losses=[5, 4, 3, 2, 1])
    assert series(path, "loss", 1, 3).tolist() == [4, 3]


def test_a_nan_in_the_loss_or_in_a_metric_is_counted_and_an_absent_value_is_not(make_run):
    def spoil(frame):
        frame.values[:, -1] = ABSENT
        if frame.step == 1:
            frame.values[SITE_METRICS.index("grad_norm"), 2] = np.nan
        if frame.step == 2:
            frame.values[SITE_METRICS.index("act_rms"), 2] = -np.inf

    path = make_run(ratios=[1.0] * 4, losses=[3, 3, 3, math.nan], change=spoil)
    assert series(path, "nonfinite").tolist() == [0, 1, 1, 1]


def test_the_trunks_share_is_that_of_sublayers_alone(make_run):
    share_NS = np.array([[np.nan, 0.5, 0.8, np.nan], [np.nan, 1, 1, np.nan]])
    rows = Rows(np.zeros(2), share_NS[:, None], np.zeros(2, bool), ("trunk_share",), ())
    assert QUANTITIES["trunk_share"].of(rows).tolist() == [0.5, 1]
    np.testing.assert_allclose(QUANTITIES["trunk_through"].of(rows), [0.4, 1])
