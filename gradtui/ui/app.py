"""The application: owns the engine, the language and the way out; the screens own what is shown."""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.text import Text
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding
from textual.command import CommandPalette
from textual.screen import Screen
from textual.theme import Theme
from textual.timer import Timer
from textual.widgets import Static

from gradtui import paths
from gradtui.i18n import LANGUAGES, Words
from gradtui.ui.actions import ACTIONS, applicable
from gradtui.ui.session.script import shell_code
from gradtui.ui.svg import with_cell_widths

if TYPE_CHECKING:
    from gradtui.engine import protocol
    from gradtui.ui.screens.lab import LabScreen
    from gradtui.ui.screens.leave import Choice
    from gradtui.ui.session.session import Lab
    from gradtui.ui.terminal_guard import Lifeline

STOP_LOOK_SECONDS = 0.1

THEME = Theme(
    name="gradtui",
    primary="#56b4e9",
    secondary="#009e73",
    accent="#e69f00",
    warning="#e69f00",
    error="#d55e00",
    success="#009e73",
    foreground="#dde3ea",
    background="#10141a",
    surface="#171c24",
    panel="#1c222c",
    dark=True,
    variables={"border": "#39424f"},
)


class EngineProcess(Protocol):
    """What the app needs of an engine client; a test gives another."""

    @property
    def running(self) -> bool: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def send(self, command: protocol.Command) -> None: ...
    def kill(self) -> None: ...


@dataclass(slots=True)
class Opened:
    """A lab and what belongs to it; `engine` is None where recorded runs are watched."""

    lab: Lab
    engine: EngineProcess | None = None
    notices: list[str] = field(default_factory=list)


class GradtuiApp(App[int]):
    """Shows a lab. Exits with 128 + n on signal n, as a shell expects.

    `open_lab` is called once the first frame is painted: what it imports (NumPy, charts, quiz) takes longer
    than Textual itself.
    """

    CSS = "#splash { width: 100%; height: 100%; content-align: center middle; color: $text-muted; }"
    TITLE = "gradtui"
    BINDINGS = [
        # The terminal sends ctrl+c as a key; it must quit even while the answer box has the focus.
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+q", "quit", show=False, priority=True),
        Binding("q", "quit", show=False),
    ]
    lab: Lab
    lifeline: Lifeline | None = None

    def __init__(self, open_lab: Callable[[GradtuiApp], Opened], *, language: str, data: Path) -> None:
        super().__init__()
        self.data = data
        self.words = Words(language)
        self.engine: EngineProcess | None = None
        self._log_file = paths.log_directory(data) / "gradtui.log"
        self._open_lab = open_lab
        self._lab_screen: LabScreen | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopping_script: Timer | None = None
        self._asking = False

    def compose(self) -> ComposeResult:
        yield Static(self.words("header.splash"), id="splash", markup=False)

    def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name
        if self.lifeline is not None:
            loop = asyncio.get_running_loop()
            self.lifeline.watch(lambda code: loop.call_soon_threadsafe(self._leave, code))
        self.call_after_refresh(self._open)

    def _open(self) -> None:
        """Show the lab and start what is focused and pinned."""
        if self._exit:
            return
        from gradtui.ui.screens.lab import LabScreen

        opened = self._open_lab(self)
        self.lab, self.engine = opened.lab, opened.engine
        if self.engine is not None:
            self.ensure_engine(lambda: self.lab.show(self.lab.focus, self.lab.pins))
        few_colors = self.no_color or self.console.color_system in (None, "standard")
        progress = paths.quiz_progress(self.data)
        self._lab_screen = LabScreen(self.lab, self.words, "shade" if few_colors else "color", progress)
        self.push_screen(self._lab_screen)
        if opened.notices:
            self.notify("\n".join(opened.notices), severity="warning", markup=False, timeout=10)

    def ensure_engine(self, then: Callable[[], None]) -> None:
        """Do `then` as soon as there is an engine; start one if there is none."""
        assert self.engine is not None
        if self.engine.running:
            then()
            return
        if self._starting is not None and not self._starting.done():
            self._starting.add_done_callback(lambda _task: then() if self._engine_runs() else None)
            return
        self._starting = asyncio.create_task(self._start_engine(then))

    def _engine_runs(self) -> bool:
        return self.engine is not None and self.engine.running

    async def _start_engine(self, then: Callable[[], None]) -> None:
        from gradtui.engine.client import EngineError

        assert self.engine is not None
        try:
            await self.engine.start()
        except EngineError as error:
            self.notify(str(error), severity="error", markup=False, timeout=30)
            return
        then()

    def on_engine_event(self, event: protocol.Event) -> None:
        """The engine has said something."""
        lane = self.lab.hear(event)
        if self._lab_screen is not None:
            self._lab_screen.touch()
        if lane is not None and lane.state == "paused" and lane.reason:
            name = lane.name(self.words.language)
            sentence = self.words("notice.paused", name=name, reason=lane.reason)
            self.notify(sentence, severity="error", markup=False, timeout=15)

    def on_engine_end(self, reason: str) -> None:
        """The engine is gone without having been told to."""
        self.lab.engine_ended(reason)
        self.notify(self.words("notice.engine_died", reason=reason), severity="error", markup=False, timeout=15)
        if self._lab_screen is not None:
            self._lab_screen.touch()

    def _handle_exception(self, error: Exception) -> None:
        """A crash: the traceback goes to the log, one sentence to the terminal (Textual's own hook)."""
        if self._exit:
            return  # the screen is being taken down: what misses its widgets then is no crash
        if self.is_headless:  # a test wants the exception itself
            super()._handle_exception(error)
            return
        try:
            self._log_file.parent.mkdir(parents=True, exist_ok=True)
            with self._log_file.open("a", encoding="utf-8") as log:
                traceback.print_exception(error, file=log)
        except OSError:
            traceback.print_exception(error)
        sentence = self.words("notice.crashed", error=f"{type(error).__name__}: {error}", log=self._log_file)
        self.exit(1, return_code=1, message=Text(sentence))

    async def on_unmount(self) -> None:
        stopping = self._stop_engine()
        if stopping is not None:
            with contextlib.suppress(OSError):
                await stopping
        if self._lab_screen is not None:
            self.lab.close()

    # --- what keys do

    async def action_quit(self) -> None:
        """Leave; ask first what is to become of a script that still runs."""
        script = self.lab.script if self._lab_screen is not None else None
        if script is None:
            self._leave(0)
        elif script.exit_code is not None:
            self._leave(shell_code(script.exit_code))
        elif self._stopping_script is not None or self._asking:
            self._leave(0)  # asked twice: out, and whatever the script does, it is not hurt
        else:
            from gradtui.ui.screens.leave import LeaveScreen

            self._asking = True
            self.push_screen(LeaveScreen(script.title, self.words), self._chosen)

    def _chosen(self, choice: Choice | None) -> None:
        """Answered."""
        self._asking = False
        script = self.lab.script
        if script is None or choice in (None, "cancel"):
            return
        if choice == "leave":
            self._leave(0)
            return
        script.terminate()
        self.notify(self.words("leave.stopping", name=script.title), markup=False, timeout=30)
        self._stopping_script = self.set_interval(STOP_LOOK_SECONDS, self._leave_with_script)

    def _leave_with_script(self) -> None:
        """Leave as soon as the script that is being stopped is gone."""
        code = self.lab.script.exit_code if self.lab.script is not None else 0
        if code is not None:
            self._leave(shell_code(code))

    def _leave(self, code: int) -> None:
        """End the engine while the screen is being taken down, not after it."""
        self._stop_engine()
        self.exit(code)

    def _stop_engine(self) -> asyncio.Task[None] | None:
        if self._stopping is None and self.engine is not None:
            self._stopping = asyncio.create_task(self.engine.stop())
        return self._stopping

    def switch_language(self) -> None:
        """The other language, everywhere, at once."""
        index = LANGUAGES.index(self.words.language)
        self.words = Words(LANGUAGES[(index + 1) % len(LANGUAGES)])
        if self._lab_screen is not None:
            self._lab_screen.speak(self.words)

    def save_screen(self) -> None:
        """Write the screen as SVG and say where."""
        name = time.strftime("gradtui-%Y%m%d-%H%M%S.svg")
        try:
            directory = paths.screenshot_directory(self.data)
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / name
            path.write_text(with_cell_widths(self.export_screenshot()), encoding="utf-8")
        except OSError as error:
            sentence = self.words("notice.not_saved", reason=error.strerror)
            self.notify(sentence, severity="error", markup=False)
            return
        self.notify(self.words("notice.saved", path=path), markup=False)

    def action_command_palette(self) -> None:
        """Textual's palette, asking in the language of the screen."""
        if self.use_command_palette and not CommandPalette.is_open(self):  # type: ignore[arg-type]
            self.push_screen(CommandPalette(id="--command-palette", placeholder=self.words("help.palette")))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette, from the action table."""
        if self._lab_screen is None or screen is not self._lab_screen:
            return
        language = self.words.language
        actions = applicable(self.lab.engine is not None, self.lab.script is not None)
        for name, action in actions.items():
            if name in ("preset", "palette"):
                continue
            call = "app.quit" if name == "quit" else action.call(name)
            yield SystemCommand(action.describe(language), action.key, partial(screen.run_action, call))
        select = self._lab_screen.select
        digits = self.lab.digits
        for lane_id, lane in self.lab.lanes.items():
            what = f"{ACTIONS['preset'].describe(language)} {digits.get(lane_id, '')}".rstrip()
            if lane.group and lane_id not in digits:
                what = f"{what} · {self.words(f'group.{lane.group}')}"
            # The palette reads its titles as markup; a preset's title is nobody's markup.
            yield SystemCommand(lane.name(language).replace("[", r"\["), what, partial(select, lane_id))
