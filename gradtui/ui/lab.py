"""The lab's state and what can be done to it, without a screen: lanes, focus, pins, the place in history."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from gradtui import paths
from gradtui.engine import protocol
from gradtui.presets import Library, Preset
from gradtui.runs.reader import RunReader
from gradtui.ui.lanes import LaneView

# Okabe and Ito's colours, which stay apart for every kind of colour vision; the marks do so without colour.
COLORS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#8c9eff", "#b0b0b0")
# Eleven marks to eight colours: eighty-eight presets before a pair comes again.
MARKS = ("●", "▲", "■", "◆", "▼", "★", "○", "△", "□", "◇", "▽")

MORE_STEPS = 100
REORDER_SECONDS = 2.0


class Engine(Protocol):
    """What the lab needs of an engine: somewhere to send commands."""

    def send(self, command: protocol.Command) -> None: ...


@dataclass(slots=True)
class Lab:
    """Lanes in the order they are listed. With no engine, its lanes are recorded runs, to be watched only."""

    lanes: dict[str, LaneView]
    engine: Engine | None = None
    runs: Path = field(default_factory=Path)
    device: str = "auto"
    focus: str = ""
    pins: list[str] = field(default_factory=list)
    cursor: int | None = None
    slots: int = 0
    _before_square: tuple[str, list[str]] | None = None
    _order: list[str] = field(default_factory=list)
    _ordered_at: float = 0.0

    @classmethod
    def of_presets(cls, library: Library, engine: Engine, runs: Path, device: str) -> Lab:
        """A lab with one idle lane per preset."""
        lanes = {
            preset.id: _lane(number, preset.id, preset.title, preset.title_zh, preset)
            for number, preset in enumerate(library.presets.values())
        }
        return cls(lanes, engine, runs, device, focus=next(iter(lanes), ""))

    @classmethod
    def of_files(cls, files: Sequence[Path]) -> Lab:
        """A lab that watches run files; raises RunError for one that is none. All but the first are pinned."""
        lanes: dict[str, LaneView] = {}
        for number, file in enumerate(files):
            reader = RunReader(file)
            title = f"{reader.facts.get('name', file.stem)} s{reader.facts.get('seed', '?')}"
            lane = _lane(number, f"{number}:{file}", title, "", None)
            lane.run, lane.reader, lane.state = file, reader, reader.status
            lane.reason = str(reader.facts.get("reason", ""))
            seed = reader.facts.get("seed")
            lane.seed = seed if isinstance(seed, int) else 0
            lane.preset = _recorded_preset(reader)
            if lane.last_step >= 0:
                lane.digest(reader)
            lanes[lane.id] = lane
        names = list(lanes)
        return cls(lanes, focus=names[0], pins=names[1:])

    @property
    def focused(self) -> LaneView | None:
        """The lane in focus; None only where there is no lane at all."""
        return self.lanes.get(self.focus)

    @property
    def shown(self) -> list[LaneView]:
        """The lanes on the charts: the focused one, then the pinned."""
        names = [self.focus, *(name for name in self.pins if name != self.focus)]
        return [self.lanes[name] for name in names if name in self.lanes]

    def select(self, name: str) -> None:
        """Focus a lane and start it if it was never started."""
        if name not in self.lanes:
            return
        self.focus, self.cursor = name, None
        self._ensure_started(name)
        self._send_order(force=True)

    def toggle_pin(self, name: str) -> bool:
        """Pin or unpin a lane; True if it is pinned now. A pinned lane trains too."""
        if name in self.pins:
            self.pins.remove(name)
        elif name in self.lanes:
            self.pins.append(name)
            self._ensure_started(name)
        self._send_order(force=True)
        return name in self.pins

    def show(self, focus: str, pins: Sequence[str]) -> None:
        """Focus one lane and pin exactly these others."""
        self.pins = [name for name in pins if name in self.lanes]
        for name in self.pins:
            self._ensure_started(name)
        self.select(focus)

    def square(self) -> list[str]:
        """The first preset of each LayerNorm/RMSNorm × Post/Pre that differ in nothing else; [] if not all."""
        found: dict[tuple[str, str], str] = {}
        base: Preset | None = None
        for lane in self.lanes.values():
            preset = lane.preset
            if preset is None:
                continue
            base = base or preset
            model = preset.model
            like = msgspec.structs.replace(model, norm=base.model.norm, topology=base.model.topology)
            if (like, preset.training, preset.corpus) == (base.model, base.training, base.corpus):
                found.setdefault((model.norm, model.topology), lane.id)
        corners = [(norm, topology) for norm in ("layernorm", "rmsnorm") for topology in ("post", "pre")]
        return [found[corner] for corner in corners] if all(c in found for c in corners) else []

    def toggle_square(self) -> bool | None:
        """Overlay the four presets of `square`, or take them away and put back what was there before.

        None if they are not all there, else whether they are overlaid now.
        """
        corners = self.square()
        if not corners:
            return None
        if self._before_square is not None:
            focus, pins = self._before_square
            self._before_square = None
            self.show(focus, pins)
            return False
        self._before_square = (self.focus, list(self.pins))
        focus = self.focus if self.focus in corners else corners[0]
        self.show(focus, [*self.pins, *(name for name in corners if name not in self.pins)])
        return True

    def restart(self, seed: int | None = None) -> None:
        """Begin the focused preset again in a new run file, with the same seed or another."""
        lane = self.focused
        if lane is not None and lane.preset is not None and self.engine is not None:
            self._start(lane, lane.seed if seed is None else seed)
            self.cursor = None

    def toggle_pause(self) -> None:
        """Pause the focused lane, or let it go on."""
        lane = self.focused
        if lane is not None:
            paused = lane.state == "paused"
            self._send(protocol.Resume(lane.id) if paused else protocol.Pause(lane.id))

    def single_step(self) -> bool:
        """Pause and take one step; False where the lane has no step left."""
        lane = self.focused
        if lane is None or lane.state in protocol.RESTING:
            return False
        self._send(protocol.Step(lane.id))
        return True

    def more(self) -> bool:
        """Let the focused lane train further; False where its model is gone."""
        lane = self.focused
        if lane is None or lane.state not in (*protocol.RESTING, "running", "paused", "waiting"):
            return False
        if lane.state in ("died", "stopped", "diverged"):
            return False
        self._send(protocol.More(lane.id, MORE_STEPS))
        return True

    def scale_lr(self, factor: float) -> float | None:
        """Multiply the focused lane's learning rate; returns the scale, None if the lane has no next step."""
        lane = self.focused
        if lane is None or lane.state in (*protocol.RESTING, "idle"):
            return None
        lane.lr_scale *= factor
        self._send(protocol.SetLr(lane.id, lane.lr_scale))
        return lane.lr_scale

    def travel(self, steps: int) -> bool:
        """Move through history by `steps`; past the newest step is live again. False if there is no more."""
        lane = self.focused
        if lane is None or lane.reader is None or lane.last_step < 0:
            return False
        here = lane.last_step if self.cursor is None else self.cursor
        there = here + steps
        if there < lane.reader.first_step and here <= lane.reader.first_step:
            return False
        if there > lane.last_step and self.cursor is None:
            return False
        self.cursor = max(there, lane.reader.first_step) if there < lane.last_step else None
        return True

    def hear(self, event: protocol.Event) -> LaneView | None:
        """Take an engine event; returns the lane it changed."""
        if isinstance(event, protocol.Hello):
            self.slots = event.slots
        if not isinstance(event, protocol.Lane) or event.lane not in self.lanes:
            return None
        lane = self.lanes[event.lane]
        if lane.run is not None and str(lane.run) != event.run:
            return None  # the last words of a run that has been restarted since
        lane.state, lane.reason = event.state, event.reason
        return lane

    def engine_ended(self, reason: str) -> None:
        """The supervisor is gone and its lanes with it; what they recorded stays."""
        self._order = []
        for lane in self.lanes.values():
            if lane.state not in ("idle", "died", "stopped"):
                lane.state, lane.reason = "died", reason

    def poll(self) -> bool:
        """Look for news of every lane; True if there is any."""
        news = [lane.poll() for lane in self.lanes.values()]
        if self.engine is None:
            for lane in self.lanes.values():
                if lane.reader is not None and lane.state != lane.reader.status:
                    lane.state, lane.reason = lane.reader.status, str(lane.reader.facts.get("reason", ""))
                    news.append(True)
        else:
            self._send_order()
        return any(news)

    def close(self) -> None:
        """Let go of every run file."""
        for lane in self.lanes.values():
            lane.close()

    def _ensure_started(self, name: str) -> None:
        lane = self.lanes[name]
        if lane.state == "idle" and lane.preset is not None and self.engine is not None:
            self._start(lane, lane.preset.training.seed)

    def _start(self, lane: LaneView, seed: int) -> None:
        assert lane.preset is not None
        lane.begin(paths.new_run_path(self.runs, lane.id, seed), seed)
        self._send(protocol.Start(lane.id, lane.preset, seed, self.device, str(lane.run)))

    def _send_order(self, force: bool = False) -> None:
        """Focused first; of the pinned the one that is furthest behind, so that they advance together."""
        if not force and time.monotonic() - self._ordered_at < REORDER_SECONDS:
            return
        self._ordered_at = time.monotonic()
        pins = sorted((n for n in self.pins if n != self.focus), key=lambda n: self.lanes[n].last_step)
        order = [self.focus, *pins]
        if order != self._order:
            self._order = order
            self._send(protocol.Order(order))

    def _send(self, command: protocol.Command) -> None:
        if self.engine is not None:
            self.engine.send(command)


def _lane(number: int, name: str, title: str, title_zh: str, preset: Preset | None) -> LaneView:
    color, mark = COLORS[number % len(COLORS)], MARKS[number % len(MARKS)]
    return LaneView(name, title, color, mark, preset, title_zh, seed=preset.training.seed if preset else 0)


def _recorded_preset(reader: RunReader) -> Preset | None:
    """The preset that a run was made from, for its topology and title; None for a foreign script's run."""
    recorded = reader.facts.get("preset")
    try:
        return msgspec.convert(recorded, Preset) if recorded else None
    except msgspec.ValidationError:
        return None
