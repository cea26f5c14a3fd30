"""The screen's side of the engine: starts the supervisor and passes messages, without loading torch."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from gradtui.engine import protocol

# After its input ends the supervisor needs at most one second to end its lanes.
STOP_SECONDS = 1.6


class EngineError(Exception):
    """The supervisor could not be started; the message says why and where its log is."""


class EngineClient:
    """One supervisor process.

    On the event loop, `on_event` is called with each of its messages and `on_end` with the reason if it ends by
    itself. `slots` is the number of lanes that may run at once (None: as many as there are cores); set it first.
    """

    def __init__(
        self,
        log: Path,
        on_event: Callable[[protocol.Event], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.log = log
        self.slots: int | None = None
        self._on_event, self._on_end = on_event, on_end
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        """Whether the supervisor has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """The process id of the supervisor; None before the first start."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the supervisor; raises EngineError."""
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                # A session of its own: ctrl+c in the terminal is the screen's to handle, not the engine's.
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "gradtui.engine",
                    *([] if self.slots is None else [str(self.slots)]),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    limit=1 << 24,
                )
        except OSError as error:
            raise EngineError(f"the engine cannot be started: {error} (log: {self.log})") from error
        self._stopping = False
        self._reader = asyncio.create_task(self._read())

    def send(self, command: protocol.Command) -> None:
        """Send a command. Without effect where the supervisor is gone, which `on_end` reports."""
        if self._process is not None and self._process.stdin is not None and self.running:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.write(protocol.encode(command))

    async def stop(self) -> None:
        """End supervisor and lanes; returns when they are gone."""
        process, self._stopping = self._process, True
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        # A forkserver that still loads torch or a lane in a long step may be left: a moment more, then kill them.
        for _ in range(6):
            if process.returncode is None or not self._group_lives():
                break
            await asyncio.sleep(0.05)
        self.kill()
        if self._reader is not None:
            self._reader.cancel()

    def kill(self) -> None:
        """Kill the supervisor and all processes that it has started."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            elif self._process.returncode is None:
                self._process.kill()

    def _group_lives(self) -> bool:
        if self._process is None or not hasattr(os, "killpg"):
            return False
        try:
            os.killpg(self._process.pid, 0)
        except OSError:
            return False
        return True

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            with contextlib.suppress(msgspec.MsgspecError):
                self._on_event(protocol.decode_event(line))
        code = await self._process.wait()
        if not self._stopping:
            why = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            self._on_end(f"{why} (log: {self.log})")
