"""What is read from a run file is what was written there, and what is missing or not finite is not made up."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from verify.conftest import a_claim, a_sample

from gradtui.analysis.quantities import QUANTITIES, read_series
from gradtui.metrics import SITE_METRICS
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import ABSENT
from gradtui.verify import VerifyError
from gradtui.verify.measure import compare, sample_value


def series(path, name, start=0, stop=100):
    with contextlib.closing(RunReader(path)) as run:
        return read_series(run, QUANTITIES[name], start, stop)


def value(path, **changes):
    [sample] = a_claim(measure={"kind": "metric", "samples": [a_sample(**changes)]}).measure.samples
    with contextlib.closing(RunReader(path)) as run:
        return sample_value(run, sample)


def test_flow_ratio_spread_and_depth_of_the_peak(make_run):
    path = make_run(ratios=[1.0, 0.1, 20.0])
    np.testing.assert_allclose(series(path, "flow_ratio"), [1, 0.1, 20], rtol=1e-5)
    np.testing.assert_allclose(series(path, "gradient_spread"), [1, 10, 20], rtol=1e-5)
    assert series(path, "peak_depth")[1:].tolist() == [1, 0]


def test_steps_start_to_stop_are_taken(make_run):
    path = make_run(ratios=[1.0] * 5, losses=[5, 4, 3, 2, 1])
    assert series(path, "loss", 1, 3).tolist() == [4, 3]
    assert value(path, start=1, stop=4, take="mean") == 3
    assert value(path, start=1, stop=4, take="last") == 2
    assert value(path, start=0, stop=5, take="max") == 5
    assert value(path, start=0, stop=4, take="median") == 3.5


def test_a_run_that_ended_early_has_no_value(make_run):
    path = make_run(ratios=[1.0, 1.0], losses=[5, 4])
    assert math.isnan(value(path, start=0, stop=3, take="mean"))


def test_a_nan_in_the_loss_or_in_a_metric_is_counted_and_an_absent_value_is_not(make_run):
    def spoil(frame):
        frame.values[:, -1] = ABSENT
        if frame.step == 1:
            frame.values[SITE_METRICS.index("grad_norm"), 2] = np.nan
        if frame.step == 2:
            frame.values[SITE_METRICS.index("act_rms"), 2] = -np.inf

    path = make_run(ratios=[1.0] * 4, losses=[3, 3, 3, math.nan], change=spoil)
    assert series(path, "nonfinite").tolist() == [0, 1, 1, 1]


def test_a_number_that_the_run_has_not_measured_is_said_so(make_run):
    with pytest.raises(VerifyError, match="the run of tiny has not measured validation_loss"):
        value(make_run(), quantity="validation_loss")
    assert value(make_run("with", facts={"validation_loss": 2.5}), quantity="validation_loss") == 2.5


def test_the_trunks_share_is_that_of_sublayers_alone(make_run):
    from gradtui.analysis.quantities import Rows

    share_NS = np.array([[np.nan, 0.5, 0.8, np.nan], [np.nan, 1, 1, np.nan]])
    rows = Rows(np.zeros(2), share_NS[:, None], np.zeros(2, bool), ("trunk_share",), ())
    assert QUANTITIES["trunk_share"].of(rows).tolist() == [0.5, 1]
    np.testing.assert_allclose(QUANTITIES["trunk_through"].of(rows), [0.4, 1])


def test_steps_at_which_a_sparse_quantity_is_not_recorded_are_passed_over():
    from gradtui.verify.measure import take

    def taken(how, *series, quantity="trunk_share"):
        [sample] = a_claim(
            measure={"kind": "metric", "samples": [a_sample(quantity=quantity, take=how)]}
        ).measure.samples
        return take(sample, np.array(series))

    assert taken("min", 0.5, np.nan, 0.4, np.nan) == 0.4
    assert taken("last", 0.5, np.nan, 0.4, np.nan) == 0.4
    assert math.isnan(taken("min", np.nan, np.nan))
    assert math.isnan(taken("min", 0.5, np.nan, quantity="flow_ratio")), "elsewhere a NaN is never passed over"


def test_comparisons_are_made_seed_by_seed():
    assert compare("difference", [3, 4], [1, 1]) == [2, 3]
    assert compare("distance", [1, 4], [3, 1]) == [2, 3]
    assert compare("ratio", [3, 4], [1, 2]) == [3, 2]
    assert math.isnan(compare("ratio", [3], [0])[0])
    assert compare("noise", [1.5, 3], [1, 3]) == [pytest.approx(0.5 / math.sqrt(2)), 0]


def test_how_much_seeds_differ_needs_two():
    with pytest.raises(VerifyError, match="--seeds 2 or more"):
        compare("noise", [1], [2])
