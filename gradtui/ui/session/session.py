"""The lab's state and what can be done to it, without a screen: lanes, focus, pins, the place in history."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from gradtui import paths
from gradtui.engine import protocol
from gradtui.presets import Library, Preset
from gradtui.runs import SUFFIX, RunError
from gradtui.runs.reader import RunReader
from gradtui.ui.session.lane import LaneView
from gradtui.ui.session.output import Tail
from gradtui.ui.session.script import Script

# Okabe and Ito's colours, which stay apart for every kind of colour vision; the marks do so without colour.
COLORS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#8c9eff", "#b0b0b0")
# Eleven marks to eight colours: eighty-eight presets before a pair comes again.
MARKS = ("●", "▲", "■", "◆", "▼", "★", "○", "△", "□", "◇", "▽")

MORE_STEPS = 100
DIGITS = 9
LESSON = "lesson"  # the group whose presets have digits
REORDER_SECONDS = 2.0


class Engine(Protocol):
    """What the lab needs of an engine: somewhere to send commands."""

    def send(self, command: protocol.Command) -> None: ...


@dataclass(slots=True)
class Lab:
    """Lanes in the order they are listed: presets that an engine trains, and run files that are only watched.

    With a `script`, the runs that it records are added as they appear, and `tail` follows what it prints.
    """

    lanes: dict[str, LaneView]
    engine: Engine | None = None
    runs: Path = field(default_factory=Path)
    device: str = "auto"
    focus: str = ""
    pins: list[str] = field(default_factory=list)
    cursor: int | None = None
    slots: int = 0
    script: Script | None = None
    tail: Tail | None = None
    own: set[Path] = field(default_factory=set)
    await_first: bool = False
    _ended: bool = False
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
    def of_files(cls, files: Sequence[Path], directory: Path | None = None) -> Lab:
        """A lab that watches run files; raises RunError for one that is none. All but the first are pinned.

        `directory` is where other runs are looked for, by default where the first file is. Without any file, the
        first run that appears there is shown.
        """
        lab = cls({}, runs=directory or (files[0].absolute().parent if files else Path()))
        lab.await_first = not files
        for file in files:
            lab.overlay(file)
        return lab

    @classmethod
    def of_script(cls, script: Script, directory: Path) -> Lab:
        """A lab that watches the runs a script records, beside earlier ones in `directory`."""
        return cls({}, runs=directory, script=script, tail=Tail(script.log))

    def overlay(self, file: Path) -> LaneView:
        """Put a run file on the charts beside what is there; raises RunError if it is none."""
        path = file.absolute()
        found = self.lane_of(path)
        if found is None:
            reader = RunReader(file)
            taken = {(lane.color, lane.mark) for lane in self.lanes.values()}
            number = next(n for n in range(len(self.lanes) + 1) if _look(n) not in taken)
            color, mark = _look(number)
            found = LaneView(f"file:{path}", title_of(reader, file), color, mark, _recorded_preset(reader))
            found.run, found.reader, found.state = path, reader, reader.status
            found.recorded = True
            found.reason = str(reader.facts.get("reason", ""))
            seed = reader.facts.get("seed")
            found.seed = seed if isinstance(seed, int) else 0
            if found.last_step >= 0:
                found.digest(reader)
            self.lanes[found.id] = found
        if not self.focused:
            self.focus = found.id
        elif found.id not in (self.focus, *self.pins):
            self.pins.append(found.id)
        return found

    def show_alone(self, file: Path) -> LaneView:
        """Focus one run file and take the other recorded ones away, but those of the script."""
        kept = self.lane_of(file.absolute()) or self.overlay(file)
        for lane in list(self.lanes.values()):
            if lane.recorded and lane is not kept and lane.run not in self.own:
                self.remove(lane.id)
        self.pins = [name for name in self.pins if name != kept.id]
        self.focus, self.cursor = kept.id, None
        return kept

    def remove(self, name: str) -> bool:
        """Take a recorded run off the charts and the list; False for a lane of the engine or the script."""
        lane = self.lanes.get(name)
        if lane is None or not lane.recorded or lane.run in self.own:
            return False
        lane.close()
        del self.lanes[name]
        self.pins = [pin for pin in self.pins if pin != name]
        if self.focus == name:
            self.focus = self.pins.pop(0) if self.pins else next(iter(self.lanes), "")
            self.cursor = None
        return True

    def lane_of(self, file: Path) -> LaneView | None:
        """The lane that shows this run file."""
        return next((lane for lane in self.lanes.values() if lane.run == file), None)

    @property
    def waits_for_step(self) -> bool:
        """A script runs, or has run, and no optimizer step has been seen yet."""
        return self.script is not None and not any(
            lane.last_step >= 0 for lane in self.lanes.values() if lane.run in self.own
        )

    @property
    def focused(self) -> LaneView | None:
        """The lane in focus; None only where there is no lane at all."""
        return self.lanes.get(self.focus)

    @property
    def shown(self) -> list[LaneView]:
        """The lanes on the charts: the focused one, then the pinned."""
        names = [self.focus, *(name for name in self.pins if name != self.focus)]
        return [self.lanes[name] for name in names if name in self.lanes]

    @property
    def digits(self) -> dict[str, int]:
        """The lanes that a digit chooses: the lesson's first nine presets, or runs where only runs are watched."""
        names = [name for name, lane in self.lanes.items() if lane.group == LESSON]
        if self.engine is None:
            names = list(self.lanes)
        return {name: number for number, name in enumerate(names[:DIGITS], start=1)}

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
        if lane is not None and not lane.recorded and lane.preset is not None and self.engine is not None:
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
        if lane.every > 1:  # from one measured step to another
            steps, here = steps * lane.every, here - here % lane.every
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
        news = [bool(lane.poll()) for lane in list(self.lanes.values())]
        for lane in self.lanes.values():
            if lane.recorded and lane.reader is not None and lane.state != lane.reader.status:
                lane.state, lane.reason = lane.reader.status, str(lane.reader.facts.get("reason", ""))
                news.append(True)
        if self.script is not None:
            news.append(self._poll_script(self.script))
        if self.await_first:
            news.append(self._find_first())
        if self.engine is not None:
            self._send_order()
        return any(news)

    def _poll_script(self, script: Script) -> bool:
        news = self.tail.poll() if self.tail is not None else False
        ended = script.exit_code is not None
        if ended != self._ended:
            self._ended = news = True
        for run in script.runs():
            path = run.absolute()
            if path in self.own:
                continue
            with contextlib.suppress(RunError):  # what cannot be read yet is looked at again
                lane = self.overlay(path)
                self.own.add(path)
                if len(self.own) == 1:  # what the screen is for comes before what it is compared with
                    if self.focus != lane.id:
                        self.pins = [
                            self.focus,
                            *(name for name in self.pins if name not in (self.focus, lane.id)),
                        ]
                    self.focus = lane.id
                news = True
        return news

    def _find_first(self) -> bool:
        with contextlib.suppress(RunError, OSError):
            for path in self.runs.glob(f"*{SUFFIX}"):
                self.overlay(path)
                self.await_first = False
                return True
        return False

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
        order = [n for n in (self.focus, *pins) if n in self.lanes and not self.lanes[n].recorded]
        if order != self._order:
            self._order = order
            self._send(protocol.Order(order))

    def _send(self, command: protocol.Command) -> None:
        if self.engine is not None:
            self.engine.send(command)


def _look(number: int) -> tuple[str, str]:
    """Colour and mark of the so-manieth lane."""
    # Who has a mark for the second time has it in another part of the colours.
    turn = number // len(MARKS)
    return COLORS[(number + 3 * turn) % len(COLORS)], MARKS[number % len(MARKS)]


def _lane(number: int, name: str, title: str, title_zh: str, preset: Preset) -> LaneView:
    return LaneView(name, title, *_look(number), preset, title_zh, seed=preset.training.seed)


def title_of(reader: RunReader, file: Path) -> str:
    """What to call a recorded run: its name, and the seed where it has one."""
    name, seed = str(reader.facts.get("name") or file.stem), reader.facts.get("seed")
    return name if seed is None else f"{name} s{seed}"


def _recorded_preset(reader: RunReader) -> Preset | None:
    """The preset that a run was made from, for its topology and title; None for a foreign script's run."""
    recorded = reader.facts.get("preset")
    try:
        return msgspec.convert(recorded, Preset) if recorded else None
    except msgspec.ValidationError:
        return None
