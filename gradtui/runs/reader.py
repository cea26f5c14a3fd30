"""Reads a run file, live or finished, without ever holding its writer up."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from gradtui.runs import RunError
from gradtui.runs.schema import (
    ABSENT,
    APPLICATION_ID,
    FLAG_LOSS_NAN,
    PYRAMID_FACTOR,
    PYRAMID_LEVELS,
    SCHEMA_VERSION,
    Event,
    Flags,
    Floats,
    Frame,
    Site,
)


@dataclass(frozen=True, slots=True)
class Window:
    """One metric over some steps, each row a step or a bucket of steps.

    `steps` [rows] is each row's first step; `low`, `mean`, `high` [rows, sites] are over the finite values
    (NaN where there was none); `nonfinite` [rows, sites] says whether any value was NaN or infinite.
    A NaN that is not `nonfinite` is a value that does not exist (a site without parameters).
    """

    steps: NDArray[np.int64]
    low: Floats
    mean: Floats
    high: Floats
    nonfinite: Flags


@dataclass(frozen=True, slots=True)
class LossWindow:
    """Loss over some steps, in nats; arrays are [rows], as in `Window`; `lr` is each row's last."""

    steps: NDArray[np.int64]
    low: NDArray[np.float64]
    mean: NDArray[np.float64]
    high: NDArray[np.float64]
    lr: NDArray[np.float64]
    nonfinite: Flags


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One step, all metrics: `values` [metrics, sites] with NaN where absent; `nonfinite` marks trouble."""

    frame: Frame
    values: Floats
    nonfinite: Flags


class RunReader:
    """Reads `path`; raises RunError, in one sentence, if it is not a run file this version understands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = _connect(path)
        self._version = -1
        self._facts: dict[str, Any] = {}
        self.first_step = self.last_step = -1
        try:
            self.refresh()
            if not self.sites or not self.metrics:
                raise RunError(f"{path} has no measured sites, or no metrics: it is damaged")
        except RunError:
            self._db.close()
            raise

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """The measured sites, in forward order."""
        stack = "stack" if self._query("PRAGMA user_version")[0][0] >= 2 else "''"
        rows = self._query(f"SELECT name, layer, kind, stream, {stack} FROM sites ORDER BY id")
        return tuple(Site(*row) for row in rows)

    @cached_property
    def stream_sites(self) -> tuple[int, ...]:
        """Index of the site that each stream point x_0 … x_L leaves."""
        points = [(s.stream, index) for index, s in enumerate(self.sites) if s.stream is not None]
        return tuple(index for _, index in sorted(points))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of this file, in the order of its frames."""
        metrics = self.facts.get("metrics")
        if not isinstance(metrics, list) or not all(isinstance(name, str) for name in metrics):
            raise RunError(f"{self.path} is damaged: it does not say what it has measured")
        return tuple(metrics)

    @property
    def facts(self) -> dict[str, Any]:
        """Run facts as of the last `refresh`."""
        return self._facts

    def refresh(self) -> bool:
        """Look for news; True if the file changed since the last call."""
        version = self._query("PRAGMA data_version")[0][0]
        if version == self._version:
            return False
        self._version = version
        try:
            self._facts = {key: json.loads(value) for key, value in self._query("SELECT key, value FROM facts")}
        except ValueError as error:
            raise RunError(f"{self.path} is damaged: its facts are not JSON: {error}") from error
        first, last = self._query("SELECT min(step), max(step) FROM frames")[0]
        self.first_step, self.last_step = (-1, -1) if last is None else (first, last)
        return True

    @property
    def status(self) -> str:
        """running, paused, done, diverged, failed, or died: the writer's process is gone without a word."""
        status = str(self.facts.get("status", "running"))
        alive = status in ("running", "paused") and self.facts.get("host") == socket.gethostname()
        pid = self.facts.get("pid")
        if alive and isinstance(pid, int) and not _is_alive(pid):
            return "died"
        return status

    def frame(self, step: int) -> Snapshot | None:
        """The frame at `step`, or None if there is none."""
        query = "SELECT step, wall, seconds, loss, lr, flags, data FROM frames WHERE step = ?"
        rows = self._query(query, step)
        if not rows:
            return None
        step, wall, seconds, loss, lr, flags, data = rows[0]
        if len(data) != 4 * len(self.metrics) * len(self.sites):
            raise RunError(f"{self.path} is damaged: step {step} has {len(data)} bytes of values")
        raw = np.frombuffer(data, np.float32).reshape(len(self.metrics), len(self.sites))
        frame = Frame(step, wall, seconds, np.nan if flags & FLAG_LOSS_NAN else loss, lr, raw)
        return Snapshot(frame, _without_absent(raw), ~np.isfinite(raw))

    def nearest_step(self, step: int) -> int:
        """The last recorded step at or before `step`, else the first one."""
        found = self._query("SELECT max(step) FROM frames WHERE step <= ?", step)[0][0]
        return self.first_step if found is None else int(found)

    def window(self, metric: str, start: int, stop: int, columns: int) -> Window:
        """`metric` at steps start ≤ s < stop, in at least `columns` rows where the run is long enough."""
        sites = len(self.sites)
        offset = 1 + 4 * sites * self.metrics.index(metric)
        level = _level(stop - start, columns)
        if level == 0:
            query = "SELECT step, substr(data, ?, ?) FROM frames WHERE step >= ? AND step < ? ORDER BY step"
            rows = self._query(query, offset, 4 * sites, start, stop)
            raw = self._floats([row[1] for row in rows], sites)
            values = _without_absent(np.where(np.isfinite(raw), raw, np.float32(np.nan)))
            return Window(_steps(rows, 1), values, values, values, ~np.isfinite(raw))
        factor = PYRAMID_FACTOR**level
        query = (
            "SELECT bucket, substr(low, ?1, ?2), substr(mean, ?1, ?2), substr(high, ?1, ?2),"
            " substr(nonfinite, ?3, ?4) FROM pyramid"
            " WHERE level = ?5 AND bucket >= ?6 AND bucket * ?7 < ?8 ORDER BY bucket"
        )
        first = 1 + sites * self.metrics.index(metric)
        rows = self._query(query, offset, 4 * sites, first, sites, level, start // factor, factor, stop)
        low, mean, high = (_without_absent(self._floats([row[i] for row in rows], sites)) for i in (1, 2, 3))
        nonfinite = np.frombuffer(b"".join(row[4] for row in rows), np.uint8).reshape(-1, sites) > 0
        return Window(_steps(rows, factor), low, mean, high, nonfinite)

    def loss_window(self, start: int, stop: int, columns: int) -> LossWindow:
        """Loss and learning rate at steps start ≤ s < stop, as `window` does for metrics."""
        level = _level(stop - start, columns)
        factor = PYRAMID_FACTOR**level
        if level == 0:
            query = (
                "SELECT step, loss, loss, loss, lr, flags & 1 FROM frames"
                " WHERE step >= ? AND step < ? ORDER BY step"
            )
            rows = self._query(query, start, stop)
        else:
            query = (
                "SELECT bucket, loss_min, loss_mean, loss_max, lr, loss_nonfinite FROM pyramid"
                " WHERE level = ? AND bucket >= ? AND bucket * ? < ? ORDER BY bucket"
            )
            rows = self._query(query, level, start // factor, factor, stop)
        table = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 5)
        finite = np.isfinite(table[:, :3])
        numbers = np.where(finite, table[:, :3], np.nan)
        nonfinite = (table[:, 4] > 0) | np.isinf(table[:, :3]).any(axis=1)
        low, mean, high = numbers.T
        return LossWindow(_steps(rows, factor), low, mean, high, table[:, 3], nonfinite)

    def metric(self, name: str) -> Floats:
        """Every recorded value of a metric, [steps, sites]; NaN where absent, non-finite values kept."""
        sites = len(self.sites)
        offset = 1 + 4 * sites * self.metrics.index(name)
        rows = self._query("SELECT substr(data, ?, ?) FROM frames ORDER BY step", offset, 4 * sites)
        return _without_absent(self._floats([row[0] for row in rows], sites))

    def losses(self) -> NDArray[np.float64]:
        """Every recorded loss in nats, [steps]; NaN also where none was given."""
        return np.array([row[0] for row in self._query("SELECT loss FROM frames ORDER BY step")], np.float64)

    def events(self) -> list[Event]:
        """All events, oldest first."""
        rows = self._query("SELECT step, kind, site, value, text FROM events ORDER BY id")
        return [Event(*row) for row in rows]

    def seconds_per_step(self, last: int = 20) -> float:
        """Median duration of the last steps, in seconds; NaN before the first."""
        rows = self._query("SELECT seconds FROM frames ORDER BY step DESC LIMIT ?", last)
        return float(np.median([row[0] for row in rows])) if rows else float("nan")

    def close(self) -> None:
        """Close the file; nothing can be read afterwards."""
        self._db.close()

    def _floats(self, blobs: list[bytes], sites: int) -> Floats:
        joined = b"".join(blobs)
        if len(joined) != 4 * sites * len(blobs):
            raise RunError(f"{self.path} is damaged: some steps have too few values")
        return np.frombuffer(joined, np.float32).reshape(-1, sites)

    def _query(self, sql: str, *parameters: object) -> list[Any]:
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise RunError(f"{self.path} cannot be read: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise RunError(f"{path} is not there, or is not a file")
    try:
        readable = path.open("rb")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    with readable:
        magic = readable.read(16)
    if magic != b"SQLite format 3\0":
        raise RunError(f"{path} is not a gradtui run file (or was cut off at its very beginning)")
    problem: sqlite3.Error | None = None
    # A writable connection lets SQLite tidy the log away when the last one closes; a read-only directory
    # allows only the later ways.
    for mode in ("mode=rw", "mode=ro", "immutable=1"):
        db = None
        try:
            db = sqlite3.connect(
                f"file:{quote(str(path.absolute()))}?{mode}",
                uri=True,
                isolation_level=None,
                timeout=2,
                check_same_thread=False,
            )
            db.execute("PRAGMA query_only = 1")
            application = db.execute("PRAGMA application_id").fetchone()[0]
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if application == APPLICATION_ID and version <= SCHEMA_VERSION:
                db.execute("SELECT count(*) FROM facts, sites").fetchone()
        except sqlite3.Error as error:
            problem = error
            if db is not None:
                db.close()
            continue
        if application != APPLICATION_ID:
            db.close()
            raise RunError(f"{path} is an SQLite file, but not a gradtui run file")
        if version > SCHEMA_VERSION:
            db.close()
            raise RunError(
                f"{path} was written by a newer gradtui (run file version {version}, this one reads up to "
                f"{SCHEMA_VERSION}); upgrade gradtui to open it"
            )
        return db
    raise RunError(f"{path} is damaged or cut off: {problem}")


def _level(steps: int, columns: int) -> int:
    level = 0
    while level < PYRAMID_LEVELS and steps > PYRAMID_FACTOR ** (level + 1) * max(columns, 1):
        level += 1
    return level


def _steps(rows: list[Any], factor: int) -> NDArray[np.int64]:
    return np.array([row[0] for row in rows], np.int64) * factor


def _without_absent(values: Floats) -> Floats:
    return np.where(values == ABSENT, np.float32(np.nan), values)


def _is_alive(pid: int) -> bool:
    if os.name != "posix":
        return True  # elsewhere signal 0 is not a question
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
