"""The process of a script that runs beside the screen, and outlives it if it has to."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from gradtui.script.plan import Plan, command, command_line, default_name, environment, run_paths, title

GRACE_SECONDS = 5.0
MOST_WAITING = 1 << 16  # characters that a script may leave unread


class ScriptError(Exception):
    """The script could not be started; the message is a sentence."""


class Script:
    """`arguments` = [SCRIPT or MODULE, *ARGS], to be run in a process of its own.

    `run` is the first run file to be made, `log` keeps what the script writes to stdout and stderr. `every`,
    `keep`, `layers`, `metrics` and `name` are the probe's. The process has a session of its own and writes into
    the log itself: neither a lost terminal nor the end of the screen reaches it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        module: bool = False,
        run: Path,
        log: Path,
        keep: int | None = None,
        name: str = "",
        every: int = 1,
        layers: str | None = None,
        metrics: Sequence[str] | None = None,
    ) -> None:
        self.log = log
        self.run = run
        self.title = title(arguments, module)
        self._command = command(arguments, module)
        self._plan = Plan(
            run=str(run.absolute()),
            line=command_line(arguments, module),
            name=name or default_name(arguments, module),
            every=every,
            keep=keep,
            layers=layers,
            metrics=None if metrics is None else tuple(metrics),
            output=str(log.absolute()),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._dying = False

    def start(self) -> None:
        """Start it; raises ScriptError."""
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=environment(self._plan, {**os.environ, "PYTHONUNBUFFERED": "1"}),
                    start_new_session=True,
                    bufsize=0,
                )
        except (OSError, ValueError) as error:
            raise ScriptError(f"{self.title} cannot be started: {error} (log: {self.log})") from error
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def pid(self) -> int:
        """Its process; 0 before the start."""
        return 0 if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs (and before); −n where signal n ended it."""
        return None if self._process is None else self._process.poll()

    def runs(self) -> list[Path]:
        """The run files that exist by now, in order: the first model's, then `NAME-2` … of further ones."""
        return run_paths(self.run)

    def say(self, text: str) -> None:
        """Write `text` to its stdin, without ever waiting; what it does not read is kept, up to a limit."""
        stream = None if self._process is None else self._process.stdin
        if stream is None or stream.closed:
            return
        self._unread = (self._unread + text.encode("utf-8", "surrogateescape"))[:MOST_WAITING]
        with contextlib.suppress(OSError, ValueError):  # it has closed its stdin, or has ended
            while self._unread:
                written = stream.write(self._unread)
                if not written:
                    break
                self._unread = self._unread[written:]

    def interrupt(self) -> None:
        """What ctrl+c in its terminal would do: SIGINT for the script and what it has started."""
        self._signal(signal.SIGINT, group=True)

    def terminate(self) -> None:
        """SIGTERM, and SIGKILL for it and all it has started if it still runs after a while; returns at once."""
        if self.exit_code is not None or self._process is None:
            return
        self._signal(signal.SIGTERM, group=False)
        if not self._dying:
            self._dying = True
            timer = threading.Timer(GRACE_SECONDS, self._kill)
            timer.daemon = True
            timer.start()

    def detach(self) -> None:
        """Let it go on by itself: its stdin ends, nothing else does."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _kill(self) -> None:
        if self.exit_code is None:
            self._signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM, group=True)

    def _signal(self, number: int, *, group: bool) -> None:
        if self._process is None or self.exit_code is not None:
            return
        with contextlib.suppress(OSError):
            if group and hasattr(os, "killpg"):
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)
