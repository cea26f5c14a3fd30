"""Texts that a TOML file gives in several languages, and the two ways in which such a file may write them.

One type is for a text (`Localized`), one for a list of texts (`LocalizedList`). Both have a field per language of
`LANGUAGES`, so they are read, checked and written as any other table: `title.en = "…"`, `title.zh = "…"`. The
older way, `title = "…"` for English and `title_zh = "…"` for another language, is turned into the first by
`gather` and made of it by `flatten`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

import msgspec

from gradtui.i18n.words import ENGLISH, LANGUAGES

T = TypeVar("T", str, tuple[str, ...])


class TwiceGivenError(msgspec.ValidationError):
    """A text that is given twice in one language; the message names both keys."""


class PerLanguage(msgspec.Struct, Generic[T], frozen=True):
    """A text, or a list of texts, in some of the languages; an empty one counts as not given."""

    def given(self) -> dict[str, T]:
        """What there is, by language, in the order of LANGUAGES."""
        texts = {language: getattr(self, language) for language in LANGUAGES}
        return {language: text for language, text in texts.items() if text}

    def get(self, language: str) -> T:
        """The text in `language`; where it is missing in English, else in the first language that there is."""
        given = self.given()
        empty: T = getattr(self, ENGLISH)
        return given.get(language) or next(iter(given.values()), empty)


if TYPE_CHECKING:  # the fields are the languages, which only the running program knows

    class Localized(PerLanguage[str], frozen=True):
        """A text in some of the languages: `Localized(en="layer", zh="层")`."""

        def __init__(self, **by_language: str) -> None: ...

    class LocalizedList(PerLanguage[tuple[str, ...]], frozen=True):
        """A list of texts in some of the languages."""

        def __init__(self, **by_language: tuple[str, ...]) -> None: ...

else:

    def _per_language(name, type_, empty):
        return msgspec.defstruct(
            name,
            [(language, type_, empty) for language in LANGUAGES],
            bases=(PerLanguage,),
            module=__name__,
            frozen=True,
            kw_only=True,
            omit_defaults=True,
            forbid_unknown_fields=True,
        )

    Localized = _per_language("Localized", str, "")
    LocalizedList = _per_language("LocalizedList", tuple[str, ...], ())


def gather(table: Mapping[str, Any], struct: type[msgspec.Struct]) -> dict[str, Any]:
    """`table`, which is meant for `struct`, with each localized text in it as a table by language.

    What has the wrong type is left for the conversion to refuse. Raises TwiceGivenError.
    """
    gathered = dict(table)
    for field in msgspec.structs.fields(struct):
        name, inner = field.encode_name, _struct_of(field.type)
        if inner is None:
            continue
        if issubclass(inner, PerLanguage):
            _gather_text(gathered, name)
        elif isinstance(gathered.get(name), Mapping):
            gathered[name] = gather(gathered[name], inner)
        elif isinstance(gathered.get(name), list | tuple):
            gathered[name] = [gather(one, inner) if isinstance(one, Mapping) else one for one in gathered[name]]
    return gathered


def _gather_text(table: dict[str, Any], name: str) -> None:
    """Put `name = …` and `name_zh = …` of `table` into the table `name`."""
    suffixed = {language: f"{name}_{language}" for language in LANGUAGES if f"{name}_{language}" in table}
    plain = table.get(name, {})
    if isinstance(plain, Mapping):
        by_language = dict(plain)
    elif isinstance(plain, str | list | tuple):
        by_language = {ENGLISH: plain}
    else:
        return
    for language, key in suffixed.items():
        if language in by_language:
            first = f"{name}.{language}" if isinstance(plain, Mapping) else name
            raise TwiceGivenError(f"{key} is not allowed beside {first}; they are the same text")
        by_language[language] = table.pop(key)
    if by_language or name in table:
        table[name] = by_language


def flatten(struct: msgspec.Struct) -> dict[str, Any]:
    """`struct` as a table in which each text is `title`, `title_zh`, …: the inverse of `gather`.

    Every language has its key, with an empty text where there is none.
    """
    flat: dict[str, Any] = {}
    for key, value in msgspec.to_builtins(struct).items():
        text = getattr(struct, key)
        if isinstance(text, PerLanguage):
            for language in LANGUAGES:
                flat[key if language == ENGLISH else f"{key}_{language}"] = getattr(text, language)
        else:
            flat[key] = value
    return flat


def _struct_of(type_: Any) -> type[msgspec.Struct] | None:
    """The struct that a field holds: itself, one or none of it, or a list of it."""
    for option in (type_, *get_args(type_)):
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            return option
    return None
