"""A lane: the process that trains one preset."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import torch

from gradtui.engine.allocator import keep_freed_pages
from gradtui.engine.device import DeviceError
from gradtui.engine.orders import Order, Report
from gradtui.engine.protocol import RESTING, LaneState, Start
from gradtui.engine.trainer import Trainer
from gradtui.runs import RunError
from gradtui.zoo.corpus import CorpusError

NICE = 5


def run_lane(conn: Connection, start: Start) -> None:
    """Train until told to stop, or until the supervisor is gone. Runs in its own process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(NICE)
    torch.set_num_threads(1)
    keep_freed_pages()
    try:
        trainer = Trainer(start.preset, seed=start.seed, device=start.device, run=Path(start.run))
    except (CorpusError, DeviceError, RunError) as error:
        conn.send(Report("died", str(error)))
        return
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        conn.send(Report("died", f"{type(error).__name__}: {_first_line(error)}"))
        return
    lane = _Lane(conn, trainer)
    signal.signal(signal.SIGTERM, lane.on_sigterm)
    lane.run()


class _Lane:
    """The loop of a lane: obey, step, rest."""

    def __init__(self, conn: Connection, trainer: Trainer) -> None:
        self._conn, self._trainer = conn, trainer
        self._target = trainer.preset.training.steps
        self._go = self._stop = self._paused = False
        self._single = 0
        self._reported: LaneState = "starting"

    def on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        """Somebody ends this process politely: record all that was measured first."""
        self._stop = True

    def run(self) -> None:
        try:
            while not self._stop:
                self._report(self._state())
                if self._conn.poll(0 if self._may_step() else 0.25):
                    self._obey(self._conn.recv())
                elif self._may_step():
                    self._step()
            state = self._state()
            self._trainer.close(state if state in RESTING else "stopped")
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._trainer.close("stopped", "the supervisor is gone")
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            reason = f"{type(error).__name__}: {_first_line(error)}"
            try:
                self._trainer.close("failed", reason)
            finally:
                self._conn.send(Report("died", reason))

    def _finished(self) -> bool:
        return self._trainer.step_count >= self._target or self._trainer.diverged

    def _may_step(self) -> bool:
        if self._finished():
            return False
        return self._single > 0 or (self._go and not self._paused)

    def _state(self) -> LaneState:
        if self._trainer.diverged:
            return "diverged"
        if self._finished():
            return "done"
        if self._paused:
            return "paused"
        return "running" if self._go else "waiting"

    def _step(self) -> None:
        try:
            self._trainer.step()
        except RunError as error:
            # The disk is full, say. What was measured waits in memory; resuming tries again.
            self._paused, self._single = True, 0
            self._report("paused", str(error))
            return
        self._single = max(0, self._single - 1)
        if self._paused and not self._single:
            self._rest("paused")

    def _report(self, state: LaneState, reason: str = "") -> None:
        if state == self._reported:
            return
        self._reported = state
        if not reason:
            self._rest(state)
        self._conn.send(Report(state, reason))

    def _rest(self, state: LaneState) -> None:
        """Bring the run file up to date whenever the state changes."""
        reason = "the loss is not finite" if state == "diverged" else ""
        try:
            self._trainer.rest("running" if state == "waiting" else state, reason)
        except RunError as error:
            self._paused = True
            self._reported = "paused"
            self._conn.send(Report("paused", str(error)))

    def _obey(self, order: Order) -> None:
        match order.what:
            case "go":
                self._go = True
            case "hold":
                self._go = False
            case "pause":
                self._paused, self._single = True, 0
            case "resume":
                self._paused = False
            case "step":
                self._paused = True
                self._single += 1
            case "more":
                self._target += int(order.value)
                self._trainer.writer.set_facts(steps=self._target)
            case "lr":
                self._trainer.set_lr_scale(order.value)
            case "stop":
                self._stop = True


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:200]
