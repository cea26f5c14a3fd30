"""The lab: presets, charts by depth and over time, the verdict, and the quiz beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Grid, Horizontal, Vertical
from textual.events import Key, Resize
from textual.screen import Screen
from textual.widgets import Input, OptionList

from gradtui.charts.heatmap import Mode
from gradtui.charts.scale import format_number
from gradtui.i18n import Words
from gradtui.lesson.progress import Progress, ProgressError
from gradtui.lesson.questions import load_packs
from gradtui.ui.actions import ACTIONS, Action, applicable
from gradtui.ui.charts import painting, told
from gradtui.ui.layout import LEAST_HEIGHT, LEAST_WIDTH, OUTPUT, PANES, Layout, Output, arrange
from gradtui.ui.measures import ACTIVATION, MEASURES
from gradtui.ui.panels.chart_pane import ChartPane, Painter
from gradtui.ui.panels.output_pane import OutputPane
from gradtui.ui.panels.preset_list import PresetList, bar_text
from gradtui.ui.panels.quiz_panel import QuizPanel
from gradtui.ui.panels.site_panel import SitesPanel
from gradtui.ui.panels.text_line import TextLine, fold, footer_text
from gradtui.ui.panels.topology import sketch
from gradtui.ui.screens.help import HelpScreen
from gradtui.ui.screens.runs import RunsScreen
from gradtui.ui.session import claim_marks as claims
from gradtui.ui.session.lane import LaneView
from gradtui.ui.session.script import ending
from gradtui.ui.session.session import Lab
from gradtui.ui.session.site_table import columns_of
from gradtui.ui.text import header as texts
from gradtui.ui.text.explain import explain, measured_at

POLL_SECONDS, PAINT_SECONDS = 0.1, 0.125
SIDE_WIDTH = 34
MEANING = "#56b4e9"  # of the measure, under the verdict
# With these keys the list comes up where there was no room for it.
LIST_KEYS = frozenset({"up", "down", "j", "k", "G", "pageup", "pagedown", "home", "end"})


class LabScreen(Screen[None]):
    """Shows a `Lab` and passes keys on to it. Repaints at most eight times a second, and only after news."""

    CSS_PATH = "lab.tcss"
    BINDINGS = [
        Binding(key, f"preset({key})" if name == "preset" else action.call(name), show=False)
        for name, action in ACTIONS.items()
        if name not in ("quit", "palette")
        for key in action.keys
    ]

    def __init__(self, lab: Lab, words: Words, mode: Mode, progress: Path) -> None:
        super().__init__()
        self.progress = progress  # the learner's, a file
        self.lab, self.words, self.mode = lab, words, mode
        self.metric = next(iter(MEASURES))
        self.log_scale: bool | None = None  # None: what suits the metric
        self.log_steps = True  # a collapse happens in the first steps: give them room
        self.active, self.zoomed, self.quiz_open, self.sites_open = PANES[0], False, False, False
        self.listing = False  # the list is up although there is hardly room for it
        self.claims = claims.Claims()
        self.claims_open: bool | None = None  # None: where there is room
        self.pattern = ""
        self._dirty = True
        self._layout: Layout | None = None

    def compose(self) -> ComposeResult:
        yield TextLine(id="header")
        yield TextLine(id="bar")
        yield Input(id="filter", compact=True)
        with Horizontal(id="body"):
            with Vertical(id="side"):
                yield PresetList(id="presets")
                yield TextLine(id="about")
                yield TextLine(id="topology")
            with Vertical(id="main"):
                with Grid(id="charts"):
                    for pane in PANES:
                        yield ChartPane(id=pane)
                yield TextLine(id="claims")
                if self.lab.script is not None:
                    yield OutputPane(id=OUTPUT)
                    yield Input(id="stdin", compact=True)
        yield TextLine(id="verdict")
        yield TextLine(id="footer")
        yield TextLine(id="too-small")

    def on_mount(self) -> None:
        for box in self.query("#filter, #stdin"):
            box.display = False
        self.query_one("#presets").focus()
        self.set_interval(POLL_SECONDS, self._poll)
        self.set_interval(PAINT_SECONDS, self.repaint)
        self._rearrange()

    # --- news

    def touch(self) -> None:
        """Something changed that the next repaint has to show."""
        self._dirty = True

    def react(self) -> None:
        """Somebody pressed a key: repaint at once, not with the next news."""
        self._dirty = True
        self.call_next(self.repaint)

    def speak(self, words: Words) -> None:
        """Change the language of everything."""
        self.words = words
        for panel in self.query(QuizPanel):
            panel.speak(words)
        if self.lab.tail is not None:
            self.lab.tail.left_out = words("script.gap")
        self.react()

    def _poll(self) -> None:
        waiting = self.lab.waits_for_step
        if self.lab.poll():
            self._dirty = True
        if waiting and not self.lab.waits_for_step:
            self._rearrange()  # the charts take the room that the output had

    def on_descendant_focus(self) -> None:
        """The footer depends on where the keys go."""
        self.react()

    def on_resize(self, _event: Resize) -> None:
        self._rearrange()

    def _rearrange(self) -> None:
        """Show what fits."""
        width, height = self.size
        output: Output = "none" if self.lab.script is None else "big" if self.lab.waits_for_step else "docked"
        layout = arrange(
            width,
            height,
            active=self.active,
            zoomed=self.zoomed,
            quiz=self.quiz_open,
            output=output,
            sites=self.sites_open,
            listing=self.listing,
        )
        self._layout = layout
        self.query_one("#too-small").display = not layout.fits
        for name, shown in (
            ("header", layout.fits),
            ("bar", layout.bar),
            ("body", layout.fits),
            ("verdict", layout.verdict),
            ("footer", layout.fits),
            ("side", layout.side),
            ("main", layout.verdict),
            ("charts", bool(layout.panes)),
        ):
            self.query_one(f"#{name}").display = shown
        self.query_one("#side").styles.width = SIDE_WIDTH if layout.verdict or self.quiz_open else "1fr"
        grid = self.query_one("#charts", Grid)
        grid.styles.grid_size_columns = layout.columns
        grid.styles.grid_size_rows = max(1, -(-len(layout.panes) // layout.columns))
        grid.styles.height = "1fr" if layout.charts is None else layout.charts
        for output_pane in self.query(OutputPane):
            output_pane.display = layout.output != 0
            output_pane.styles.height = "1fr" if layout.output is None else layout.output
            output_pane.set_class(self.active == OUTPUT, "active")
        for sites in self.query(SitesPanel):
            sites.display = layout.sites
        for pane in self.query(ChartPane):
            pane.display = pane.id in layout.panes
            pane.set_class(pane.id == self.active and len(layout.panes) > 1, "active")
        for panel in self.query(QuizPanel):
            panel.display = layout.quiz > 0
            panel.styles.width = layout.quiz
        self.react()

    # --- painting

    def repaint(self) -> None:
        """Bring every visible part up to date, if anything has changed."""
        if not self._dirty or self._layout is None or not self.is_mounted:
            return
        self._dirty = False
        with self.app.batch_update():
            if not self._layout.fits:
                self._paint_too_small()
                return
            self._paint_lines()
            if self._layout.side:
                self._paint_list()
            self._paint_claims()
            if self._layout.panes:
                self._paint_charts()
            if self._layout.sites:
                self._paint_sites()
            if self._layout.output != 0:
                self._paint_output()

    def _paint_too_small(self) -> None:
        width, height = self.size
        sentence = self.words(
            "notice.too_small",
            width=width,
            height=height,
            least_width=LEAST_WIDTH,
            least_height=LEAST_HEIGHT,
        )
        self.query_one("#too-small", TextLine).show(Text(sentence))

    def _paint_lines(self) -> None:
        words, width = self.words, self.size.width
        self.query_one("#header", TextLine).show(texts.header(self.lab, words, width))
        self.query_one("#bar", TextLine).show(bar_text(self.lab, self._names(), words, width))
        verdict = texts.verdicts(self.lab, words, width - 2)
        meaning = explain(self.lab.focused, self.shown_metric, self.lab.cursor, words)
        if meaning and not self.sites_open:
            verdict = Text.assemble(verdict, "\n", fold(Text(meaning, MEANING), width - 2))
        self.query_one("#verdict", TextLine).show(verdict)
        self.query_one("#footer", TextLine).show(self._footer(width))

    def _footer(self, width: int) -> Text:
        """The keys that do something where the keys go now."""
        if self._in_quiz():
            panel = self.query_one(QuizPanel)
            key = "quiz.keys_text" if panel.in_text else "quiz.keys"
            return Text(f" {self.words(key)}", "dim", no_wrap=True, overflow="ellipsis")
        if self.focused is not None and self.focused.id == OUTPUT:
            return Text(f" {self.words('script.keys')}", "dim", no_wrap=True, overflow="ellipsis")
        return footer_text(self._actions(), self.words.language, width)

    def _actions(self) -> dict[str, Action]:
        return applicable(self.lab.engine is not None, self.lab.script is not None)

    def _paint_list(self) -> None:
        box = self.query_one("#presets", PresetList)
        title = "list.title" if self.lab.engine is not None else "list.runs"
        box.border_title = Text(self.words(title))
        box.show(self.lab, self._names(), self.words)
        lane = self.lab.focused
        topology = self.query_one("#topology", TextLine)
        topology.border_title = Text(self.words("topology.title"))
        topology.display = lane is not None and lane.preset is not None and self.size.height >= 30
        about = self.query_one("#about", TextLine)
        width = max(self.query_one("#side").size.width - 4, 8)
        text = Text()
        if lane is not None and lane.preset is not None:
            topology.show(fold(sketch(lane.preset.model, self.words), width))
            if topology.display and self.size.height >= 40:
                text = Text(lane.preset.summary(self.words.language), "dim")
        elif lane is not None:
            text = texts.about(lane, self.words)
        about.display = bool(text.plain)
        about.show(fold(text, width))

    def _names(self) -> list[str]:
        """The lanes that the filter lets through."""
        return [name for name in self.lab.lanes if self._matches(name)]

    def _matches(self, name: str) -> bool:
        return texts.matches(self.lab.lanes[name], self.pattern)

    def _paint_claims(self) -> None:
        """A line for each claim about the focused preset, under the charts."""
        line, layout = self.query_one("#claims", TextLine), self._layout
        wanted = bool(layout and layout.panes) and (
            self.claims_open if self.claims_open is not None else bool(layout and layout.roomy)
        )
        marked = self.claims.of(self.lab.focused) if wanted else []
        line.display = bool(marked)
        if marked:
            line.border_title = Text(f" {self.words('claims.title')}  {self.words('claims.keys')} ")
            line.show(claims.lines(marked, self.words, max(self.query_one("#main").size.width - 2, 20)))

    def _paint_charts(self) -> None:
        lab, words, lane = self.lab, self.words, self.lab.focused
        measure, log = MEASURES[self.shown_metric], self._log()
        empty = texts.missing(lane, measure.name, words) or texts.emptiness(lab, lane, words)
        scale = words("pane.log" if log else "pane.linear")
        shown, cursor = lab.shown, lab.cursor
        steps = f"{words('pane.logsteps')} · x" if self.log_steps else "x"
        self._pane("depth").show(
            words("pane.depth", metric=words(f"metric.{measure.name}")),
            " · ".join(text for text in (self._measured_at(lane, measure.name), scale, "m y") if text),
            self._depth_painter(measure.name, log, empty),
        )
        other = self._other_metric(measure.name)
        step = "" if cursor is None else words("header.history", step=cursor)
        self._pane("rms").show(
            words("pane.rms") if other == ACTIVATION else words("pane.depth", metric=words(f"metric.{other}")),
            self._measured_at(lane, other) or step,
            self._depth_painter(other, MEASURES[other].log, texts.missing(lane, other, words) or empty),
        )
        self._paint_heat(lane, empty, log, steps)
        loss = painting.loss_painter(shown, cursor, log_steps=self.log_steps, words=words, empty=empty)
        self._pane("loss").show(words("pane.loss"), steps, loss)

    def _depth_painter(self, metric: str, log: bool, empty: str) -> Painter:
        measure, shown, cursor = MEASURES[metric], self.lab.shown, self.lab.cursor
        if measure.told:
            return told.by_depth(measure, shown, cursor, log, self.words, empty)
        return painting.depth_painter(shown, metric, cursor, log, self.words, empty)

    def _measured_at(self, lane: LaneView | None, metric: str) -> str:
        """The step of what is measured at some steps only."""
        step = measured_at(lane, metric, self.lab.cursor)
        return "" if step is None else self.words("pane.at", step=step)

    def _paint_heat(self, lane: LaneView | None, empty: str, log: bool, steps: str) -> None:
        words, cursor, measure = self.words, self.lab.cursor, MEASURES[self.shown_metric]
        metric = words(f"heat.{measure.name}" if measure.kind == "spread" else f"metric.{measure.name}")
        title, name = words("pane.heat", metric=metric), lane.name(words.language) if lane else ""
        if measure.kind == "weights":
            title, steps = words("pane.weights"), self._measured_at(lane, measure.name)
        how = {"log": log, "log_steps": self.log_steps, "mode": self.mode, "words": words, "empty": empty}
        if measure.told:
            painter = told.heat(lane, measure, cursor, **how)  # type: ignore[arg-type]
        else:
            painter = painting.heat_painter(lane, measure.name, cursor, **how)  # type: ignore[arg-type]
        self._pane("heat").show(title, " · ".join(text for text in (name, steps) if text), painter)

    def _paint_sites(self) -> None:
        """The table, and under it the curve of the site that was chosen."""
        panel, lane, words = self.query_one(SitesPanel), self.lab.focused, self.words
        metric, log = self.shown_metric, self._log()
        panel.show(lane, self.lab.cursor, metric, words)
        if panel.site:
            painter = painting.site_painter(
                self.lab.shown,
                panel.site,
                metric,
                self.lab.cursor,
                log=log,
                log_steps=self.log_steps,
                words=words,
                empty=texts.missing(lane, metric, words) or words("empty.nothing"),
            )
            title = words("pane.site", name=panel.site, metric=words(f"metric.{metric}"))
            panel.show_curve(title, f"{words('pane.log' if log else 'pane.linear')} · m y x", painter)

    def _paint_output(self) -> None:
        """The end of what the script prints."""
        script, tail, words = self.lab.script, self.lab.tail, self.words
        if script is None or tail is None:
            return
        title = f"{words('pane.output', name=script.title)} · {ending(script, words)}"
        if not tail.terminal.count:
            title += f" · {words('script.nothing_printed')}"
        pane = self.query_one(OutputPane)
        pane.show(tail, title, "" if pane.following else "↓ end")

    @property
    def shown_metric(self) -> str:
        """The measure that was chosen, or the first one that the focused run has."""
        there = self._metrics()
        return self.metric if self.metric in there or not there else there[0]

    def _metrics(self) -> list[str]:
        """The measures that the focused run has; all that any run may have before it has begun."""
        lane = self.lab.focused
        there = [name for name in MEASURES if (lane.has(name) if lane else not MEASURES[name].told)]
        if self.sites_open:  # a site has no other values than those of the table
            return [name for name in there if name in columns_of(there)]
        return there

    def _other_metric(self, shown: str) -> str:
        """What the second pane shows: activations, what belongs to the first, or what else there is."""
        there = self._metrics()
        beside = MEASURES[shown].beside
        if beside in there and beside != shown:
            return beside
        return next((name for name in (ACTIVATION, *there) if name in there and name != shown), ACTIVATION)

    def _log(self) -> bool:
        """Whether values are shown on a logarithmic scale."""
        return MEASURES[self.shown_metric].log if self.log_scale is None else self.log_scale

    def _pane(self, name: str) -> ChartPane:
        return self.query_one(f"#{name}", ChartPane)

    # --- what keys do

    def action_preset(self, number: int) -> None:
        """Focus the preset of that digit."""
        for name, digit in self.lab.digits.items():
            if digit == number:
                self.select(name)

    def select(self, name: str) -> None:
        """Focus a preset, start it if it never ran."""
        self._with_engine(lambda: self.lab.select(name))
        self._highlight(name)
        self._list(False)
        self.react()

    def _list(self, shown: bool) -> None:
        """Bring the list up where it has no room beside the charts, or put it away."""
        if shown != self.listing:
            self.listing = shown
            self._rearrange()
            self.call_after_refresh(self._focus_list)

    def _focus_list(self) -> None:
        """The list has the keys, unless somebody types into the filter."""
        if not self.query_one("#filter").display:
            self.query_one("#presets").focus()

    def on_key(self, event: Key) -> None:
        """Keys for a list that cannot be seen bring it up; in the filter they move through what matches."""
        box = self.query_one("#presets", PresetList)
        if self.query_one("#filter").has_focus and event.key in ("up", "down"):
            (box.action_cursor_up if event.key == "up" else box.action_cursor_down)()
        elif self._layout is not None and self._layout.bar and self.focused in (None, box):
            if event.key not in LIST_KEYS or self.lab.focused is None:
                return
            self._list(True)
        else:
            return
        event.stop()
        event.prevent_default()

    def _with_engine(self, do: Callable[[], object]) -> None:
        """Do something that may start a lane, once there is an engine to start it; at once for recorded runs."""
        if self.lab.engine is None:
            do()
        else:
            self.app.ensure_engine(do)  # type: ignore[attr-defined]

    def _highlight(self, name: str) -> None:
        box = self.query_one("#presets", PresetList)
        for index in range(box.option_count):
            if box.get_option_at_index(index).id == name:
                box.highlighted = index

    @on(OptionList.OptionSelected, "#presets")
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        if event.option_id is not None:
            self.select(event.option_id)

    def action_pin(self) -> None:
        """Pin the focused preset, or let it go."""
        lane = self.lab.focused
        if lane is None:
            return

        def pin() -> None:
            key = "notice.pinned" if self.lab.toggle_pin(lane.id) else "notice.unpinned"
            self._say(self.words(key, name=lane.name(self.words.language)))
            self.react()

        self._with_engine(pin)

    def action_square(self) -> None:
        """Overlay LayerNorm/RMSNorm × Post/Pre, or put back what was there before."""

        def overlay() -> None:
            overlaid = self.lab.toggle_square()
            if overlaid is None:
                self._say(self.words("notice.no_square"), "warning")
                return
            self._highlight(self.lab.focus)
            if overlaid:
                self._say(self.words("notice.square"))
            self.react()

        self._with_engine(overlay)

    def action_metric(self) -> None:
        """The next metric, with the scale that suits it."""
        there, shown = self._metrics(), self.shown_metric
        following = there[(there.index(shown) + 1) % len(there)] if shown in there else shown
        if following == shown:
            self._say(self.words("notice.no_metric"))
        self.metric, self.log_scale = following, None
        self.react()

    def action_log(self) -> None:
        """Logarithmic or linear values."""
        self.log_scale = not self._log()
        self.react()

    def action_log_steps(self) -> None:
        """Logarithmic or even steps: on a logarithmic axis the first steps have room."""
        self.log_steps = not self.log_steps
        self.react()

    def action_pause(self) -> None:
        """Pause the focused preset, or let it go on; start it if it never ran."""

        def pause() -> None:
            lane = self.lab.focused
            if lane is None:
                return
            if lane.state == "idle":
                self.lab.select(lane.id)
            elif lane.state in ("done", "diverged"):
                self._say(self.words("notice.no_step", steps=lane.steps), "warning")
            else:
                self.lab.toggle_pause()

        self._control(pause)

    def action_single_step(self) -> None:
        """Pause and take one step."""

        def step() -> None:
            lane = self.lab.focused
            if not self.lab.single_step() and lane is not None:
                self._say(self.words("notice.no_step", steps=lane.steps), "warning")

        self._control(step)

    def action_restart(self) -> None:
        """Begin the focused preset again."""
        self._control(self.lab.restart)

    def action_reseed(self) -> None:
        """Begin the focused preset again with the next seed."""

        def reseed() -> None:
            lane = self.lab.focused
            if lane is not None:
                self.lab.restart(lane.seed + 1)
                name = lane.name(self.words.language)
                self._say(self.words("notice.reseeded", name=name, seed=lane.seed))

        self._control(reseed)

    def action_more(self) -> None:
        """Train further than planned."""

        def more() -> None:
            lane = self.lab.focused
            if lane is not None and self.lab.more():
                self._say(self.words("notice.steps_added", name=lane.name(self.words.language)))

        self._control(more)

    def action_scale_lr(self, factor: float) -> None:
        """Multiply the focused preset's learning rate."""

        def scale() -> None:
            scale, lane = self.lab.scale_lr(factor), self.lab.focused
            if scale is not None:
                self._say(self.words("notice.lr", scale=format_number(scale)))
            elif lane is not None:
                self._say(self.words("notice.no_step", steps=lane.steps), "warning")

        self._control(scale)

    def _control(self, do: Callable[[], None]) -> None:
        """Do something to a lane; a recorded run cannot be told anything."""
        lane = self.lab.focused
        if self.lab.engine is None or (lane is not None and lane.recorded):
            self._say(self.words("notice.watch_only"), "warning")
        else:
            self.app.ensure_engine(do)  # type: ignore[attr-defined]
        self.react()

    def action_travel(self, steps: int) -> None:
        """Through history."""
        if not self.lab.travel(steps):
            self._say(self.words("notice.no_history"), "warning")
        self.react()

    def action_live(self) -> None:
        """Follow the newest step again."""
        self.lab.cursor = None
        self.react()

    def action_turn_pane(self, by: int) -> None:
        """Another pane; inside the quiz, another field."""
        if self._in_quiz():
            (self.focus_next if by > 0 else self.focus_previous)("#quiz *")
            return
        panes = PANES if self.lab.script is None else (*PANES, OUTPUT)
        self._activate(panes[(panes.index(self.active) + by) % len(panes)])

    def _activate(self, pane: str) -> None:
        """Make a pane the active one; the output then has the keys that scroll, else the list has them."""
        if self.sites_open:
            self._close_sites()
        self.active = pane
        self._rearrange()
        target = f"#{OUTPUT}" if pane == OUTPUT else "#presets"
        self.call_after_refresh(lambda: self.query_one(target).focus())

    @on(ChartPane.Chosen)
    def _pane_clicked(self, message: ChartPane.Chosen) -> None:
        if message.pane.id in PANES:
            self._activate(message.pane.id)

    @on(OutputPane.Chosen)
    def _output_clicked(self) -> None:
        self._activate(OUTPUT)

    def action_zoom(self) -> None:
        """Show one pane only, or all again."""
        self.zoomed = not self.zoomed
        self._rearrange()

    def action_list(self) -> None:
        """Leave the filter, or wherever the keys go, for the list of presets."""
        for line in self.query("#stdin"):
            if line.display:
                line.display = False
                self.query_one("#presets" if self.active != OUTPUT else f"#{OUTPUT}").focus()
                return
        if self.sites_open and not self.query_one("#filter").display:
            self.query_one(SitesPanel).escape()
            self.react()
            return
        box = self.query_one("#filter", Input)
        up, self.pattern = self.listing or box.display, ""
        box.value = ""
        box.display = False
        if self._layout is not None and not self._layout.side and not up:
            self._list(True)
        else:
            self._list(False)
        self.query_one("#presets").focus()
        self.react()

    def action_claims(self) -> None:
        """Show the claims about the focused preset, or put them away."""
        shown = self.query_one("#claims").display
        if not shown and not self.claims.of(self.lab.focused):
            lane = self.lab.focused
            name = lane.name(self.words.language) if lane is not None else ""
            self._say(self.words("claims.none", name=name))
            return
        self.claims_open = not shown
        self.react()

    def action_filter(self) -> None:
        """Type to filter the sites where they are shown, else the presets."""
        if self.sites_open:
            self.query_one(SitesPanel).open_filter()
            return
        box = self.query_one("#filter", Input)
        box.placeholder = self.words("list.filter")
        box.display = True
        self._list(True)
        box.focus()

    @on(Input.Changed, "#filter")
    def _filtered(self, event: Input.Changed) -> None:
        self.pattern = event.value
        self.react()

    @on(Input.Submitted, "#filter")
    def _filter_taken(self) -> None:
        """Enter takes the match that the list points at, the first one as a rule."""
        matches = self._names()
        if matches:
            pointed = self.query_one("#presets", PresetList).pointed
            self.select(pointed if pointed in matches else matches[0])
            self.action_list()
        else:
            self._say(self.words("empty.filter", text=self.pattern), "warning")

    # --- sites, other runs, the script

    async def action_sites(self) -> None:
        """Open or close the table of sites."""
        if self.sites_open:
            self._close_sites()
            return
        self.sites_open = True
        if not self.query(SitesPanel):
            await self.query_one("#main").mount(SitesPanel("sites", self.words), before=0)
        self._rearrange()
        self.query_one(SitesPanel).rows.focus()

    def _close_sites(self) -> None:
        self.sites_open = False
        self._rearrange()
        self.query_one("#presets").focus()

    @on(SitesPanel.Left)
    def _sites_left(self) -> None:
        self._close_sites()

    def action_open(self) -> None:
        """Pick other runs."""
        self.app.push_screen(RunsScreen(self.lab, self.words, self.react))

    def action_type(self) -> None:
        """A line for the script's stdin."""
        script = self.lab.script
        if script is None:
            return
        if script.exit_code is not None:
            self._say(self.words("script.over_already", name=script.title), "warning")
            return
        line = self.query_one("#stdin", Input)
        line.placeholder = self.words("script.type")
        line.display = True
        line.focus()

    @on(Input.Submitted, "#stdin")
    def _typed(self, event: Input.Submitted) -> None:
        script = self.lab.script
        if script is not None:
            script.say(f"{event.value}\n")
            self._say(self.words("script.sent", name=script.title, text=event.value))
        event.input.value = ""
        self.action_list()

    def action_interrupt(self) -> None:
        """What ctrl+c would do in the script's own terminal."""
        script = self.lab.script
        if script is not None and script.exit_code is None:
            script.interrupt()
            self._say(self.words("script.interrupted", name=script.title))
        elif script is not None:
            self._say(self.words("script.over_already", name=script.title), "warning")

    # --- quiz

    def _in_quiz(self) -> bool:
        return self.focused is not None and any(
            isinstance(node, QuizPanel) for node in self.focused.ancestors_with_self
        )

    async def action_quiz(self) -> None:
        """Open or close the quiz."""
        self.quiz_open = not self.quiz_open
        if not self.query(QuizPanel):
            await self.query_one("#body").mount(self._make_quiz())
        panel = self.query_one(QuizPanel)
        self._rearrange()
        if self.quiz_open:
            panel.open()
        else:
            panel.keep_draft()
            self.query_one("#presets").focus()

    def _make_quiz(self) -> QuizPanel:
        packs, errors = load_packs()
        for error in errors:
            self._say(str(error), "warning")
        problem = str(errors[0]) if errors else ""
        try:
            progress = Progress(self.progress)
        except ProgressError as error:
            self._say(self.words("notice.quiz_unavailable", reason=error), "warning")
            progress = Progress(None)
        return QuizPanel("quiz", packs, progress, self.words, problem)

    @on(QuizPanel.ShowMe)
    def _show_evidence(self, message: QuizPanel.ShowMe) -> None:
        show = message.show
        missing = show.missing(self.lab.lanes)
        if missing:
            self._say(self.words("notice.missing", name=", ".join(missing)), "warning")
        if show.focus in self.lab.lanes:
            self._with_engine(lambda: self.lab.show(show.focus, show.pins))
            self.metric, self.log_scale = show.metric, None
            self._highlight(show.focus)
            self.react()
            if not self._layout or not self._layout.panes:
                self.call_later(self.action_quiz)  # the panel covers the charts: make way for them

    @on(QuizPanel.Left)
    def _quiz_left(self) -> None:
        self.query_one("#presets").focus()

    @on(QuizPanel.Trouble)
    def _quiz_trouble(self, message: QuizPanel.Trouble) -> None:
        self._say(message.reason, "warning")

    # --- the rest

    def action_language(self) -> None:
        """中文 or English."""
        self.app.switch_language()  # type: ignore[attr-defined]

    def action_save(self) -> None:
        """Save the screen as SVG and say where."""
        self.app.save_screen()  # type: ignore[attr-defined]

    def action_help(self) -> None:
        """All keys."""
        self.app.push_screen(HelpScreen(self._actions(), self.words, str(self.lab.runs)))

    def _say(self, sentence: str, severity: str = "information") -> None:
        """One notice at a time: a key held down says its sentence once."""
        self.app.clear_notifications()
        self.app.notify(sentence, severity=severity, markup=False, timeout=3)  # type: ignore[arg-type]
