"""The lab's screen: puts panels together, lays them out, and passes keys on to the session and to them.

Panels that are opened later are loaded then: the first picture does not wait for them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.events import Key, Resize
from textual.screen import Screen

from gradtui.charts.heatmap import Mode
from gradtui.i18n import Words
from gradtui.ui.actions import ACTIONS, Action, applicable
from gradtui.ui.panels.chart_grid import ChartGrid
from gradtui.ui.panels.chart_pane import ChartPane
from gradtui.ui.panels.claims_panel import ClaimsPanel
from gradtui.ui.panels.output_panel import OutputPane, OutputPanel
from gradtui.ui.panels.panel import Changed, Left, Panel, Say, ShowEvidence
from gradtui.ui.panels.preset_list import bar_text
from gradtui.ui.panels.side_panel import SidePanel
from gradtui.ui.panels.text_line import TextLine
from gradtui.ui.session.controls import CONTROLS
from gradtui.ui.session.layout import Layout, Output, arrange
from gradtui.ui.session.notice import Notice
from gradtui.ui.session.session import Session
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_actions import VIEW_ACTIONS
from gradtui.ui.session.view_state import OUTPUT, PANES, ViewState
from gradtui.ui.text.footer import footer, key_hints
from gradtui.ui.text.lines import LINES

POLL_SECONDS, PAINT_SECONDS = 0.1, 0.125
NOTICE_SECONDS = 3
# With these keys the list comes up where there was no room for it.
LIST_KEYS = frozenset({"up", "down", "j", "k", "G", "pageup", "pagedown", "home", "end"})


class LabScreen(Screen[None]):
    """Shows a `Session`. Repaints at most eight times a second, and only after news."""

    CSS_PATH = "lab.tcss"
    BINDINGS = [
        Binding(key, f"preset({key})" if name == "preset" else action.call(name), show=False)
        for name, action in ACTIONS.items()
        if name not in ("quit", "palette")
        for key in action.keys
    ]

    def __init__(self, session: Session, words: Words, mode: Mode, progress: Path) -> None:
        super().__init__()
        self.session, self.words, self.mode, self.progress = session, words, mode, progress
        self.view = ViewState()
        self._stale = True
        self._layout: Layout | None = None

    def compose(self) -> ComposeResult:
        yield TextLine(id="header")
        yield TextLine(id="bar")
        with Horizontal(id="body"):
            yield SidePanel("side")
            with Vertical(id="main"):
                yield ChartGrid(id="charts")
                yield ClaimsPanel(id="claims")
                if self.session.script is not None and self.session.output is not None:
                    yield OutputPanel("script", self.session.script, self.session.output)
        yield TextLine(id="verdict")
        yield TextLine(id="footer")
        yield TextLine(id="too-small")

    def on_mount(self) -> None:
        self.side.list.focus()
        self.set_interval(POLL_SECONDS, self._poll)
        self.set_interval(PAINT_SECONDS, self._repaint)
        self._rearrange()

    @property
    def side(self) -> SidePanel:
        """The list of lanes."""
        return self.query_one(SidePanel)

    # --- news

    def invalidate(self) -> None:
        """The next repaint has something to show."""
        self._stale = True

    def repaint_now(self) -> None:
        """A key was pressed: repaint at once, not with the next news."""
        self._stale = True
        self.call_next(self._repaint)

    def set_language(self, words: Words) -> None:
        """Change the language of everything."""
        self.words = words
        self.repaint_now()

    def set_view(self, view: ViewState) -> None:
        """Look at what is open in another way; the pane that becomes active gets the keys."""
        before, self.view = self.view, view
        self._rearrange()
        if view.active != before.active:
            self.call_after_refresh(self._focus_active)

    def _poll(self) -> None:
        waiting = self.session.waits_for_step
        if self.session.poll():
            self._stale = True
        if waiting and not self.session.waits_for_step:
            self._rearrange()  # the charts take the room that the output had

    def on_descendant_focus(self) -> None:
        """The footer depends on where the keys go."""
        self.repaint_now()

    def on_resize(self, _event: Resize) -> None:
        self._rearrange()

    @on(Changed)
    def _panel_changed(self) -> None:
        self.repaint_now()

    @on(Say)
    def _panel_says(self, message: Say) -> None:
        self.say(message.notice)

    def say(self, notice: Notice | None) -> None:
        """Show one notice at a time: a key held down says its sentence once."""
        if notice is None:
            return
        self.app.clear_notifications()
        text = notice.text(self.words)
        self.app.notify(text, severity=notice.severity, markup=False, timeout=NOTICE_SECONDS)

    # --- layout and painting

    def _rearrange(self) -> None:
        """Show what fits."""
        width, height = self.size
        waits = self.session.waits_for_step
        output: Output = "none" if self.session.script is None else "big" if waits else "docked"
        layout = self._layout = arrange(width, height, self.view, output)
        for name, shown in layout.visible.items():
            self.query_one(f"#{name}").display = shown
        for panel in self.walk_children(Panel):
            panel.lay_out(layout, self.view)
        self.repaint_now()

    def snapshot(self) -> LabSnapshot:
        """What there is to show now."""
        layout = self._layout or arrange(*self.size, self.view)
        return LabSnapshot(self.session, self.view, self.words, layout, self.mode, *self.size)

    def _repaint(self) -> None:
        """Bring every visible part up to date, if anything has changed."""
        if not self._stale or self._layout is None or not self.is_mounted:
            return
        self._stale = False
        snapshot = self.snapshot()
        with self.app.batch_update():
            for name, text in LINES.items():
                if snapshot.layout.visible[name]:
                    self.query_one(f"#{name}", TextLine).show(text(snapshot))
            if not snapshot.layout.fits:
                return
            self.query_one("#bar", TextLine).show(bar_text(snapshot))
            self.query_one("#footer", TextLine).show(self._keys())
            for panel in self.walk_children(Panel):
                if panel.display or panel.id == "claims":
                    panel.show(snapshot)

    def _keys(self) -> Text:
        """The keys that do something where the keys go."""
        nodes = self.focused.ancestors_with_self if self.focused is not None else ()
        hints = next((node.key_hints(self.words) for node in nodes if isinstance(node, Panel)), "")
        return key_hints(hints) if hints else footer(self.actions, self.words, self.size.width)

    @property
    def actions(self) -> dict[str, Action]:
        """The actions that do something here."""
        return applicable(self.session.control is not None, self.session.script is not None)

    # --- the list of lanes

    def action_preset(self, number: int) -> None:
        """Focus the lane of that digit."""
        for name, digit in self.session.digits.items():
            if digit == number:
                self.select(name)

    def select(self, name: str) -> None:
        """Focus a lane, start it if it never ran."""
        self.session.select(name)
        self._list(False)
        self.repaint_now()

    @on(SidePanel.Filtered)
    def _filtered(self, message: SidePanel.Filtered) -> None:
        self.set_view(replace(self.view, pattern=message.pattern))

    @on(SidePanel.Chosen)
    def _lane_chosen(self, message: SidePanel.Chosen) -> None:
        self.select(message.lane)
        self.side.escape()
        self.side.list.focus()

    def _list(self, shown: bool) -> None:
        """Bring the list up where it has no room beside the charts, or put it away."""
        if shown != self.view.listing:
            self.set_view(replace(self.view, listing=shown))
            self.call_after_refresh(self._focus_list)

    def _focus_list(self) -> None:
        """The list has the keys, unless letters go into the filter."""
        if not self.side.filter.display:
            self.side.list.focus()

    def on_key(self, event: Key) -> None:
        """Keys for a list that cannot be seen bring it up."""
        hidden = self._layout is not None and self._layout.bar and self.focused in (None, self.side.list)
        if hidden and event.key in LIST_KEYS and self.session.focused is not None:
            self._list(True)
            event.stop()
            event.prevent_default()

    def action_filter(self) -> None:
        """Type to filter the sites where they are shown, else the lanes."""
        if not self.view.sites:
            self._list(True)
        self.query_one("#sites" if self.view.sites else "#side", Panel).open_filter()

    def action_list(self) -> None:
        """Leave what is open, else bring up the list of lanes, or put it away."""
        left = next((panel for panel in self.walk_children(Panel) if panel.display and panel.escape()), None)
        if left is None or left is self.side:
            hidden = self._layout is not None and not self._layout.side
            self._list(left is None and hidden and not self.view.listing)
            self.side.list.focus()
        elif left.id == "script":
            self._focus_active()
        self.repaint_now()

    # --- the session, the view, the panels

    def action_control(self, name: str) -> None:
        """Do something to what is open."""
        self.say(CONTROLS[name](self.session))
        self.repaint_now()

    def action_view(self, name: str) -> None:
        """Look at it in another way."""
        view, notice = VIEW_ACTIONS[name](self.snapshot())
        self.say(notice)
        self.set_view(view)

    def action_script(self, name: str) -> None:
        """Something for the script beside the screen."""
        for script in self.query(OutputPanel):
            script.action_type() if name == "type" else script.action_interrupt()

    def _focus_active(self) -> None:
        """The output has the keys where it is the active pane, else the list has them."""
        self.query_one(f"#{OUTPUT}" if self.view.active == OUTPUT else "#presets").focus()

    @on(ChartPane.Chosen)
    def _chart_clicked(self, message: ChartPane.Chosen) -> None:
        if message.pane.id in PANES:
            self.set_view(self.view.with_active(message.pane.id))

    @on(OutputPane.Chosen)
    def _output_clicked(self) -> None:
        self.set_view(self.view.with_active(OUTPUT))
        self._focus_active()

    @on(OutputPanel.Closed)
    def _line_closed(self) -> None:
        self.action_list()

    @on(Left)
    def _panel_left(self, message: Left) -> None:
        if message.close:
            self.set_view(replace(self.view, sites=False))
        self.side.list.focus()

    def action_claims(self) -> None:
        """Show the claims about the focused preset, or put them away."""
        claims, lane = self.query_one(ClaimsPanel), self.session.focused
        if not claims.display and not claims.has_claims(lane):
            self.say(Notice("claims.none", {"name": lane.name if lane is not None else ""}))
            return
        self.set_view(replace(self.view, claims=not claims.display))

    async def action_sites(self) -> None:
        """Open or close the table of sites."""
        from gradtui.ui.panels.sites_panel import SitesPanel

        if not self.query(SitesPanel):
            await self.query_one("#main").mount(SitesPanel("sites", self.words), before=0)
        self.set_view(replace(self.view, sites=not self.view.sites))
        (self.query_one(SitesPanel).rows if self.view.sites else self.side.list).focus()

    def action_open(self) -> None:
        """Pick other runs."""
        from gradtui.ui.screens.runs import RunsScreen

        self.app.push_screen(RunsScreen(self.session, self.words, self.repaint_now))

    async def action_quiz(self) -> None:
        """Open or close the quiz."""
        from gradtui.ui.panels.quiz_panel import QuizPanel

        if not self.query(QuizPanel):
            await self.query_one("#body").mount(QuizPanel("quiz", self.progress, self.words))
        panel = self.query_one(QuizPanel)
        self.set_view(replace(self.view, quiz=not self.view.quiz))
        if self.view.quiz:
            panel.open()
        else:
            panel.keep_draft()
            self.side.list.focus()

    @on(ShowEvidence)
    def _show_evidence(self, message: ShowEvidence) -> None:
        show, session = message.show, self.session
        missing = show.missing(session.lanes)
        if missing:
            self.say(Notice("notice.missing", {"name": ", ".join(missing)}, "warning"))
        if show.focus in session.lanes:
            session.show(show.focus, show.pins)
            self.set_view(self.view.with_metric(show.metric))
            if not self._layout or not self._layout.panes:
                self.call_later(self.action_quiz)  # the panel covers the charts: make way for them
