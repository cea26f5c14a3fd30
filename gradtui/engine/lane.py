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

from gradtui.engine.process_setup import DeviceError, keep_freed_pages
from gradtui.engine.protocol import RESTING, LaneCommand, LaneState, LaneStatus, Start
from gradtui.engine.trainer import Trainer
from gradtui.runs import RunError
from gradtui.zoo.corpus import CorpusError

NICE = 5
IDLE_SECONDS = 0.25


def run_lane(conn: Connection, start: Start) -> None:
    """Train in this process until told to stop, or until the supervisor is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(NICE)
    torch.set_num_threads(1)
    keep_freed_pages()
    try:
        trainer = Trainer(start.preset, seed=start.seed, device=start.device, run=Path(start.run))
    except (CorpusError, DeviceError, RunError) as error:
        conn.send(LaneStatus("died", str(error)))
        return
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        conn.send(LaneStatus("died", _describe(error)))
        return
    loop = LaneLoop(conn, trainer)
    signal.signal(signal.SIGTERM, loop.on_sigterm)
    loop.run()


class LaneLoop:
    """The loop of a lane: obey commands, take steps, report each change of state.

    While the run file cannot be written (the disk is full, say), what was measured waits in memory and the lane is
    paused; a command to go on first tries to write again.
    """

    def __init__(self, conn: Connection, trainer: Trainer) -> None:
        self._conn, self._trainer = conn, trainer
        self._target = trainer.preset.training.steps
        self._go = self._stop = self._paused = False
        self._single_steps = 0
        self._write_error = ""
        self._reported: LaneStatus | None = None

    def on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle SIGTERM: end the loop after this step, with everything recorded."""
        self._stop = True

    def run(self) -> None:
        """Run until a command, a signal or the end of the pipe ends it; then close the run file."""
        try:
            while not self._stop:
                self._report_state()
                if self._conn.poll(0 if self._may_step() else IDLE_SECONDS):
                    self._obey(self._conn.recv())
                elif self._may_step():
                    self._step()
            state = self._state()
            self._trainer.close(state if state in RESTING else "stopped")
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._trainer.close("stopped", "the supervisor is gone")
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            try:
                self._trainer.close("failed", _describe(error))
            finally:
                self._conn.send(LaneStatus("died", _describe(error)))

    def _is_finished(self) -> bool:
        return self._trainer.step_count >= self._target or self._trainer.diverged

    def _may_step(self) -> bool:
        if self._is_finished() or self._write_error:
            return False
        return self._single_steps > 0 or (self._go and not self._paused)

    def _state(self) -> LaneState:
        if self._write_error:
            return "paused"
        if self._trainer.diverged:
            return "diverged"
        if self._is_finished():
            return "done"
        if self._paused:
            return "paused"
        return "running" if self._go else "waiting"

    def _step(self) -> None:
        self._single_steps = max(0, self._single_steps - 1)
        if self._write(self._trainer.step) and self._paused and not self._single_steps:
            self._write(lambda: self._trainer.rest("paused"))

    def _report_state(self) -> None:
        """If the state has changed: bring the run file up to date, and send the new state."""
        status = LaneStatus(self._state(), self._write_error)
        if status == self._reported:
            return
        if not self._write_error:
            noted = "running" if status.state == "waiting" else status.state
            reason = "the loss is not finite" if status.state == "diverged" else ""
            self._write(lambda: self._trainer.rest(noted, reason))
            status = LaneStatus(self._state(), self._write_error)
        self._reported = status
        self._conn.send(status)

    def _write(self, action: Callable[[], object]) -> bool:
        """Do something that writes to the run file; False, and the lane is paused, if that failed."""
        try:
            action()
        except RunError as error:
            self._write_error, self._paused, self._single_steps = str(error), True, 0
            return False
        return True

    def _obey(self, command: LaneCommand) -> None:
        if self._write_error and command.what in ("resume", "step", "more"):
            # Try again; if that fails again, report it again.
            self._write_error, self._reported = "", None
        match command.what:
            case "go":
                self._go = True
            case "hold":
                self._go = False
            case "pause":
                self._paused, self._single_steps = True, 0
            case "resume":
                self._paused = False
            case "step":
                self._paused = True
                self._single_steps += 1
            case "more":
                self._target += int(command.value)
                self._write(lambda: self._trainer.set_facts(steps=self._target))
            case "lr":
                self._trainer.set_lr_scale(command.value)
            case "stop":
                self._stop = True


def _describe(error: Exception) -> str:
    first_line = str(error).split("\n", 1)[0][:200]
    return f"{type(error).__name__}: {first_line}"
