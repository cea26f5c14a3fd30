"""Writes what a probe measured, in a thread of its own: training waits for no disk."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradtui.analysis.alarms import AlarmTracker
from gradtui.probe.accumulator import Totals
from gradtui.probe.wire import PendingStep
from gradtui.runs import RunError
from gradtui.runs.schema import Event, Frame, Site
from gradtui.runs.writer import COMMIT_SECONDS, RunWriter

POLL_SECONDS = 0.1
# A lock on the file is waited for so long, then tried again with the next steps.
LOCK_TIMEOUT = 0.2
# Steps that wait to be opened; more than this come only from loops of far above ten thousand steps a second.
WAITING = 20_000
FAREWELL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Tag:
    """Which step it was, when it ended (Unix time, seconds) and how long it took (seconds)."""

    step: int
    wall: float
    seconds: float


class ProbeWarning(UserWarning):
    """The probe cannot do all it was asked to; training goes on."""


class Recorder:
    """One run file. All methods but `close` return at once; what goes wrong with the file is a warning, once."""

    def __init__(
        self,
        path: Path,
        sites: Sequence[Site],
        metrics: Sequence[str],
        facts: Mapping[str, Any],
        keep: int | None,
        mind: Callable[[], Callable[[Totals, Mapping[str, float]], None] | None],
    ) -> None:
        self.path = path
        # Weak: the thread must not keep the probe, and with it the model, alive.
        self._metrics, self._mind = tuple(metrics), mind
        self._alarms = AlarmTracker(sites, metrics)
        self._writer = RunWriter(path, sites, facts, metrics=metrics, keep=keep, lock_timeout=LOCK_TIMEOUT)
        self._queue: deque[PendingStep | Event | dict[str, Any]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._warned = False
        self._lost = 0
        self._inode = 0
        self._flushed = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="gradtui recorder", daemon=True)
        self._thread.start()

    def put(self, parcel: PendingStep) -> None:
        """Record a step, whose tag is a `Tag`."""
        if len(self._queue) < WAITING:
            self._queue.append(parcel)
        else:
            self._lost += 1

    def event(self, event: Event) -> None:
        """Record something that happened."""
        self._queue.append(event)

    def set_facts(self, **facts: Any) -> None:
        """Change run facts."""
        self._queue.append(facts)

    def close(self, status: str, reason: str) -> None:
        """Record everything that waits and how the run ended; waits a few seconds for it at most."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        self._thread.join(FAREWELL_SECONDS)
        if self._thread.is_alive():
            self._warn(f"{self.path} could not be finished within {FAREWELL_SECONDS:.0f} seconds")
            return
        try:
            self._writer.close(status, reason)
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
                self._writer.flush()
                self._look_after()
        except RunError as error:  # the writer keeps what it could not write, and tries again
            self._warn(str(error))
        except Exception as error:
            self._warn(f"a step could not be recorded: {type(error).__name__}: {error}")

    def _take(self, item: PendingStep | Event | dict[str, Any]) -> None:
        if isinstance(item, Event):
            self._writer.event(item)
            return
        if isinstance(item, dict):
            self._writer.set_facts(**item)
            return
        arrival = item.open()
        tag, scalars = arrival.tag, arrival.scalars
        mind = self._mind()
        if mind is not None:
            mind(arrival.sums, scalars)
        if scalars.get("found_inf", 0) > 0:
            self._writer.event(Event(tag.step, "skipped", text="the gradients were not finite"))
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            self._writer.event(
                Event(tag.step, "note", value=lost, text=f"{lost} steps came too fast to be recorded")
            )
        values = arrival.matrix(self._metrics)
        loss = scalars.get("loss")
        for event in self._alarms.update(tag.step, loss, values):
            self._writer.event(event)
        self._writer.append(Frame(tag.step, tag.wall, tag.seconds, loss, scalars.get("lr"), values))

    def _look_after(self) -> None:
        """A file that somebody removes is still written to, and then gone."""
        try:
            there = self.path.stat().st_ino
        except OSError:
            there = 0
        self._inode = self._inode or there
        if there != self._inode:
            self._warn(f"{self.path} was removed or replaced: what is measured from now on is lost")

    def _warn(self, sentence: str) -> None:
        if not self._warned:
            self._warned = True
            with contextlib.suppress(Exception):  # a filter may have made warnings errors; not in this thread
                warnings.warn(f"gradtui: {sentence}; training goes on", ProbeWarning, stacklevel=2)
