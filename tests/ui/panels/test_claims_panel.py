"""The claims about a preset under its charts, with marks that follow its run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from conftest import RunMaker, make_frame
from rich.cells import cell_len
from ui.conftest import Bench, screen_text, until

from gradtui.engine import protocol
from gradtui.i18n import LANGUAGES, Words
from gradtui.presets import flatten, load_library
from gradtui.ui.app import GradtuiApp, Opened
from gradtui.ui.panels.claims_panel import claim_lines
from gradtui.ui.session.session import Session
from gradtui.verify.claims import load_claims
from gradtui.verify.live import Marked

FALLS = "Without warm-up, Post-LN's gradient at layer 0 falls"


@pytest.fixture
def lessons(tmp_path: Path) -> Iterator[Bench]:
    library = load_library()
    one = Bench(tmp_path, library=library)
    one.facts = {name: {"preset": flatten(preset)} for name, preset in library.presets.items()}
    yield one
    one.close()


async def test_a_claims_mark_follows_the_run(lessons: Bench) -> None:
    async with lessons.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: lessons.engine.sent(protocol.Start))
        lessons.collapse("post-ln")
        await until(pilot, lambda: f"… §2 {FALLS}" in lessons.text())
        lessons.record("post-ln", make_frame(lessons.sites, 20, ratio=2e-4))
        await until(pilot, lambda: f"✓ §2 {FALLS}" in lessons.text())
        assert "2e-4 · < 0.01" in lessons.text()
        await pilot.press("L")
        await until(pilot, lambda: "课文的论断" in lessons.text())


async def test_c_puts_the_claims_away_and_back(lessons: Bench) -> None:
    async with lessons.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: lessons.engine.sent(protocol.Start))
        lessons.collapse("post-ln")
        await until(pilot, lambda: FALLS in lessons.text())
        await pilot.press("c")
        await until(pilot, lambda: FALLS not in lessons.text())
        await pilot.press("c")
        await until(pilot, lambda: FALLS in lessons.text())


@pytest.mark.parametrize("size", [(100, 30), (80, 24)])
async def test_where_there_is_little_room_c_brings_the_claims_up(lessons: Bench, size: tuple[int, int]) -> None:
    async with lessons.app.run_test(size=size) as pilot:
        await until(pilot, lambda: lessons.engine.sent(protocol.Start))
        lessons.collapse("post-ln")
        await until(pilot, lambda: "vanished" in lessons.text())
        assert "the lesson's claims" not in lessons.text()
        await pilot.press("c")
        await until(pilot, lambda: "the lesson's claims" in lessons.text() and "… §2 Without" in lessons.text())
        assert "by layer" in lessons.text()


async def test_a_preset_without_claims_of_its_own_says_so(lessons: Bench) -> None:
    async with lessons.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: lessons.engine.sent(protocol.Start))
        lessons.screen.select("sandwich")
        await pilot.press("c")
        await until(pilot, lambda: "no claim that Sandwich-LN" in lessons.text())


async def test_a_run_with_other_settings_says_nothing_of_the_claims(make_run: RunMaker) -> None:
    preset = load_library().get("post-ln")
    for name, shown in ((preset, True), (msgspec.structs.replace(preset, corpus="markov"), False)):
        path = make_run(f"run-{shown}", ratios=[1.0] * 5, facts={"preset": flatten(name)})
        session = Session.of_files([path])
        app = GradtuiApp(lambda _app, session=session: Opened(session), language="en", data=path.parent)
        async with app.run_test(size=(140, 44)) as pilot:
            await until(pilot, lambda app=app: "by layer" in screen_text(app))
            await pilot.pause(0.3)
            assert (FALLS in screen_text(app)) == shown


@pytest.mark.parametrize("width", [30, 76, 104])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_claim_is_one_line_that_fits(width: int, language: str) -> None:
    states = (("holds", 1e-5), ("not yet", float("nan")), ("does not hold", 3.0))
    marked = [
        Marked(claim, mark, value, mark != "not yet")  # type: ignore[arg-type]
        for claim, (mark, value) in zip(load_claims().claims.values(), states, strict=False)
    ]
    text = claim_lines(marked, Words(language), width)
    rows = text.plain.split("\n")
    assert len(rows) == len(marked) == 3
    assert all(cell_len(row) <= width for row in rows)
    assert [row[0] for row in rows] == ["✓", "…", "✗"]
