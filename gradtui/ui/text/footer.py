"""The line of keys at the bottom. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len
from rich.text import Text

from gradtui.i18n import Words
from gradtui.ui.actions import Action, describe


def footer(actions: Mapping[str, Action], words: Words, width: int) -> Text:
    """As many keys as fit, the most needed first, in the order of the action table."""
    room, chosen = width, set()
    for name, action in sorted(actions.items(), key=lambda item: item[1].footer):
        length = cell_len(action.key) + cell_len(describe(name, words)) + 3
        if action.footer and length <= room:
            room -= length
            chosen.add(name)
    text = Text(no_wrap=True)
    for name, action in actions.items():
        if name in chosen:
            text.append(f" {action.key}", "bold")
            text.append(f" {describe(name, words)} ", "dim")
    return text


def key_hints(sentence: str) -> Text:
    """The keys of a panel that has keys of its own."""
    return Text(f" {sentence}", "dim", no_wrap=True, overflow="ellipsis")
