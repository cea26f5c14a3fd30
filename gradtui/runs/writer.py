"""The one writer of a run file. Frames wait in memory for at most a quarter of a second."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import numpy as np

from gradtui.runs import RunError
from gradtui.runs.pyramid import Pyramid
from gradtui.runs.schema import (
    APPLICATION_ID,
    FLAG_LOSS_NAN,
    METRICS,
    SCHEMA_VERSION,
    TABLES,
    Event,
    Frame,
    Site,
)

COMMIT_SECONDS = 0.25

_INSERT_FRAME = "INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_EVENT = "INSERT INTO events (step, wall, kind, site, value, text) VALUES (?, ?, ?, ?, ?, ?)"
_UPSERT_BUCKET = "INSERT OR REPLACE INTO pyramid VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPSERT_FACT = "INSERT OR REPLACE INTO facts VALUES (?, ?)"


class RunWriter:
    """Creates `path` and appends to it; raises RunError if it exists or cannot be written.

    A failed commit (a full disk) raises RunError and keeps what it could not write; the next `flush` tries
    again. Everything committed survives a crash of the process.
    """

    def __init__(
        self,
        path: Path,
        sites: Sequence[Site],
        facts: Mapping[str, Any],
        *,
        metrics: Sequence[str] = METRICS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._clock = clock
        self._closed = False
        self._frames: list[Frame] = []
        self._rows: list[tuple[object, ...]] = []
        self._events: list[tuple[Any, ...]] = []
        self._facts: dict[str, Any] = {
            "status": "running",
            "started": time.time(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "metrics": list(metrics),
            **facts,
        }
        self._buckets: dict[tuple[int, int], tuple[object, ...]] = {}
        self._pyramid = Pyramid()
        self._committed = -np.inf
        self._db = self._create(sites)
        self.flush()

    def _create(self, sites: Sequence[Site]) -> sqlite3.Connection:
        if self.path.exists():
            raise RunError(f"{self.path} already exists; name another file or remove it first")
        # Made under another name and then renamed: a reader never meets a half-made file.
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as db:
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                db.executescript(f"BEGIN;{TABLES}COMMIT;")
                rows = [(index, s.name, s.layer, s.kind, s.stream, s.stack) for index, s in enumerate(sites)]
                db.executemany("INSERT INTO sites VALUES (?, ?, ?, ?, ?, ?)", rows)
                self._write_facts(db)
                db.execute("PRAGMA journal_mode = WAL")
            _move_without_overwriting(draft, self.path)
            db = sqlite3.connect(self.path, isolation_level=None, timeout=5, check_same_thread=False)
            db.execute("PRAGMA synchronous = NORMAL")
        except OSError as error:
            raise RunError(f"{self.path} cannot be created: {error.strerror}") from error
        except sqlite3.Error as error:
            raise RunError(f"{self.path} cannot be written: {error}") from error
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
        return db

    def _write_facts(self, db: sqlite3.Connection) -> None:
        db.executemany(_UPSERT_FACT, [(key, json.dumps(value)) for key, value in self._facts.items()])

    def append(self, frame: Frame) -> None:
        """Record one step; steps must increase. Commits if the last commit is long enough ago."""
        self._frames.append(frame)
        if self._clock() - self._committed >= COMMIT_SECONDS:
            self.flush()

    def event(self, event: Event) -> None:
        """Record an event; it is committed together with the next frames."""
        row = (event.step, time.time(), event.kind, event.site, event.value, event.text)
        self._events.append(row)

    def set_facts(self, **facts: Any) -> None:
        """Change run facts (status, reason, device …) at once."""
        self._facts.update(facts)
        self.flush()

    def flush(self) -> None:
        """Commit everything that waits."""
        frames, self._frames = self._frames, []
        # Folding is not repeated after a failed commit: the changed buckets wait beside the frame rows.
        for bucket in self._pyramid.fold(frames):
            # A level is read only by windows of many buckets: its first one is needed when it is full.
            if bucket.index or bucket.full:
                self._buckets[bucket.level, bucket.index] = bucket.row()
        self._rows += map(_frame_row, frames)
        if not (self._rows or self._events or self._facts):
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(_INSERT_FRAME, self._rows)
            self._db.executemany(_UPSERT_BUCKET, self._buckets.values())
            self._db.executemany(_INSERT_EVENT, self._events)
            self._write_facts(self._db)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise RunError(f"{self.path} cannot be written: {error}") from error
        finally:
            self._committed = self._clock()
        self._rows, self._events, self._facts = [], [], {}
        self._buckets.clear()

    def close(self, status: str | None = None, reason: str = "") -> None:
        """Commit, note the final `status` and its `reason`, and close; calling it twice does nothing."""
        if self._closed:
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


def _move_without_overwriting(draft: Path, path: Path) -> None:
    """Raises FileExistsError if somebody else has made `path` in the meantime."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        draft.rename(path)


def _frame_row(frame: Frame) -> tuple[object, ...]:
    flags = FLAG_LOSS_NAN if frame.loss is not None and np.isnan(frame.loss) else 0
    data = np.ascontiguousarray(frame.values, dtype=np.float32).tobytes()
    return frame.step, frame.wall, frame.seconds, frame.loss, frame.lr, flags, data


def mark_ended(path: Path, status: str, reason: str) -> None:
    """Note how a run ended whose writer can no longer say so; raises RunError."""
    try:
        db = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=rw", uri=True, isolation_level=None)
        facts = {"status": status, "reason": reason, "ended": time.time()}
        rows = [(key, json.dumps(value)) for key, value in facts.items()]
        with contextlib.closing(db):
            db.executemany(_UPSERT_FACT, rows)
    except sqlite3.Error as error:
        raise RunError(f"{path} cannot be written: {error}") from error
