"""The table of sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ui.conftest import SIZES, screen_text, until
from ui.foreign import ALL, EN, ZH, encoder_decoder, modules, record, stack

from gradtui.metrics import CLIPPED, SITE_METRICS
from gradtui.runs.schema import Event, Site
from gradtui.ui.app import GradtuiApp, Opened
from gradtui.ui.panels.sites_panel import SitesPanel, squeeze
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.session import Session
from gradtui.ui.session.site_table import COLUMNS, EXACT_STEPS, LAYER, NAME, Filter, SiteTable

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
    assert set(COLUMNS) == {*SITE_METRICS, CLIPPED}


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
