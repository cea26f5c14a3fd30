"""A way out that always works.

Textual hands its output to a thread through a queue of limited length. Where the terminal is gone (that thread
has died) or takes no more output (it waits), the event loop ends up waiting for the queue, and no signal that is
handled on the loop is ever heard. So signals are heard here, and a thread of its own ends the process if the
loop does not within a second. The engine sees its input end and records what it has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

GRACE_SECONDS = 1.0
LOOK_SECONDS = 0.5
# Show the cursor, end every mouse mode, bracketed paste and focus reports. Leaving the alternate screen is not
# among it: done a second time, it would put the cursor back onto text that has been printed since.
RESTORE = "\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?2004l\x1b[?1004l\x1b[0m"
LEAVE_SCREEN = "\x1b[?1049l"


class TerminalGuard:
    """Hears SIGTERM and SIGHUP and a terminal that hangs up; `leave` is called with 128 + n, from a thread."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._attributes = _terminal_attributes()
        self._leave: Callable[[int], object] | None = None
        if os.name == "posix":
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, self._heard)

    def watch(self, leave: Callable[[int], object]) -> None:
        """Begin; `leave` asks the app to end in good order and may not block."""
        self._leave = leave
        if os.name == "posix":
            threading.Thread(target=self._look, name="gradtui lifeline", daemon=True).start()

    def finished(self) -> None:
        """The app has ended by itself: leave a usable terminal."""
        self._over.set()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(RESTORE)
            sys.stdout.flush()

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=self._end, args=(128 + number,), daemon=True).start()

    def _look(self) -> None:
        """A terminal that hangs up does not always say so: under nohup there is no SIGHUP."""
        while not self._over.wait(LOOK_SECONDS):
            if self._attributes is not None and _terminal_attributes() is None:
                self._end(128 + signal.SIGHUP)
                return

    def _end(self, code: int) -> None:
        if self._leave is not None:  # else the app is not there yet, and nothing is to be kept
            with contextlib.suppress(RuntimeError):  # the loop is closed: it is ending anyway
                self._leave(code)
            if self._over.wait(GRACE_SECONDS):
                return
        self._restore_by_force()
        os._exit(code)

    def _restore_by_force(self) -> None:
        """Put the terminal back without waiting for it to take the last bytes."""
        import termios

        with contextlib.suppress(OSError, ValueError, termios.error):
            if self._attributes is not None:
                termios.tcsetattr(0, termios.TCSANOW, self._attributes)
            termios.tcflush(1, termios.TCOFLUSH)
            os.set_blocking(1, False)
            try:
                os.write(1, (LEAVE_SCREEN + RESTORE).encode())
            finally:
                os.set_blocking(1, True)  # the shell's programs share this setting


def _terminal_attributes() -> list[Any] | None:
    """The settings of the terminal on standard input; None where there is none (any more)."""
    if os.name != "posix":
        return None
    import termios

    try:
        return termios.tcgetattr(0)
    except (OSError, termios.error):
        return None
