"""A claim's value is taken from what was measured, and a verdict never calls NaN or a stray seed all right."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from verify.conftest import a_claim, a_sample

from gradtui.runs.reader import RunReader
from gradtui.verify import VerifyError
from gradtui.verify.bounds import Bound
from gradtui.verify.judge import CAVEAT, FAILS, HOLDS, compare, judge, median, sample_value, take


def value(path, **changes):
    [sample] = a_claim(measure={"kind": "metric", "samples": [a_sample(**changes)]}).measure.samples
    with contextlib.closing(RunReader(path)) as run:
        return sample_value(run, sample)


def test_one_number_is_taken_of_the_steps_from_start_to_stop(make_run):
    path = make_run(ratios=[1.0] * 5, losses=[5, 4, 3, 2, 1])
    assert value(path, start=1, stop=4, take="mean") == 3
    assert value(path, start=1, stop=4, take="last") == 2
    assert value(path, start=0, stop=5, take="max") == 5
    assert value(path, start=0, stop=4, take="median") == 3.5


def test_a_run_that_ended_early_has_no_value(make_run):
    path = make_run(ratios=[1.0, 1.0], losses=[5, 4])
    assert math.isnan(value(path, start=0, stop=3, take="mean"))


def test_a_number_that_the_run_has_not_measured_is_said_so(make_run):
    with pytest.raises(VerifyError, match="the run of tiny has not measured validation_loss"):
        value(make_run(), quantity="validation_loss")
    assert value(make_run("with", facts={"validation_loss": 2.5}), quantity="validation_loss") == 2.5


def test_steps_at_which_a_sampled_quantity_is_not_recorded_are_left_out():
    def taken(how, *series, quantity="trunk_share"):
        [sample] = a_claim(
            measure={"kind": "metric", "samples": [a_sample(quantity=quantity, take=how)]}
        ).measure.samples
        return take(sample, np.array(series))

    assert taken("min", 0.5, np.nan, 0.4, np.nan) == 0.4
    assert taken("last", 0.5, np.nan, 0.4, np.nan) == 0.4
    assert math.isnan(taken("min", np.nan, np.nan))
    assert math.isnan(taken("min", 0.5, np.nan, quantity="flow_ratio")), "elsewhere a NaN is never left out"


def test_comparisons_are_made_seed_by_seed():
    assert compare("difference", [3, 4], [1, 1]) == [2, 3]
    assert compare("distance", [1, 4], [3, 1]) == [2, 3]
    assert compare("ratio", [3, 4], [1, 2]) == [3, 2]
    assert math.isnan(compare("ratio", [3], [0])[0])
    assert compare("noise", [1.5, 3], [1, 3]) == [pytest.approx(0.5 / math.sqrt(2)), 0]


def test_how_much_seeds_differ_needs_two():
    with pytest.raises(VerifyError, match="--seeds 2 or more"):
        compare("noise", [1], [2])


def test_a_claim_holds_only_if_every_seed_does():
    bound = Bound(-math.inf, 1, False)
    assert judge(bound, [0.1, 0.2, 0.3], caveat=False) == HOLDS
    assert judge(bound, [0.1, 0.2, 0.3], caveat=True) == CAVEAT
    assert judge(bound, [0.1, 0.2, 3], caveat=False) == CAVEAT
    assert judge(bound, [0.1, 2, 3], caveat=False) == FAILS
    assert judge(bound, [0.1, 2, 3], caveat=True) == FAILS


def test_a_seed_that_diverged_or_no_value_at_all_is_never_within_the_bound():
    bound = Bound(-math.inf, 1, False)
    assert judge(bound, [0.1, math.nan, 0.2], caveat=False) == FAILS
    assert judge(bound, [], caveat=False) == FAILS
    assert math.isnan(median([1, math.nan]))
