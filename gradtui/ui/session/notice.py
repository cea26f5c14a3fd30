"""A sentence for the user, before it is put into words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gradtui.i18n import Words

Severity = Literal["information", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Notice:
    """The sentence at `key` of the language file, with its blanks filled from `values`.

    A value that is called with the language is its text in that language, such as a lane's `name`.
    """

    key: str
    values: dict[str, Any] = field(default_factory=dict)
    severity: Severity = "information"

    def text(self, words: Words) -> str:
        """The sentence in the language of `words`."""
        filled = {name: value(words.language) if callable(value) else value for name, value in self.values.items()}
        return words(self.key, **filled)


def reason_notice(reason: str) -> Notice:
    """A sentence that comes ready-made, such as that of an error."""
    return Notice("notice.reason", {"reason": reason}, "warning")
