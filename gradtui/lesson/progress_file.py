"""The file that progress is kept in: opening it, reading and writing it, and what may be wrong with it.

One SQLite file, which several processes may have open at once. Every change is one short transaction that takes
the write lock before it reads, so that no answer is lost and no schedule is computed from a stale card; a process
that finds the file locked waits for up to BUSY_SECONDS. The file keeps a rollback journal rather than WAL, which
works on network home directories too.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

APPLICATION_ID = 0x67747175  # "gtqu": distinguishes a progress file from any other SQLite file
SCHEMA_VERSION = 1
BUSY_SECONDS = 5.0

_TABLES = (
    "CREATE TABLE cards (question TEXT PRIMARY KEY, card TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE drafts (question TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",
    # Only ever appended to: what a learner once wrote is never changed.
    """CREATE TABLE answers (
        id INTEGER PRIMARY KEY, question TEXT NOT NULL, answer TEXT NOT NULL,
        grade INTEGER NOT NULL CHECK (grade BETWEEN 1 AND 4), at TEXT NOT NULL, due TEXT NOT NULL
    )""",
    "CREATE INDEX answers_by_question ON answers (question, id)",
)


class ProgressError(Exception):
    """A progress file that cannot be used; the message says which, why, and what to do."""


_MOVE_AWAY = "move it to another place to start afresh"
_TRY_AGAIN = "nothing was recorded; try again"
_REASONS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_BUSY: ("is locked by another program", _TRY_AGAIN),
    sqlite3.SQLITE_READONLY: (
        "is read-only, in a read-only directory, or was moved away",
        "make the file and its directory writable",
    ),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened for writing", "make the file and its directory writable"),
    sqlite3.SQLITE_FULL: ("cannot grow, because the disk is full", "free some space and try again"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "check the disk that it lies on"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", _MOVE_AWAY),
    sqlite3.SQLITE_NOTADB: ("is damaged", _MOVE_AWAY),
    sqlite3.SQLITE_PERM: ("may not be opened", "make the file and its directory writable"),
}


class ProgressFile:
    """The file at `path`, made if it is not there; `None` keeps everything in memory.

    May be used from any thread. Every method raises ProgressError when the file cannot be read or written; a file
    that is damaged or belongs to another program is refused on opening and left as it is.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        if path is not None:
            _check_header(path)
        with self._errors():
            self._db = sqlite3.connect(
                path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file. Nothing is pending: every transaction was committed."""
        with self._lock:
            self._db.close()

    def read(self, statement: str, *values: str) -> list[Any]:
        """The rows that an SQL statement selects."""
        with self._lock, self._errors():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction; it holds the write lock from its start, so what it reads stays true."""
        with self._lock, self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's exceptions as ProgressError."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)  # errors of the sqlite3 module itself have none
            why, advice = _REASONS.get(code & 0xFF if code is not None else -1, (str(error), _TRY_AGAIN))
            raise ProgressError(f"{self._path}: the quiz progress file {why}; {advice}") from error

    def damaged(self, what: str) -> ProgressError:
        """The error to raise where the part `what` of the file makes no sense."""
        return ProgressError(f"{self._path}: the quiz progress file is damaged ({what}); {_MOVE_AWAY}")

    def _prepare(self) -> None:
        """Check the whole file, prove that it can be written, and make the tables of a new one."""
        if self._path is not None and (damage := self.read("PRAGMA quick_check")) != [("ok",)]:
            raise self.damaged(damage[0][0])
        with self.write() as db:
            if db.execute("PRAGMA application_id").fetchall() != [(APPLICATION_ID,)]:
                for statement in _TABLES:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            # Written even where it is there already: the first write shows whether the directory is read-only.
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _check_header(path: Path) -> None:
    """Make the directory, and refuse any file but an empty one and our own before SQLite touches it.

    SQLite keeps a file's application id at byte 68 and its user version at byte 60.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ProgressError(
            f"{path}: the quiz progress file cannot be opened ({error.strerror}); "
            "make the file and its directory readable and writable"
        ) from error
    if not header:
        return
    application_id, version = int.from_bytes(header[68:72]), int.from_bytes(header[60:64])
    if not header.startswith(b"SQLite format 3\0") or application_id != APPLICATION_ID:
        raise ProgressError(f"{path}: is not a quiz progress file; {_MOVE_AWAY}")
    if version > SCHEMA_VERSION:
        raise ProgressError(
            f"{path}: was written by a newer gradtui (schema {version}, this one knows {SCHEMA_VERSION}); "
            "upgrade gradtui to use it"
        )
