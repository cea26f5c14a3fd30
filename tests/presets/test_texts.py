"""A preset's title and description: in every language, and in the flat form that run files have."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from gradtui.i18n import LANGUAGES, Localized
from gradtui.presets import Preset, PresetError, flatten, load_library, load_preset, parse_preset, unflatten

# What version 0.1.0 wrote into the fact `preset` of a run file, shortened to what is not a default.
EARLIER = {
    "title": "Pre-LN", "title_zh": "Pre-LN 中", "about": "Trains.", "about_zh": "", "group": "lesson", "order": 2,
    "corpus": "stdlib", "model": {"layers": 4}, "training": {"steps": 10}, "id": "pre-ln",
}  # fmt: skip


def preset_of(text: str, directory: Path) -> Preset:
    path = directory / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return load_preset(path)


def test_both_forms_of_a_file_give_the_same_preset(tmp_path: Path) -> None:
    old = preset_of('title = "mine"\ntitle_zh = "我的"\nabout_zh = "关于"\n', tmp_path)
    new = preset_of('title.en = "mine"\ntitle.zh = "我的"\n[about]\nzh = "关于"\n', tmp_path)
    assert old == new
    assert (old.name("en"), old.name("zh"), old.summary("en")) == ("mine", "我的", "关于")


def test_any_language_is_enough_for_a_title(tmp_path: Path) -> None:
    assert preset_of('title.zh = "我的"', tmp_path).name("en") == "我的"
    with pytest.raises(PresetError, match=r"title = '' is not allowed; allowed is one line of visible characters"):
        preset_of("title = {}", tmp_path)
    with pytest.raises(PresetError, match=r"title\.zh = '\\n' is not allowed"):
        preset_of('title = "x"\ntitle_zh = "\\n"', tmp_path)


@pytest.mark.parametrize("preset", load_library().presets.values(), ids=lambda preset: preset.id)
def test_flattening_loses_nothing(preset: Preset) -> None:
    flat = flatten(preset)
    assert unflatten(flat) == preset
    assert unflatten(json.loads(json.dumps(flat))) == preset
    del flat["id"]
    assert parse_preset(flat, id=preset.id, source="again") == preset


def test_the_flat_form_is_that_of_earlier_versions() -> None:
    preset = Preset(title=Localized(en="x", zh="甲"), id="x")
    assert list(flatten(preset))[:4] == [*texts("title"), *texts("about")][:4]
    assert list(flatten(preset))[-6:] == ["group", "order", "corpus", "model", "training", "id"]
    assert (flatten(preset)["title"], flatten(preset)["title_zh"], flatten(preset)["about_zh"]) == ("x", "甲", "")


def texts(key: str) -> list[str]:
    return [key, *(f"{key}_{language}" for language in LANGUAGES[1:])]


def test_an_earlier_run_files_preset_is_read() -> None:
    preset = unflatten(EARLIER)
    assert preset.title == Localized(en="Pre-LN", zh="Pre-LN 中")
    assert preset.about == Localized(en="Trains.")
    assert (preset.id, preset.model.layers, preset.training.steps) == ("pre-ln", 4, 10)


def test_texts_in_languages_that_are_not_installed_are_left_out() -> None:
    assert unflatten({**EARLIER, "title_eo": "Antaŭ-LN"}) == unflatten(EARLIER)


@pytest.mark.parametrize("fact", [None, "pre-ln", 3, {}, {"title": 3}, {"title": "x", "colour": "red"}])
def test_what_is_no_preset_is_refused(fact: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        unflatten(fact)
