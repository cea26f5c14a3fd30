"""The list of presets, or of runs: key, name, state, step, loss, a sparkline of the loss and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len
from rich.text import Text
from textual.binding import Binding
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from gradtui.charts.cells import fit
from gradtui.charts.heatmap import sparkline
from gradtui.ui.i18n import Words
from gradtui.ui.lab import Lab
from gradtui.ui.lanes import LaneView
from gradtui.ui.painting import format_loss
from gradtui.ui.wording import flow_mark, state_in_words

SPARK = 8


class PresetList(OptionList):
    """Two lines a preset; what has not changed is not laid out again."""

    BINDINGS = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("G", "last", show=False),
    ]

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._rows: dict[str, str] = {}

    def show(self, lab: Lab, names: Sequence[str], words: Words) -> None:
        """Show the lanes called `names`."""
        width = max(self.scrollable_content_region.width, 20)
        rows = {name: _row(lab, name, words, width) for name in names}
        keys = {name: row.markup for name, row in rows.items()}
        if list(keys) != list(self._rows):
            self.clear_options()
            self.add_options([Option(row, id=name) for name, row in rows.items()])
            if lab.focus in rows:
                self.highlighted = list(rows).index(lab.focus)
        else:
            for name, row in rows.items():
                if keys[name] != self._rows[name]:
                    self.replace_option_prompt(name, row)
        self._rows = keys


def _row(lab: Lab, name: str, words: Words, width: int) -> Text:
    lane = lab.lanes[name]
    number = list(lab.lanes).index(name) + 1
    key = str(number) if number <= 9 else " "
    focused, pinned = name == lab.focus, name in lab.pins
    text = Text(no_wrap=True)
    text.append("▶" if focused else ("+" if pinned else " "), f"bold {lane.color}")
    text.append(f"{key} ", "bold")
    text.append(f"{lane.mark} ", lane.color if focused or pinned else "dim")
    text.append(fit(lane.name(words.language), width - 5), "bold" if focused else "")
    text.append("\n    ")
    text.append(_status(lane, words, width - 4))
    return text


def _status(lane: LaneView, words: Words, width: int) -> Text:
    text = Text(no_wrap=True)
    state = state_in_words(lane.state, words)
    if lane.last_step < 0:
        text.append(state, "dim")
        return text
    glyph, color, ratio = flow_mark(lane.flow)
    loss = lane.last_loss
    step = f"{lane.last_step} "
    text.append(step, "dim")
    text.append("" if loss is None else f"{format_loss(loss)} ")
    text.append(f"{glyph}{ratio}", color)
    # At rest the state is worth more than the curve.
    rest = state if lane.state not in ("running",) else sparkline(np.array(lane.spark), SPARK)
    room = width - cell_len(text.plain) - 1
    if room >= 3:
        text.append(" " + fit(rest, room).rstrip(), "dim")
    return text


def bar_text(lab: Lab, names: Sequence[str], words: Words, width: int) -> Text:
    """The list in one line: the focused preset in full, the others by key and verdict."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for number, (name, lane) in enumerate(lab.lanes.items(), start=1):
        if name not in names or (number > 9 and name != lab.focus):
            continue
        glyph, color, _ = flow_mark(lane.flow)
        focused = name == lab.focus
        if focused:
            text.append(f" ▶{number} {lane.name(words.language)} ", f"bold reverse {lane.color}")
        else:
            text.append(f" {'+' if name in lab.pins else ''}{number}", lane.color if name in lab.pins else "dim")
        text.append(glyph or "–", color or "dim")
    text.truncate(width, overflow="ellipsis")
    return text
