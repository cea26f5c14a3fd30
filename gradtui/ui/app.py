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
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding
from textual.command import CommandPalette
from textual.screen import Screen
from textual.theme import Theme
from textual.timer import Timer
from textual.widgets import Static

from gradtui import paths
from gradtui.i18n import Words, next_language
from gradtui.ui.actions import describe
from gradtui.ui.session.script import shell_code
from gradtui.ui.svg import with_cell_widths

if TYPE_CHECKING:
    from gradtui.engine import protocol
    from gradtui.ui.screens.lab import LabScreen
    from gradtui.ui.screens.leave import Choice
    from gradtui.ui.session.session import Session
    from gradtui.ui.terminal_guard import TerminalGuard

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


@dataclass(slots=True)
class Opened:
    """A session, and sentences to show once it is there."""

    session: Session
    notices: list[str] = field(default_factory=list)


class GradtuiApp(App[int]):
    """Shows a session. Exits with 128 + n on signal n, as a shell expects.

    `open_session` is called once the first frame is painted: what it imports (NumPy, charts, quiz) takes longer
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
    session: Session
    guard: TerminalGuard | None = None

    def __init__(self, open_session: Callable[[GradtuiApp], Opened], *, language: str, data: Path) -> None:
        super().__init__()
        self.data = data
        self.words = Words(language)
        self._log_file = paths.log_directory(data) / "gradtui.log"
        self._open_session = open_session
        self._lab_screen: LabScreen | None = None
        self._stopping_script: Timer | None = None
        self._asking = False

    def compose(self) -> ComposeResult:
        yield Static(self.words("header.splash"), id="splash", markup=False)

    def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name
        if self.guard is not None:
            loop = asyncio.get_running_loop()
            self.guard.watch(lambda code: loop.call_soon_threadsafe(self._leave, code))
        self.call_after_refresh(self._open)

    def _open(self) -> None:
        """Show the lab and start what is focused and pinned."""
        if self._exit:
            return
        from gradtui.ui.screens.lab import LabScreen

        opened = self._open_session(self)
        session = self.session = opened.session
        if session.control is not None:
            session.control.on_failure = self._engine_failed
            session.show(session.focus, session.pins)
        few_colors = self.no_color or self.console.color_system in (None, "standard")
        progress = paths.quiz_progress(self.data)
        self._lab_screen = LabScreen(session, self.words, "shade" if few_colors else "color", progress)
        self.push_screen(self._lab_screen)
        if opened.notices:
            self.notify("\n".join(opened.notices), severity="warning", markup=False, timeout=10)

    def _engine_failed(self, reason: str) -> None:
        """The engine could not be started: its lanes stand still, and `r` tries again."""
        self.session.on_engine_end(reason)
        self.notify(reason, severity="error", markup=False, timeout=30)

    def on_engine_event(self, event: protocol.Event) -> None:
        """The engine has said something."""
        lane = self.session.on_engine_event(event)
        if self._lab_screen is not None:
            self._lab_screen.invalidate()
        if lane is not None and lane.state == "paused" and lane.reason:
            name = lane.name(self.words.language)
            sentence = self.words("notice.paused", name=name, reason=lane.reason)
            self.notify(sentence, severity="error", markup=False, timeout=15)

    def on_engine_end(self, reason: str) -> None:
        """The engine is gone without having been told to."""
        self.session.on_engine_end(reason)
        self.notify(self.words("notice.engine_died", reason=reason), severity="error", markup=False, timeout=15)
        if self._lab_screen is not None:
            self._lab_screen.invalidate()

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
        if self._lab_screen is None:
            return
        if self.session.control is not None:
            with contextlib.suppress(OSError):
                await self.session.control.stop()
        self.session.close()

    def kill_engine(self) -> None:
        """End the engine and its lanes at once; for when the app has ended, however."""
        if self._lab_screen is not None and self.session.control is not None:
            self.session.control.engine.kill()

    # --- what keys do

    async def action_quit(self) -> None:
        """Leave; ask first what is to become of a script that still runs."""
        script = self.session.script if self._lab_screen is not None else None
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
        script = self.session.script
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
        code = self.session.script.exit_code if self.session.script is not None else 0
        if code is not None:
            self._leave(shell_code(code))

    def _leave(self, code: int) -> None:
        """End the engine while the screen is being taken down, not after it."""
        if self._lab_screen is not None and self.session.control is not None:
            self.session.control.stop()
        self.exit(code)

    def action_language(self) -> None:
        """The next language, everywhere, at once."""
        self.words = Words(next_language(self.words.language))
        if self._lab_screen is not None:
            self._lab_screen.set_language(self.words)

    def action_save(self) -> None:
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

    def action_help(self) -> None:
        """All keys."""
        from gradtui.ui.screens.help import HelpScreen

        if self._lab_screen is not None:
            self.push_screen(HelpScreen(self._lab_screen.actions, self.words, str(self.session.runs)))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The command palette, from the action table and the lanes."""
        lab, words = self._lab_screen, self.words
        if lab is None or screen is not lab:
            return
        for name, action in lab.actions.items():
            if name not in ("preset", "palette"):
                does = partial(screen.run_action, action.call(name))
                yield SystemCommand(describe(name, words), action.key, does)
        digits = self.session.digits
        for lane_id, lane in self.session.lanes.items():
            what = f"{words('action.preset')} {digits.get(lane_id, '')}".rstrip()
            if lane.group and lane_id not in digits:
                what = f"{what} · {words(f'group.{lane.group}')}"
            # The palette reads its titles as markup; a preset's title is plain text.
            yield SystemCommand(lane.name(words.language).replace("[", r"\["), what, partial(lab.select, lane_id))
