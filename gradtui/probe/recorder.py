"""Writes what was measured into a run file: the only writer of frames, for lanes and for the public probe."""

from __future__ import annotations

import contextlib
import platform
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradtui import __version__
from gradtui.analysis.alarms import AlarmTracker
from gradtui.probe.accumulator import MeasuringHints
from gradtui.probe.transfer import PendingStep
from gradtui.runs import RunError
from gradtui.runs.schema import Event, Floats, Frame, Site
from gradtui.runs.writer import COMMIT_SECONDS, RunWriter

POLL_SECONDS = 0.1
# So long a training script's recorder waits for a lock on the file, then tries again with the next steps.
LOCK_SECONDS = 0.2
# Steps that wait to be recorded; only loops of far above ten thousand steps a second reach it.
MOST_WAITING = 20_000
CLOSE_SECONDS = 5.0


class ProbeWarning(UserWarning):
    """The probe cannot do all it was asked to; training goes on."""


def warn(sentence: str, *, stacklevel: int = 4) -> None:
    """Issue a ProbeWarning; never raises."""
    try:
        warnings.warn(f"gradtui: {sentence}", ProbeWarning, stacklevel=stacklevel)
    except ProbeWarning:  # a filter has made warnings errors, but this one must not end the training
        sys.stderr.write(f"gradtui: {sentence}\n")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The run file to make, with its sites, metrics and first facts; `keep` bounds it to so many steps in full."""

    path: Path
    sites: Sequence[Site]
    metrics: tuple[str, ...]
    facts: Mapping[str, Any]
    keep: int | None = None


def model_facts(model: nn.Module, device: torch.device) -> dict[str, Any]:
    """Facts about a model, the device that it is trained on, and the versions of what trains it."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "device": device.type,
        "device_name": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": {
            "gradtui": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


class Recorder:
    """Records steps at once, in the caller's thread, and tells `hints` what they show about how to measure.

    All methods raise RunError where the file cannot be made or written; what could not be written waits for the
    next attempt. `lock_seconds`: how long a commit waits for another process that has locked the file.
    """

    def __init__(self, settings: RunSettings, hints: MeasuringHints, *, lock_seconds: float = 5.0) -> None:
        self.path = settings.path
        self._metrics, self._hints = settings.metrics, hints
        self._alarms = AlarmTracker(settings.sites, settings.metrics)
        self._writer = RunWriter(
            settings.path,
            settings.sites,
            settings.facts,
            metrics=settings.metrics,
            keep=settings.keep,
            lock_seconds=lock_seconds,
        )

    def put(self, pending: PendingStep) -> Frame | None:
        """Record a step and the alarms that it raises; returns its frame.

        None if a fused optimizer has left the step out because its gradients were not finite: that is an event.
        """
        step = pending.open()
        self._hints.update(step.totals, step.scalars)
        number, scalars = step.tag.step, step.scalars
        if scalars.get("found_inf", 0) > 0:
            self._writer.event(Event(number, "skipped", text="the gradients were not finite"))
            return None
        values, loss = step.values(self._metrics), scalars.get("loss")
        for event in self._alarms.update(number, loss, values):
            self._writer.event(event)
        frame = Frame(number, step.tag.wall, step.tag.seconds, loss, scalars.get("lr"), values)
        self._writer.append(frame)
        readings: dict[str, dict[int, Floats]] = {}
        for (name, site), vector in step.readings.items():
            readings.setdefault(name, {})[site] = vector
        self._writer.readings(number, readings)
        return frame

    def event(self, event: Event) -> None:
        """Record something that happened."""
        self._writer.event(event)

    def set_facts(self, **facts: Any) -> None:
        """Change facts of the run."""
        self._writer.set_facts(**facts)

    def flush(self) -> None:
        """Commit everything that waits."""
        self._writer.flush()

    def close(self, status: str, reason: str = "") -> None:
        """Commit everything and note how the run ended; calling it twice does nothing."""
        self._writer.close(status, reason)


class RecorderThread:
    """A `Recorder` in a thread of its own: training waits for no disk.

    All methods but `close` return at once. Raises RunError where the file cannot be made; what goes wrong with it
    later is one ProbeWarning.
    """

    def __init__(self, settings: RunSettings, hints: MeasuringHints) -> None:
        self._recorder = Recorder(settings, hints, lock_seconds=LOCK_SECONDS)
        self._queue: deque[PendingStep | Event | dict[str, Any]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._warned = False
        self._lost = 0
        self._cannot_see: list[str] = []
        self._flushed = time.monotonic()
        self._inode = _inode(settings.path)
        self._thread = threading.Thread(target=self._run, name="gradtui recorder", daemon=True)
        self._thread.start()

    def put(self, pending: PendingStep) -> None:
        """Record a step."""
        if len(self._queue) < MOST_WAITING:
            self._queue.append(pending)
        else:
            self._lost += 1

    def event(self, event: Event) -> None:
        """Record something that happened."""
        self._queue.append(event)

    def cannot_see(self, sentence: str) -> None:
        """Record and warn of something that cannot be measured, once."""
        if sentence not in self._cannot_see:
            self._cannot_see.append(sentence)
            self._queue.append({"blind": list(self._cannot_see)})
            warn(sentence)

    def close(self, status: str, reason: str = "") -> None:
        """Record everything that waits and how the run ended; waits a few seconds for it at most."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self._warn(f"{self._recorder.path} could not be finished within {CLOSE_SECONDS:.0f} seconds")
            return
        try:
            self._recorder.close(status, reason)
        except RunError as error:
            self._warn(str(error))

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(POLL_SECONDS)
            self._work()

    def _work(self) -> None:
        try:
            while self._queue:
                self._take(self._queue.popleft())
            if time.monotonic() - self._flushed >= COMMIT_SECONDS:
                self._flushed = time.monotonic()
                self._recorder.flush()
                if _inode(self._recorder.path) != self._inode:
                    path = self._recorder.path
                    self._warn(f"{path} was removed or replaced: what is measured from now on is lost")
        except RunError as error:  # the writer keeps what it could not write, and tries again
            self._warn(str(error))
        except Exception as error:
            self._warn(f"a step could not be recorded: {type(error).__name__}: {error}")

    def _take(self, item: PendingStep | Event | dict[str, Any]) -> None:
        if isinstance(item, Event):
            self._recorder.event(item)
        elif isinstance(item, dict):
            self._recorder.set_facts(**item)
        else:
            frame = self._recorder.put(item)
            if frame is not None and self._lost:
                lost, self._lost = self._lost, 0
                text = f"{lost} steps came too fast to be recorded"
                self._recorder.event(Event(frame.step, "note", value=lost, text=text))

    def _warn(self, sentence: str) -> None:
        if not self._warned:
            self._warned = True
            with contextlib.suppress(Exception):  # a filter may have made warnings errors; not in this thread
                warnings.warn(f"gradtui: {sentence}; training goes on", ProbeWarning, stacklevel=2)


def _inode(path: Path) -> int:
    """Identifies the file at `path`; 0 if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0
