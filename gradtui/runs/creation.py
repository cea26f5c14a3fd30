"""Making a run file: whole under another name, then renamed, so that no reader finds it half-made."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradtui.runs import RunError
from gradtui.runs.process import is_alive
from gradtui.runs.schema import APPLICATION_ID, SCHEMA_VERSION, TABLES, Site

LOG_BYTES = 4 << 20  # of SQLite's write-ahead log before it is moved into the file
DRAFT_SECONDS = 60  # a draft is made within moments; an older one was left behind

_BESIDE = ("-journal", "-wal", "-shm")  # what SQLite keeps beside a file
_DRAFT = re.compile(r"\..+\.(\d+)\.new(?:-journal|-wal|-shm)?")
_UPSERT_FACT = "INSERT OR REPLACE INTO facts VALUES (?, ?)"


def create(
    path: Path, sites: Sequence[Site], facts: Mapping[str, Any], *, frame_bytes: int, lock_seconds: float
) -> sqlite3.Connection:
    """Make the run file `path` with its sites and facts; returns the connection that writes it.

    `frame_bytes` is the size of a frame's values, `lock_seconds` how many seconds a commit waits for a lock.
    Raises RunError if the file exists or cannot be written.
    """
    if path.exists():
        raise RunError(f"{path} already exists; name another file or remove it first")
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_old_drafts(path.parent)
        page = _page_size(frame_bytes)
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as db:
            db.execute(f"PRAGMA page_size = {page}")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            db.executescript(f"BEGIN;{TABLES}COMMIT;")
            rows = [(index, s.name, s.layer, s.kind, s.stream, s.stack) for index, s in enumerate(sites)]
            db.execute("BEGIN")  # one commit: each waits for the disk
            db.executemany("INSERT INTO sites VALUES (?, ?, ?, ?, ?, ?)", rows)
            write_facts(db, facts)
            db.execute("COMMIT")
            db.execute("PRAGMA journal_mode = WAL")
        _move_without_overwriting(draft, path)
        db = sqlite3.connect(path, isolation_level=None, timeout=lock_seconds, check_same_thread=False)
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {LOG_BYTES // page}")
    except OSError as error:
        raise RunError(f"{path} cannot be created: {error.strerror}") from error
    except sqlite3.Error as error:
        raise RunError(f"{path} cannot be written: {error}") from error
    finally:
        _remove(draft, *(_beside(draft, suffix) for suffix in _BESIDE))
    return db


def write_facts(db: sqlite3.Connection, facts: Mapping[str, Any]) -> None:
    """Insert or replace facts, as JSON; what JSON does not know becomes text."""
    db.executemany(_UPSERT_FACT, [(key, json.dumps(value, default=str)) for key, value in facts.items()])


def _page_size(frame_bytes: int) -> int:
    """Pages of several frames each: neither room nor time is lost where a row does not fit into one."""
    size = 4096
    while size < 4 * frame_bytes and size < 32768:
        size *= 2
    return size


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _remove(*paths: Path) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def _remove_old_drafts(directory: Path) -> None:
    """Remove the drafts of processes that were killed while they made a run file."""
    now = time.time()
    for path in directory.glob(".*.new*"):
        match = _DRAFT.fullmatch(path.name)
        if match is None or is_alive(int(match[1])):
            continue
        with contextlib.suppress(OSError):
            # The process may be one of another host.
            if now - path.stat().st_mtime > DRAFT_SECONDS:
                path.unlink()


def _move_without_overwriting(draft: Path, path: Path) -> None:
    """Raises FileExistsError if another process has made `path` in the meantime."""
    # The log of an earlier file of this name, which was removed without it, would be taken for this one's.
    strays = [stray for stray in (_beside(path, suffix) for suffix in _BESIDE) if stray.exists()]
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        draft.rename(path)
    _remove(*strays)
