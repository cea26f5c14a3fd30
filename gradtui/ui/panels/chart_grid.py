"""The charts: as many panes as the layout has room for."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Grid

from gradtui.ui.charts.panes import PANE_SPECS
from gradtui.ui.panels.chart_pane import ChartPane
from gradtui.ui.panels.panel import Panel
from gradtui.ui.session.layout import Layout
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_state import ViewState


class ChartGrid(Grid, Panel):
    """A pane for each entry of `PANE_SPECS`."""

    def compose(self) -> ComposeResult:
        for name in PANE_SPECS:
            yield ChartPane(id=name)

    def lay_out(self, layout: Layout, view: ViewState) -> None:
        """Show the panes of the layout; where there are several, one is marked as the active one."""
        self.display = bool(layout.panes)
        self.styles.grid_size_columns = layout.columns
        self.styles.grid_size_rows = max(1, -(-len(layout.panes) // layout.columns))
        self.styles.height = "1fr" if layout.charts is None else layout.charts
        for pane in self.query(ChartPane):
            pane.display = pane.id in layout.panes
            pane.set_class(pane.id == view.active and len(layout.panes) > 1, "active")

    def show(self, snapshot: LabSnapshot) -> None:
        """Paint every visible pane anew."""
        for name in snapshot.layout.panes:
            pane = PANE_SPECS[name](snapshot)
            self.query_one(f"#{name}", ChartPane).show(pane.title, pane.subtitle, pane.paint)
