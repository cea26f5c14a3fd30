"""What the program says, in English and Chinese. One TOML file per language, with the same keys."""

from __future__ import annotations

import locale
import os
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

LANGUAGES = ("en", "zh")


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """All sentences of `language`, by dotted key."""
    table = tomllib.loads((Path(__file__).parent / f"{language}.toml").read_text(encoding="utf-8"))
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
    """Chinese where the locale says so, English everywhere else."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "zh" if (locale.getlocale()[0] or "").lower().startswith("zh") else "en"
