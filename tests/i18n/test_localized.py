"""Texts in several languages: how files write them, and what is shown where one is missing."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.i18n import LANGUAGES, Localized, LocalizedList, flatten
from gradtui.tomlfile import TomlError, convert, line_problem


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    look: Localized


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    title: Localized
    note: Localized | None = None
    points: LocalizedList = LocalizedList()
    inner: Inner | None = None
    others: tuple[Inner, ...] = ()


def page(**table: Any) -> Page:
    return convert(table, Page, what="a page")


def refusal(**table: Any) -> str:
    with pytest.raises(TomlError) as error:
        page(**table)
    return str(error.value)


def test_the_old_form_and_the_new_one_say_the_same() -> None:
    both = Localized(en="layer", zh="层")
    old = page(title="layer", title_zh="层", points=["a"], points_zh=["甲"])
    new = page(title={"en": "layer", "zh": "层"}, points={"en": ["a"], "zh": ["甲"]})
    assert old == new == Page(title=both, points=LocalizedList(en=("a",), zh=("甲",)))
    assert page(title={"en": "layer"}, title_zh="层") == Page(title=both)
    assert page(title_zh="层") == page(title={"zh": "层"}) == Page(title=Localized(zh="层"))


def test_the_old_form_is_read_at_any_depth() -> None:
    read = page(title="x", note="n", inner={"look": "a", "look_zh": "甲"}, others=[{"look_zh": "乙"}])
    assert read.note == Localized(en="n")
    assert read.inner == Inner(look=Localized(en="a", zh="甲"))
    assert read.others == (Inner(look=Localized(zh="乙")),)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_a_suffix(language: str) -> None:
    assert page(**{f"title_{language}": "here"}).title.given() == {language: "here"}


def test_a_missing_language_falls_back_to_english_and_then_to_what_there_is() -> None:
    assert Localized(en="a", zh="甲").get("zh") == "甲"
    assert Localized(en="a").get("zh") == "a"
    assert Localized(zh="甲").get("en") == "甲"
    assert Localized(en="a", zh="甲").get("eo") == "a"
    assert Localized().get("en") == ""
    assert LocalizedList(en=("a",)).get("zh") == ("a",)
    assert LocalizedList().get("zh") == ()


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({}, "title is missing"),
        (
            {"title": 3},
            "title = 3 is not allowed; allowed is text in quotes, or a table with some of the",
        ),
        ({"title": {"en": 3}}, "title.en = 3 is not allowed; allowed is text in quotes"),
        ({"title": {"eo": "x"}}, "title.eo is not a key of a page; allowed: en, "),
        ({"title": "x", "titel_zh": "y"}, "titel_zh is not a key of a page; allowed: title, "),
        ({"title": "x", "title_eo": "y"}, "title_eo is not a key of a page; allowed: title, "),
        ({"title": "x", "title_en": "y"}, "title_en is not allowed beside title; they are the same text"),
        (
            {"title": {"zh": "x"}, "title_zh": "y"},
            "title_zh is not allowed beside title.zh; they are the same text",
        ),
        (
            {"title": "x", "points": "y"},
            "points.en = 'y' is not allowed; allowed is a list of texts in quotes",
        ),
        (
            {"title": "x", "points": 3},
            "points = 3 is not allowed; allowed is a list of texts in quotes, or a table",
        ),
        ({"title": "x", "points": ["y", 1]}, "points.en[1] = 1 is not allowed; allowed is text in quotes"),
        ({"title": "x", "note": ["y"]}, "note.en = ['y'] is not allowed; allowed is text in quotes"),
    ],
)
def test_a_mistake_is_one_sentence(table: dict[str, Any], sentence: str) -> None:
    assert refusal(**table).startswith(sentence)


def test_a_line_is_printable_and_where_it_must_be_there_not_blank() -> None:
    allowed = "is not allowed; allowed is one line of visible characters"
    assert line_problem("title", Localized(en="a", zh="甲"), required=True) is None
    assert line_problem("title", Localized(en="a"), required=True) is None
    assert line_problem("title", Localized()) is None
    assert line_problem("title", Localized(), required=True) == f"title = '' {allowed}"
    assert line_problem("title", Localized(en=" "), required=True) == f"title = ' ' {allowed}"
    assert line_problem("title", Localized(en="a", zh="b\n")) == f"title.zh = 'b\\n' {allowed}"


TEXTS = st.builds(Localized, **{language: st.text(max_size=5) for language in LANGUAGES})


@given(TEXTS, TEXTS)
def test_the_flat_form_holds_everything(title: Localized, note: Localized) -> None:
    before = Page(title=title, note=note, points=LocalizedList(en=("a",)))
    flat = flatten(before)
    assert flat["title"] == title.given().get("en", "")
    assert {f"title_{language}" for language in LANGUAGES[1:]} <= flat.keys()
    assert page(**flat) == before


def test_texts_can_be_sent_and_compared() -> None:
    text = Localized(en="a", zh="甲")
    assert pickle.loads(pickle.dumps(text)) == text
    assert msgspec.json.decode(msgspec.json.encode(text), type=Localized) == text
    assert len({text, Localized(en="a", zh="甲"), Localized(en="a")}) == 2
