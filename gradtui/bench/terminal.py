"""A program in a pseudo-terminal: started, typed at, and read until it shows a text. POSIX only."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Seen:
    """A text that a program has written, and the seconds that were waited for it."""

    text: str
    seconds: float


class Terminal:
    """Runs `argv` in a terminal of `width` × `height` cells; raises TimeoutError where a text never comes."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], width: int = 140, height: int = 44) -> None:
        self.began = time.perf_counter()
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            size = struct.pack("HHHH", height, width, 0, 0)
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            os.execvpe(argv[0], list(argv), {**os.environ, "TERM": "xterm-256color", **env})
        self.seen = b""

    def wait_for(self, *texts: str, timeout: float = 60) -> Seen:
        """Wait until one of `texts` has been written since the last call; raises TimeoutError."""
        began = time.perf_counter()
        while True:
            found = [(place, text) for text in texts if (place := self.seen.find(text.encode())) >= 0]
            if found:
                break
            if time.perf_counter() - began > timeout:
                raise TimeoutError(f"the program did not show {' or '.join(map(repr, texts))} within {timeout} s")
            self.pump(0.05)
        now = time.perf_counter()
        place, text = min(found)
        self.seen = self.seen[place + len(text.encode()) :]
        return Seen(text, now - began)

    def pump(self, timeout: float) -> None:
        """Read what has been written, waiting at most `timeout` seconds for it."""
        if select.select([self._master], [], [], timeout)[0]:
            try:
                self.seen += os.read(self._master, 1 << 16)
            except OSError:  # the program has closed its end
                time.sleep(timeout)

    def press(self, keys: str) -> None:
        """Press keys; forgets what has been written so far."""
        self.seen = b""
        os.write(self._master, keys.encode())

    def close(self) -> int:
        """Press q, wait for the end (killing after 5 s); returns the wait status."""
        try:
            os.write(self._master, b"q")
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    return status
                self.pump(0.02)
            os.kill(self.pid, signal.SIGKILL)
            return os.waitpid(self.pid, 0)[1]
        finally:
            os.close(self._master)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
