"""The engine as the screen drives it: commands in, events and run files out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from gradtui.engine import protocol
from gradtui.engine.client import EngineClient
from gradtui.i18n import Localized
from gradtui.presets import ModelConfig, Preset, TrainingConfig
from gradtui.runs.reader import RunReader

LIMIT_SECONDS = 120
FOREVER = 1_000_000  # steps


def make_preset(name: str, steps: int = 30, **training: object) -> Preset:
    """A preset that takes a millisecond a step."""
    model = ModelConfig(layers=2, width=16, heads=2, context=16)
    recipe = TrainingConfig(steps=steps, batch=2, **training)  # type: ignore[arg-type]
    return Preset(title=Localized(en=name), id=name, model=model, training=recipe)


def last_step(run: Path) -> int:
    """The newest step in a run file; −1 while there is none, or no file."""
    if not run.exists():
        return -1
    with contextlib.closing(RunReader(run)) as reader:
        return reader.last_step


async def until(true: Callable[[], object], what: Callable[[], object] = str) -> None:
    """Wait until something is so; says `what()` where it never is."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.02)


class Engine:
    """A supervisor process; `events` is what it has said, `ended` why it is gone."""

    def __init__(self, directory: Path, slots: int | None = None) -> None:
        self.events: list[protocol.Event] = []
        self.ended: list[str] = []
        self.client = EngineClient(
            directory / "engine.log", lambda event: self.events.append(event), self.ended.append
        )
        self.client.slots = slots

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        return [event for event in self.events if isinstance(event, protocol.Hello)][-1].pid

    async def start(self) -> None:
        """Start it, and wait until it has said that it is there."""
        known = len(self.events)
        await self.client.start()
        await until(lambda: any(isinstance(event, protocol.Hello) for event in self.events[known:]))


class Driver:
    """Starts lanes on an engine, records into `directory`, and knows what it was told of them."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine, self.directory = engine, directory
        self.runs: dict[str, Path] = {}
        self._from = len(engine.events)

    @property
    def events(self) -> list[protocol.Event]:
        """What the engine has said since this driver was made."""
        return self.engine.events[self._from :]

    def send(self, command: protocol.Command) -> None:
        self.engine.client.send(command)

    def start(self, preset: Preset, seed: int = 0) -> Path:
        """Start a lane of the preset's name; returns its run file, which is there a little later."""
        run = self.directory / f"{preset.id}-{seed}-{len(self.events)}.gradtui"
        self.runs[preset.id] = run
        self.send(protocol.Start(preset.id, preset, seed, "cpu", str(run)))
        return run

    def reports(self, lane: str) -> list[protocol.Lane]:
        return [event for event in self.events if isinstance(event, protocol.Lane) and event.lane == lane]

    def last(self, lane: str) -> protocol.Lane:
        return self.reports(lane)[-1]

    def state(self, lane: str) -> str:
        reports = self.reports(lane)
        return reports[-1].state if reports else ""

    async def until(self, true: Callable[[], object]) -> None:
        """Wait until something is so."""
        await until(true, lambda: (self.events, self.engine.ended, self.engine.client.log.read_text()))

    async def until_training(self, preset: Preset) -> Path:
        """Start a lane and wait until it has taken some steps; returns its run file."""
        run = self.start(preset)
        await self.until(lambda: last_step(run) >= 3)
        return run

    async def end_lanes(self) -> None:
        """End what was started."""
        for lane in self.runs:
            self.send(protocol.Stop(lane))
        await self.until(lambda: all(self.state(lane) in ("stopped", "died") for lane in self.runs))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared_engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("engine"), slots=2)
    await engine.start()
    yield engine
    await engine.client.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def driver(shared_engine: Engine, tmp_path: Path) -> AsyncIterator[Driver]:
    """Lanes on an engine of two slots that several tests share: it loads torch once."""
    one = Driver(shared_engine, tmp_path)
    yield one
    await one.end_lanes()


@pytest_asyncio.fixture(loop_scope="module")
async def own_engine(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine that is not started yet, for tests that end it."""
    monkeypatch.setenv("TMPDIR", str(scratch))  # a process that is killed leaves its sockets there
    engine = Engine(tmp_path)
    yield engine
    await engine.client.stop()
