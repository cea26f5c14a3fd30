"""The supervisor: starts, schedules and watches lanes, at the screen's command.

It never loads torch itself. Lanes come from a forkserver that has torch loaded, so that a lane starts within
hundredths of a second and shares the memory of that code; where there is no forkserver they are spawned.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import msgspec

from gradtui.engine import protocol
from gradtui.engine.entry import PRELOAD, enter_lane
from gradtui.engine.protocol import LaneCommand, LaneStatus
from gradtui.runs import RunError
from gradtui.runs.writer import mark_ended

# How long a lane may take to record what it has before it is killed.
STOP_SECONDS = 1.0
# Single steps that wait to be sent to a lane; more of them come from a key held down.
MOST_WAITING = 50


def share_cores(priority: Sequence[str], runnable: Iterable[str], slots: int) -> set[str]:
    """The lanes that may run: at most `slots` of `runnable`, those in `priority` first and in its order."""
    rank = {lane: index for index, lane in enumerate(priority)}
    ordered = sorted(runnable, key=lambda lane: rank.get(lane, len(rank)))
    return set(ordered[:slots])


@dataclass(slots=True, eq=False)
class LaneProcess:
    """A lane as the supervisor sees it."""

    start: protocol.Start
    process: BaseProcess
    conn: Connection
    state: protocol.LaneState = "starting"
    going: bool = False
    paused: bool = False
    kill_at: float | None = None
    outbox: deque[LaneCommand] = field(default_factory=deque)

    @property
    def runnable(self) -> bool:
        """It could take a step if a core were free."""
        return self.state not in protocol.RESTING and not self.paused and self.kill_at is None

    def command(self, command: LaneCommand) -> None:
        """Send a command; it waits in `outbox` while the lane is in a long step and its pipe is full."""
        if command.what != "step" or len(self.outbox) < MOST_WAITING:
            self.outbox.append(command)
        self.send()

    def send(self) -> None:
        """Send what waits. That a lane is gone is noticed by its process's sentinel, not here."""
        with contextlib.suppress(OSError, ValueError):
            while self.outbox and _has_room(self.conn):
                self.conn.send(self.outbox[0])
                self.outbox.popleft()


def _has_room(conn: Connection) -> bool:
    """Whether a send would not block; assumed where that cannot be asked (not POSIX)."""
    return os.name != "posix" or bool(select.select([], [conn.fileno()], [], 0)[1])


class Supervisor:
    """Runs until its input ends; `emit` takes every event for the screen."""

    def __init__(self, commands: BinaryIO, emit: Callable[[protocol.Event], None], slots: int) -> None:
        self._commands, self._emit, self._slots = commands, emit, slots
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        self._lanes: dict[str, LaneProcess] = {}
        self._ending: list[LaneProcess] = []
        self._priority: list[str] = []
        self._quit = self._starting = False

    def run(self) -> None:
        """Serve until the input ends or SIGTERM comes; then end every lane."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._emit(protocol.Hello(os.getpid(), self._slots))
        self._warm_up()
        inbox, feeder = multiprocessing.Pipe(duplex=False)
        threading.Thread(target=self._feed, args=(feeder,), daemon=True).start()
        while not self._quit:
            self._turn(inbox)
        self._end_all()

    def _warm_up(self) -> None:
        """Have the forkserver load torch while the screen starts."""
        if self._context.get_start_method() == "forkserver":
            from multiprocessing import forkserver

            self._context.set_forkserver_preload(list(PRELOAD))
            forkserver.ensure_running()

    def _on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        self._quit = True

    def _feed(self, feeder: Connection) -> None:
        """Pass the lines of the input on to a pipe, which `wait` can wait for.

        When the input ends, so does this process: soon, if a lane is just being started, since that blocks the
        main thread until torch is loaded; in any case after the time that lanes have to end.
        """
        for line in self._commands:
            feeder.send_bytes(line)
        feeder.close()
        time.sleep(STOP_SECONDS / 4)
        if not self._starting:
            time.sleep(STOP_SECONDS)
        os._exit(0)

    def _turn(self, inbox: Connection) -> None:
        processes = [*self._lanes.values(), *self._ending]
        conns = {lane.conn: lane for lane in processes if not lane.conn.closed}
        sentinels = {lane.process.sentinel: lane for lane in processes if lane.process.is_alive()}
        ready = wait([inbox, *conns, *sentinels], timeout=0.25)
        for item in ready:
            if item is inbox:
                self._read_command(inbox)
            elif isinstance(item, Connection):
                self._read_status(conns[item])
        for lane in processes:
            if not lane.process.is_alive() and not lane.conn.closed:
                self._on_exit(lane)
        self._kill_overdue()
        self._schedule()
        for lane in processes:
            lane.send()

    def _read_command(self, inbox: Connection) -> None:
        try:
            line = inbox.recv_bytes()
        except EOFError:
            self._quit = True
            return
        try:
            command = protocol.decode_command(line)
        except msgspec.MsgspecError as error:
            self._emit(protocol.Refused(f"not a command: {line[:80]!r}: {error}"))
            return
        if isinstance(command, protocol.Start):
            self._start(command)
        elif isinstance(command, protocol.Order):
            self._priority = command.lanes
        else:
            self._pass_on(command)

    def _start(self, start: protocol.Start) -> None:
        earlier = self._lanes.pop(start.lane, None)
        if earlier is not None:
            self._end(earlier)
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=enter_lane, args=(theirs, start), name=f"gradtui lane {start.lane}", daemon=True
        )
        self._starting = True
        process.start()
        self._starting = False
        theirs.close()
        lane = self._lanes[start.lane] = LaneProcess(start, process, ours)
        self._emit_state(lane)

    def _pass_on(self, command: protocol.Command) -> None:
        lane = self._lanes.get(getattr(command, "lane", ""))
        if lane is None or lane.state in ("died", "stopped"):
            return
        match command:
            case protocol.Pause():
                lane.paused = True
                lane.command(LaneCommand("pause"))
            case protocol.Resume():
                lane.paused = False
                lane.command(LaneCommand("resume"))
            case protocol.Step():
                lane.paused = True
                lane.command(LaneCommand("step"))
            case protocol.More(steps=steps):
                lane.command(LaneCommand("more", steps))
            case protocol.SetLr(scale=scale):
                lane.command(LaneCommand("lr", scale))
            case protocol.Stop():
                self._end(lane)

    def _read_status(self, lane: LaneProcess) -> None:
        """Take the states that a lane has sent. That it has ended is noticed by its process, not by its pipe."""
        try:
            while lane.conn.poll():
                status: LaneStatus = lane.conn.recv()
                lane.state = status.state
                lane.paused = status.state == "paused"
                if lane in self._lanes.values():
                    self._emit_state(lane, status.reason)
        except (EOFError, OSError):
            lane.process.join(STOP_SECONDS)

    def _on_exit(self, lane: LaneProcess) -> None:
        """A lane's process has ended: report why, unless the lane has done so itself."""
        self._read_status(lane)
        lane.conn.close()
        if lane in self._ending:
            self._ending.remove(lane)
        if lane.state == "died":
            return
        if lane.kill_at is not None:
            # It was told to stop, also where it had to be killed: it was still being built, or in a long step.
            lane.state, reason = "stopped", ""
            if lane.process.exitcode != 0:
                with contextlib.suppress(RunError):
                    mark_ended(Path(lane.start.run), "stopped", "")
        else:
            lane.state, reason = "died", _why(lane.process.exitcode)
            with contextlib.suppress(RunError):
                mark_ended(Path(lane.start.run), "died", reason)
        if lane in self._lanes.values():
            self._emit_state(lane, reason)

    def _schedule(self) -> None:
        runnable = [name for name, lane in self._lanes.items() if lane.runnable]
        allowed = share_cores(self._priority, runnable, self._slots)
        for name, lane in self._lanes.items():
            if (name in allowed) != lane.going:
                lane.going = name in allowed
                lane.command(LaneCommand("go" if lane.going else "hold"))

    def _end(self, lane: LaneProcess) -> None:
        if lane.kill_at is None:
            lane.kill_at = time.monotonic() + STOP_SECONDS
            lane.command(LaneCommand("stop"))
        if lane not in self._lanes.values() and lane not in self._ending and not lane.conn.closed:
            self._ending.append(lane)

    def _kill_overdue(self) -> None:
        for lane in (*self._lanes.values(), *self._ending):
            if lane.kill_at is not None and time.monotonic() > lane.kill_at and lane.process.is_alive():
                lane.process.kill()

    def _end_all(self) -> None:
        lanes = [*self._lanes.values(), *self._ending]
        for lane in lanes:
            self._end(lane)
        deadline = time.monotonic() + STOP_SECONDS
        for lane in lanes:
            lane.process.join(max(0.0, deadline - time.monotonic()))
            if lane.process.is_alive():
                lane.process.kill()

    def _emit_state(self, lane: LaneProcess, reason: str = "") -> None:
        self._emit(protocol.Lane(lane.start.lane, lane.state, lane.start.run, reason, lane.process.pid or 0))


def _why(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        try:
            name = signal.Signals(-exitcode).name
        except ValueError:
            name = "unknown"
        hint = "; out of memory, or somebody ended it" if -exitcode == signal.SIGKILL else ""
        return f"killed by signal {-exitcode} ({name}{hint})"
    return f"ended unexpectedly with exit code {exitcode}"
