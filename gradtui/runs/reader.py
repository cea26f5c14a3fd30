"""Reads a run file, live or finished, without ever holding its writer up."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gradtui.runs import RunError
from gradtui.runs.connection import connect
from gradtui.runs.process import is_alive
from gradtui.runs.schema import ABSENT, FLAG_LOSS_NAN, PYRAMID_FACTOR, Event, Floats, Frame, Site, stream_points
from gradtui.runs.shapes import Block, LossWindow, Snapshot, Window
from gradtui.runs.thinning import Gap, Piece, level_of, plan

BLOCK_BYTES = 4 << 20
END = 1 << 62  # after every step


T = TypeVar("T")
P = ParamSpec("P")


def _reports_damage(method: Callable[P, T]) -> Callable[P, T]:
    """A method of RunReader that raises RunError for what a damaged file has in place of numbers and texts."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except (TypeError, ValueError, OverflowError, LookupError) as error:  # msgspec's, too, is a ValueError
            path = args[0].path  # type: ignore[attr-defined]
            raise RunError(f"{path} is damaged: {type(error).__name__}: {error}") from error

    return guarded


class RunReader:
    """Reads `path`; raises RunError, in one sentence, if it is not a run file this version understands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect(path)
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
    @_reports_damage
    def sites(self) -> tuple[Site, ...]:
        """The measured sites, in forward order."""
        stack = "stack" if self._query("PRAGMA user_version")[0][0] >= 2 else "''"
        rows = self._query(f"SELECT name, layer, kind, stream, {stack} FROM sites ORDER BY id")
        return tuple(msgspec.convert(dict(zip(Site.__struct_fields__, row, strict=True)), Site) for row in rows)

    @cached_property
    @_reports_damage
    def stream_sites(self) -> tuple[int, ...]:
        """Index of the site that each stream point x_0 … x_L leaves."""
        return stream_points(self.sites)

    @cached_property
    @_reports_damage
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

    @_reports_damage
    def refresh(self) -> bool:
        """Read what has changed in the file; True if anything has since the last call."""
        version = self._query("PRAGMA data_version")[0][0]
        if version == self._version:
            return False
        self._version = version
        try:
            self._facts = {key: json.loads(value) for key, value in self._query("SELECT key, value FROM facts")}
        except ValueError as error:
            raise RunError(f"{self.path} is damaged: its facts are not JSON: {error}") from error
        # Each by itself is one look into the index; both in one SELECT would read every frame.
        first, last = self._query("SELECT (SELECT min(step) FROM frames), (SELECT max(step) FROM frames)")[0]
        self.first_step, self.last_step = (-1, -1) if last is None else (first, last)
        return True

    @property
    def status(self) -> str:
        """running, paused, done, diverged, stopped, failed, or died: the writer ended without saying how."""
        status = str(self.facts.get("status", "running"))
        alive = status in ("running", "paused") and self.facts.get("host") == socket.gethostname()
        pid = self.facts.get("pid")
        if alive and isinstance(pid, int) and not is_alive(pid):
            return "died"
        return status

    @property
    def recorded(self) -> int:
        """How many steps were recorded, also those of which only a summary is left."""
        count = self.facts.get("recorded")
        return count if isinstance(count, int) else int(self._query("SELECT count(*) FROM frames")[0][0])

    @property
    def thinned(self) -> Gap | None:
        """(start, stop): of steps start ≤ s < stop only minimum, mean and maximum of many steps are left."""
        gaps = self._gaps
        return gaps[0] if gaps else None

    @property
    def _gaps(self) -> list[Gap]:
        gaps = self.facts.get("gaps", [])
        try:
            return [(int(start), int(stop)) for start, stop in gaps]
        except (TypeError, ValueError) as error:
            raise RunError(f"{self.path} is damaged: it does not say which steps it has kept") from error

    @_reports_damage
    def frame(self, step: int) -> Snapshot | None:
        """The frame at `step`, or None if there is none (any more)."""
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

    @_reports_damage
    def nearest_step(self, step: int) -> int:
        """The last step at or before `step` that has a frame, else the first one."""
        found = self._query("SELECT max(step) FROM frames WHERE step <= ?", step)[0][0]
        return self.first_step if found is None else int(found)

    def window(self, metric: str, start: int, stop: int, columns: int) -> Window:
        """`metric` at steps start ≤ s < stop, in at least `columns` rows where the run is long enough.

        Steps whose frames are gone come in as fine buckets as there are. A row may begin before `start`.
        """
        row, sites = self._row(metric), len(self.sites)
        parts = [
            self._frame_rows(row, *piece) if level == 0 else self._bucket_rows(row, level, *piece)
            for level, *piece in self._plan(start, stop, columns)
        ]
        if len(parts) == 1:
            return parts[0]
        none: Floats = np.empty((0, sites), np.float32)
        parts = parts or [Window(np.empty(0, np.int64), none, none, none, none > 0)]
        names = ("steps", "low", "mean", "high", "nonfinite")
        return Window(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @_reports_damage
    def _frame_rows(self, row: int, start: int, stop: int) -> Window:
        sites = len(self.sites)
        query = "SELECT step, substr(data, ?, ?) FROM frames WHERE step >= ? AND step < ? ORDER BY step"
        rows = self._query(query, 1 + 4 * sites * row, 4 * sites, start, stop)
        raw = self._floats([row[1] for row in rows], sites)
        finite = np.isfinite(raw)
        values = np.where(finite & (raw != ABSENT), raw, np.float32(np.nan))
        return Window(_steps(rows, 1), values, values, values, ~finite)

    @_reports_damage
    def _bucket_rows(self, row: int, level: int, start: int, stop: int) -> Window:
        sites, factor = len(self.sites), PYRAMID_FACTOR**level
        query = (
            "SELECT bucket, substr(low, ?1, ?2), substr(mean, ?1, ?2), substr(high, ?1, ?2),"
            " substr(nonfinite, ?3, ?4) FROM pyramid"
            " WHERE level = ?5 AND bucket >= ?6 AND bucket * ?7 < ?8 ORDER BY bucket"
        )
        slices = (1 + 4 * sites * row, 4 * sites, 1 + sites * row, sites)
        rows = self._query(query, *slices, level, start // factor, factor, stop)
        low, mean, high = (_without_absent(self._floats([row[i] for row in rows], sites)) for i in (1, 2, 3))
        flags = b"".join(row[4] for row in rows)
        if len(flags) != sites * len(rows):
            raise RunError(f"{self.path} is damaged: some steps have too few values")
        nonfinite = np.frombuffer(flags, np.uint8).reshape(-1, sites) > 0
        return Window(_steps(rows, factor), low, mean, high, nonfinite)

    @_reports_damage
    def loss_window(self, start: int, stop: int, columns: int) -> LossWindow:
        """Loss and learning rate at steps start ≤ s < stop, as `window` does for metrics."""
        rows: list[Any] = []
        for level, begin, end in self._plan(start, stop, columns):
            if level == 0:
                query = (
                    "SELECT step, loss, loss, loss, lr, flags & 1 FROM frames"
                    " WHERE step >= ? AND step < ? ORDER BY step"
                )
                rows += self._query(query, begin, end)
            else:
                query = (
                    "SELECT bucket * ?1, loss_min, loss_mean, loss_max, lr, loss_nonfinite FROM pyramid"
                    " WHERE level = ?2 AND bucket >= ?3 AND bucket * ?1 < ?4 ORDER BY bucket"
                )
                factor = PYRAMID_FACTOR**level
                rows += self._query(query, factor, level, begin // factor, end)
        table = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 5)
        finite = np.isfinite(table[:, :3])
        numbers = np.where(finite, table[:, :3], np.nan)
        nonfinite = (table[:, 4] > 0) | np.isinf(table[:, :3]).any(axis=1)
        low, mean, high = numbers.T
        return LossWindow(_steps(rows, 1), low, mean, high, table[:, 3], nonfinite)

    def _plan(self, start: int, stop: int, columns: int) -> list[Piece]:
        # What lies outside the run would ask for coarser buckets than there are.
        recorded = min(stop, self.last_step + 1) - max(start, self.first_step)
        return plan(start, stop, level_of(recorded, columns), self._gaps)

    def blocks(self, metrics: Sequence[str] = (), start: int = 0, stop: int = END) -> Iterator[Block]:
        """Every frame at steps start ≤ s < stop, some at a time; all metrics, or those named, in that order."""
        sites = len(self.sites)
        rows = [self._row(name) for name in metrics or self.metrics]
        limit = max(1, BLOCK_BYTES // (4 * sites * len(rows)))
        columns = "".join(f", substr(data, {1 + 4 * sites * row}, {4 * sites})" for row in rows)
        if rows == list(range(len(self.metrics))):
            columns = ", data"
        query = (
            f"SELECT step, loss, lr, flags{columns} FROM frames WHERE step >= ? AND step < ? ORDER BY step LIMIT ?"
        )
        while found := self._query(query, start, stop, limit):
            start = found[-1][0] + 1
            yield self._block(found, len(rows))

    @_reports_damage
    def _block(self, found: list[Any], metrics: int) -> Block:
        sites = len(self.sites)
        loss = np.array([row[1] for row in found], np.float64)
        bad = np.array([row[3] & FLAG_LOSS_NAN for row in found], np.bool_)
        lr = np.array([row[2] for row in found], np.float64)
        values = self._floats([b"".join(row[4:]) for row in found], sites * metrics)
        return Block(_steps(found, 1), loss, ~np.isnan(loss) | bad, lr, values.reshape(-1, metrics, sites))

    @_reports_damage
    def steps(self) -> NDArray[np.int64]:
        """The steps that have a frame, to which `metric` and `losses` belong."""
        return _steps(self._query("SELECT step FROM frames ORDER BY step"), 1)

    @_reports_damage
    def columns(self, stop: int = END) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Step, loss (NaN also where none was given) and learning rate of every frame before step `stop`."""
        rows = self._query("SELECT step, loss, lr FROM frames WHERE step < ? ORDER BY step", stop)
        loss, lr = (np.array([row[i] for row in rows], np.float64) for i in (1, 2))
        return _steps(rows, 1), loss, lr

    def metric(self, name: str) -> Floats:
        """A metric in every frame, [steps, sites]; NaN where absent, non-finite values kept."""
        sites = len(self.sites)
        offset = 1 + 4 * sites * self._row(name)
        rows = self._query("SELECT substr(data, ?, ?) FROM frames ORDER BY step", offset, 4 * sites)
        return _without_absent(self._floats([row[0] for row in rows], sites))

    @_reports_damage
    def losses(self) -> NDArray[np.float64]:
        """The loss of every frame in nats, [steps]; NaN also where none was given."""
        return np.array([row[0] for row in self._query("SELECT loss FROM frames ORDER BY step")], np.float64)

    @property
    def reading_names(self) -> tuple[str, ...]:
        """The readings that some sites have, beside the metrics."""
        return tuple(self._layouts())

    @_reports_damage
    def readings(self, name: str, step: int) -> tuple[int, dict[int, Floats]] | None:
        """The last readings called `name` at or before `step`: their step, and a vector by site's index."""
        layout = self._layouts().get(name)
        if layout is None:
            return None
        query = "SELECT step, data FROM readings WHERE step <= ? AND name = ? ORDER BY step DESC LIMIT 1"
        rows = self._query(query, step, name)
        if not rows:
            return None
        numbers = np.frombuffer(rows[0][1], np.float32)
        if len(numbers) != sum(length for _, length in layout):
            raise RunError(f"{self.path} is damaged: the readings {name!r} of step {rows[0][0]} are cut off")
        ends = np.cumsum([length for _, length in layout])
        parts = np.split(numbers, ends[:-1])
        return int(rows[0][0]), {site: part for (site, _), part in zip(layout, parts, strict=True)}

    def _layouts(self) -> dict[str, list[tuple[int, int]]]:
        found = self.facts.get("readings")
        if not isinstance(found, dict):
            return {}
        return {str(name): [(int(site), int(length)) for site, length in layout] for name, layout in found.items()}

    @_reports_damage
    def events(self) -> list[Event]:
        """All events, oldest first."""
        rows = self._query("SELECT step, kind, site, value, text FROM events ORDER BY id")
        return [Event(*row) for row in rows]

    @_reports_damage
    def seconds_per_step(self, last: int = 20) -> float:
        """Median duration of the last steps, in seconds; NaN before the first."""
        rows = self._query("SELECT seconds FROM frames ORDER BY step DESC LIMIT ?", last)
        return float(np.median([row[0] for row in rows])) if rows else float("nan")

    def close(self) -> None:
        """Close the file; nothing can be read afterwards."""
        self._db.close()

    def _row(self, metric: str) -> int:
        if metric not in self.metrics:
            raise RunError(f"{self.path} has no metric {metric!r}; it has: {', '.join(self.metrics)}")
        return self.metrics.index(metric)

    def _floats(self, blobs: list[bytes], sites: int) -> Floats:
        joined = b"".join(blobs)
        if len(joined) != 4 * sites * len(blobs):
            raise RunError(f"{self.path} is damaged: some steps have too few values")
        return np.frombuffer(joined, np.float32).reshape(-1, sites)

    def _query(self, sql: str, *parameters: object) -> list[Any]:
        try:
            return self._db.execute(sql, parameters).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise RunError(f"{self.path} cannot be read: {error}") from error


def _steps(rows: list[Any], factor: int) -> NDArray[np.int64]:
    return np.array([row[0] for row in rows], np.int64) * factor


def _without_absent(values: Floats) -> Floats:
    return np.where(values == ABSENT, np.float32(np.nan), values)
