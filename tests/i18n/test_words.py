"""The program's sentences: every language has them all, and the locale chooses one."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

import gradtui
from gradtui.i18n import LANGUAGES, Words, catalogue, system_language

PACKAGE = Path(gradtui.__file__).parent


def blanks(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


def test_the_languages_are_the_files_with_english_first() -> None:
    assert LANGUAGES[0] == "en"
    assert set(LANGUAGES) == {path.stem for path in (PACKAGE / "i18n").glob("*.toml")}
    assert {"en", "zh"} <= set(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_keys_and_the_same_blanks(language: str) -> None:
    english, other = catalogue("en"), catalogue(language)
    assert english.keys() == other.keys()
    assert {key: blanks(sentence) for key, sentence in other.items()} == {
        key: blanks(sentence) for key, sentence in english.items()
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sentence_is_empty_only_where_the_english_one_is(language: str) -> None:
    empty = {key for key, sentence in catalogue(language).items() if not sentence and catalogue("en")[key]}
    assert empty <= {"language.sentence_gap"}


def test_every_sentence_asked_for_exists() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    asked = set(re.findall(r"words\(\s*\"([a-z0-9_]+\.[a-z0-9_.]+)\"", source, re.IGNORECASE))
    assert len(asked) > 25
    assert asked <= catalogue("en").keys()


def test_a_sentence_is_asked_for_by_key_and_filled_in() -> None:
    assert Words("en")("header.step", step=3, steps=400) == "step 3/400"
    with pytest.raises(KeyError):
        Words("en")("header.nothing")


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({"LC_ALL": "zh_CN.UTF-8"}, "zh"),
        ({"LC_ALL": "", "LANG": "zh_TW.UTF-8"}, "zh"),
        ({"LC_ALL": "de_DE.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "C"}, "en"),
        *(({"LC_ALL": f"{language}_XX.UTF-8"}, language) for language in LANGUAGES),
    ],
)
def test_the_locale_chooses_the_language(
    variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.setenv(name, variables.get(name, ""))
    assert system_language() == language
