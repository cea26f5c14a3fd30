"""From a step's norms to totals and metrics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradtui.metrics import MEASURED
from gradtui.probe.accumulator import (
    DELTA,
    FORMULAS,
    GRAD,
    GRAD_CLIPPED,
    ROWS,
    STREAM,
    STREAM_GRAD,
    STREAM_SUM,
    TRUNK,
    WEIGHT,
    MeasuringHints,
    StepAccumulator,
    Totals,
    metric_values,
    rows_for,
)
from gradtui.runs.schema import ABSENT

SITES = 3


def filled(*numbers: tuple[int, int, float]) -> StepAccumulator:
    """Of (row, site, norm)."""
    step = StepAccumulator.empty(SITES)
    for row, site, norm in numbers:
        step.extend([torch.tensor(norm)], [row * SITES + site])
    return step


def totals_of(step: StepAccumulator) -> Totals:
    return Totals.of(step, np.array([float(value) for value in step.values]))


def value(metric: str, step: StepAccumulator, site: int = 0) -> float:
    return float(metric_values(totals_of(step), [metric])[0, site])


def test_there_is_a_formula_for_each_measured_metric_and_no_other() -> None:
    assert set(FORMULAS) == set(MEASURED)


def test_every_row_is_needed_by_some_metric() -> None:
    assert rows_for(MEASURED) == frozenset(range(ROWS))


@pytest.mark.parametrize(
    ("metric", "row"),
    [("grad_norm", GRAD), ("clipped_norm", GRAD_CLIPPED), ("weight_norm", WEIGHT), ("stream_grad", STREAM_GRAD)],
)
def test_norms_of_one_cell_add_as_squares(metric: str, row: int) -> None:
    step = filled((row, 0, 3.0), (row, 0, 4.0), (row, 1, 1.0))
    assert value(metric, step, 0) == 5
    assert value(metric, step, 1) == 1
    assert value(metric, step, 2) == ABSENT


def test_metrics_that_are_made_of_several_rows() -> None:
    step = filled(
        (WEIGHT, 0, 4.0),
        (DELTA, 0, 1.0),
        (STREAM, 0, 6.0),
        (STREAM_SUM, 0, 6.0),
        (STREAM_GRAD, 0, 2.0),
        (TRUNK, 0, 1.0),
    )
    step.elements[0], step.width[0] = 9, 3
    assert value("update_ratio", step) == 0.25
    assert value("act_rms", step) == 2
    assert value("mean_share", step) == pytest.approx(1 / 3)
    assert value("trunk_share", step) == 0.5


def test_ratios_to_zero_are_absent_and_a_zero_stream_has_no_mean() -> None:
    step = filled((WEIGHT, 0, 0.0), (DELTA, 0, 0.0), (STREAM, 0, 0.0), (STREAM_SUM, 0, 0.0))
    assert value("update_ratio", step) == ABSENT
    assert value("act_rms", step) == ABSENT  # no elements at all
    assert value("mean_share", step) == 0


def test_folding_changes_no_total() -> None:
    step = filled((GRAD, 0, 3.0), (STREAM, 2, 1.0), (GRAD, 0, 4.0), (GRAD, 1, 2.0))
    before = totals_of(step)
    step.fold()
    after = totals_of(step)
    assert len(step.values) == 3
    np.testing.assert_allclose(after.squares, before.squares)
    np.testing.assert_array_equal(after.present, before.present)


def test_numbers_move_to_the_sites_of_another_model() -> None:
    step = filled((GRAD, 0, 3.0), (GRAD, 2, 4.0))
    step.elements, step.width = [5, 6, 7], [1, 2, 3]
    moved = step.moved({2: 0, 1: 1}, 2)
    assert [float(v) for v in moved.values] == [4.0]
    assert moved.cells == [GRAD * 2 + 0]
    assert (moved.elements, moved.width) == ([7, 6], [3, 2])


def test_the_loss_scale_is_taken_out_of_gradients_alone() -> None:
    step = filled((GRAD, 0, 8.0), (STREAM_GRAD, 0, 8.0), (WEIGHT, 0, 8.0))
    totals = totals_of(step).unscaled({"stream_scale": 4.0, "grad_scale": 2.0})
    assert [totals.norm(row)[0] for row in (GRAD, STREAM_GRAD, WEIGHT)] == [4, 2, 8]


def test_all_sites_are_summed_precisely_until_a_step_has_shown_which_need_it() -> None:
    hints = MeasuringHints(SITES)
    assert hints.precise_sites == {0, 1, 2}
    hints.update(totals_of(filled((GRAD, 0, 1.0), (GRAD, 1, 1e-20))), {})
    assert hints.precise_sites == {1}
    hints.update(totals_of(filled((GRAD, 0, 1.0), (STREAM, 2, torch.inf))), {})
    assert hints.precise_sites == {1, 2}  # once needed, always


def test_weights_that_drift_once_are_kept_anew_at_every_step() -> None:
    hints = MeasuringHints(SITES)
    hints.update(totals_of(filled()), {"drift": 0.0})
    assert not hints.weights_drift
    hints.update(totals_of(filled()), {"drift": 1e-3})
    hints.update(totals_of(filled()), {"drift": 0.0})
    assert hints.weights_drift
