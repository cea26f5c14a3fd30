"""A lane: the process that trains one preset."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
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
    """The loop of a lane: obey, step, rest.

    `_trouble` is why the run file cannot be written (the disk is full, say). What was measured waits in memory;
    the lane is paused until it is told to go on, and then tries again first.
    """

    def __init__(self, conn: Connection, trainer: Trainer) -> None:
        self._conn, self._trainer = conn, trainer
        self._target = trainer.preset.training.steps
        self._go = self._stop = self._paused = False
        self._single = 0
        self._trouble = ""
        self._reported: Report | None = None

    def on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        """Somebody ends this process politely: record all that was measured first."""
        self._stop = True

    def run(self) -> None:
        try:
            while not self._stop:
                self._settle()
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
        if self._finished() or self._trouble:
            return False
        return self._single > 0 or (self._go and not self._paused)

    def _state(self) -> LaneState:
        if self._trouble:
            return "paused"
        if self._trainer.diverged:
            return "diverged"
        if self._finished():
            return "done"
        if self._paused:
            return "paused"
        return "running" if self._go else "waiting"

    def _step(self) -> None:
        self._single = max(0, self._single - 1)
        if self._record(self._trainer.step) and self._paused and not self._single:
            self._record(lambda: self._trainer.rest("paused"))

    def _settle(self) -> None:
        """Whenever the state has changed: bring the run file up to date, and say so."""
        report = Report(self._state(), self._trouble)
        if report == self._reported:
            return
        if not self._trouble:
            status = "running" if report.state == "waiting" else report.state
            reason = "the loss is not finite" if report.state == "diverged" else ""
            self._record(lambda: self._trainer.rest(status, reason))
            report = Report(self._state(), self._trouble)
        self._reported = report
        self._conn.send(report)

    def _record(self, do: Callable[[], object]) -> bool:
        """Do something that writes to the run file; False, and in trouble, if that failed."""
        try:
            do()
        except RunError as error:
            self._trouble, self._paused, self._single = str(error), True, 0
            return False
        return True

    def _obey(self, order: Order) -> None:
        if self._trouble and order.what in ("resume", "step", "more"):
            # Try again; if it fails again, say so again.
            self._trouble, self._reported = "", None
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
                self._record(lambda: self._trainer.writer.set_facts(steps=self._target))
            case "lr":
                self._trainer.set_lr_scale(order.value)
            case "stop":
                self._stop = True


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:200]
