"""The run picker: what has been recorded here, to be shown alone or laid over what is on the charts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from gradtui.analysis.listing import Listed
from gradtui.charts.cells import fit
from gradtui.charts.scale import format_step
from gradtui.i18n import Words
from gradtui.runs import RunError
from gradtui.ui.panels.rows import Rows
from gradtui.ui.panels.text_line import TextLine
from gradtui.ui.session.run_directory import RunDirectory, date_of, is_live, matches, source_of
from gradtui.ui.session.session import Session
from gradtui.ui.text.folding import fold
from gradtui.ui.text.verdict import STATE_COLORS, STATE_MARKS, state_in_words

SCAN_SECONDS = 1.0
WHEN, STEPS, STATE = 12, 8, 12


class RunRows(Rows):
    """One row a run."""

    def __init__(self, id: str, session: Session, words: Words) -> None:
        super().__init__(id=id)
        self.entries: tuple[Listed, ...] = ()
        self._session, self._words = session, words

    def count(self) -> int:
        """All runs that the filter lets through."""
        return len(self.entries)

    def _rooms(self, width: int) -> tuple[int, int]:
        rest = max(width - 5 - WHEN - STEPS - STATE, 12)
        name = max(rest * 2 // 5, 12) if rest >= 40 else rest
        return name, rest - name

    def head(self, width: int) -> Text:
        """The names of the columns."""
        name, source = self._rooms(width)
        words = self._words
        columns = (
            (words("runs.name"), name),
            (words("runs.source"), source),
            (words("runs.when"), WHEN),
            (words("runs.steps"), STEPS),
            (words("runs.state"), STATE),
        )
        return Text(" " * 5 + "".join(_cell(label, room) for label, room in columns), no_wrap=True, end="")

    def row(self, index: int, width: int) -> Text:
        """▶ in focus or + overlaid, the mark of the verdict, name, script or preset, when, steps, state."""
        entry, text = self.entries[index], Text(no_wrap=True, end="")
        lane = self._session.lane_of(entry.path)
        shown = "▶" if lane in self._session.shown[:1] else "+" if lane in self._session.shown else " "
        text.append(f" {shown}", f"bold {lane.color}" if lane else "")
        verdict = entry.verdict.state if entry.verdict else ""
        mark = STATE_MARKS.get(verdict, "!" if entry.error else " ")
        text.append(f" {mark} ", STATE_COLORS.get(verdict, ""))
        name, source = self._rooms(width)
        text.append(_cell(entry.name, name))
        if entry.error:
            text.append(fit(entry.error, max(width - 5 - name, 0)), "dim")
            return text
        text.append(_cell(source_of(entry), source), "dim")
        text.append(_cell(date_of(entry), WHEN), "dim")
        text.append(_cell(format_step(entry.steps), STEPS))
        live = is_live(entry)
        state = state_in_words(entry.status, self._words)
        text.append(fit(f"{'» ' if live else ''}{state}", STATE), "#009e73" if live else "dim")
        return text


def _cell(text: str, room: int) -> str:
    if room < 2:
        return ""
    text = fit(text, room - 1)
    return text + " " * (room - cell_len(text))


class RunsScreen(ModalScreen[None]):
    """Changes the session at once; `changed` is called after each change."""

    CSS_PATH = "runs.tcss"
    BINDINGS = [
        Binding("escape,o,q", "close", show=False),
        Binding("slash", "filter", show=False),
        Binding("space,p", "overlay", show=False),
    ]

    def __init__(self, session: Session, words: Words, changed: Callable[[], None]) -> None:
        super().__init__()
        self._session, self._words, self._changed = session, words, changed
        self._directory = RunDirectory(session.runs)
        self._scanning = False
        self._filter = ""

    def compose(self) -> ComposeResult:
        with Vertical(id="runs") as box:
            box.border_title = Text(self._words("runs.title", path=self._session.runs))
            box.border_subtitle = Text(self._words("runs.keys"))
            yield Input(id="runs-filter", compact=True, placeholder=self._words("runs.filter"))
            yield RunRows("runs-rows", self._session, self._words)
            yield TextLine(id="runs-note")

    def on_mount(self) -> None:
        self.query_one("#runs-filter").display = False
        self._rows.focus()
        self.set_interval(SCAN_SECONDS, self._scan)
        self.call_later(self._scan)

    @property
    def _rows(self) -> RunRows:
        return self.query_one(RunRows)

    async def _scan(self) -> None:
        if self._scanning:
            return
        self._scanning = True
        try:
            await asyncio.to_thread(self._directory.scan)
        finally:
            self._scanning = False
        if self.is_attached:
            self._refresh_rows()

    def _refresh_rows(self) -> None:
        rows, words = self._rows, self._words
        here = rows.entries[rows.cursor].path if rows.entries and rows.cursor < len(rows.entries) else None
        rows.entries = tuple(entry for entry in self._directory.entries if matches(entry, self._filter))
        paths = [entry.path for entry in rows.entries]
        if here in paths:
            rows.cursor = paths.index(here)  # the list moves under the cursor, not the run
        rows.renew()
        total = len(self._directory.entries)
        if not total:
            note = words("runs.none")
        elif not rows.entries:
            note = words("runs.no_match", text=self._filter)
        else:
            note = words("runs.count", shown=len(rows.entries), total=total)
        self.query_one("#runs-note", TextLine).show(fold(Text(note, "dim"), max(self.size.width - 8, 10)))

    def _entry(self) -> Listed | None:
        rows = self._rows
        return rows.entries[rows.cursor] if 0 <= rows.cursor < len(rows.entries) else None

    @on(Rows.Chosen)
    def _show(self, event: Rows.Chosen) -> None:
        event.stop()
        entry = self._entry()
        if entry is not None and self._try(lambda: self._session.show_alone(entry.path)):
            self.dismiss()

    def action_overlay(self) -> None:
        """Lay the run over what is on the charts, or take it away again."""
        entry = self._entry()
        if entry is None:
            return
        lane = self._session.lane_of(entry.path)
        if lane is None or lane not in self._session.shown:
            self._try(lambda: self._session.overlay(entry.path))
        elif self._session.remove(lane.id):
            self._changed()
        else:
            self.notify(self._words("runs.engine"), severity="warning", markup=False, timeout=3)
        self._refresh_rows()

    def _try(self, do: Callable[[], object]) -> bool:
        try:
            do()
        except RunError as error:
            self.notify(str(error), severity="warning", markup=False, timeout=5)
            return False
        self._changed()
        return True

    def action_filter(self) -> None:
        """Type to filter."""
        box = self.query_one("#runs-filter", Input)
        box.display = True
        box.focus()

    @on(Input.Changed)
    def _filtered(self, event: Input.Changed) -> None:
        event.stop()
        self._filter = event.value
        self._rows.cursor = 0
        self._refresh_rows()

    @on(Input.Submitted)
    def _filter_taken(self, event: Input.Submitted) -> None:
        event.stop()
        self._rows.focus()

    def action_close(self) -> None:
        """Leave the filter, or the list."""
        box = self.query_one("#runs-filter", Input)
        if box.display:
            box.value = ""
            box.display = False
            self._rows.focus()
        else:
            self.dismiss()
