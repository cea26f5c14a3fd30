"""How a script comes to its end, seen from within, without changing how it does."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

# Signals that end python without its finding the time for anything.
DEADLY = ("SIGTERM", "SIGHUP")


class Ending:
    """Hears `sys.exit`, `os._exit` and deadly signals; `close(status, reason)` is called where python will not.

    `exit_code` is what `sys.exit` was given, if that was the last that was heard of the script.
    """

    def __init__(self, close: Callable[[str, str], None]) -> None:
        self._close = close
        self._pid = os.getpid()
        self.exit_code: object = None

    def watch(self) -> None:
        """Begin to listen to `sys.exit`."""
        leave = sys.exit

        def exit(status: Any = None, /) -> NoReturn:
            self.exit_code = status
            try:
                leave(status)
            except SystemExit as error:
                error.__traceback__ = None  # as if there were no frame of ours
                raise

        exit.__doc__ = leave.__doc__
        sys.exit = exit

    def watch_for_death(self) -> None:
        """From now on there is something to save: listen to what ends python without its clean-up, too."""
        leave = os._exit

        def _exit(status: int) -> NoReturn:
            with contextlib.suppress(Exception):
                self._close(*_by_code(status))
            leave(status)

        _exit.__doc__ = leave.__doc__
        os._exit = _exit
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in DEADLY if hasattr(signal, name)):
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, self._die)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forget)

    def _die(self, number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(Exception):
            self._close("stopped", f"signal {number}")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _forget(self) -> None:
        for number in (getattr(signal, name) for name in DEADLY):
            with contextlib.suppress(ValueError):
                if signal.getsignal(number) == self._die:
                    signal.signal(number, signal.SIG_DFL)


def how_it_ended(ending: Ending) -> tuple[str, str]:
    """(status, reason) of a script that has come to its end; to be asked while python shuts down.

    Python leaves behind the exception that nobody caught; of a `SystemExit` it leaves nothing.
    """
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "KeyboardInterrupt"
    if error is not None:
        return "failed", in_words(error)
    return _by_code(ending.exit_code)


def in_words(error: BaseException) -> str:
    """An exception in one line."""
    try:
        text = str(error).strip().split("\n", 1)[0][:500]
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _by_code(code: object) -> tuple[str, str]:
    if code is None or code == 0:
        return "done", ""
    if isinstance(code, int):
        return "failed", f"exit code {code}"
    return "failed", str(code).split("\n", 1)[0][:500]
