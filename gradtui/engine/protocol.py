"""The messages between the screen, the supervisor and the lanes.

Screen and supervisor exchange JSON lines, one message a line: `Command` and `Event`. Supervisor and lane exchange
pickled objects over a pipe: `LaneCommand` and `LaneStatus`. What training measures is in none of them: the screen
reads it from the run files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from gradtui.presets import Preset

# starting: building the model · waiting: for a free core · done: reached its steps and rests, its model kept
LaneState = Literal["starting", "running", "waiting", "paused", "done", "diverged", "died", "stopped"]
RESTING: frozenset[LaneState] = frozenset({"done", "diverged", "died", "stopped"})


class Command(msgspec.Struct, frozen=True, tag_field="do", tag=str.lower):
    """From the screen to the supervisor."""


class Start(Command, frozen=True):
    """Train `preset` as `lane`, recording in the file `run`; ends an earlier lane of that name."""

    lane: str
    preset: Preset
    seed: int
    device: str
    run: str


class Pause(Command, frozen=True):
    lane: str


class Resume(Command, frozen=True):
    lane: str


class Step(Command, frozen=True):
    """Pause, but take one step."""

    lane: str


class More(Command, frozen=True):
    """Train `steps` steps further than planned."""

    lane: str
    steps: int


class SetLr(Command, frozen=True):
    """Multiply the schedule's learning rate by `scale`."""

    lane: str
    scale: float


class Stop(Command, frozen=True):
    lane: str


class Order(Command, frozen=True):
    """Which lanes come first when there are more than cores."""

    lanes: list[str]


class Event(msgspec.Struct, frozen=True, tag_field="event", tag=str.lower):
    """From the supervisor to the screen."""


class Hello(Event, frozen=True):
    """The supervisor is there; `slots` lanes can run at once."""

    pid: int
    slots: int


class Lane(Event, frozen=True):
    """A lane changed its state; `reason` says why where it is not by command."""

    lane: str
    state: LaneState
    run: str
    reason: str = ""
    pid: int = 0


class Refused(Event, frozen=True):
    """A line that was no command."""

    reason: str


@dataclass(frozen=True, slots=True)
class LaneCommand:
    """From the supervisor to a lane. `go` and `hold` share out the cores, the others come from the screen.

    `value` is the number of further steps for `more` and the factor for `lr`.
    """

    what: Literal["go", "hold", "pause", "resume", "step", "more", "lr", "stop"]
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """From a lane to the supervisor: its state, and the reason where no command has caused it."""

    state: LaneState
    reason: str = ""


_AnyCommand = Start | Pause | Resume | Step | More | SetLr | Stop | Order
_AnyEvent = Hello | Lane | Refused
_commands = msgspec.json.Decoder(_AnyCommand)
_events = msgspec.json.Decoder(_AnyEvent)


def encode(message: Command | Event) -> bytes:
    """One line, newline included."""
    return msgspec.json.encode(message) + b"\n"


def decode_command(line: bytes) -> Command:
    """A line from the screen; raises msgspec.MsgspecError."""
    return _commands.decode(line)


def decode_event(line: bytes) -> Event:
    """A line from the supervisor; raises msgspec.MsgspecError."""
    return _events.decode(line)
