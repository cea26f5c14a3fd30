"""The lab: presets, charts by depth and over time, the verdict, and the quiz beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Grid, Horizontal, Vertical
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Input, OptionList

from gradtui.charts.heatmap import Mode
from gradtui.charts.scale import format_number
from gradtui.quiz.bank import load_packs
from gradtui.quiz.progress import Progress, ProgressError
from gradtui.ui import painting, texts
from gradtui.ui.actions import ACTIONS, applicable
from gradtui.ui.i18n import Words
from gradtui.ui.lab import Lab
from gradtui.ui.layout import LEAST_HEIGHT, LEAST_WIDTH, PANES, Layout, arrange
from gradtui.ui.screens.help import HelpScreen
from gradtui.ui.widgets.chart import ChartPane
from gradtui.ui.widgets.lines import TextLine, fold, footer_text
from gradtui.ui.widgets.presets import PresetList, bar_text
from gradtui.ui.widgets.quiz import QuizPanel
from gradtui.ui.widgets.topology import sketch

METRIC_CYCLE = ("stream_grad", "grad_norm", "update_ratio", "act_rms", "mean_share")
LOG_METRICS = frozenset({"stream_grad", "grad_norm", "update_ratio", "mean_share"})
POLL_SECONDS, PAINT_SECONDS = 0.1, 0.125


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
        self.metric = METRIC_CYCLE[0]
        self.log_scale: bool | None = None  # None: what suits the metric
        self.log_steps = True  # a collapse happens in the first steps: give them room
        self.active, self.zoomed, self.quiz_open = PANES[0], False, False
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
            with Grid(id="charts"):
                for pane in PANES:
                    yield ChartPane(id=pane)
        yield TextLine(id="verdict")
        yield TextLine(id="footer")
        yield TextLine(id="too-small")

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
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
        self.react()

    def _poll(self) -> None:
        if self.lab.poll():
            self._dirty = True

    def on_descendant_focus(self) -> None:
        """The footer depends on where the keys go."""
        self.react()

    def on_resize(self, _event: Resize) -> None:
        self._rearrange()

    def _rearrange(self) -> None:
        """Show what fits."""
        width, height = self.size
        layout = arrange(width, height, active=self.active, zoomed=self.zoomed, quiz=self.quiz_open)
        self._layout = layout
        self.query_one("#too-small").display = not layout.fits
        for name, shown in (
            ("header", layout.fits),
            ("bar", layout.bar),
            ("body", layout.fits),
            ("verdict", bool(layout.panes)),
            ("footer", layout.fits),
            ("side", layout.side),
            ("charts", bool(layout.panes)),
        ):
            self.query_one(f"#{name}").display = shown
        grid = self.query_one("#charts", Grid)
        grid.styles.grid_size_columns = layout.columns
        grid.styles.grid_size_rows = max(1, -(-len(layout.panes) // layout.columns))
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
            self._paint_charts()

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
        self.query_one("#verdict", TextLine).show(texts.verdicts(self.lab, words, width - 2))
        self.query_one("#footer", TextLine).show(self._footer(width))

    def _footer(self, width: int) -> Text:
        """The keys that do something where the keys go now."""
        if self._in_quiz():
            panel = self.query_one(QuizPanel)
            key = "quiz.keys_text" if panel.in_text else "quiz.keys"
            return Text(f" {self.words(key)}", "dim", no_wrap=True, overflow="ellipsis")
        return footer_text(applicable(self.lab.engine is not None), self.words.language, width)

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
        about.display = (
            topology.display and bool(lane and lane.preset and lane.preset.about) and self.size.height >= 40
        )
        if lane is not None and lane.preset is not None:
            width = max(self.query_one("#side").size.width - 4, 8)
            topology.show(fold(sketch(lane.preset.model, self.words), width))
            about.show(fold(Text(lane.preset.summary(self.words.language), "dim"), width))

    def _names(self) -> list[str]:
        """The lanes that the filter lets through."""
        return [name for name in self.lab.lanes if self._matches(name)]

    def _matches(self, name: str) -> bool:
        lane = self.lab.lanes[name]
        wanted = self.pattern.casefold()
        return any(wanted in text.casefold() for text in (name, lane.title, lane.title_zh))

    def _paint_charts(self) -> None:
        lab, words, lane = self.lab, self.words, self.lab.focused
        log = self.metric in LOG_METRICS if self.log_scale is None else self.log_scale
        empty = texts.emptiness(lab, lane, words)
        scale = words("pane.log" if log else "pane.linear")
        metric = words(f"metric.{self.metric}")
        shown, cursor = lab.shown, lab.cursor
        steps = f"{words('pane.logsteps')} · x" if self.log_steps else "x"
        step = "" if cursor is None else words("header.history", step=cursor)
        self._pane("depth").show(
            words("pane.depth", metric=metric),
            f"{scale} · m y",
            painting.depth_painter(shown, self.metric, cursor, log, words, empty),
        )
        self._pane("rms").show(
            words("pane.rms"),
            step,
            painting.depth_painter(shown, "act_rms", cursor, False, words, empty),
        )
        self._pane("heat").show(
            words("pane.heat", metric=metric),
            " · ".join(text for text in (lane.name(words.language) if lane else "", steps) if text),
            painting.heat_painter(
                lane,
                self.metric,
                cursor,
                log=log,
                log_steps=self.log_steps,
                mode=self.mode,
                words=words,
                empty=empty,
            ),
        )
        loss = painting.loss_painter(shown, cursor, log_steps=self.log_steps, words=words, empty=empty)
        self._pane("loss").show(words("pane.loss"), steps, loss)

    def _pane(self, name: str) -> ChartPane:
        return self.query_one(f"#{name}", ChartPane)

    # --- what keys do

    def action_preset(self, number: int) -> None:
        """Focus the preset of that digit."""
        names = list(self.lab.lanes)
        if number <= len(names):
            self.select(names[number - 1])

    def select(self, name: str) -> None:
        """Focus a preset, start it if it never ran."""
        self._with_engine(lambda: self.lab.select(name))
        self._highlight(name)
        self.react()

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
        self.metric = METRIC_CYCLE[(METRIC_CYCLE.index(self.metric) + 1) % len(METRIC_CYCLE)]
        self.log_scale = None
        self.react()

    def action_log(self) -> None:
        """Logarithmic or linear values."""
        current = self.metric in LOG_METRICS if self.log_scale is None else self.log_scale
        self.log_scale = not current
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
        if self.lab.engine is None:
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
        self.active = PANES[(PANES.index(self.active) + by) % len(PANES)]
        self._rearrange()

    @on(ChartPane.Chosen)
    def _pane_clicked(self, message: ChartPane.Chosen) -> None:
        self.active = message.pane.id or PANES[0]
        self._rearrange()

    def action_zoom(self) -> None:
        """Show one pane only, or all again."""
        self.zoomed = not self.zoomed
        self._rearrange()

    def action_list(self) -> None:
        """Leave the filter, or wherever the keys go, for the list of presets."""
        box = self.query_one("#filter", Input)
        self.pattern = box.value = ""
        box.display = False
        self.query_one("#presets").focus()
        self.react()

    def action_filter(self) -> None:
        """Type to filter the presets."""
        box = self.query_one("#filter", Input)
        box.placeholder = self.words("list.filter")
        box.display = True
        box.focus()

    @on(Input.Changed, "#filter")
    def _filtered(self, event: Input.Changed) -> None:
        self.pattern = event.value
        self.react()

    @on(Input.Submitted, "#filter")
    def _filter_taken(self) -> None:
        """Enter takes the first match."""
        matches = self._names()
        if matches:
            self.select(matches[0])
            self.action_list()
        else:
            self._say(self.words("empty.filter", text=self.pattern), "warning")

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
        actions = applicable(self.lab.engine is not None)
        self.app.push_screen(HelpScreen(actions, self.words, str(self.lab.runs)))

    def _say(self, sentence: str, severity: str = "information") -> None:
        """One notice at a time: a key held down says its sentence once."""
        self.app.clear_notifications()
        self.app.notify(sentence, severity=severity, markup=False, timeout=3)  # type: ignore[arg-type]
