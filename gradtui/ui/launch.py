"""Starts the screen and makes sure that the terminal is whole again afterwards."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradtui import paths
from gradtui.errors import FAILURE, Failure
from gradtui.i18n import Words, system_language
from gradtui.ui.terminal_guard import TerminalGuard

if TYPE_CHECKING:
    from gradtui.ui.app import GradtuiApp
    from gradtui.ui.session.script import Script
    from gradtui.ui.session.session import Session

UNUSABLE_TERMS = ("dumb", "unknown")
CHART_CHARACTERS = "│●▀⠁中"


def launch_lab(directories: Sequence[Path], *, language: str | None, device: str) -> int:
    """Run the lab with the presets of `directories` beside gradtui's own; returns the exit code."""
    language = language or system_language()
    if not _terminal_is_usable(language):
        return FAILURE
    from gradtui.ui.app import GradtuiApp, Opened

    data, reason = paths.usable_data_directory()

    def open_session(app: GradtuiApp) -> Opened:
        from gradtui.engine.client import EngineClient
        from gradtui.presets import load_library
        from gradtui.ui.session.session import Session

        library = load_library(directories)
        log = paths.log_directory(data) / "engine.log"
        engine = EngineClient(log, on_event=app.on_engine_event, on_end=app.on_engine_end)
        session = Session.of_presets(library, engine, paths.run_directory(data), device)
        session.pins = list(session.lanes)[1:2]  # the second preset beside the first: the lesson's comparison
        notices = [app.words("notice.temporary", reason=reason, path=data)] if reason else []
        if library.errors:
            count = len(library.errors) - 1
            more = f" ({app.words('list.more', count=count)})" if count else ""
            notices.append(f"{library.errors[0]}{more}")
        return Opened(session, notices)

    return _run(GradtuiApp(open_session, language=language, data=data))


def launch_watch(files: Sequence[Path], *, language: str | None) -> int:
    """Run the lab's charts on run files; raises RunError for one that is none."""
    from gradtui.ui.session.session import Session

    return _watch(Session.of_files(files), language or system_language())


def launch_pick(directory: Path, *, language: str | None) -> int:
    """Run the lab's charts on the newest run of `directory`, with all of its runs at hand (`o`).

    Where there is none yet, the first one that appears is shown.
    """
    from gradtui.ui.session.run_directory import RunDirectory
    from gradtui.ui.session.session import Session

    directory_runs = RunDirectory(directory)
    directory_runs.scan()
    readable = [entry for entry in directory_runs.entries if not entry.error]
    found = max(readable, key=lambda entry: entry.started, default=None)
    session = Session.of_files([] if found is None else [found.path], directory)
    return _watch(session, language or system_language())


def _watch(session: Session, language: str) -> int:
    if not _terminal_is_usable(language):
        return FAILURE
    from gradtui.ui.app import GradtuiApp, Opened

    data, _ = paths.usable_data_directory()
    return _run(GradtuiApp(lambda _app: Opened(session), language=language, data=data))


def launch_script(script: Script, *, language: str | None) -> int:
    """Start a script and show the runs that it records; returns its exit code, 128 + n where signal n ended it.

    A script that still runs when the screen is gone, for whatever reason, goes on by itself, and its process and
    run file are named. Raises Failure if it cannot be started.
    """
    language = language or system_language()
    if not _terminal_is_usable(language):
        return FAILURE
    from gradtui.script.process import ScriptError
    from gradtui.ui.app import GradtuiApp, Opened
    from gradtui.ui.session.script import shell_code

    data, _ = paths.usable_data_directory()
    try:
        script.start()
    except ScriptError as error:
        raise Failure(str(error)) from error

    def open_session(_app: GradtuiApp) -> Opened:
        from gradtui.ui.session.session import Session

        return Opened(Session.of_script(script, script.run.parent))

    code = _run(GradtuiApp(open_session, language=language, data=data))
    if script.exit_code is not None:
        return code or shell_code(script.exit_code)
    script.detach()
    sentence = Words(language)("script.left", pid=script.pid, file=shlex.quote(str(script.run)))
    with contextlib.suppress(OSError, ValueError):  # the terminal is lost: nobody is there to be told
        print(sentence, flush=True)
    return code


def _terminal_is_usable(language: str) -> bool:
    streams = (sys.stdin, sys.stdout)
    usable = all(stream is not None and stream.isatty() for stream in streams)
    usable = usable and os.environ.get("TERM") not in UNUSABLE_TERMS and _can_write(CHART_CHARACTERS)
    if not usable and sys.stderr is not None:
        sys.stderr.write(f"gradtui: {Words(language)('notice.no_terminal')}\n")
    return usable


def _can_write(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _run(app: GradtuiApp) -> int:
    """Run the app; whatever happens, end the engine and leave a usable terminal."""
    for name in ("COLUMNS", "LINES"):
        # Exported by a parent process (anything that uses readline does), they would pin the size for ever.
        os.environ.pop(name, None)
    guard = TerminalGuard()
    app.guard = guard
    try:
        result = app.run()
    finally:
        app.kill_engine()
        guard.finished()
    return result if result is not None else (app.return_code or 0)
