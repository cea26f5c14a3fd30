"""Many presets: groups, digits for the lesson's, a filter, and a list that comes up where it has no room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from textual.widgets import Input
from ui.conftest import Bench, make_library, until

from gradtui.engine import protocol
from gradtui.i18n import Localized
from gradtui.presets import Library, load_library
from gradtui.ui.panels.preset_list import PresetList


def grouped() -> Library:
    """Eleven of the lesson, two of Kimi K3, one alternative."""
    [model, *_] = make_library().presets.values()
    rows = [(f"lesson-{n:02}", f"Lesson {n}", "", "lesson") for n in range(1, 12)]
    rows += [
        ("k3-latent-moe", "K3 LatentMoE", "潜空间专家", "kimi-k3"),
        ("mini", "All of it", "全部", "kimi-k3"),
        ("sandwich", "Sandwich-LN", "夹心", "alternatives"),
    ]
    presets = [
        msgspec.structs.replace(model, id=name, title=Localized(en=title, zh=chinese), group=group)
        for name, title, chinese, group in rows
    ]
    return Library({preset.id: preset for preset in presets})


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Bench]:
    one = Bench(tmp_path, library=grouped())
    yield one
    one.close()


def listed(bench: Bench) -> list[str]:
    return [name for box in bench.app.screen.query(PresetList) for name in box.listed]


def test_the_shipped_presets_give_their_digits_to_the_lessons_alone(tmp_path: Path) -> None:
    library = load_library()
    bench = Bench(tmp_path, library=library)
    lesson = [preset.id for preset in library.presets.values() if preset.group == "lesson"]
    assert list(bench.session.digits) == lesson[:9]
    assert len(library.presets) > 9


async def test_groups_stand_over_their_presets_in_both_languages(many: Bench) -> None:
    async with many.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "─ the lesson ─" in many.text() and "─ alternatives ─" in many.text())
        text = many.text()
        assert text.index("the lesson") < text.index("Lesson 11") < text.index("─ Kimi K3") < text.index("All of")
        assert " 9 " in text
        await pilot.press("L")
        await until(pilot, lambda: "─ 课文 ─" in many.text() and "─ 其他方案 ─" in many.text())


async def test_a_digit_is_the_lessons_and_no_other_presets(many: Bench) -> None:
    async with many.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: many.engine.sent(protocol.Start))
        await pilot.press("9")
        assert many.session.focus == "lesson-09"
        assert set(many.session.digits.values()) == set(range(1, 10))
        assert "k3-latent-moe" not in many.session.digits


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("k3", ["k3-latent-moe", "mini"]),  # a name, and a group of it
        ("KIMI", ["k3-latent-moe", "mini"]),
        ("sandw", ["sandwich"]),
        ("altern", ["sandwich"]),
        ("夹心", ["sandwich"]),
        ("其他", ["sandwich"]),
        ("lesson-1", ["lesson-10", "lesson-11"]),
    ],
)
async def test_the_filter_looks_at_ids_titles_and_groups_in_both_languages(
    many: Bench, typed: str, found: list[str]
) -> None:
    async with many.app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: listed(many))
        await pilot.press("slash")
        many.screen.query_one("#filter", Input).value = typed
        await until(pilot, lambda: listed(many) == found)
        await pilot.press("enter")
        assert many.session.focus == found[0]
        await until(pilot, lambda: len(listed(many)) == 14)


async def test_arrows_in_the_filter_move_through_what_matches(many: Bench) -> None:
    async with many.app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: listed(many))
        await pilot.press("slash", *"k3")
        await until(pilot, lambda: len(listed(many)) == 2)
        await pilot.press("down", "enter")
        assert many.session.focus == "mini"


@pytest.mark.parametrize("size", [(140, 44), (100, 30), (80, 24)])
async def test_the_last_preset_is_two_keys_away_at_every_size(many: Bench, size: tuple[int, int]) -> None:
    async with many.app.run_test(size=size) as pilot:
        await until(pilot, lambda: many.engine.sent(protocol.Start))
        if size == (80, 24):
            await pilot.press("down")  # where the list is folded away, this brings it up
            await until(pilot, lambda: "─ the lesson ─" in many.text())
        await pilot.press("G", "enter")
        assert many.session.focus == "sandwich"
        await until(pilot, lambda: "Sandwich-LN" in many.text() and "by layer" in many.text())
        many.record("sandwich")


async def test_where_the_list_is_folded_away_escape_brings_it_up_and_puts_it_away(many: Bench) -> None:
    async with many.app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: many.engine.sent(protocol.Start))
        assert "─ the lesson ─" not in many.text()
        await pilot.press("escape")
        await until(pilot, lambda: "─ the lesson ─" in many.text())
        await pilot.press("escape")
        await until(pilot, lambda: "─ the lesson ─" not in many.text() and "by layer" in many.text())
        assert many.session.focus == "lesson-01"


async def test_where_the_list_is_folded_away_the_filter_shows_what_matches(many: Bench) -> None:
    async with many.app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: many.engine.sent(protocol.Start))
        await pilot.press("slash", *"k3")
        await until(pilot, lambda: "K3 LatentMoE" in many.text() and "All of it" in many.text())
        await pilot.press("enter")
        assert many.session.focus == "k3-latent-moe"
        await until(pilot, lambda: "▶ K3 LatentMoE" in many.text())


async def test_the_palette_names_the_group_of_a_preset_without_a_digit(many: Bench) -> None:
    async with many.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: many.engine.sent(protocol.Start))
        found = {command.title: command.help for command in many.app.get_system_commands(many.screen)}
        assert found["Lesson 9"] == "preset 9"
        assert found["Sandwich-LN"] == "preset · alternatives"
        assert found["Lesson 10"] == "preset · the lesson"
