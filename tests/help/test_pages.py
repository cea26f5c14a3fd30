"""The handbook's pages: there in each language, alike in shape, and true where that can be checked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from gradtui.analysis.flow import EXPLODED, FADING, UNEVEN, VANISHED
from gradtui.cli.main import cli
from gradtui.help import TOPICS, HelpError, file, page, summary, title
from gradtui.i18n import LANGUAGES, Localized
from gradtui.lesson.questions import load_pack
from gradtui.presets import Preset, parse_preset
from gradtui.ui.session.layout import LEAST_HEIGHT, LEAST_WIDTH, MEDIUM, WIDE
from gradtui.verify.claims import load_claims, parse_claim

FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)\)")
WRITTEN = ("en", "zh")


def blocks(text: str, kind: str) -> list[str]:
    """The fenced blocks of a page that are of this kind."""
    return [body for fence, body in FENCE.findall(text) if fence == kind]


def shape(text: str) -> list[str]:
    """What a translation keeps: headings by level, rows of tables, list entries, blocks of code."""
    bare = FENCE.sub(r"```\1", text)
    return re.findall(r"^(#+|\||- |\d+\. |```\w+)", bare, re.MULTILINE)


@pytest.mark.parametrize("language", [*LANGUAGES, "xx"])
@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_has_a_page_with_a_title_and_a_sentence(topic: str, language: str) -> None:
    text = page(topic, language)
    assert text.startswith(f"# {title(topic, language)}\n\n{summary(topic, language)}")
    assert len(text) > 500
    assert "<!--" not in text
    assert "\n\n\n" not in text


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_is_written_in_both_languages_and_says_the_same_things_in_the_same_order(topic: str) -> None:
    files = [file(topic, language) for language in WRITTEN]
    assert [path.parent.name for path in files] == list(WRITTEN)
    assert shape(page(topic, "en")) == shape(page(topic, "zh"))


def test_a_language_without_a_page_shows_the_english_one() -> None:
    assert page("files", "xx") == page("files", "en")


def test_an_unknown_topic_is_refused_with_those_that_there_are() -> None:
    for ask in (page, title, summary, file):
        with pytest.raises(HelpError, match="there is no page 'colours'; there are: lab, keys, metrics"):
            ask("colours", "en")


@pytest.mark.parametrize("language", WRITTEN)
@pytest.mark.parametrize("topic", TOPICS)
def test_links_lead_to_files_that_there_are(topic: str, language: str) -> None:
    for target in LINK.findall(page(topic, language)):
        assert (file(topic, language).parent / target).is_file(), target


@pytest.mark.parametrize("language", WRITTEN)
def test_every_command_and_every_page_is_named(language: str) -> None:
    assert cli.commands.keys() <= set(re.findall(r"`gradtui (\w+)", page("lab", language)))


@pytest.mark.parametrize("language", WRITTEN)
def test_the_lab_page_has_the_thresholds_and_sizes_that_the_lab_has(language: str) -> None:
    text = page("lab", language)
    for mark, threshold in (("≠", UNEVEN), ("↘", FADING), ("↓", VANISHED), ("↑", EXPLODED)):
        (row,) = re.findall(rf"^\| `{mark}` .*$", text, re.MULTILINE)
        assert f"{threshold:g}" in row
    for width, height in (WIDE, MEDIUM, (LEAST_WIDTH, LEAST_HEIGHT)):
        assert f"{width}×{height}" in text


@pytest.mark.parametrize("language", WRITTEN)
def test_the_presets_page_has_an_example_that_is_read_and_every_setting_with_its_default(language: str) -> None:
    text = page("presets", language)
    (example,) = blocks(text, "toml")
    preset = parse_preset(tomllib.loads(example), id="mine", source="the page")
    assert (preset.model.layers, preset.training.warmup) == (16, 50)
    model = Preset(title=Localized(en="x")).model
    for name in Preset.__struct_fields__:
        assert f"`{name}`" in text or f"`[{name}]`" in text or name == "id"
    for name in model.__struct_fields__:
        assert f"`{name}`" in text or f"`[model.{name}]`" in text
    for part in (
        model.moe,
        model.kda,
        model.mla,
        model.attn_res,
        model.hyper,
        Preset(title=Localized(en="x")).training,
    ):
        for name in part.__struct_fields__:
            assert f"`{name}`" in text


@pytest.mark.parametrize("language", WRITTEN)
def test_the_example_of_a_question_pack_is_read(language: str, tmp_path: Path) -> None:
    (example,) = blocks(page("questions", language), "toml")
    path = tmp_path / "warmup.toml"
    path.write_text(example, encoding="utf-8")
    (question,) = load_pack(path).questions
    assert question.show is not None
    assert question.show.presets == ("post-ln-warmup", "post-ln")


@pytest.mark.parametrize("language", WRITTEN)
def test_the_example_of_a_claim_is_read(language: str) -> None:
    (example,) = blocks(page("claims", language), "toml")
    assert parse_claim(tomllib.loads(example), id="mine", source="the page").quick


def test_the_results_on_the_claims_page_are_the_same_in_both_languages_and_of_claims_that_there_are() -> None:
    results = [blocks(page("claims", language), "text")[0].splitlines()[1:] for language in WRITTEN]
    assert results[0] == results[1]
    names = [line.split()[1] for line in results[0][:-1]]
    assert set(names) <= load_claims().claims.keys()
    assert len(names) > 30


@pytest.mark.parametrize("language", WRITTEN)
def test_examples_in_python_are_python(language: str) -> None:
    for topic in TOPICS:
        for source in blocks(page(topic, language), "python"):
            compile(source, topic, "exec")
