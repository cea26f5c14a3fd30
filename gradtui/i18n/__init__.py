"""Languages: the program's own sentences (`words`), and texts in several languages in files (`localized`)."""

from gradtui.i18n.localized import Localized, LocalizedList, PerLanguage, TwiceGivenError, flatten, gather
from gradtui.i18n.words import ENGLISH, LANGUAGES, Words, catalogue, system_language

__all__ = [
    "ENGLISH",
    "LANGUAGES",
    "Localized",
    "LocalizedList",
    "PerLanguage",
    "TwiceGivenError",
    "Words",
    "catalogue",
    "flatten",
    "gather",
    "system_language",
]


def next_language(language: str) -> str:
    """The language after `language`, in the order of `LANGUAGES`; after the last one the first."""
    return LANGUAGES[(LANGUAGES.index(language) + 1) % len(LANGUAGES)]
