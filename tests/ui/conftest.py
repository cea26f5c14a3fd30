"""A lab on a fake engine: run files are written by the test, commands are only remembered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import make_frame, make_sites
from textual.pilot import Pilot

from gradtui.engine import protocol
from gradtui.i18n import Localized
from gradtui.presets import Library, ModelConfig, Preset, TrainingConfig
from gradtui.runs.schema import Event, Frame
from gradtui.runs.writer import RunWriter
from gradtui.ui.app import GradtuiApp, Opened
from gradtui.ui.screens.lab import LabScreen
from gradtui.ui.session.session import Session

SIZES = ((140, 44), (100, 30), (80, 24))


def make_library() -> Library:
    """Seven small presets, shaped as the lesson's."""
    rows = [
        ("post-ln", "Post-LN", "post", "layernorm", 0),
        ("pre-ln", "Pre-LN", "pre", "layernorm", 0),
        ("post-rms", "Post-RMSNorm", "post", "rmsnorm", 0),
        ("pre-rms", "Pre-RMSNorm", "pre", "rmsnorm", 0),
        ("post-ln-warmup", "Post-LN, warm-up", "post", "layernorm", 100),
        ("brackets", "layer [experts] w[/", "pre", "none", 3),
    ]
    presets = [
        Preset(
            id=name,
            title=Localized(en=title, zh=f"中文{title}"),
            group="lesson",
            model=ModelConfig(layers=4, topology=topology, norm=norm),
            training=TrainingConfig(steps=400, warmup=warmup),
        )
        for name, title, topology, norm, warmup in rows
    ]
    return Library({preset.id: preset for preset in presets})


class FakeEngine:
    """Remembers commands; `running` is what the test says."""

    def __init__(self) -> None:
        self.commands: list[protocol.Command] = []
        self.running = False
        self.stopped = False
        self.starts = 0

    async def start(self) -> None:
        self.running = True
        self.starts += 1

    async def stop(self) -> None:
        self.stopped, self.running = True, False

    def kill(self) -> None:
        self.running = False

    def send(self, command: protocol.Command) -> None:
        self.commands.append(command)

    def sent(self, kind: type[protocol.Command]) -> list[protocol.Command]:
        return [command for command in self.commands if isinstance(command, kind)]


class Bench:
    """The app under test, and the run files of its lanes."""

    def __init__(self, directory: Path, library: Library | None = None, language: str = "en") -> None:
        self.engine = FakeEngine()
        self.session = Session.of_presets(library or make_library(), self.engine, directory / "runs", "cpu")
        self.session.pins = list(self.session.lanes)[1:2]
        self.app = GradtuiApp(lambda _app: Opened(self.session), language=language, data=directory)
        self.writers: dict[str, RunWriter] = {}
        self.sites = make_sites(4)
        self.facts: dict[str, dict[str, object]] = {}  # more facts of a lane's run

    @property
    def screen(self) -> LabScreen:
        return next(s for s in self.app.screen_stack if isinstance(s, LabScreen))

    def record(
        self,
        lane: str,
        *frames: Frame,
        events: tuple[Event, ...] = (),
        state: protocol.LaneState = "running",
    ) -> None:
        """Write frames as the lane would, and say that it is in `state`."""
        run = self.session.lanes[lane].run
        assert run is not None, f"{lane} was never started"
        if lane not in self.writers or self.writers[lane].path != run:
            facts = {"name": lane, "steps": 400, "seed": 0, "device": "cpu", "tokens_per_step": 512}
            self.writers[lane] = RunWriter(run, self.sites, {**facts, **self.facts.get(lane, {})})
        for frame in frames:
            self.writers[lane].append(frame)
        for event in events:
            self.writers[lane].event(event)
        self.writers[lane].flush()
        self.tell(lane, state)

    def tell(self, lane: str, state: protocol.LaneState, reason: str = "") -> None:
        """Have the engine report a state."""
        self.app.on_engine_event(protocol.Hello(1, 2))
        self.app.on_engine_event(protocol.Lane(lane, state, str(self.session.lanes[lane].run), reason))

    def collapse(self, lane: str, steps: int = 20, at: int = 14) -> None:
        """Frames whose gradient vanishes at step `at`."""
        frames = [
            make_frame(self.sites, step, ratio=1.0 if step < at else 2e-4, loss=3.0 + 1 / (step + 1))
            for step in range(steps)
        ]
        self.record(lane, *frames, events=(Event(at, "vanished", 0, 2e-4),))

    def text(self) -> str:
        """Everything on the screen, as plain text."""
        return screen_text(self.app)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


def screen_text(app: GradtuiApp) -> str:
    """The screen's characters, a line per row."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in lines)


async def until(pilot: Pilot[int], true: Callable[[], object], timeout: float = 60) -> None:
    """Wait for something to become true; shows the screen where it does not."""
    deadline = time.monotonic() + timeout
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(screen_text(pilot.app))  # type: ignore[arg-type]
        await pilot.pause()
        await asyncio.sleep(0.02)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    one = Bench(tmp_path)
    yield one
    one.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each screen at each size is drawn in English by default; in Chinese where there is time for all of it."""
    for item in items:
        if "ui" in item.path.parts and "[zh-" in item.name:
            item.add_marker(pytest.mark.slow)
