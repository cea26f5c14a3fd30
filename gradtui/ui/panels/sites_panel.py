"""The sites view: a table of everything that is measured, and one site's curve over the steps under it."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input

from gradtui.analysis.shapes import texts_of
from gradtui.charts.cells import fit
from gradtui.i18n import Words
from gradtui.ui.charts.panes import site_pane
from gradtui.ui.panels.chart_pane import ChartPane
from gradtui.ui.panels.panel import Changed, Left, Panel
from gradtui.ui.panels.rows import Rows
from gradtui.ui.panels.text_line import TextLine
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.layout import Layout
from gradtui.ui.session.site_table import LAYER, NAME, Filter, SiteTable
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_state import ViewState
from gradtui.ui.text.folding import fold
from gradtui.ui.text.verdict import STATE_COLORS

CELL, LAYER_CELL = 8, 7
GOOD_NAME, MOST_NAME, LEAST_NOTE = 28, 48, 24


class SiteRows(Rows):
    """The table itself."""

    BINDINGS = [
        Binding("left", "sort(-1)", show=False),
        Binding("right", "sort(1)", show=False),
        Binding("v", "reverse", show=False),
    ]

    def __init__(self, id: str, table: SiteTable, words: Words) -> None:
        super().__init__(id=id)
        self.table, self.words, self.metric = table, words, ""

    def count(self) -> int:
        """One row a site that the filter lets through."""
        return len(self.table.rows)

    def shown(self, width: int) -> tuple[int, list[str], int]:
        """Room for the name, the metrics there is room for (the current one in any case), room for the note."""
        metrics = list(self.table.columns)
        spare = [name for name in metrics if name not in (self.metric, self.table.sort)]
        needed = LAYER_CELL + LEAST_NOTE + min(self.table.longest + 1, GOOD_NAME)
        while spare and width - CELL * len(metrics) < needed:
            metrics.remove(spare.pop())
        rest = width - LAYER_CELL - CELL * len(metrics)
        name = max(min(self.table.longest + 1, MOST_NAME, rest - LEAST_NOTE), 8)
        return name, metrics, max(rest - name, 0)

    def head(self, width: int) -> Text:
        """The names of the columns, with an arrow at the one that is sorted by."""
        name, metrics, note = self.shown(width)
        text = Text(no_wrap=True, end="")
        for column, room in ((NAME, name), (LAYER, LAYER_CELL), *((metric, CELL) for metric in metrics)):
            arrow = ("▼" if self.table.descending else "▲") if column == self.table.sort else ""
            label = fit(self.words(f"sites.{column}") + arrow, room - 1)
            pad = " " * (room - cell_len(label))
            style = "bold underline" if column == self.metric else "bold" if arrow else ""
            text.append(label + pad if column == NAME else pad + label, style)
        text.append("  " + fit(self.words("sites.note"), max(note - 2, 0)))
        return text

    def row(self, index: int, width: int) -> Text:
        """One site: its name, cut in the middle, its layer, its values, and what is remarkable about it."""
        name, metrics, note = self.shown(width)
        number = self.table.rows[index]
        site = self.table.sites[number]
        text = Text(no_wrap=True, end="")
        label = squeeze(site.name, name - 1)
        text.append(label + " " * (name - cell_len(label)))
        text.append(("" if site.layer is None else str(site.layer)).rjust(LAYER_CELL), "dim")
        for metric in metrics:
            value, bad = self.table.cell(number, metric)
            style = STATE_COLORS["nonfinite"] if bad else "" if value else "dim"
            text.append((value or "–").rjust(CELL), style)
        words, state = self.table.note(number, self.words)
        text.append("  " + fit(words, max(note - 2, 0)), STATE_COLORS.get(state, ""))
        return text

    def action_sort(self, by: int) -> None:
        """Sort by another column; the order of the model comes before the first."""
        columns = ["", NAME, LAYER, *self.table.columns]
        self._sort_by(columns[(columns.index(self.table.sort) + by) % len(columns)])

    def _sort_by(self, column: str) -> None:
        self.table.sort, self.table.descending = column, column not in (NAME, LAYER)
        self._again()

    def action_reverse(self) -> None:
        """The other way round."""
        self.table.descending = not self.table.descending
        self._again()

    def _again(self) -> None:
        """What is seen first is what the order is about, not where the cursor happened to be."""
        self.table.arrange()
        self.cursor = 0
        self.renew()

    def click_head(self, cell: int) -> None:
        """Sort by the column at `cell`, or turn it round."""
        name, metrics, _ = self.shown(self.scrollable_content_region.width)
        end = 0
        for column, room in ((NAME, name), (LAYER, LAYER_CELL), *((metric, CELL) for metric in metrics)):
            end += room
            if cell < end:
                if column == self.table.sort:
                    self.action_reverse()
                else:
                    self._sort_by(column)
                return


class SitesPanel(Vertical, Panel):
    """Table, filter, the sentences that belong to them, and a curve."""

    def __init__(self, id: str, words: Words) -> None:
        super().__init__(id=id)
        self.table = SiteTable()
        self.site = ""  # whose curve is shown
        self._words = words

    def compose(self) -> ComposeResult:
        yield Input(id="sites-filter", compact=True)
        yield SiteRows("sites-table", self.table, self._words)
        yield TextLine(id="sites-notes")
        yield ChartPane(id="sites-curve")

    def on_mount(self) -> None:
        self.query_one("#sites-filter").display = False
        self.query_one("#sites-curve").display = False

    def on_resize(self) -> None:
        """Texts are folded to the width."""
        self.post_message(Changed())

    @property
    def rows(self) -> SiteRows:
        """The table."""
        return self.query_one(SiteRows)

    @property
    def typing(self) -> bool:
        """Letters go into the filter."""
        return self.query_one("#sites-filter", Input).has_focus

    def lay_out(self, layout: Layout, view: ViewState) -> None:
        """In the place of the charts."""
        self.display = layout.sites

    def show(self, snapshot: LabSnapshot) -> None:
        """Show the focused lane's sites, and the curve of the chosen one."""
        words = self._words = snapshot.words
        rows, table, lane = self.rows, self.table, snapshot.lane
        rows.words, rows.metric = words, snapshot.metric
        self.query_one("#sites-filter", Input).placeholder = words("sites.filter")
        if lane is None or lane.last_step < 0:
            table.sites, table.rows = (), []
            self.border_title = Text(words("sites.none"))
        else:
            table.update(lane, snapshot.session.cursor)
            title = words("sites.title", name=lane.name(words.language))
            count = words("sites.count", shown=len(table.rows), total=len(table.sites))
            self.border_title = Text(f"{title} · {words('sites.step', step=table.step)} · {count}")
        self.border_subtitle = Text(words("sites.keys"))
        rows.renew()
        width = max(self.size.width - 2, 10)
        self.query_one("#sites-notes", TextLine).show(fold(self._notes(lane, words), width))
        if self.site:
            pane, curve = site_pane(snapshot, self.site), self.query_one("#sites-curve", ChartPane)
            curve.display = True
            curve.show(pane.title, pane.subtitle, pane.paint)

    def _notes(self, lane: Lane | None, words: Words) -> Text:
        lines: list[tuple[str, str]] = []
        if self.table.filter.problem:
            lines.append((words("sites.not_a_pattern", reason=self.table.filter.problem), STATE_COLORS["fading"]))
        if self.table.sites and not self.table.rows:
            lines.append((words("sites.no_match"), ""))
        if lane is not None:
            names = texts_of(lane.facts.get("skipped"))
            if names:
                lines.append((words("sites.not_floating", names=", ".join(names)), "dim"))
            unseen = lane.series.unseen if lane.series else []
            lines += [(words("verdict.blind", sentence=one), STATE_COLORS["fading"]) for one in unseen]
        text = Text()
        for line, style in lines:
            text.append("\n" if text.plain else "")
            text.append(line, style)
        return text

    def open_filter(self) -> None:
        """Type to filter."""
        box = self.query_one("#sites-filter", Input)
        box.display = True
        box.focus()

    def escape(self) -> bool:
        """Leave the filter, then the curve, then the view."""
        box, curve = self.query_one("#sites-filter", Input), self.query_one("#sites-curve")
        if box.display:
            box.value = ""
            self._take_filter("")
            box.display = False
            self.rows.focus()
        elif curve.display:
            curve.display, self.site = False, ""
        else:
            self.post_message(Left(close=True))
        self.post_message(Changed())
        return True

    @on(Input.Changed, "#sites-filter")
    def _filtered(self, event: Input.Changed) -> None:
        event.stop()
        self._take_filter(event.value)

    def _take_filter(self, text: str) -> None:
        self.table.filter = Filter.of(text)
        self.table.arrange()
        self.rows.cursor = 0
        self.rows.renew()
        self.post_message(Changed())

    @on(Input.Submitted, "#sites-filter")
    def _filter_taken(self, event: Input.Submitted) -> None:
        event.stop()
        self.rows.focus()

    @on(Rows.Chosen)
    def _chosen(self, event: Rows.Chosen) -> None:
        event.stop()
        name = self.table.sites[self.table.rows[event.index]].name
        if name == self.site:
            self.site = ""
            self.query_one("#sites-curve").display = False
        else:
            self.site = name
        self.post_message(Changed())

    @on(Rows.HeadClicked)
    def _head_clicked(self, event: Rows.HeadClicked) -> None:
        event.stop()
        self.rows.click_head(event.cell)


def squeeze(text: str, width: int) -> str:
    """`text` in at most `width` cells, cut in the middle: the beginning and the end of a path tell most."""
    if cell_len(text) <= width:
        return fit(text, width)
    head = (width - 1) // 3
    tail = width - 1 - head
    return fit(fit(text, head + 1).rstrip("…") + "…" + text[len(text) - tail :], width)
