"""What `m` shows beside plain metrics: the trunk's share, the local gain, and what modules tell of themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import make_frame, make_sites
from ui.conftest import SIZES, screen_text, until
from ui.foreign import ALL, encoder_decoder, record

from gradtui.analysis.depth import gains
from gradtui.i18n import LANGUAGES, Words, catalogue
from gradtui.metrics import GAIN, METRICS, SELECTABLE, SITE_METRICS, TRUNK_SHARE
from gradtui.presets import GROUPS
from gradtui.runs.schema import ABSENT, Frame
from gradtui.runs.writer import RunWriter
from gradtui.ui.app import GradtuiApp, Opened
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.session import Session
from gradtui.ui.text.explain import explain, measured_at

EN, ZH = Words("en"), Words("zh")
MIXER, FEEDFORWARD = 1, 2  # the first of each among the sites
LAYERS = 4


def measured(step: int) -> bool:
    """As the trainer does it: closely at first, then every tenth step."""
    return step < 20 or step % 10 == 0


def write(
    path: Path,
    *,
    steps: int = 38,
    trunk: Callable[[int, int], float] | None = None,
    spread: tuple[float, float] | None = None,
    depth: bool = False,
    facts: dict[str, object] | None = None,
) -> Path:
    """A run with the trunk's share (of a step and a sublayer) and readings of experts and of depth attention."""
    sites = make_sites(LAYERS)
    metrics = (*SITE_METRICS, TRUNK_SHARE)
    base = {"name": path.stem, "seed": 0, "steps": steps, "device": "cpu"}
    with RunWriter(path, sites, {**base, **(facts or {})}, metrics=metrics) as writer:
        for step in range(steps):
            frame = make_frame(sites, step, ratio=0.25)
            row = np.full((1, len(sites)), ABSENT, np.float32)
            if trunk is not None and measured(step):
                row[0, 1 : 2 * LAYERS + 1] = [trunk(step, index) for index in range(2 * LAYERS)]
            values = np.concatenate([frame.values, row])
            writer.append(Frame(step, frame.wall, frame.seconds, frame.loss, frame.lr, values))
            if measured(step):
                writer.readings(step, readings(spread, depth))
        writer.close("done")
    return path


def readings(spread: tuple[float, float] | None, depth: bool) -> dict[str, dict[int, np.ndarray]]:
    told: dict[str, dict[int, np.ndarray]] = {}
    if spread is not None:
        for name, apart in zip(("routed_rms", "latent_rms"), spread, strict=True):
            vector = np.array([1, (1 + apart) / 2, apart], np.float32)
            told[name] = {FEEDFORWARD + 2 * layer: vector for layer in range(LAYERS)}
        told["out_rms"] = told["latent_rms"]
        for name in ("load", "out_grad"):
            told[name] = {FEEDFORWARD + 2 * layer: np.array([2.5], np.float32) for layer in range(LAYERS)}
    if depth:
        told["depth"] = {MIXER + n: np.full(n + 2, 1 / (n + 2), np.float32) for n in range(2 * LAYERS)}
    return told


def lane_of(path: Path) -> Lane:
    session = Session.of_files([path])
    return session.lanes[session.focus]


def app_of(*paths: Path, language: str = "en") -> GradtuiApp:
    session = Session.of_files(paths)
    return GradtuiApp(lambda _app: Opened(session), language=language, data=paths[0].parent)


def test_every_measure_and_every_group_has_its_words() -> None:
    for language in LANGUAGES:
        words = catalogue(language)
        for metric in METRICS.values():
            assert f"metric.{metric.name}" in words
            assert metric.companion in SELECTABLE
            if metric.is_reading:
                assert f"means.{metric.name}" in words
            if metric.kind == "spread":
                assert {f"heat.{metric.name}", f"means.{metric.name}_bare"} <= words.keys()
                assert {f"series.{source}" for source in metric.sources} <= words.keys()
        assert {f"group.{group}" for group in GROUPS} <= words.keys()


def test_local_gains_are_gradients_over_the_next_and_multiply_up_to_the_flow(
    tmp_path: Path,
) -> None:
    lane = lane_of(write(tmp_path / "a.gradtui"))
    curve = lane.curve(GAIN, None)
    assert curve is not None
    assert curve.x.tolist() == [0, 1, 2, 3]
    assert np.prod(curve.y) == pytest.approx(0.25, rel=1e-5)
    assert "the gains give 0.25" in explain(lane, GAIN, None, EN)
    assert "4 of them are below 1" in explain(lane, GAIN, None, EN)
    assert "连乘得 0.25" in explain(lane, GAIN, None, ZH)
    field = lane.ask(lambda run: run.field(GAIN, 40))
    assert field is not None
    assert field.values.shape == (4, 38)
    assert not field.nonfinite.any()


def test_no_gain_leads_from_one_stack_into_the_next(tmp_path: Path) -> None:
    lane = lane_of(record(tmp_path / "t5.gradtui", encoder_decoder(), ALL))
    curve = lane.curve(GAIN, None)
    assert curve is not None
    assert curve.x.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]  # x_4 leaves the encoder, x_5 enters the decoder
    assert explain(lane, GAIN, None, EN) == ""


def test_a_gain_that_is_not_finite_is_trouble_and_one_over_nothing_is_none() -> None:
    x, y = gains(np.arange(4.0), np.array([[1.0], [0.0], [2.0], [np.nan]]), ())
    assert x.tolist() == [0, 1, 2]
    assert np.isnan(y[:, 0]).tolist() == [True, False, True]
    assert y[1, 0] == 0


@pytest.mark.parametrize(("cursor", "step"), [(None, 30), (29, 20), (19, 19), (0, 0)])
def test_the_trunk_share_is_that_of_the_last_measured_step(tmp_path: Path, cursor: int | None, step: int) -> None:
    lane = lane_of(write(tmp_path / "a.gradtui", trunk=lambda at, index: 1 - at / 100 - index / 1000))
    curve = lane.curve(TRUNK_SHARE, cursor)
    assert curve is not None
    assert curve.x.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]
    assert curve.y == pytest.approx([1 - step / 100 - index / 1000 for index in range(8)], rel=1e-5)
    assert curve.step == measured_at(lane, TRUNK_SHARE, cursor) == step


def test_the_trunk_shares_map_holds_the_measured_steps_only(tmp_path: Path) -> None:
    lane = lane_of(write(tmp_path / "a.gradtui", trunk=lambda _at, _index: 0.5))
    field = lane.ask(lambda run: run.field(TRUNK_SHARE, 40))
    assert field is not None
    assert field.steps.tolist() == [step for step in range(38) if measured(step)]
    assert np.isfinite(field.values).all()
    assert "passes on 0.5" in explain(lane, TRUNK_SHARE, None, EN)
    assert "let 0.0039 through" in explain(lane, TRUNK_SHARE, None, EN)


async def test_a_topology_without_a_trunk_says_so_also_beside_one_that_has_it(tmp_path: Path) -> None:
    lane = lane_of(write(tmp_path / "b.gradtui"))
    assert explain(lane, TRUNK_SHARE, None, EN) == EN("empty.trunk")
    app = app_of(write(tmp_path / "a.gradtui"), write(tmp_path / "pre.gradtui", trunk=lambda _at, _index: 1.0))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "by layer" in screen_text(app))
        for _ in range(len(SELECTABLE)):
            await pilot.press("m")
            await pilot.pause(0.05)
            if "This topology has no trunk" in screen_text(app):
                break
        else:
            raise AssertionError(screen_text(app))


def test_readings_are_no_part_of_the_cycle_where_a_run_has_none(tmp_path: Path) -> None:
    lane = lane_of(write(tmp_path / "a.gradtui"))
    assert not any(lane.has(name) for name, metric in METRICS.items() if metric.is_reading)
    assert lane.has(TRUNK_SHARE)
    assert lane.has(GAIN)
    with_experts = lane_of(write(tmp_path / "b.gradtui", spread=(3, 1)))
    assert [name for name, metric in METRICS.items() if metric.is_reading and with_experts.has(name)] == [
        "routed", "out_rms", "out_grad", "load",
    ]  # fmt: skip
    foreign = lane_of(record(tmp_path / "c.gradtui", encoder_decoder(), ("grad_norm",)))
    assert not foreign.has(TRUNK_SHARE)
    assert not foreign.has(GAIN)


@pytest.mark.parametrize("size", SIZES)
async def test_the_spread_before_the_norm_and_after_it_is_drawn_and_said(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    app = app_of(write(tmp_path / "a.gradtui", spread=(3, 1.1)))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "by layer" in screen_text(app))
        while app.screen.view.metric != "routed":  # type: ignore[attr-defined]
            await pilot.press("m")
        await until(pilot, lambda: "RMS of u, before and after the norm" in screen_text(app))
        text = " ".join(screen_text(app).split())
        assert "RMS(u) differs 3×, what W↑ is given after the norm 1.1×" in text
        assert "u: 5, 50, 95 %" in text
        assert "step 30" in text
        await pilot.press("L")
        await until(pilot, lambda: "RMS(u) 相差 3 倍" in screen_text(app).replace("\n", ""))
        while app.screen.view.metric != "load":  # type: ignore[attr-defined]
            await pilot.press("m")
        await until(pilot, lambda: "最忙的专家" in screen_text(app))


def test_without_the_norm_it_is_said_that_u_is_passed_on_as_it_is(tmp_path: Path) -> None:
    lane = lane_of(write(tmp_path / "a.gradtui", spread=(3, 3)))
    assert explain(lane, "routed", None, EN).startswith("No norm before W↑: it is given u as it is")
    assert "没有归一化" in explain(lane, "routed", None, ZH)


async def test_depth_weights_are_a_map_of_sublayers_and_sources_without_holes_that_look_like_trouble(
    tmp_path: Path,
) -> None:
    app = app_of(write(tmp_path / "a.gradtui", depth=True))
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "by layer" in screen_text(app))
        while app.screen.view.metric != "depth_weights":  # type: ignore[attr-defined]
            await pilot.press("m")
        await until(pilot, lambda: "sublayer that reads × source" in screen_text(app))
        text = screen_text(app)
        assert "✕" not in text
        assert "The last mix has 9 sources" in text
        assert "even would be 0.11" in text
        assert "newest source" in text


async def test_in_history_readings_are_those_of_the_last_step_that_told_any(tmp_path: Path) -> None:
    app = app_of(write(tmp_path / "a.gradtui", spread=(3, 1.1)))
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "by layer" in screen_text(app))
        while app.screen.view.metric != "routed":  # type: ignore[attr-defined]
            await pilot.press("m")
        await until(pilot, lambda: "step 30 · log" in screen_text(app))
        await pilot.press("left_curly_bracket")
        await until(pilot, lambda: "step 20 · log" in screen_text(app))


async def test_a_table_of_sites_keeps_to_the_metrics_that_a_site_has(tmp_path: Path) -> None:
    app = app_of(write(tmp_path / "a.gradtui", spread=(3, 1.1), trunk=lambda _at, _index: 1.0))
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "by layer" in screen_text(app))
        await pilot.press("w", "enter")
        for _ in range(8):
            await pilot.press("m")
            await pilot.pause(0.02)
            assert app.screen.snapshot().metric in SITE_METRICS  # type: ignore[attr-defined]
        assert app.is_running


def test_a_long_run_is_asked_for_its_readings_at_some_steps_only(tmp_path: Path) -> None:
    lane = lane_of(write(tmp_path / "a.gradtui", steps=1200, spread=(3, 1)))
    readings = lane.ask(lambda run: run.reading_history("routed_rms", 40))
    assert readings is not None
    steps = [reading.step for reading in readings]
    assert steps == sorted(set(steps))
    assert steps[0] == 0
    assert steps[-1] == 1190
    assert len(steps) <= 80
