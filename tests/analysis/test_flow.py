"""What the numbers mean: flow, alarms, verdicts, depth."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import make_frame, make_sites

from gradtui.analysis.alarms import AlarmTracker, first_nonfinite
from gradtui.analysis.depth import by_depth, depth_of
from gradtui.analysis.flow import Gauge, classify, flow_ratio
from gradtui.analysis.verdict import judge
from gradtui.metrics import SITE_METRICS
from gradtui.runs.schema import ABSENT, Event

ACT, GRAD, STREAM = (SITE_METRICS.index(name) for name in ("act_rms", "grad_norm", "stream_grad"))


@pytest.mark.parametrize(
    ("gradients", "state"),
    [
        ([1, 1, 1], "healthy"),
        ([12, 3, 1], "healthy"),
        ([0.05, 0.3, 1], "fading"),
        ([2e-4, 0.03, 1], "vanished"),
        ([0, 0.03, 1], "fading"),  # frozen or cut off at the bottom: nothing flows there that could vanish
        ([0, 1, 1, 0], "healthy"),
        ([2e3, 40, 1], "exploding"),
        ([np.nan, 1, 1], "healthy"),  # not measured, or frozen
        ([1, 1, np.inf], "nonfinite"),
        ([0, 0, 0], "silent"),
    ],
)
def test_a_flow_is_named_for_what_reaches_layer_0(gradients: list[float], state: str) -> None:
    assert classify(gradients).state == state


def test_the_flow_ratio_is_first_over_last() -> None:
    assert flow_ratio([2.0, 100.0, 8.0]) == 0.25
    assert classify([2.0, 100.0, 8.0]).spread == 50
    assert np.isnan(flow_ratio([1.0, 0.0]))
    assert classify([1, np.nan, 1], nonfinite=True).state == "nonfinite"


def test_a_vanishing_gradient_rings_once_and_its_recovery_once() -> None:
    sites = make_sites(3)
    tracker = AlarmTracker(sites)
    ratios = [1, 0.5, 0.02, 0.009, 0.011, 0.009, 0.05, 0.2, 0.3, 0.009]
    rung = [
        (event.kind, event.step, event.site)
        for step, ratio in enumerate(ratios)
        for event in tracker.update(step, 3.0, make_frame(sites, step, ratio=ratio).values)
    ]
    assert rung == [("vanished", 3, 0), ("recovered", 7, 0), ("vanished", 9, 0)]


def test_the_first_non_finite_value_is_found_in_the_order_it_was_computed() -> None:
    sites = make_sites(4)
    values = make_frame(sites, 0).values
    values[ACT, 5:] = np.nan  # once wrong, everything after it is
    values[STREAM] = np.nan
    assert first_nonfinite(values) == [(5, "forward"), (len(sites) - 1, "backward")]
    values = make_frame(sites, 0).values
    values[STREAM, :4] = np.inf  # the backward pass comes from the head down
    assert first_nonfinite(values) == [(3, "backward")]
    assert first_nonfinite(make_frame(sites, 0).values) == [(None, "loss")]


def test_a_non_finite_alarm_rings_once_and_names_the_site() -> None:
    sites = make_sites(2)
    tracker = AlarmTracker(sites)
    values = make_frame(sites, 3).values
    values[ACT, 2] = np.inf
    [event] = tracker.update(3, 1.0, values)
    assert (event.kind, event.step, event.site, event.text) == ("nonfinite", 3, 2, "forward")
    assert tracker.update(4, 1.0, values) == []
    assert AlarmTracker(sites).update(5, float("nan"), make_frame(sites, 5).values)[0].text == "loss"


def test_an_absent_gradient_is_no_alarm() -> None:
    sites = make_sites(2)
    values = make_frame(sites, 0).values
    values[GRAD, 3] = ABSENT
    assert AlarmTracker(sites).update(0, 1.0, values) == []


def test_a_verdict_says_since_when_and_whether_the_first_steps_did_it() -> None:
    events = [Event(14, "vanished", 0, 0.009)]
    vanished = classify([2e-4, 1])
    verdict = judge(vanished, 37, events, first_ratio=1.3)
    assert (verdict.state, verdict.since, verdict.by_first_steps) == ("vanished", 14, True)
    assert not judge(vanished, 37, events, first_ratio=1e-3).by_first_steps
    assert not judge(vanished, 300, [Event(200, "vanished", 0, 0.009)], first_ratio=1).by_first_steps


def test_a_verdict_in_history_knows_nothing_of_the_future() -> None:
    events = [Event(14, "vanished", 0, 0.009), Event(90, "recovered", 0, 0.2), Event(99, "nonfinite", 3)]
    assert judge(classify([1, 1]), 5, events, 1.0).since is None
    assert judge(classify([2e-4, 1]), 20, events, 1.0).since == 14
    recovered = judge(classify([0.5, 1]), 95, events, 1.0)
    assert (recovered.state, recovered.recovered) == ("healthy", 90)


def test_later_finite_values_do_not_hide_a_nan() -> None:
    events = [Event(9, "nonfinite", 3, None, "backward")]
    verdict = judge(classify([1, 1]), 50, events, 1.0)
    assert (verdict.state, verdict.since, verdict.site, verdict.direction) == ("nonfinite", 9, 3, "backward")


def test_depth_counts_stream_points_for_the_stream_and_layers_for_weights() -> None:
    sites = make_sites(3)
    assert depth_of(sites, "stream_grad").groups == ((0,), (2,), (4,), (6,))
    assert depth_of(sites, "grad_norm").groups == ((1, 2), (3, 4), (5, 6))


def test_norms_of_a_layer_add_as_squares_and_ratios_by_weight() -> None:
    sites = make_sites(2)
    depth = depth_of(sites, "grad_norm")
    values = np.array([[9.0, 3.0, 4.0, 5.0, np.nan, 9.0, 9.0]])
    bad = np.zeros_like(values, dtype=bool)
    norms, _ = by_depth(depth, "grad_norm", values, None, bad)
    np.testing.assert_allclose(norms, [[5.0, 5.0]])
    weights = np.array([[1.0, 2.0, 1.0, 1.0, np.nan, 1.0, 1.0]])
    ratios, _ = by_depth(depth_of(sites, "update_ratio"), "update_ratio", values, weights, bad)
    np.testing.assert_allclose(ratios, [[np.sqrt(36 + 16) / np.sqrt(5), 5.0]])


def test_a_bad_site_makes_its_layer_bad() -> None:
    sites = make_sites(2)
    bad = np.zeros((1, len(sites)), dtype=bool)
    bad[0, 4] = True
    _, flagged = by_depth(depth_of(sites, "grad_norm"), "grad_norm", np.ones((1, len(sites))), None, bad)
    assert flagged.tolist() == [[False, True]]


def test_the_site_across_which_the_gradient_changes_most_is_named() -> None:
    sites = make_sites(4)
    gauge = Gauge.of(sites, SITE_METRICS)
    values = make_frame(sites, 0).values
    values[STREAM, [0, 2, 4, 6, 8]] = [5000.0, 4000.0, 1.5, 1.2, 1.0]
    flow = gauge.read(values)
    assert flow.state == "exploding"
    assert sites[flow.steepest or 0].name == "layers.1.feedforward"
    verdict = judge(flow, 7, [Event(3, "exploded", 0, 5000.0)], 1.0)
    assert (verdict.since, verdict.site) == (3, flow.steepest)
    assert gauge.read(make_frame(sites, 0).values).steepest is None
