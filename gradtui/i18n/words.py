"""The program's sentences: one TOML file per language in this directory, all with the same keys."""

from __future__ import annotations

import locale
import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_DIRECTORY = Path(__file__).parent

ENGLISH = "en"
LANGUAGES: tuple[str, ...] = (
    ENGLISH,
    *sorted(path.stem for path in _DIRECTORY.glob("*.toml") if path.stem != ENGLISH),
)
"""The languages that there is a file for, English first; a further language is a further file."""


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """All sentences of `language`, by dotted key."""
    table = tomllib.loads((_DIRECTORY / f"{language}.toml").read_text(encoding="utf-8"))
    return dict(_flatten(table, ""))


def _flatten(table: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    pairs = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            pairs += _flatten(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", str(value)))
    return pairs


class Words:
    """Sentences in one language: `words("state.running")`, with `step=3` where it has a blank."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._sentences = catalogue(language)

    def __call__(self, key: str, /, **values: object) -> str:
        """The sentence at `key` with `values` filled in; raises KeyError for a key that does not exist."""
        sentence = self._sentences[key]
        return sentence.format(**values) if values else sentence


def system_language() -> str:
    """The language that the locale names, English where there is no file for it."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return _language_of(value)
    return _language_of(locale.getlocale()[0] or "")


def _language_of(name: str) -> str:
    """The language of a locale such as "zh_CN.UTF-8"."""
    code = re.match(r"[a-z]*", name.lower())
    return code[0] if code and code[0] in LANGUAGES else ENGLISH
