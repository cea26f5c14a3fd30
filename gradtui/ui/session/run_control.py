"""Owns the engine: starts it when the first lane needs it, and sends commands in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from gradtui import paths
from gradtui.engine import protocol
from gradtui.ui.session.lane import Lane


class EngineProcess(Protocol):
    """What is needed of an engine client; a test gives another. `start` raises EngineError."""

    @property
    def running(self) -> bool: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def send(self, command: protocol.Command) -> None: ...
    def kill(self) -> None: ...


class RunControl:
    """Commands for the lanes of one engine.

    Run files go into `runs`; `device` is what every lane trains on. Commands that are given while the engine
    starts are sent when it runs. `on_failure` is called with the reason where it cannot be started.
    """

    def __init__(self, engine: EngineProcess, runs: Path, device: str) -> None:
        self.engine, self.runs, self.device = engine, runs, device
        self.on_failure: Callable[[str], None] = lambda _reason: None
        self._waiting: list[protocol.Command] = []
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._order: list[str] = []

    def start(self, lane: Lane, seed: int) -> None:
        """Train a lane's preset in a new run file; the engine is started first where there is none."""
        assert lane.preset is not None
        lane.begin(paths.new_run_path(self.runs, lane.id, seed), seed)
        command = protocol.Start(lane.id, lane.preset, seed, self.device, str(lane.run))
        if self.engine.running:
            self.engine.send(command)
            return
        self._waiting.append(command)
        if self._starting is None:
            self._starting = asyncio.create_task(self._start_engine())

    def send(self, command: protocol.Command) -> None:
        """Send a command to the engine, at once or when it runs; without an engine there is no lane to obey it."""
        if self.engine.running:
            self.engine.send(command)
        elif self._starting is not None:
            self._waiting.append(command)

    def order(self, lanes: Sequence[str]) -> None:
        """Say which lanes come first when there are more than cores; sent only where that has changed."""
        if list(lanes) != self._order and (self.engine.running or self._starting is not None):
            self._order = list(lanes)
            self.send(protocol.Order(self._order))

    def ended(self) -> None:
        """The engine is gone; the next one has to be told everything."""
        self._order = []

    def stop(self) -> asyncio.Task[None]:
        """End the engine and its lanes; the task is done when they are gone."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self.engine.stop())
        return self._stopping

    async def _start_engine(self) -> None:
        from gradtui.engine.client import EngineError

        try:
            await self.engine.start()
        except EngineError as error:
            self._waiting.clear()
            self.on_failure(str(error))
            return
        finally:
            self._starting = None
        waiting, self._waiting = self._waiting, []
        for command in waiting:
            self.engine.send(command)
