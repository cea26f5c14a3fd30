"""`open_run`: a run file as NumPy arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import RunMaker, make_frame, make_sites

from gradtui.metrics import SITE_METRICS
from gradtui.runs import RunError
from gradtui.runs.open_run import open_run
from gradtui.runs.schema import ABSENT, Event, Frame, Site
from gradtui.runs.writer import RunWriter


def _poison(frame: Frame) -> None:
    frame.values[SITE_METRICS.index("grad_norm"), :3] = [ABSENT, np.inf, np.nan]


def test_a_notebook_gets_arrays_of_steps_by_sites_with_trouble_and_absence_told_apart(make_run: RunMaker) -> None:
    path = make_run(losses=[3.0, float("nan"), 1.0], change=_poison, events=[Event(1, "note", None, None, "hi")])
    with open_run(str(path)) as run:
        gradient, bad = run.metric("grad_norm"), run.nonfinite("grad_norm")
        assert (gradient.dtype, gradient.shape) == (np.float32, (3, len(run.sites)))
        assert np.isnan(gradient[0, 0])
        assert np.isposinf(gradient[0, 1])
        assert bad[0, :4].tolist() == [False, True, True, False]
        assert run.metric("act_rms")[2].tolist() == pytest.approx((1 + np.linspace(0, 1, 11)).tolist())
        assert run.steps.tolist() == [0, 1, 2]
        assert run.loss.tolist() == pytest.approx([3.0, np.nan, 1.0], nan_ok=True)
        assert run.lr.tolist() == pytest.approx([1e-3] * 3)
        assert run.events == [Event(1, "note", None, None, "hi")]
        assert run.sites == tuple(make_sites(4))
        assert run.metrics == SITE_METRICS
        assert (run.status, run.facts["seed"], run.thinned) == ("done", 0, None)
        assert "done" in repr(run)
        assert "grad_norm" in repr(run)
        with pytest.raises(RunError, match="no metric 'grad'; it has: stream_grad, grad_norm"):
            run.metric("grad")


def test_arrays_of_a_run_that_goes_on_fit_together_until_it_is_refreshed(tmp_path: Path) -> None:
    sites = make_sites(1)
    writer = RunWriter(tmp_path / "a.gradtui", sites, {}, keep=40)
    with open_run(tmp_path / "a.gradtui") as run:
        assert run.metric("grad_norm").shape == (0, len(sites))
        assert "no step yet" in repr(run)
        for step in range(300):
            writer.append(make_frame(sites, step))
        writer.flush()
        assert run.steps.size == 0
        assert run.refresh()
        assert len(run.steps) == len(run.loss) == len(run.metric("grad_norm")) == 300
        for step in range(300, 900):
            writer.append(make_frame(sites, step))
        writer.flush()
        # Steps that have been dropped meanwhile have no values any more, and no false ones.
        values = run.metric("grad_norm")
        assert len(values) == 300
        assert not np.isnan(values[:256]).any()
        assert np.isnan(values[256:]).all()
        assert not run.nonfinite("grad_norm").any()
        assert run.refresh()
        assert run.thinned is not None
        assert len(run.steps) < 330
        assert "dropped" in repr(run)
    writer.close()


def test_what_is_no_run_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not there"):
        open_run(tmp_path / "nothing.gradtui")


def test_a_script_run_with_one_metric_and_no_loss_opens(tmp_path: Path) -> None:
    path = tmp_path / "a.gradtui"
    with RunWriter(path, [Site("fc", 0, "module")], {"source": "script"}, metrics=("grad_norm",)) as writer:
        writer.append(Frame(7, 0.0, 0.1, None, None, np.ones((1, 1), np.float32)))
    with open_run(path) as run:
        assert run.steps.tolist() == [7]
        assert np.isnan(run.loss).all()
        assert np.isnan(run.lr).all()
