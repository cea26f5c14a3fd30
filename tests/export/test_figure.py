"""A figure names its axes, marks trouble, and shows what was measured last."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest
from conftest import make_sites
from export.conftest import Opened

from gradtui.export.figure import LABELS, default_metric, write_figure
from gradtui.metrics import MEASURED
from gradtui.runs.schema import ABSENT, Frame, Site
from gradtui.runs.writer import RunWriter

pytest.importorskip("matplotlib", reason="figures need the extra 'export'")


def drawn(opened: Opened, path: Path, *metrics: str, start: int | None = None, stop: int | None = None) -> str:
    """The figure as SVG. Text is drawn as outlines; the comments beside them say what it says."""
    run, choice = opened(path, *metrics, start=start, stop=stop)
    file = io.BytesIO()
    write_figure(run, choice, file, "svg")
    drawing = file.getvalue().decode()
    xml.etree.ElementTree.fromstring(drawing)
    return drawing


def texts(drawing: str) -> list[str]:
    return [text.strip("\u200b ") for text in re.findall(r"<!-- (.*?) -->", drawing)]


def two_stacks(path: Path) -> Path:
    """Encoder and decoder, whose stream gradient is zero at one point, and NaN at another at step 300."""
    sites = []
    for number, stack in enumerate(("encoder", "decoder")):
        sites.append(Site(f"{stack}.in", None, "input", 4 * number, stack))
        sites += [Site(f"{stack}.{i}", 3 * number + i, "block", 4 * number + 1 + i, stack) for i in range(3)]
    with RunWriter(path, sites, {"source": "script", "name": "a $x$ _name_"}, metrics=("stream_grad",)) as writer:
        for step in range(700):
            values = np.linspace(1, 2, 8, dtype=np.float32)[None] / (step + 1)
            values[0, 2] = 0
            if step == 300:
                values[0, 5] = np.nan
            writer.append(Frame(step, 0.0, 0.1, None, None, values))
    return path


@pytest.mark.parametrize(
    ("metrics", "steps"),
    [(("stream_grad",), {}), (("stream_grad", "loss"), {}), (("stream_grad",), {"start": 300, "stop": 301})],
)
def test_a_figure_is_drawn_with_its_axes_named_and_its_trouble_marked(
    tmp_path: Path, opened: Opened, metrics: tuple[str, ...], steps: dict[str, int]
) -> None:
    said = texts(drawn(opened, two_stacks(tmp_path / "a.gradtui"), *metrics, **steps))
    for text in ("stream point $l$", "× NaN or Inf", "○ exactly 0", "encoder", "decoder", "a $x$ _name_"):
        assert text in said
    assert any(text.startswith("step + 1") for text in said)


def test_every_metric_is_named_with_its_formula(tmp_path: Path, opened: Opened) -> None:
    assert set(LABELS) == {*MEASURED, "loss"}
    path, sites = tmp_path / "a.gradtui", make_sites(2)
    with RunWriter(path, sites, {}, metrics=MEASURED) as writer:
        writer.append(Frame(0, 0.0, 0.1, 3.0, 1e-3, np.ones((len(MEASURED), len(sites)), np.float32)))
    said = texts(drawn(opened, path))
    assert {*LABELS.values()} <= set(said)


def test_a_sampled_metric_is_shown_at_the_last_step_at_which_it_was_measured(
    tmp_path: Path, opened: Opened
) -> None:
    path, sites = tmp_path / "a.gradtui", make_sites(2)
    with RunWriter(path, sites, {}, metrics=("stream_grad", "update_ratio")) as writer:
        for step in range(26):
            values = np.ones((2, len(sites)), np.float32)
            values[1] = 1.0 if step % 10 == 0 else ABSENT
            writer.append(Frame(step, 0.0, 0.1, 3.0, 1e-3, values))
    assert "step 20" in texts(drawn(opened, path, "update_ratio"))
    assert "step 25" in texts(drawn(opened, path, "stream_grad"))
    assert "step 25" in texts(drawn(opened, path, "update_ratio", start=21)), "no step before the chosen ones"


def test_a_feed_forward_stands_half_a_layer_on(tmp_path: Path, opened: Opened) -> None:
    path, sites = tmp_path / "a.gradtui", make_sites(2)
    with RunWriter(path, sites, {}, metrics=("trunk_share",)) as writer:
        values = np.full((1, len(sites)), ABSENT, np.float32)
        values[0, 1:5] = [0.9, 0.8, 0.7, 0.6]
        writer.append(Frame(0, 0.0, 0.1, 3.0, 1e-3, values))
    said = texts(drawn(opened, path, "trunk_share"))
    assert {"0", "0.5", "1", "1.5"} <= set(said)  # the legend
    assert "layer (feed-forward: half a layer on)" in said


@pytest.mark.parametrize(
    ("sites", "metric"),
    [
        ([Site("fc", None, "module"), Site("$out", None, "module")], "mine_2"),
        ([Site(f"{i}", i, "block") for i in range(300)], "update_ratio"),
    ],
)
def test_a_png_of_a_model_without_depth_and_of_many_layers_is_drawn(
    tmp_path: Path, opened: Opened, sites: list[Site], metric: str
) -> None:
    path = tmp_path / "a.gradtui"
    with RunWriter(path, sites, {}, metrics=(metric,)) as writer:
        for step in range(20):
            writer.append(Frame(step, 0.0, 0.1, 3.0, 1e-3, np.full((1, len(sites)), 1 + step, np.float32)))
    run, choice = opened(path, metric)
    file = io.BytesIO()
    write_figure(run, choice, file, "png")
    assert file.getvalue().startswith(b"\x89PNG")


def test_unless_asked_otherwise_the_gradient_of_the_stream_is_drawn_else_of_the_weights(
    tmp_path: Path, opened: Opened
) -> None:
    chosen = []
    for number, metrics in enumerate(
        (("grad_norm", "stream_grad"), ("act_rms", "grad_norm"), ("mine", "act_rms"))
    ):
        path = tmp_path / f"{number}.gradtui"
        with RunWriter(path, make_sites(1), {}, metrics=metrics) as writer:
            writer.append(Frame(0, 0.0, 0.1, 3.0, 1e-3, np.ones((2, len(make_sites(1))), np.float32)))
        chosen.append(default_metric(opened(path)[0]))
    assert chosen == ["stream_grad", "grad_norm", "mine"]
