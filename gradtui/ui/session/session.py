"""What is open, without a screen: lanes, focus, pins, the place in history, the engine, a script beside it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradtui.engine import protocol
from gradtui.presets import Library
from gradtui.runs import SUFFIX, RunError
from gradtui.ui.session.comparison import square
from gradtui.ui.session.lane import Lane, look
from gradtui.ui.session.output import Tail
from gradtui.ui.session.run_control import EngineProcess, RunControl
from gradtui.ui.session.script import Script

DIGITS = 9
LESSON = "lesson"  # the group whose presets have digits
REORDER_SECONDS = 2.0


@dataclass(slots=True)
class Session:
    """Lanes in the order they are listed: presets that an engine trains, and run files that are only looked at.

    `control` is None where nothing is trained. `cursor` is the step that is looked at, None for the newest. With a
    `script`, the runs that it records (`own`) are added as they appear, and `output` follows what it prints. Where
    `awaits_run`, the first run file that appears in the directory `runs` is shown.
    """

    lanes: dict[str, Lane]
    runs: Path
    control: RunControl | None = None
    focus: str = ""
    pins: list[str] = field(default_factory=list)
    cursor: int | None = None
    slots: int = 0  # lanes that the engine can run at once; 0 before it has said so
    script: Script | None = None
    output: Tail | None = None
    own: set[Path] = field(default_factory=set)
    awaits_run: bool = False
    _script_ended: bool = False
    _before_square: tuple[str, list[str]] | None = None
    _ordered_at: float = 0.0

    @classmethod
    def of_presets(cls, library: Library, engine: EngineProcess, runs: Path, device: str) -> Session:
        """One idle lane per preset."""
        presets = enumerate(library.presets.values())
        lanes = {preset.id: Lane.of_preset(preset, number) for number, preset in presets}
        return cls(lanes, runs, RunControl(engine, runs, device), focus=next(iter(lanes), ""))

    @classmethod
    def of_files(cls, files: Sequence[Path], directory: Path | None = None) -> Session:
        """Run files that are looked at, all but the first pinned; raises RunError for one that is none.

        `directory` is where other runs are looked for, by default where the first file is. Without any file, the
        first run that appears there is shown.
        """
        session = cls({}, directory or (files[0].absolute().parent if files else Path()))
        session.awaits_run = not files
        for file in files:
            session.overlay(file)
        return session

    @classmethod
    def of_script(cls, script: Script, directory: Path) -> Session:
        """The runs that a script records, beside earlier ones in `directory`."""
        return cls({}, directory, script=script, output=Tail(script.log))

    @property
    def focused(self) -> Lane | None:
        """The lane in focus; None only where there is no lane at all."""
        return self.lanes.get(self.focus)

    @property
    def shown(self) -> list[Lane]:
        """The lanes on the charts: the focused one, then the pinned."""
        names = [self.focus, *(name for name in self.pins if name != self.focus)]
        return [self.lanes[name] for name in names if name in self.lanes]

    @property
    def digits(self) -> dict[str, int]:
        """The lanes that a digit chooses: the lesson's first nine presets, or runs where nothing is trained."""
        names = [name for name, lane in self.lanes.items() if lane.group == LESSON]
        if self.control is None:
            names = list(self.lanes)
        return {name: number for number, name in enumerate(names[:DIGITS], start=1)}

    @property
    def waits_for_step(self) -> bool:
        """A script runs, or has run, and no optimizer step has been seen yet."""
        return self.script is not None and not any(
            lane.last_step >= 0 for lane in self.lanes.values() if lane.run in self.own
        )

    def lane_of(self, file: Path) -> Lane | None:
        """The lane that shows this run file."""
        return next((lane for lane in self.lanes.values() if lane.run == file), None)

    # --- what is on the charts

    def select(self, name: str) -> None:
        """Focus a lane and start it if it was never started."""
        if name not in self.lanes:
            return
        self.focus, self.cursor = name, None
        self._ensure_started(name)
        self._send_order()

    def toggle_pin(self, name: str) -> bool:
        """Pin or unpin a lane; True if it is pinned now. A pinned lane trains too."""
        if name in self.pins:
            self.pins.remove(name)
        elif name in self.lanes:
            self.pins.append(name)
            self._ensure_started(name)
        self._send_order()
        return name in self.pins

    def show(self, focus: str, pins: Sequence[str]) -> None:
        """Focus one lane and pin exactly these others."""
        self.pins = [name for name in pins if name in self.lanes]
        for name in self.pins:
            self._ensure_started(name)
        self.select(focus)

    def toggle_square(self) -> bool | None:
        """Overlay the four presets of `comparison.square`, or put back what was there before.

        None if they are not all there, else whether they are overlaid now.
        """
        corners = square(self.lanes.values())
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

    def overlay(self, file: Path) -> Lane:
        """Put a run file on the charts beside what is there; raises RunError if it is none."""
        found = self.lane_of(file.absolute())
        if found is None:
            taken = {(lane.color, lane.mark) for lane in self.lanes.values()}
            number = next(n for n in range(len(self.lanes) + 1) if look(n) not in taken)
            found = Lane.of_file(file, number)
            self.lanes[found.id] = found
        if not self.focused:
            self.focus = found.id
        elif found.id not in (self.focus, *self.pins):
            self.pins.append(found.id)
        return found

    def show_alone(self, file: Path) -> Lane:
        """Focus one run file and take the other recorded ones away, but those of the script. Raises RunError."""
        kept = self.lane_of(file.absolute()) or self.overlay(file)
        for lane in list(self.lanes.values()):
            if lane is not kept:
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

    def travel(self, steps: int) -> bool:
        """Move through history by `steps`; past the newest step is live again. False if there is no more."""
        lane = self.focused
        if lane is None or lane.series is None or lane.last_step < 0:
            return False
        first, last, every = lane.series.reader.first_step, lane.last_step, lane.series.every
        here = last if self.cursor is None else self.cursor
        if every > 1:  # from one measured step to another
            steps, here = steps * every, here - here % every
        there = here + steps
        if there < first and here <= first:
            return False
        if there > last and self.cursor is None:
            return False
        self.cursor = max(there, first) if there < last else None
        return True

    # --- news

    def on_engine_event(self, event: protocol.Event) -> Lane | None:
        """Take an engine event; returns the lane it changed."""
        if isinstance(event, protocol.Hello):
            self.slots = event.slots
        if not isinstance(event, protocol.Lane) or event.lane not in self.lanes:
            return None
        lane = self.lanes[event.lane]
        if lane.run is not None and str(lane.run) != event.run:
            return None  # the last report of a run that has been restarted since
        lane.state, lane.reason = event.state, event.reason
        return lane

    def on_engine_end(self, reason: str) -> None:
        """The engine is gone and its lanes with it; what they recorded stays."""
        if self.control is not None:
            self.control.ended()
        for lane in self.lanes.values():
            if lane.state not in ("idle", "died", "stopped") and not lane.recorded:
                lane.state, lane.reason = "died", reason

    def poll(self) -> bool:
        """Look for news of every lane; True if there is any."""
        news = [lane.poll() for lane in list(self.lanes.values())]
        if self.script is not None:
            news.append(self._poll_script(self.script))
        if self.awaits_run:
            news.append(self._find_first())
        if time.monotonic() - self._ordered_at >= REORDER_SECONDS:
            self._send_order()
        return any(news)

    def close(self) -> None:
        """Close every run file."""
        for lane in self.lanes.values():
            lane.close()

    def _poll_script(self, script: Script) -> bool:
        news = self.output.poll() if self.output is not None else False
        ended = script.exit_code is not None
        if ended != self._script_ended:
            self._script_ended = news = True
        for run in script.runs():
            path = run.absolute()
            if path not in self.own:
                with contextlib.suppress(RunError):  # what cannot be read yet is looked at again
                    self._add_own(path)
                    news = True
        return news

    def _add_own(self, path: Path) -> None:
        """Show a run of the script; the first one comes before what it is compared with."""
        lane = self.overlay(path)
        self.own.add(path)
        if len(self.own) == 1:
            if self.focus != lane.id:
                self.pins = [self.focus, *(name for name in self.pins if name not in (self.focus, lane.id))]
            self.focus = lane.id

    def _find_first(self) -> bool:
        with contextlib.suppress(RunError, OSError):
            for path in self.runs.glob(f"*{SUFFIX}"):
                self.overlay(path)
                self.awaits_run = False
                return True
        return False

    def _ensure_started(self, name: str) -> None:
        lane = self.lanes[name]
        if lane.state == "idle" and lane.preset is not None and self.control is not None:
            self.control.start(lane, lane.preset.training.seed)

    def _send_order(self) -> None:
        """Focused first; of the pinned the one that is furthest behind, so that they advance together."""
        self._ordered_at = time.monotonic()
        if self.control is None:
            return
        pins = sorted((n for n in self.pins if n != self.focus), key=lambda n: self.lanes[n].last_step)
        self.control.order([n for n in (self.focus, *pins) if n in self.lanes and not self.lanes[n].recorded])
