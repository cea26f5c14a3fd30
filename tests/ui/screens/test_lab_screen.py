"""What a user sees and what keys do, on a fake engine."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from conftest import RunMaker, make_frame
from textual.widgets import Input
from ui.conftest import SIZES, Bench, make_library, screen_text, until

from gradtui.engine import protocol
from gradtui.help import TOPICS, title
from gradtui.i18n import LANGUAGES, Words
from gradtui.metrics import SITE_METRICS
from gradtui.presets import Library
from gradtui.runs import RunError
from gradtui.runs.schema import Event
from gradtui.ui.actions import ACTIONS, applicable, describe
from gradtui.ui.app import GradtuiApp, Opened
from gradtui.ui.panels.chart_grid import ChartGrid
from gradtui.ui.panels.preset_list import PresetList
from gradtui.ui.session.comparison import square
from gradtui.ui.session.controls import CONTROLS
from gradtui.ui.session.session import Session
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_actions import VIEW_ACTIONS


async def test_the_first_preset_starts_at_once_with_the_second_pinned_beside_it(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: len(bench.engine.sent(protocol.Start)) == 2)
        assert {c.lane for c in bench.engine.sent(protocol.Start)} == {"post-ln", "pre-ln"}  # type: ignore[attr-defined]
        await until(pilot, lambda: "loading torch" in bench.text())


async def test_a_collapse_is_drawn_and_said_in_words(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.collapse("post-ln")
        bench.record("pre-ln", *[make_frame(bench.sites, step, ratio=2.0) for step in range(20)])
        await until(pilot, lambda: "vanished" in bench.text() and "✓ 2×" in bench.text())
        text = bench.text()
        assert "Layer 0 gets 2e-4 of the last layer's gradient since step 14: vanished." in text
        assert "the first optimizer steps began" in text
        assert "▲ Pre-LN: ✓ 2×" in text  # what it is compared with, in short
        for title in ("‖∂L/∂x‖ by layer", "activation RMS by layer", "when: layer × step", "loss over steps"):
            assert title in text
        assert "↓2e-4" in text  # the list's verdict mark
        assert "x ← N(x + f(x))" in text  # the topology


@pytest.mark.parametrize("size", SIZES)
async def test_every_size_shows_the_presets_a_chart_the_verdict_and_the_keys(
    bench: Bench, size: tuple[int, int]
) -> None:
    async with bench.app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.collapse("post-ln")
        await until(pilot, lambda: "vanished" in bench.text())
        text = bench.text()
        assert "Post-LN" in text
        assert "by layer" in text
        assert "1-9 preset" in text
        assert all(len(line) <= size[0] for line in text.splitlines())


async def test_a_digit_switches_starts_and_paints_the_preset(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press("3")
        assert bench.session.focus == "post-rms"
        [start] = [c for c in bench.engine.sent(protocol.Start) if c.lane == "post-rms"]  # type: ignore[attr-defined]
        bench.record("post-rms", make_frame(bench.sites, 0))
        await until(pilot, lambda: "Post-RMSNorm  RMSNorm · ReLU · 4 layers" in bench.text())
        await pilot.press("1", "3")
        await until(pilot, lambda: "step 0/400" in bench.text())
        assert [c for c in bench.engine.sent(protocol.Start) if c.lane == "post-rms"] == [start]  # type: ignore[attr-defined]
        orders = bench.engine.sent(protocol.Order)
        assert orders[-1].lanes[0] == "post-rms"  # type: ignore[attr-defined]


async def test_a_pinned_preset_stays_on_the_charts_with_a_legend(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.collapse("post-ln")
        await pilot.press("p", "4")
        bench.record("pre-rms", make_frame(bench.sites, 0))
        await until(pilot, lambda: "● Post-LN  ▲" in bench.text() or "● Post-LN: ↓" in bench.text())
        assert "◆ Pre-RMSNorm" in bench.text()
        await pilot.press("1", "p", "4")
        await until(pilot, lambda: "● Post-LN: ↓" not in bench.text())


async def test_one_key_overlays_norms_and_topologies(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press("g")
        started = {c.lane for c in bench.engine.sent(protocol.Start)}  # type: ignore[attr-defined]
        assert started == {"post-ln", "pre-ln", "post-rms", "pre-rms"}
        for lane in started:
            bench.record(lane, make_frame(bench.sites, 0))
        await until(pilot, lambda: all(f"{mark} P" in bench.text() for mark in "●▲■◆"))
        await pilot.press("g")  # and back to what there was before
        assert (bench.session.focus, bench.session.pins) == ("post-ln", ["pre-ln"])


async def test_a_preset_that_differs_in_more_is_no_corner_of_the_square(tmp_path: Path) -> None:
    library = make_library()
    wide = library.presets["pre-rms"]
    model = msgspec.structs.replace(wide.model, width=128)
    library.presets["pre-rms"] = msgspec.structs.replace(wide, model=model)
    assert square(Bench(tmp_path, library=library).session.lanes.values()) == []


async def test_m_cycles_the_metrics_and_y_the_scale(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.collapse("post-ln")
        for part in ("‖∂L/∂θ‖ by layer", "update ‖Δθ‖/‖θ‖ by layer", "mean share"):
            for _ in range(2 if part == "mean share" else 1):
                await pilot.press("m")
            await until(pilot, lambda part=part: part in bench.text())
        await until(pilot, lambda: "log · m y" in bench.text())
        await pilot.press("y")
        await until(pilot, lambda: "linear · m y" in bench.text())


async def test_space_n_r_and_the_learning_rate_reach_the_engine(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.record("post-ln", make_frame(bench.sites, 0))
        await pilot.press("space")
        assert bench.engine.sent(protocol.Pause) == [protocol.Pause("post-ln")]
        bench.tell("post-ln", "paused")
        await until(pilot, lambda: " paused " in bench.text())
        await pilot.press("n", "space", "plus", "less_than_sign")
        assert bench.engine.sent(protocol.Step) == [protocol.Step("post-ln")]
        assert bench.engine.sent(protocol.Resume) == [protocol.Resume("post-ln")]
        assert bench.engine.sent(protocol.More) == [protocol.More("post-ln", 100)]
        assert bench.engine.sent(protocol.SetLr) == [protocol.SetLr("post-ln", 0.5)]
        first = bench.engine.sent(protocol.Start)[0]
        await pilot.press("r")
        again = bench.engine.sent(protocol.Start)[-1]
        assert again.seed == first.seed  # type: ignore[attr-defined]
        assert again.run != first.run  # type: ignore[attr-defined]
        await pilot.press("R")
        assert bench.engine.sent(protocol.Start)[-1].seed == first.seed + 1  # type: ignore[attr-defined]


async def test_brackets_travel_through_history_and_0_comes_back(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.collapse("post-ln", steps=20, at=14)
        await until(pilot, lambda: "since step 14" in bench.text())
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "step 18, history" in bench.text())
        await pilot.press("left_curly_bracket")
        await until(pilot, lambda: "step 8, history" in bench.text() and "Healthy" in bench.text())
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: "step 9, history" in bench.text())
        await pilot.press("0")
        await until(pilot, lambda: "» live" in bench.text())
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: "no step beyond" in bench.text())


async def test_a_dead_lane_says_why_keeps_its_curves_and_r_restarts_it(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.collapse("post-ln")
        bench.tell("post-ln", "died", "killed by signal 9 (SIGKILL)")
        await until(pilot, lambda: "killed by signal 9" in bench.text())
        assert "died" in bench.text()
        await until(pilot, lambda: "1e-3" in bench.text())  # the axis of the curve is still there
        await pilot.press("r")
        assert bench.engine.sent(protocol.Start)[-1].lane == "post-ln"  # type: ignore[attr-defined]
        bench.tell("post-ln", "running")
        await until(pilot, lambda: "killed by signal 9" not in bench.text())


async def test_a_dead_engine_says_so_and_the_next_restart_starts_another(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.collapse("post-ln")
        bench.engine.running = False
        bench.app.on_engine_end("killed by signal 9")
        await until(pilot, lambda: "The engine has ended" in bench.text())
        assert bench.session.lanes["post-ln"].state == "died"
        await pilot.press("r")
        await until(pilot, lambda: bench.engine.starts == 2)
        assert bench.engine.sent(protocol.Start)[-1].lane == "post-ln"  # type: ignore[attr-defined]


async def test_a_nan_is_named_by_step_and_site_and_marked(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        frames = [make_frame(bench.sites, step) for step in range(38)]
        frames[37].values[SITE_METRICS.index("act_rms"), 6:] = float("nan")
        frames[37].values[SITE_METRICS.index("stream_grad")] = float("nan")
        nan = Event(37, "nonfinite", 6, None, "forward")
        bench.record("post-ln", *frames, events=(nan,), state="diverged")
        await until(pilot, lambda: "Non-finite at step 37, first in layer 2 feed-forward" in bench.text())
        assert "diverged" in bench.text()
        assert bench.text().count("✕") > 3


async def test_names_with_brackets_and_wide_characters_stay_as_they_are(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press("6", "p", "1")
        bench.record("brackets", make_frame(bench.sites, 0))
        await until(pilot, lambda: bench.text().count("layer [experts] w[/") >= 2)
        await pilot.press("L")
        await until(pilot, lambda: "中文layer [experts] w[/" in bench.text())


async def test_the_language_switches_live_and_completely(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.collapse("post-ln")
        await until(pilot, lambda: "vanished" in bench.text())
        await pilot.press("L")
        await until(pilot, lambda: "自第 14 步起" in bench.text())
        text = bench.text()
        for word in ("预设", "拓扑", "损失", "收费站", "步/秒", "无预热", "自测"):
            assert word in text
        for word in ("vanished", "presets", "loss over", "running", "preset "):
            assert word not in text


async def test_the_list_filters_and_enter_takes_the_first_match(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press("slash", *"rms")
        box = bench.screen.query_one("#presets", PresetList)
        await until(pilot, lambda: box.listed == ["post-rms", "pre-rms"])
        assert bench.session.focus == "post-ln"  # letters went into the filter, not to the lab
        await pilot.press("enter")
        assert bench.session.focus == "post-rms"
        await until(pilot, lambda: len(box.listed) == 6)
        await pilot.press("slash", *"zzz", "enter")
        await until(pilot, lambda: "No preset matches zzz" in bench.text())
        await pilot.press("escape")
        assert not bench.screen.query_one("#filter", Input).display


async def test_arrow_keys_and_enter_choose_a_preset(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await until(pilot, lambda: len(bench.screen.query_one("#presets", PresetList).listed) == 6)
        await pilot.press("down", "j", "enter")
        assert bench.session.focus == "post-rms"


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (140, 44)])
async def test_tab_reaches_every_pane_at_every_size(bench: Bench, size: tuple[int, int]) -> None:
    async with bench.app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.collapse("post-ln")
        seen = set()
        for _ in range(4):
            await pilot.press("tab")
            await pilot.pause(0.2)
            for title in ("∂x‖ by layer", "activation RMS", "when: layer", "loss over"):
                if title in bench.text():
                    seen.add(title)
        assert len(seen) == 4
        await pilot.press("z")
        await pilot.pause(0.2)
        assert sum(title in bench.text() for title in seen) == 1


async def test_resizing_down_to_one_cell_and_back_loses_nothing(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        sizes = ((60, 15), (20, 5), (1, 1), (3, 40), (200, 2), (100, 30), (51, 14), (140, 44))
        for step, (width, height) in enumerate(sizes):
            bench.record("post-ln", make_frame(bench.sites, step))
            await pilot.resize_terminal(width, height)
            await pilot.pause(0.15)
        await until(pilot, lambda: "step 7/400" in bench.text() and "by layer" in bench.text())


async def test_a_small_terminal_says_what_it_needs(bench: Bench) -> None:
    async with bench.app.run_test(size=(40, 10), notifications=True) as pilot:
        await until(pilot, lambda: "too small" in bench.text())
        assert "40×10" in bench.text()
        assert "50×14" in re.sub(r"\s+", "", bench.text())


async def test_s_saves_the_screen_and_says_where(bench: Bench, tmp_path: Path) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press("s")
        await until(pilot, lambda: "Screen saved" in bench.text())
        [saved] = (tmp_path / "screenshots").glob("*.svg")
        assert "<svg" in saved.read_text()


async def test_help_and_palette_list_every_action(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 60), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press("question_mark")
        await until(pilot, lambda: "How to read it" in bench.text())
        text = bench.text()
        words = bench.app.words
        for name, action in applicable(engine=True).items():
            assert describe(name, words) in text
            assert action.key in text
        await pilot.press("escape")
        titles = [command.title for command in bench.app.get_system_commands(bench.screen)]
        for name in applicable(engine=True):
            assert name in ("preset", "palette") or describe(name, words) in titles
        assert "Pre-LN" in titles


def test_every_action_is_bound_described_and_has_a_handler() -> None:
    from gradtui.ui.screens.lab import LabScreen

    keys = [key for action in ACTIONS.values() for key in action.keys]
    assert len(keys) == len(set(keys))
    screen_keys = {binding.key for binding in LabScreen.BINDINGS}
    app_keys = {binding.key for binding in GradtuiApp.BINDINGS} | {"ctrl+p"}
    for name, action in ACTIONS.items():
        for language in LANGUAGES:
            assert describe(name, Words(language)).strip()
        assert set(action.keys) <= screen_keys | app_keys, name
        handler, _, argument = action.call(name).partition("(")
        owner = GradtuiApp if handler.startswith("app.") else LabScreen
        assert callable(getattr(owner, f"action_{handler.removeprefix('app.')}"))
        if handler in ("control", "view"):
            assert argument.strip("')") in (CONTROLS if handler == "control" else VIEW_ACTIONS)


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_quitting_ends_the_engine(bench: Bench, key: str) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press(key)
    assert bench.engine.stopped
    assert bench.app.return_value == 0


async def test_watching_recorded_runs_shows_them_and_refuses_to_control_them(make_run: RunMaker) -> None:
    files = [
        make_run("one", ratios=[1, 1e-4], events=(Event(1, "vanished", 0, 1e-4),)),
        make_run("two", ratios=[1, 2, 3], status="diverged"),
    ]
    app = GradtuiApp(lambda _app: Opened(Session.of_files(files)), language="en", data=files[0].parent)
    async with app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: "● one s0 · 1" in screen_text(app) and "▲ two s0 · 2" in screen_text(app))
        assert "since step 1: vanished" in screen_text(app)
        await pilot.press("space")
        await until(pilot, lambda: "recorded run" in screen_text(app))
        assert "restart" not in screen_text(app).splitlines()[-1]


async def test_no_preset_at_all_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, library=Library())
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: "No preset could be read" in bench.text())
        await pilot.press("1", "p", "space", "r", "n", "g", "left_square_bracket", "m", "plus")
        await until(pilot, lambda: "No preset could be read" in bench.text())


async def test_nothing_is_repainted_while_nothing_changes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.collapse("post-ln")
        await until(pilot, lambda: "vanished" in bench.text())
        await pilot.pause(0.5)
        painted: list[LabSnapshot] = []
        show = ChartGrid.show

        def counted(grid: ChartGrid, snapshot: LabSnapshot) -> None:
            painted.append(snapshot)
            show(grid, snapshot)

        monkeypatch.setattr(ChartGrid, "show", counted)
        await asyncio.sleep(0.6)
        assert painted == []
        bench.record("post-ln", make_frame(bench.sites, 20))
        await until(pilot, lambda: painted)


async def test_the_disk_being_full_is_said_on_screen(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.record("post-ln", make_frame(bench.sites, 0))
        bench.tell("post-ln", "paused", "x.gradtui cannot be written: database or disk is full")
        await until(pilot, lambda: "disk is full" in bench.text())


async def test_two_restarts_in_one_second_are_two_runs(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press("r", "r", "r")
        runs = [command.run for command in bench.engine.sent(protocol.Start)]  # type: ignore[attr-defined]
        assert len(runs) == len(set(runs)) == 5


async def test_a_run_file_that_turns_out_damaged_ends_its_lane_not_the_lab(
    make_run: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [make_run("whole", ratios=[1, 1]), make_run("broken", ratios=[1] * 300, layers=8)]
    app = GradtuiApp(lambda _app: Opened(Session.of_files(files)), language="en", data=files[0].parent)
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "broken s0" in screen_text(app))
        series = next(lane.series for lane in app.session.lanes.values() if lane.title == "broken s0")
        assert series is not None

        def damaged(*_arguments: object) -> None:
            raise RunError("broken.gradtui cannot be read: database disk image is malformed")

        for method in ("refresh", "frame", "window", "loss_window", "nearest_step"):
            monkeypatch.setattr(series.reader, method, damaged)
        await pilot.press("tab", "x", "m", "left_square_bracket")
        await until(pilot, lambda: "disk image is malformed" in screen_text(app))
        assert "whole s0" in screen_text(app)
        assert app.is_running


async def test_a_title_with_markup_is_plain_text_in_the_palette(bench: Bench) -> None:
    async with bench.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press("ctrl+p", *"experts")
        await until(pilot, lambda: "layer [experts] w[/" in screen_text(bench.app))
        await pilot.press("escape")
        assert bench.app.is_running


async def test_the_filter_is_seen_where_the_list_is_folded_away(bench: Bench) -> None:
    async with bench.app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press("slash")
        await until(pilot, lambda: "filter" in bench.text())
        await pilot.press(*"pre-r", "enter")
        assert bench.session.focus == "pre-rms"
        await pilot.press("2")
        assert bench.session.focus == "pre-ln"


@pytest.mark.parametrize(("key", "starts"), [("4", "pre-rms"), ("g", "pre-rms"), ("r", "post-ln")])
async def test_whatever_needs_an_engine_after_it_died_starts_another(bench: Bench, key: str, starts: str) -> None:
    async with bench.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        bench.engine.running = False
        bench.app.on_engine_end("killed by signal 9")
        await pilot.press(key)
        await until(pilot, lambda: bench.engine.starts == 2)
        await until(pilot, lambda: bench.engine.sent(protocol.Start)[-1].lane == starts)  # type: ignore[attr-defined]


async def test_the_first_steps_of_a_long_run_are_shown_one_by_one(make_run: RunMaker) -> None:
    ratios = [1.0] * 5 + [1e-3] * 4995
    session = Session.of_files([make_run("long", ratios=ratios)])
    lane = session.lanes[session.focus]
    field = lane.ask(lambda run: run.field("stream_grad", 48))
    assert field is not None
    assert field.steps[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert field.values[0, 4] == pytest.approx(1.0)
    assert field.values[0, 5] == pytest.approx(1e-3, rel=1e-3)
    assert np.all(np.diff(field.steps) > 0)
    assert len(field.steps) < 1500
    window = lane.ask(lambda run: run.losses(48))
    assert window is not None
    assert window.steps[:3].tolist() == [0, 1, 2]
    session.close()


@pytest.mark.parametrize("size", SIZES)
async def test_help_turns_from_the_keys_to_the_pages_of_the_handbook(bench: Bench, size: tuple[int, int]) -> None:
    async with bench.app.run_test(size=size) as pilot:
        await until(pilot, lambda: bench.engine.sent(protocol.Start))
        await pilot.press("question_mark")
        await until(pilot, lambda: "keys · 1/" in bench.text())
        await pilot.press("right")
        await until(pilot, lambda: title(TOPICS[0], "en") in bench.text() and "· 2/" in bench.text())
        await pilot.press("left", "left")
        await until(pilot, lambda: title(TOPICS[-1], "en") in bench.text())
        await pilot.press("escape")
        await until(pilot, lambda: "1-9 preset" in bench.text().splitlines()[-1])
