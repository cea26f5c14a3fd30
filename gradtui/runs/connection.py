"""Opening a run file for reading, whatever its directory allows."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from gradtui.runs import RunError
from gradtui.runs.schema import APPLICATION_ID, SCHEMA_VERSION

CACHE_BYTES = 16 << 20  # what one window of a hundred sites needs
LOCK_SECONDS = 2.0  # how long a query waits for a writer that holds the file
MAGIC = b"SQLite format 3\0"
# A writable connection lets SQLite remove the log when the last one closes; a read-only directory allows only the
# later modes.
MODES = ("mode=rw", "mode=ro", "immutable=1")


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the run file `path` that only reads.

    Raises RunError, in one sentence, if it is not a run file that this version understands.
    """
    if not path.is_file():
        raise RunError(f"{path} is not there, or is not a file")
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    if magic != MAGIC:
        raise RunError(f"{path} is not a gradtui run file (or was cut off at its very beginning)")
    problem: Exception | None = None
    for mode in MODES:
        try:
            return _connect(path, mode)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            problem = error
    raise RunError(f"{path} is damaged or cut off: {problem}")


def address(path: Path, mode: str) -> str:
    """The file as SQLite's `uri=True` names it; `mode` is one of MODES."""
    return f"file:{quote(os.fsencode(path.absolute()))}?{mode}"


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        address(path, mode), uri=True, isolation_level=None, timeout=LOCK_SECONDS, check_same_thread=False
    )
    try:
        db.execute("PRAGMA query_only = 1")
        db.execute(f"PRAGMA cache_size = -{CACHE_BYTES // 1024}")
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise RunError(f"{path} is an SQLite file, but not a gradtui run file")
        if version > SCHEMA_VERSION:
            raise RunError(
                f"{path} was written by a newer gradtui (run file version {version}, this one reads up to "
                f"{SCHEMA_VERSION}); upgrade gradtui to open it"
            )
        db.execute("SELECT count(*) FROM facts, sites").fetchone()
    except BaseException:
        db.close()
        raise
    return db
