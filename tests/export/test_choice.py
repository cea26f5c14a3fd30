"""What of a run is chosen, and what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import RunMaker, make_frame, make_sites
from export.conftest import Opened

from gradtui.export import ExportError
from gradtui.runs.writer import RunWriter


def test_all_steps_are_chosen_unless_some_are_named_and_each_metric_once(
    make_run: RunMaker, opened: Opened
) -> None:
    path = make_run(ratios=[1.0] * 5)
    _, choice = opened(path, "loss", "act_rms", "loss")
    assert (choice.metrics, choice.start, choice.stop) == (("loss", "act_rms"), 0, 5)
    _, choice = opened(path, "loss", start=2, stop=99)
    assert (choice.start, choice.stop) == (2, 5)


@pytest.mark.parametrize(
    ("metrics", "steps", "sentence"),
    [
        (("grad",), {}, "has no metric 'grad'; it has: stream_grad, grad_norm"),
        (("loss",), {"start": 7, "stop": 9}, "has no recorded step in that range; its steps are 0 to 2"),
    ],
)
def test_what_cannot_be_chosen_is_a_sentence(
    make_run: RunMaker, opened: Opened, metrics: tuple[str, ...], steps: dict[str, int], sentence: str
) -> None:
    with pytest.raises(ExportError, match=sentence):
        opened(make_run(), *metrics, **steps)


def test_a_bounded_run_says_which_chosen_steps_are_left_out(tmp_path: Path, opened: Opened) -> None:
    path, sites = tmp_path / "a.gradtui", make_sites(1)
    with RunWriter(path, sites, {}, keep=32) as writer:
        for step in range(600):
            writer.append(make_frame(sites, step))
    run, choice = opened(path, "loss")
    assert run.thinned is not None
    assert choice.left_out(run) == run.thinned
    start, stop = run.thinned
    with pytest.raises(ExportError, match="has kept only a summary of the steps in that range"):
        opened(path, "loss", start=start, stop=stop)
