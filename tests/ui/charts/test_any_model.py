"""The charts of models that are no preset's: without layers, of several stacks, of a thousand layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ui.conftest import screen_text, until
from ui.foreign import ALL, EN, ZH, encoder_decoder, modules, record, stack

from gradtui.analysis.depth import depth_of_any
from gradtui.analysis.shapes import forward_only
from gradtui.analysis.verdict import Verdict
from gradtui.metrics import CLIPPED, METRICS, SITE_METRICS, STREAM_METRICS
from gradtui.runs.schema import Event, Site
from gradtui.ui.app import GradtuiApp, Opened
from gradtui.ui.charts.context import ChartBuilder, ChartContext
from gradtui.ui.charts.loss import loss_lines
from gradtui.ui.charts.measured import depth_chart, heat_map, short_names
from gradtui.ui.charts.panes import draw
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.session import Session
from gradtui.ui.text.verdict import verdict_in_words

WIDTH, HEIGHT = 60, 16


def lane_of(path: Path) -> Lane:
    lane = Session.of_files([path]).focused
    assert lane is not None
    return lane


def app_of(*paths: Path, language: str = "en") -> GradtuiApp:
    return GradtuiApp(lambda _app: Opened(Session.of_files(paths)), language=language, data=paths[0].parent)


def bands(lane: Lane, metric: str) -> tuple[tuple[int, str], ...]:
    assert lane.series is not None
    return lane.series.depth(metric).bands


def context_of(lane: Lane, metric: str) -> ChartContext:
    return ChartContext(
        (lane,), METRICS[metric], None, log=True, log_steps=False, mode="shade", words=EN, empty=""
    )


def drawn(build: ChartBuilder, lane: Lane, metric: str) -> list[str]:
    lines = draw(build(context_of(lane, metric), WIDTH), WIDTH, HEIGHT, "shade")
    return ["".join(span.text for span in line) for line in lines]


def test_models_without_a_stream_or_without_layers_have_an_axis_of_depth() -> None:
    assert depth_of_any(modules(3), "act_rms").groups == ((0,), (1,), (2,))
    loose = [Site("lstm", None, "module"), Site("head", None, "module")]
    assert depth_of_any(loose, "grad_norm").groups == ((0,), (1,))


def test_stacks_follow_one_another_with_a_boundary_and_short_names(tmp_path: Path) -> None:
    lane = lane_of(record(tmp_path / "a.gradtui", encoder_decoder()))
    assert bands(lane, "stream_grad") == ((0, "model.encoder.layers"), (5, "model.decoder.layers"))
    assert bands(lane, "grad_norm") == ((0, "model.encoder.layers"), (4, "model.decoder.layers"))
    assert short_names(bands(lane, "grad_norm")) == ((0, "encoder"), (4, "decoder"))
    assert short_names(((0, "a"), (2, "a.a"))) == ((0, "a"), (2, "a.a"))


def test_no_line_leads_from_one_stack_into_the_next(tmp_path: Path) -> None:
    lane = lane_of(record(tmp_path / "a.gradtui", encoder_decoder()))
    lines = drawn(depth_chart, lane, "grad_norm")
    boundary = next(line.index("╎") for line in lines if "╎" in line)
    assert all(line[boundary] in "╎ ─┬0123456789" for line in lines)
    assert "encoder" in lines[-2]
    assert "decoder" in lines[-2]


def test_a_metric_of_several_sites_a_layer_needs_no_weight_norms(tmp_path: Path) -> None:
    sites = [Site(f"{layer}.{part}", layer, "mixer") for layer in range(3) for part in "ab"]
    lane = lane_of(record(tmp_path / "a.gradtui", sites, ("update_ratio",)))
    curve = lane.curve("update_ratio", None)
    assert curve is not None
    assert curve.y == pytest.approx([1, 1, 1])
    assert lane.ask(lambda run: run.field("update_ratio", 40)) is not None


def test_the_gradient_after_clipping_is_drawn_beside_the_one_before(tmp_path: Path) -> None:
    def change(_step: int, values: np.ndarray) -> None:
        values[ALL.index(CLIPPED), 1:] = 0.25

    lane = lane_of(record(tmp_path / "a.gradtui", stack("layers", 4), ALL, change=change))
    text = "\n".join(drawn(depth_chart, lane, "grad_norm"))
    assert "after clipping" in text
    assert "▵" in text
    assert "▵" not in "\n".join(drawn(depth_chart, lane, "stream_grad"))


def test_a_run_without_a_loss_says_how_to_log_one(tmp_path: Path) -> None:
    lane = lane_of(record(tmp_path / "a.gradtui", modules(3), ("grad_norm",), loss=None))
    lines = loss_lines(context_of(lane, "grad_norm"), WIDTH, HEIGHT)
    assert "probe.log" in "\n".join("".join(span.text for span in line) for line in lines)
    assert lane.recent.spark == ()


async def test_m_passes_over_what_a_run_has_not_measured(tmp_path: Path) -> None:
    app = app_of(record(tmp_path / "cnn.gradtui", modules(4), ("grad_norm", "update_ratio"), loss=None))
    async with app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: "‖∂L/∂θ‖ by layer" in screen_text(app))
        assert "update ‖Δθ‖/‖θ‖ by layer" in screen_text(app)  # in the place of the activations
        assert "‖∂L/∂x‖" not in screen_text(app)
        await pilot.press("m")
        await until(pilot, lambda: "when: layer × step, update" in screen_text(app))
        await pilot.press("m")
        await until(pilot, lambda: "when: layer × step, gradient of the weights" in screen_text(app))


async def test_history_moves_by_measured_steps(tmp_path: Path) -> None:
    app = app_of(record(tmp_path / "a.gradtui", modules(3), ("grad_norm",), every=10))
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "190" in screen_text(app))
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "step 180, history" in screen_text(app))
        assert "every 10 steps measured" in screen_text(app)
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: "history" not in screen_text(app).splitlines()[0])


async def test_skipped_steps_are_counted_up_to_the_step_in_view(tmp_path: Path) -> None:
    events = [Event(step, "skipped") for step in (3, 7, 18)]
    app = app_of(record(tmp_path / "a.gradtui", stack("layers", 3), events=events))
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "skipped: 3, the last one at 18" in screen_text(app))
        await pilot.press("left_curly_bracket")
        await until(pilot, lambda: "skipped: 2, the last one at 7" in screen_text(app))


def test_a_nan_is_named_in_both_directions_and_both_languages() -> None:
    sites = stack("layers", 4)
    verdict = Verdict("nonfinite", 1, 1, since=9, site=2, direction="forward", backward=4)
    english, chinese = verdict_in_words(verdict, sites, EN), verdict_in_words(verdict, sites, ZH)
    assert "forward pass first in layers.1, in the backward pass first in layers.3" in english
    assert "前向最先在layers.1，反向最先在layers.3" in chinese


def test_the_ratio_is_said_of_the_site_that_it_belongs_to() -> None:
    sites = encoder_decoder()
    verdict = Verdict("fading", 0.05, 20)
    decoder = next(site for site in sites if site.stream == 5)
    assert "model.decoder.layers (input) gets only" in verdict_in_words(verdict, sites, EN, decoder)
    one = stack("layers", 3)
    assert "Layer 0 gets only" in verdict_in_words(verdict, one, EN, one[0])
    assert "layers.2 gets only" in verdict_in_words(verdict, one, EN, one[3])
    embedded = [Site("0", None, "module", 0), *one[1:]]
    assert "Layer 0 gets only" in verdict_in_words(verdict, embedded, EN, embedded[0])
    lonely = Verdict("silent", np.nan, np.nan)
    assert "no depth to compare" in verdict_in_words(lonely, [Site("lstm", None, "module")], EN)


@pytest.mark.parametrize("metric", SITE_METRICS)
def test_a_thousand_layers_are_drawn_and_the_one_that_differs_is_seen(tmp_path: Path, metric: str) -> None:
    sites = stack("layers", 1000)

    def change(step: int, values: np.ndarray) -> None:
        values[:, 500] = np.where(values[:, 500] < 0, -1, 1e-6)
        if step == 2:
            values[:, 301] = np.nan

    lane = lane_of(record(tmp_path / "a.gradtui", sites, change=change, steps=4))
    depth = drawn(depth_chart, lane, metric)
    assert any("1e-6" in line for line in depth)
    heat = drawn(heat_map, lane, metric)
    assert any("✕" in line for line in heat)
    assert any("·" in line[8:20] for line in heat)


@given(st.lists(st.integers(0, 100), max_size=30))
def test_rows_of_windows_that_overlap_go_only_forward(steps: list[int]) -> None:
    kept = np.array(steps)[forward_only(np.array(steps, dtype=int))]
    assert np.all(np.diff(kept) > 0)
    assert max(steps, default=0) == max(kept, default=0)


def test_metrics_of_the_stream_are_known() -> None:
    assert set(SITE_METRICS) >= STREAM_METRICS
