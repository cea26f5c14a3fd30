"""The table of sites, and the charts of models that are nobody's preset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ui.conftest import SIZES, screen_text, until
from ui.foreign import ALL, EN, ZH, encoder_decoder, modules, record, stack

from gradtui.analysis.verdict import Verdict
from gradtui.metrics import CLIPPED, SITE_METRICS, STREAM_METRICS
from gradtui.runs.schema import Event, Site
from gradtui.ui.app import GradtuiApp, Opened
from gradtui.ui.charts import painting
from gradtui.ui.panels.sites_panel import SitesPanel, squeeze
from gradtui.ui.session.lane import Lane, forward_only, points_of
from gradtui.ui.session.session import Session
from gradtui.ui.session.site_table import EXACT_STEPS, LAYER, NAME, ORDER, Filter, SiteTable
from gradtui.ui.text.verdict import verdict_in_words

GRAD, ACT, STREAM = (SITE_METRICS.index(name) for name in ("grad_norm", "act_rms", "stream_grad"))


def lane_of(path: Path) -> Lane:
    lane = Session.of_files([path]).focused
    assert lane is not None
    return lane


def table_of(path: Path, **settings: object) -> SiteTable:
    table = SiteTable(**settings)  # type: ignore[arg-type]
    table.update(lane_of(path), None)
    return table


def app_of(*paths: Path, language: str = "en") -> GradtuiApp:
    return GradtuiApp(lambda _app: Opened(Session.of_files(paths)), language=language, data=paths[0].parent)


def names(table: SiteTable) -> list[str]:
    return [table.sites[row].name for row in table.rows]


# --- the table


def trouble(step: int, values: np.ndarray) -> None:
    """layers.0 vanishes, layers.1 gets no gradient, layers.2 exactly zero, layers.3 is poisoned at step 5 only."""
    values[STREAM, 0:2] = 1e-4
    values[GRAD, 2] = -1
    values[GRAD, 3] = 0
    if step == 5:
        values[GRAD, 4] = np.nan
    if step >= 7:
        values[ACT, 5] = np.inf


def test_notes_tell_no_gradient_from_vanished_and_name_the_first_bad_step(tmp_path: Path) -> None:
    sites = stack("layers", 6)
    events = [Event(5, "nonfinite", 4, None, "backward")]
    path = record(tmp_path / "a.gradtui", sites, change=trouble, events=events, frozen=["layers.5"])
    table = table_of(path)
    notes = [table.note(site, EN)[0] for site in range(len(sites))]
    assert notes[0] == notes[1] == "vanished, 1e-4 of last"
    assert notes[2] == "no gradient: unused or tied"
    assert notes[3] == "no gradient: exactly 0"
    assert "NaN at step 5" in notes[4]
    assert notes[5] == "NaN since step 7"
    assert notes[6] == "no gradient: frozen"
    assert table.cell(5, "act_rms") == ("∞", True)
    assert table.cell(2, "grad_norm") == ("", False)


def test_an_absent_gradient_is_never_called_vanished(tmp_path: Path) -> None:
    sites = stack("layers", 6)

    def change(_step: int, values: np.ndarray) -> None:
        values[[GRAD, STREAM], 1:3] = -1

    table = table_of(record(tmp_path / "a.gradtui", sites, change=change))
    for site in range(len(sites)):
        assert "vanished" not in table.note(site, EN)[0]


def test_a_note_about_trouble_is_of_its_own_time(tmp_path: Path) -> None:
    sites = stack("layers", 6)
    events = [Event(5, "nonfinite", 4, None, "backward")]
    lane, table = lane_of(record(tmp_path / "a.gradtui", sites, change=trouble, events=events)), SiteTable()
    table.update(lane, 3)
    assert "NaN" not in table.note(4, EN)[0]
    table.update(lane, 5)
    assert table.note(4, EN)[0] == "NaN since step 5"


def test_late_trouble_in_a_long_run_is_found_too(tmp_path: Path) -> None:
    late = EXACT_STEPS + 2000

    def change(step: int, values: np.ndarray) -> None:
        if step == 2:
            values[GRAD, 1] = np.nan
        if step >= late:
            values[GRAD, 2] = np.nan

    events = [Event(2, "nonfinite", 1, None, "backward")]
    sites = stack("layers", 2)
    table = table_of(record(tmp_path / "a.gradtui", sites, change=change, events=events, steps=late + 20))
    assert table.note(1, EN)[0] == "NaN at step 2"
    note = table.note(2, EN)[0]
    assert note.startswith("NaN from about step ")
    assert 0 <= late - int(note.rsplit(" ", 1)[1]) < 64


@pytest.mark.parametrize("descending", [True, False])
def test_sorting_puts_trouble_first_and_what_is_absent_last(tmp_path: Path, descending: bool) -> None:
    sites = modules(6)

    def change(_step: int, values: np.ndarray) -> None:
        values[GRAD] = [3, -1, np.nan, 1, 2, -1]

    table = table_of(record(tmp_path / "a.gradtui", sites, change=change), sort="grad_norm", descending=descending)
    middle = [0, 4, 3] if descending else [3, 4, 0]
    assert table.rows == [2, *middle, 1, 5]


@pytest.mark.parametrize("sort", ["", NAME, LAYER, *SITE_METRICS])
@pytest.mark.parametrize("descending", [True, False])
def test_every_column_sorts_every_site_exactly_once(tmp_path: Path, sort: str, descending: bool) -> None:
    table = table_of(record(tmp_path / "a.gradtui", encoder_decoder(), steps=1), sort=sort, descending=descending)
    assert sorted(table.rows) == list(range(len(table.sites)))


def test_the_filter_is_a_regular_expression_or_plain_text_and_says_which(tmp_path: Path) -> None:
    path = record(tmp_path / "a.gradtui", [*modules(12), Site("conv[1]", 12, "module")], steps=1)
    table = table_of(path, filter=Filter.of(r"\.1\d$"))
    assert names(table) == ["features.10", "features.11"]
    plain = Filter.of("conv[")
    assert plain.problem
    assert names(table_of(path, filter=plain)) == ["conv[1]"]
    assert names(table_of(path, filter=Filter.of("CONV"))) == ["conv[1]"]


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_filter_at_all_breaks_the_table(pattern: str, name: str) -> None:
    assert isinstance(Filter.of(pattern).matches(name), bool)


def test_the_table_has_a_column_for_every_metric() -> None:
    assert set(ORDER) == {*SITE_METRICS, CLIPPED}


@given(st.text(alphabet="abc.中", max_size=40), st.integers(3, 30))
def test_a_long_name_keeps_its_beginning_and_its_end(name: str, width: int) -> None:
    from rich.cells import cell_len

    short = squeeze(name, width)
    assert cell_len(short) <= width
    if name.isascii() and len(name) > width:
        assert short.endswith(name[-(width - 1 - (width - 1) // 3) :])


# --- on screen


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_w_lists_sites_filters_sorts_and_shows_a_curve(
    tmp_path: Path, size: tuple[int, int], language: str
) -> None:
    path = record(tmp_path / "a.gradtui", encoder_decoder(), ALL, skipped=["quantised.[zero]"])
    app = app_of(path, language=language)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "a.py" in screen_text(app) or "a " in screen_text(app))
        await pilot.press("w")
        await until(pilot, lambda: "quantised.[zero]" in screen_text(app))
        text = screen_text(app)
        assert "layers.3" in text
        assert (EN if language == "en" else ZH)("sites.note") in text
        await pilot.press("slash", *"decoder.*2", "enter")
        await until(pilot, lambda: "layers.3" not in screen_text(app))
        assert "layers.2" in screen_text(app)
        await pilot.press("enter")
        await until(
            pilot, lambda: "model.decoder.layers.2: " in screen_text(app) or "layers.2：" in screen_text(app)
        )
        await pilot.press("escape")  # the filter
        await until(pilot, lambda: "layers.3" in screen_text(app))
        await pilot.press("escape", "escape")  # the curve, the view
        await until(pilot, lambda: not app.screen.query_one(SitesPanel).display)


async def test_the_table_sorts_by_the_arrows_and_by_a_click_on_its_head(tmp_path: Path) -> None:
    def change(_step: int, values: np.ndarray) -> None:
        values[STREAM, 1] = 9

    app = app_of(record(tmp_path / "a.gradtui", stack("layers", 4), change=change))
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "▶1" in screen_text(app))
        await pilot.press("w")
        await until(pilot, lambda: "stream" in screen_text(app))
        rows = app.screen.query_one(SitesPanel).rows
        await pilot.press("right", "right", "right")
        await until(pilot, lambda: "stream▼" in screen_text(app))
        assert names(rows.table)[0] == "layers.0"
        await pilot.press("v")
        await until(pilot, lambda: "stream▲" in screen_text(app))
        head = rows.head(rows.scrollable_content_region.width).plain
        await pilot.click(rows, offset=(head.index("layer "), 0))
        await until(pilot, lambda: rows.table.sort == LAYER)


async def test_two_thousand_sites_scroll_and_only_those_in_sight_are_put_into_words(tmp_path: Path) -> None:
    app = app_of(record(tmp_path / "a.gradtui", modules(2000), ("grad_norm",), steps=3))
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "▶1" in screen_text(app))
        await pilot.press("w")
        await until(pilot, lambda: "features.0 " in screen_text(app))
        rows = app.screen.query_one(SitesPanel).rows
        made: list[int] = []
        original = rows.row
        rows.row = lambda index, width: (made.append(index), original(index, width))[1]  # type: ignore[assignment,method-assign]
        await pilot.press("end")
        await until(pilot, lambda: "features.1999" in screen_text(app))
        await pilot.press("pageup", "up", "home")
        await until(pilot, lambda: "features.0 " in screen_text(app))
        assert len(set(made)) < 200


async def test_a_filter_that_is_no_expression_is_said(tmp_path: Path) -> None:
    app = app_of(record(tmp_path / "a.gradtui", modules(5), ("grad_norm",)))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "▶1" in screen_text(app))
        await pilot.press("w", "slash", *"features[")
        await until(pilot, lambda: "taken as plain text" in screen_text(app))
        assert "No site matches." in screen_text(app)


# --- charts of any model


def test_models_without_a_stream_or_without_layers_have_an_axis_of_depth() -> None:
    assert points_of(modules(3), "act_rms").groups == ((0,), (1,), (2,))
    loose = [Site("lstm", None, "module"), Site("head", None, "module")]
    assert points_of(loose, "grad_norm").groups == ((0,), (1,))


def test_stacks_follow_one_another_with_a_boundary_and_short_names(tmp_path: Path) -> None:
    lane = lane_of(record(tmp_path / "a.gradtui", encoder_decoder()))
    assert lane.bands("stream_grad") == ((0, "model.encoder.layers"), (5, "model.decoder.layers"))
    assert lane.bands("grad_norm") == ((0, "model.encoder.layers"), (4, "model.decoder.layers"))
    assert painting.short_names(lane.bands("grad_norm")) == ((0, "encoder"), (4, "decoder"))
    assert painting.short_names(((0, "a"), (2, "a.a"))) == ((0, "a"), (2, "a.a"))


def drawn(painter: painting.Painter, width: int = 60, height: int = 16) -> list[str]:
    return ["".join(span.text for span in line) for line in painter(width, height)]


def test_no_line_leads_from_one_stack_into_the_next(tmp_path: Path) -> None:
    lane = lane_of(record(tmp_path / "a.gradtui", encoder_decoder()))
    lines = drawn(painting.depth_painter([lane], "grad_norm", None, True, EN, ""))
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
    text = "\n".join(drawn(painting.depth_painter([lane], "grad_norm", None, True, EN, "")))
    assert "after clipping" in text
    assert "▵" in text
    assert "▵" not in "\n".join(drawn(painting.depth_painter([lane], "stream_grad", None, True, EN, "")))


def test_a_run_without_a_loss_says_how_to_log_one(tmp_path: Path) -> None:
    lane = lane_of(record(tmp_path / "a.gradtui", modules(3), ("grad_norm",), loss=None))
    lines = drawn(painting.loss_painter([lane], None, log_steps=True, words=EN, empty=""))
    assert "probe.log" in "\n".join(lines)
    assert lane.spark == []


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
    depth = drawn(painting.depth_painter([lane], metric, None, True, EN, ""))
    assert any("1e-6" in line for line in depth)
    settings = {"log": True, "log_steps": False, "words": EN, "empty": ""}
    heat = drawn(painting.heat_painter(lane, metric, None, mode="shade", **settings))  # type: ignore[arg-type]
    assert any("✕" in line for line in heat)
    assert any("·" in line[8:20] for line in heat)


@given(st.lists(st.integers(0, 100), max_size=30))
def test_rows_of_windows_that_overlap_go_only_forward(steps: list[int]) -> None:
    kept = np.array(steps)[forward_only(np.array(steps, dtype=int))]
    assert np.all(np.diff(kept) > 0)
    assert max(steps, default=0) == max(kept, default=0)


def test_metrics_of_the_stream_are_known() -> None:
    assert set(SITE_METRICS) >= STREAM_METRICS
