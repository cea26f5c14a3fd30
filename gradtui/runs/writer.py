"""The one writer of a run file. Frames wait in memory for at most a quarter of a second."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from gradtui.metrics import SITE_METRICS
from gradtui.runs import RunError
from gradtui.runs.connection import address
from gradtui.runs.creation import create, write_facts
from gradtui.runs.pyramid import Pyramid
from gradtui.runs.schema import FLAG_LOSS_NAN, PYRAMID_FACTOR, Event, Floats, Frame, Site
from gradtui.runs.thinning import Gap, Thinner

COMMIT_SECONDS = 0.25
# While a file cannot be written, attempts become rarer: each may keep the caller waiting for a lock.
MOST_SECONDS_BETWEEN_ATTEMPTS = 8.0
BATCH = 256  # frames that wait as objects before they become rows
MOST_WAITING = 4096  # rows
MOST_WAITING_BYTES = 64 << 20

_INSERT_FRAME = "INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_EVENT = "INSERT INTO events (step, wall, kind, site, value, text) VALUES (?, ?, ?, ?, ?, ?)"
_UPSERT_BUCKET = "INSERT OR REPLACE INTO pyramid VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_READING = "INSERT OR REPLACE INTO readings VALUES (?, ?, ?)"
_DELETE_READINGS = "DELETE FROM readings WHERE step >= ? AND step < ?"
_DELETE_FRAMES = "DELETE FROM frames WHERE step >= ? AND step < ?"
_DELETE_BUCKETS = "DELETE FROM pyramid WHERE level = ? AND bucket >= ? AND bucket < ?"


class RunWriter:
    """Creates `path` and appends to it; raises RunError if it exists or cannot be written.

    `keep` bounds the file: of all frames the first 256 and the newest `keep` stay, older ones only as minimum,
    mean and maximum over 16, 256 … steps, of which each level keeps as much as windows need. `lock_seconds` is how
    long, in seconds, a commit waits for another process that has locked the file; `clock` returns seconds.

    A failed commit (a full disk) raises RunError and keeps what it could not write; later ones try again, at
    growing intervals. What waits is bounded: when there is too much of it, the oldest frames are discarded, and an
    event "note" says so as soon as the file can be written. Everything committed survives a crash of the process.
    In a forked child all methods do nothing: the file is its parent's.
    """

    def __init__(
        self,
        path: Path,
        sites: Sequence[Site],
        facts: Mapping[str, Any],
        *,
        metrics: Sequence[str] = SITE_METRICS,
        keep: int | None = None,
        lock_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if keep is not None and keep < 1:
            raise RunError(f"{keep} frames cannot be kept; at least 1")
        self.path = path
        self._shape = (len(metrics), len(sites))
        self._clock = clock
        self._closed = False
        self._process = os.getpid()
        self._newest = -1
        self._frames: list[Frame] = []
        self._rows: list[tuple[Any, ...]] = []
        self._events: list[tuple[Any, ...]] = []
        self._facts: dict[str, Any] = {
            "status": "running",
            "started": time.time(),
            "pid": self._process,
            "host": socket.gethostname(),
            "metrics": list(metrics),
            **facts,
        }
        self._buckets: dict[tuple[int, int], tuple[object, ...]] = {}
        self._pyramid = Pyramid()
        self._thinner = None if keep is None else Thinner(keep)
        self._dropped: dict[int, Gap] = {}
        self._recorded = 0
        self._layouts: dict[str, list[list[int]]] = {}
        self._readings: list[tuple[int, str, bytes]] = []
        self._lost: list[int] = []  # first and last step, and number, of frames that were discarded
        self._last_error = ""
        frame_bytes = max(1, 4 * len(metrics) * len(sites))
        self._most_waiting = max(BATCH, min(MOST_WAITING, MOST_WAITING_BYTES // frame_bytes))
        self._committed = -np.inf
        self._interval = COMMIT_SECONDS
        self._db = create(path, sites, self._facts, frame_bytes=frame_bytes, lock_seconds=lock_seconds)
        try:
            self.flush()
        except RunError:
            self._db.close()
            raise

    @property
    def _is_failing(self) -> bool:
        return self._interval > COMMIT_SECONDS

    def append(self, frame: Frame) -> None:
        """Record one step; raises RunError where steps do not increase, or there are too few or many values.

        Commits if the last commit is long enough ago.
        """
        if self._is_forked():
            return
        if frame.step <= self._newest:
            raise RunError(f"{self.path}: step {frame.step} cannot follow step {self._newest}; steps increase")
        if frame.values.shape != self._shape:
            raise RunError(f"{self.path}: step {frame.step} has {frame.values.shape} values, not {self._shape}")
        self._newest = frame.step
        self._frames.append(frame)
        if self._clock() - self._committed >= self._interval:
            self.flush()
        elif len(self._frames) >= BATCH:
            self._collect()
            if not self._is_failing and 2 * len(self._rows) >= self._most_waiting:
                self.flush()

    def readings(self, step: int, found: Mapping[str, Mapping[int, Floats]]) -> None:
        """Record vectors of numbers that modules report of themselves at a step, by name and site's index.

        A name's sites and lengths are those of its first call. It is committed together with the next frames.
        """
        for name, vectors in found.items():
            layout = [[site, len(vector)] for site, vector in vectors.items()]
            if self._layouts.setdefault(name, layout) == layout and layout:
                data = np.concatenate(list(vectors.values())).astype(np.float32).tobytes()
                self._readings.append((step, name, data))
                self._facts["readings"] = dict(self._layouts)
        del self._readings[: -self._most_waiting]

    def event(self, event: Event) -> None:
        """Record an event; it is committed together with the next frames."""
        row = (event.step, time.time(), event.kind, event.site, event.value, event.text)
        self._events.append(row)
        if len(self._events) > self._most_waiting:
            del self._events[0]

    def set_facts(self, **facts: Any) -> None:
        """Change run facts (status, reason, device …) at once."""
        self._facts.update(facts)
        self.flush()

    def flush(self) -> None:
        """Commit everything that waits."""
        if self._is_forked():
            return
        self._collect()
        if not (self._rows or self._events or self._facts):
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(_INSERT_FRAME, self._rows)
            self._db.executemany(_INSERT_READING, self._readings)
            self._db.executemany(_UPSERT_BUCKET, self._buckets.values())
            self._db.executemany(_INSERT_EVENT, self._events + self._note_of_lost_frames())
            write_facts(self._db, {**self._facts, **self._counts()})
            self._delete()
            self._db.execute("COMMIT")
        except BaseException as error:
            # Also after a key press or a signal: what is left open here would be in the way of every later commit.
            with contextlib.suppress(sqlite3.Error):
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            if not isinstance(error, sqlite3.Error):
                raise
            self._last_error = str(error)
            self._interval = min(2 * self._interval, MOST_SECONDS_BETWEEN_ATTEMPTS)
            raise RunError(f"{self.path} cannot be written: {error}") from error
        finally:
            self._committed = self._clock()
        self._recorded += len(self._rows)
        self._interval = COMMIT_SECONDS
        self._rows, self._events, self._facts, self._lost = [], [], {}, []
        self._readings = []
        self._buckets.clear()
        self._dropped.clear()

    def _collect(self) -> None:
        """Turn the frames that wait into rows; discard the oldest where too many cannot be written."""
        frames, self._frames = self._frames, []
        # Folding is not repeated after a failed commit: the changed buckets wait beside the frame rows.
        for bucket in self._pyramid.fold(frames):
            # A level is read only by windows of many buckets: its first one is needed when it is full.
            if bucket.index or bucket.full:
                self._buckets[bucket.level, bucket.index] = bucket.row()
        self._rows += map(_frame_row, frames)
        if self._thinner is not None and frames:
            for frame in frames:
                self._thinner.add(frame.step)
            for level, (start, stop) in self._thinner.drop():
                self._dropped[level] = self._dropped.get(level, (start, stop))[0], stop
        if self._is_failing:
            self._discard_excess()

    def _discard_excess(self) -> None:
        excess = len(self._rows) - self._most_waiting
        if excess > 0:
            lost = [row[0] for row in self._rows[:excess]]
            earlier = self._lost or [lost[0], lost[0], 0]
            self._lost = [earlier[0], lost[-1], earlier[2] + excess]
            del self._rows[:excess]
        for key in list(self._buckets)[: max(0, len(self._buckets) - self._most_waiting)]:
            del self._buckets[key]

    def _counts(self) -> dict[str, Any]:
        """Facts: how many frames there have been, and the gap of each level, for those that have changed."""
        counts: dict[str, Any] = {}
        if self._rows:
            counts["recorded"] = self._recorded + len(self._rows)
        if self._thinner is not None and self._dropped:
            counts["gaps"] = self._thinner.gaps
        return counts

    def _note_of_lost_frames(self) -> list[tuple[Any, ...]]:
        if not self._lost:
            return []
        first, last, count = self._lost
        text = (
            f"steps {first} to {last}: {count} frames are missing, they could not be written ({self._last_error})"
        )
        return [(last, time.time(), "note", None, None, text)]

    def _delete(self) -> None:
        for level, (start, stop) in self._dropped.items():
            if level == 0:
                self._db.execute(_DELETE_FRAMES, (start, stop))
                self._db.execute(_DELETE_READINGS, (start, stop))
            else:
                factor = PYRAMID_FACTOR**level
                self._db.execute(_DELETE_BUCKETS, (level, start // factor, stop // factor))

    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    def close(self, status: str | None = None, reason: str = "") -> None:
        """Commit, note the final `status` and its `reason`, and close; calling it twice does nothing."""
        if self._closed or self._is_forked():
            return
        if status is not None:
            self._facts.update(status=status, reason=reason, ended=time.time())
        try:
            self.flush()
        finally:
            self._closed = True
            self._db.close()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close("done")
        else:
            self.close("failed", f"{type(error).__name__}: {error}")


def _frame_row(frame: Frame) -> tuple[Any, ...]:
    flags = FLAG_LOSS_NAN if frame.loss is not None and np.isnan(frame.loss) else 0
    data = np.ascontiguousarray(frame.values, dtype=np.float32).tobytes()
    return frame.step, frame.wall, frame.seconds, frame.loss, frame.lr, flags, data


def mark_ended(path: Path, status: str, reason: str) -> None:
    """Record how a run ended whose writer no longer runs; raises RunError."""
    try:
        db = sqlite3.connect(address(path, "mode=rw"), uri=True, isolation_level=None)
        with contextlib.closing(db):
            write_facts(db, {"status": status, "reason": reason, "ended": time.time()})
    except sqlite3.Error as error:
        raise RunError(f"{path} cannot be written: {error}") from error
