"""The run picker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ui.conftest import SIZES, Bench, screen_text, until
from ui.foreign import frame, modules, record, stack

from gradtui.runs.writer import RunWriter
from gradtui.ui import launch
from gradtui.ui.app import GradtuiApp, Opened
from gradtui.ui.screens.runs import RunsScreen
from gradtui.ui.session.run_directory import RunDirectory
from gradtui.ui.session.session import Session


def three(directory: Path) -> list[Path]:
    """An old run, a newer one, and one that is live although it is the oldest."""
    old = record(directory / "old.gradtui", modules(3), started=1000.0)
    new = record(directory / "new.gradtui", stack("layers", 3), started=2000.0, status="failed", reason="boom")
    live = record(directory / "live.gradtui", stack("layers", 3), started=500.0, status=None, pid=os.getpid())
    return [old, new, live]


def app_of(session: Session, directory: Path, language: str = "en") -> GradtuiApp:
    return GradtuiApp(lambda _app: Opened(session), language=language, data=directory)


def test_live_runs_come_first_then_the_newest_and_damaged_files_are_listed(tmp_path: Path) -> None:
    three(tmp_path)
    (tmp_path / "damaged.gradtui").write_bytes(b"no database")
    (tmp_path / ".draft.gradtui").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("")
    run_directory = RunDirectory(tmp_path)
    assert run_directory.scan()
    names = [entry.name for entry in run_directory.entries]
    assert [name for name in names if name != "damaged"] == ["live", "new", "old"]
    damaged = next(entry for entry in run_directory.entries if entry.name == "damaged")
    assert "not a gradtui run file" in damaged.error
    assert not run_directory.scan()


def test_a_run_directory_reads_again_only_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradtui.ui.session import run_directory as module

    three(tmp_path)
    run_directory = RunDirectory(tmp_path)
    run_directory.scan()
    read: list[str] = []
    original = module.look
    monkeypatch.setattr(module, "look", lambda path: (read.append(path.name), original(path))[1])
    run_directory.scan()
    assert read == ["live.gradtui"]  # whether its process lives is written nowhere
    (tmp_path / "old.gradtui").unlink()
    assert run_directory.scan()
    assert [entry.name for entry in run_directory.entries] == ["live", "new"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_o_lists_the_runs_and_enter_shows_one(tmp_path: Path, size: tuple[int, int], language: str) -> None:
    old, _, _ = three(tmp_path)
    app = app_of(Session.of_files([old]), tmp_path, language)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "old" in screen_text(app))
        await pilot.press("o")
        await until(pilot, lambda: "live" in screen_text(app) and "new" in screen_text(app))
        assert "new.py" in screen_text(app) or size == (80, 24)
        await pilot.press("down", "enter")
        await until(pilot, lambda: not isinstance(app.screen, RunsScreen))
        await until(pilot, lambda: "boom" in screen_text(app))
        assert [lane.title for lane in app.session.lanes.values()] == ["new"]


async def test_space_lays_a_run_over_and_takes_it_away_again(tmp_path: Path) -> None:
    old, _, _ = three(tmp_path)
    session = Session.of_files([old])
    app = app_of(session, tmp_path)
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "old" in screen_text(app))
        await pilot.press("o")
        await until(pilot, lambda: "3 of 3" in screen_text(app))
        await pilot.press("space", "down", "p")
        await until(pilot, lambda: len(session.shown) == 3)
        assert [lane.title for lane in session.shown] == ["old", "live", "new"]
        assert len({lane.color for lane in session.shown}) == 3
        await pilot.press("up", "space")
        await until(pilot, lambda: [lane.title for lane in session.shown] == ["old", "new"])
        await pilot.press("escape")
        await until(pilot, lambda: "▲" not in screen_text(app) and "■" in screen_text(app))


async def test_the_picker_filters_and_shows_runs_that_appear_later(tmp_path: Path) -> None:
    old, _, _ = three(tmp_path)
    app = app_of(Session.of_files([old]), tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "old" in screen_text(app))
        await pilot.press("o", "slash", *"late")
        await until(pilot, lambda: "No run matches late" in screen_text(app))
        record(tmp_path / "later [x].gradtui", modules(2))
        await until(pilot, lambda: "later [x]" in screen_text(app))
        await pilot.press("enter", "enter")
        await until(pilot, lambda: app.session.focused is not None and app.session.focused.title == "later [x]")


async def test_a_damaged_file_is_said_and_changes_nothing(tmp_path: Path) -> None:
    old = record(tmp_path / "old.gradtui", modules(3))
    (tmp_path / "damaged.gradtui").write_bytes(b"no database")
    app = app_of(Session.of_files([old]), tmp_path)
    async with app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: "old" in screen_text(app))
        await pilot.press("o")
        await until(pilot, lambda: "2 of 2" in screen_text(app))
        rows = app.screen.query_one("#runs-rows")
        index = [entry.name for entry in rows.entries].index("damaged")  # type: ignore[attr-defined]
        await pilot.press("home", *["down"] * index, "enter")
        await pilot.pause(0.3)
        assert isinstance(app.screen, RunsScreen)
        assert [lane.title for lane in app.session.lanes.values()] == ["old"]


async def test_in_the_lab_recorded_runs_are_laid_over_and_trained_ones_stay(bench: Bench, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    record(runs / "earlier.gradtui", stack("layers", 4))
    async with bench.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: bench.session.lanes["post-ln"].run is not None)
        bench.collapse("post-ln")
        await pilot.press("o")
        await until(pilot, lambda: "earlier" in screen_text(bench.app))
        rows = bench.app.screen.query_one("#runs-rows")
        names = [entry.name for entry in rows.entries]  # type: ignore[attr-defined]
        await pilot.press("home", *["down"] * names.index("earlier"), "space")
        await until(pilot, lambda: "earlier" in [lane.title for lane in bench.session.shown])
        own = names.index(next(name for name in names if name.startswith("post-ln")))
        await pilot.press("home", *["down"] * own, "space")
        await until(pilot, lambda: "cannot be taken away" in screen_text(bench.app))
        await pilot.press("escape", "G", "enter")
        await until(pilot, lambda: bench.session.focused is not None and bench.session.focused.recorded)
        await pilot.press("r")
        await until(pilot, lambda: "recorded run" in bench.text())


async def test_the_first_run_of_an_empty_directory_is_shown_when_it_appears(tmp_path: Path) -> None:
    app = app_of(Session.of_files([], tmp_path), tmp_path)
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "There is no run in" in screen_text(app))
        sites = modules(4)
        with RunWriter(tmp_path / "first.gradtui", sites, {"name": "first"}, metrics=("grad_norm",)) as writer:
            writer.append(frame(sites, ("grad_norm",), 0))
            writer.flush()
            await until(pilot, lambda: "step 0" in screen_text(app))


def test_watching_a_directory_begins_with_its_newest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three(tmp_path)
    (tmp_path / "damaged.gradtui").write_bytes(b"no database")
    labs: list[Session] = []
    monkeypatch.setattr(launch, "_watch", lambda lab, _language: labs.append(lab) or 0)
    assert launch.launch_pick(tmp_path, language="en") == 0
    assert [lane.title for lane in labs[0].shown] == ["new"]
    assert launch.launch_pick(tmp_path / "nothing", language="en") == 0
    assert labs[1].shown == []
