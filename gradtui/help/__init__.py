"""The handbook: one Markdown page for each topic and language, shown by `gradtui help` and in the lab.

A page is a heading, a sentence that says what it is about, and the text. Pages refer to each other by links such
as `[metrics](metrics.md)`, which also work where the files are read on the web.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

TOPICS = (
    "lab",
    "keys",
    "metrics",
    "presets",
    "claims",
    "training",
    "files",
    "questions",
    "trouble",
    "extending",
)
FALLBACK = "en"  # for a language that has no page of a topic yet
MARK = re.compile(r"^<!-- .* -->\n\n?", re.MULTILINE)  # between two of them stands a generated table


class HelpError(LookupError):
    """There is no such page; the message names those that there are."""


def title(topic: str, language: str) -> str:
    """The heading of a page, without markup; raises HelpError."""
    return page(topic, language).partition("\n")[0].removeprefix("# ")


def summary(topic: str, language: str) -> str:
    """The sentence under the heading; raises HelpError."""
    return page(topic, language).split("\n\n")[1].replace("\n", " ")


@cache
def page(topic: str, language: str) -> str:
    """A page as Markdown, in English where `language` has none; raises HelpError."""
    return MARK.sub("", file(topic, language).read_text(encoding="utf-8"))


def file(topic: str, language: str) -> Path:
    """Where a page is kept; raises HelpError."""
    if topic not in TOPICS:
        raise HelpError(f"there is no page {topic!r}; there are: {', '.join(TOPICS)}")
    path = Path(__file__).parent / language / f"{topic}.md"
    return path if path.is_file() else path.parents[1] / FALLBACK / path.name
