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
from gradtui.charts.sparkline import sparkline
from gradtui.i18n import Words
from gradtui.ui.charts.loss import format_loss
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.session import Session
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.text.verdict import flow_mark, state_in_words

SPARK = 8
HEADING = "\n"  # no lane's id begins so


class PresetList(OptionList):
    """A line for each lane under its group's name, two once it has begun; only rows that changed are replaced."""

    BINDINGS = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("G", "last", show=False),
    ]

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._rows: dict[str, str] = {}

    @property
    def listed(self) -> list[str]:
        """The lanes in the list, in order; the names of groups are none."""
        return [name for name in self._rows if not _is_heading(name)]

    @property
    def pointed(self) -> str | None:
        """The lane under the cursor."""
        return None if self.highlighted is None else self.get_option_at_index(self.highlighted).id

    def point_at(self, name: str) -> None:
        """Put the cursor on a lane."""
        if name in self._rows:
            self.highlighted = list(self._rows).index(name)

    def show(self, session: Session, names: Sequence[str], words: Words) -> None:
        """Show the lanes called `names`, and the name of each group that they are in."""
        width = max(self.scrollable_content_region.width, 20)
        digits, rows, group = session.digits, {}, ""
        for name in names:
            before, group = group, session.lanes[name].group
            if group != before:  # runs that are only looked at come last
                title = words(f"group.{group}") if group else words("list.runs")
                rows[HEADING + group] = _heading(title, width)
            rows[name] = _row(session, name, digits.get(name), words, width)
        keys = {name: row.markup for name, row in rows.items()}
        if list(keys) != list(self._rows):
            self.clear_options()
            self.add_options([Option(row, id=name, disabled=_is_heading(name)) for name, row in rows.items()])
            narrowed = len(names) < len(session.lanes)  # what is looked for is at the top
            wanted = session.focus if session.focus in rows and not narrowed else next(iter(names), None)
            if wanted is not None:
                self.highlighted = list(rows).index(wanted)
        else:
            for name, row in rows.items():
                if keys[name] != self._rows[name]:
                    self.replace_option_prompt(name, row)
        self._rows = keys


def _is_heading(name: str) -> bool:
    return name.startswith(HEADING)


def _heading(title: str, width: int) -> Text:
    name = f" {title} "
    return Text(f"─{name}{'─' * max(width - cell_len(name) - 1, 0)}", "#8a94a6", no_wrap=True)


def _row(session: Session, name: str, digit: int | None, words: Words, width: int) -> Text:
    lane = session.lanes[name]
    focused, pinned = name == session.focus, name in session.pins
    text = Text(no_wrap=True)
    text.append("▶" if focused else ("+" if pinned else " "), f"bold {lane.color}")
    text.append(f"{digit or ' '} ", "bold")
    text.append(f"{lane.mark} ", lane.color if focused or pinned else "dim")
    text.append(fit(lane.name(words.language), width - 5), "bold" if focused else "")
    if lane.state == "idle" and not focused:
        return text
    text.append("\n    ")
    text.append(_status(lane, words, width - 4))
    return text


def _status(lane: Lane, words: Words, width: int) -> Text:
    text = Text(no_wrap=True)
    state = state_in_words(lane.state, words)
    if lane.last_step < 0:
        text.append(state, "dim")
        return text
    glyph, color, ratio = flow_mark(lane.recent.flow)
    loss = lane.recent.loss
    step = f"{lane.last_step} "
    text.append(step, "dim")
    text.append("" if loss is None else f"{format_loss(loss)} ")
    text.append(f"{glyph}{ratio}", color)
    # At rest the state is worth more than the curve.
    rest = state if lane.state not in ("running",) else sparkline(np.array(lane.recent.spark), SPARK)
    room = width - cell_len(text.plain) - 1
    if room >= 3:
        text.append(" " + fit(rest, room).rstrip(), "dim")
    return text


def bar_text(snapshot: LabSnapshot) -> Text:
    """The list in one line: the focused preset in full, pinned ones and those with digits by key and verdict."""
    text = Text(no_wrap=True, overflow="ellipsis")
    session, words, names = snapshot.session, snapshot.words, snapshot.names
    digits = session.digits
    for name in dict.fromkeys([*digits, *session.pins, session.focus]):
        if name not in names:
            continue
        lane = session.lanes[name]
        glyph, color, _ = flow_mark(lane.recent.flow)
        key = digits.get(name, "")
        if name == session.focus:
            text.append(f" ▶{key} {lane.name(words.language)} ", f"bold reverse {lane.color}")
        else:
            pinned = name in session.pins
            text.append(f" {'+' if pinned else ''}{key or lane.mark}", lane.color if pinned else "dim")
        text.append(glyph or "–", color or "dim")
    text.truncate(snapshot.width, overflow="ellipsis")
    return text
