"""A learner's progress: drafts, graded answers, and when each question comes back. One SQLite file.

Several gradtui may have the file open at once. Every change is one short transaction that takes the write
lock before it reads, so no answer is lost and no schedule is computed from a stale card; whoever finds the
file locked waits for up to five seconds. The file keeps a rollback journal rather than WAL, which works on
network home directories too.

The schedule is FSRS, as in Anki, without random fuzz: the same grades at the same times give the same dates.
fsrs is imported when the first answer is graded.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import fsrs

APPLICATION_ID = 0x67747175  # "gtqu": tells a progress file from any other SQLite file
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


class Grade(IntEnum):
    """How well a learner knew the answer, by their own judgement. The numbers are those of fsrs.Rating."""

    AGAIN = 1
    HARD = 2
    GOOD = 3
    EASY = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """A graded answer: what was written, when (UTC), and when the question comes back because of it."""

    question: str
    answer: str
    grade: Grade
    at: datetime
    due: datetime


@dataclass(frozen=True, slots=True)
class Summary:
    """Where a learner stands with some questions.

    `new`, `learning` and `review` add up to `total`: never graded, not yet learnt (or forgotten and being
    relearnt), and learnt. `due` counts the questions, among the graded ones, that are to be asked now;
    `next_due` is when the next of the others comes back; `answers` is how often anything was graded.
    """

    total: int
    new: int
    learning: int
    review: int
    due: int
    next_due: datetime | None
    answers: int


def utc_now() -> datetime:
    """The clock on the wall, in UTC."""
    return datetime.now(UTC)


class Progress:
    """Progress in the file at `path`, made if it is not there; `None` keeps it in memory only.

    May be used from any thread. Questions are named by their keys, "<pack id>/<question id>". Every method
    raises ProgressError when the file cannot be read or written; a file that is damaged or belongs to another
    program is refused on opening and left as it is. Times are returned in UTC, and one that is passed in
    needs a time zone (ValueError otherwise).
    """

    def __init__(self, path: Path | None, clock: Callable[[], datetime] = utc_now) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._my_drafts: dict[str, str] = {}
        self._scheduler: fsrs.Scheduler | None = None
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
        """Let go of the file. Nothing is pending: every method has written what it was given."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer_draft(self, question: str) -> str:
        """What was typed for `question` and not graded yet ("" if nothing), whichever gradtui typed it."""
        rows = self._read("SELECT text FROM drafts WHERE question = ?", question)
        text = str(rows[0][0]) if rows else ""
        self._my_drafts[question] = text
        return text

    def save_draft(self, question: str, text: str) -> None:
        """Keep an answer that is still being written; an empty one is forgotten."""
        text = _storable(text)
        with self._write() as db:
            if text:
                db.execute("INSERT OR REPLACE INTO drafts VALUES (?, ?)", (question, text))
            else:
                db.execute("DELETE FROM drafts WHERE question = ?", (question,))
        self._my_drafts[question] = text

    def grade(self, question: str, answer: str, grade: Grade, now: datetime | None = None) -> Answer:
        """Record a graded answer, decide when the question comes back, and forget the answer's draft.

        A draft that another gradtui is writing for the same question stays.
        """
        at, answer = self._at(now), _storable(answer)
        with self._write() as db:
            card = self._review(_card_of(db, question), question, grade, at)
            due = card.due.astimezone(UTC)
            db.execute("INSERT OR REPLACE INTO cards VALUES (?, ?)", (question, card.to_json()))
            db.execute(
                "INSERT INTO answers (question, answer, grade, at, due) VALUES (?, ?, ?, ?, ?)",
                (question, answer, int(grade), at.isoformat(), due.isoformat()),
            )
            mine = self._my_drafts.get(question, answer)
            db.execute("DELETE FROM drafts WHERE question = ? AND text IN (?, ?)", (question, answer, mine))
        return Answer(question, answer, Grade(grade), at, due)

    def preview(self, question: str, now: datetime | None = None) -> dict[Grade, datetime]:
        """When `question` would come back for each grade given now. Records nothing."""
        at = self._at(now)
        rows = self._read("SELECT card FROM cards WHERE question = ?", question)
        card = str(rows[0][0]) if rows else None
        return {grade: self._review(card, question, grade, at).due.astimezone(UTC) for grade in Grade}

    def due(self, question: str) -> datetime | None:
        """When `question` is to be asked again; None if it was never graded."""
        card = self._cards().get(question)
        return _due(card) if card else None

    def last_answer(self, question: str) -> Answer | None:
        """The answer to `question` that was graded last."""
        answers = self._answers("WHERE question = ? ORDER BY id DESC LIMIT 1", question)
        return answers[0] if answers else None

    def history(self, question: str) -> list[Answer]:
        """Every graded answer to `question`, oldest first."""
        return self._answers("WHERE question = ? ORDER BY id", question)

    def next_question(self, questions: Sequence[str], now: datetime | None = None) -> str | None:
        """Which of `questions` to ask: the longest due, else the first never graded, else the soonest due."""
        at, cards = self._at(now), self._cards()
        graded = [question for question in questions if question in cards]
        soonest = min(graded, key=lambda question: _due(cards[question]), default=None)
        if soonest is not None and _due(cards[soonest]) <= at:
            return soonest
        return next((question for question in questions if question not in cards), soonest)

    def summary(self, questions: Sequence[str], now: datetime | None = None) -> Summary:
        """Where the learner stands with `questions`."""
        at, all_cards = self._at(now), self._cards()
        cards = [all_cards[question] for question in questions if question in all_cards]
        later = [_due(card) for card in cards if _due(card) > at]
        wanted = set(questions)
        counts = self._read("SELECT question, count(*) FROM answers GROUP BY question")
        learnt = sum(card["state"] == _REVIEW for card in cards)
        return Summary(
            total=len(questions),
            new=len(questions) - len(cards),
            learning=len(cards) - learnt,
            review=learnt,
            due=len(cards) - len(later),
            next_due=min(later, default=None),
            answers=sum(count for question, count in counts if question in wanted),
        )

    def _prepare(self) -> None:
        """Check the whole file, prove that it can be written, and make the tables of a new one."""
        if self._path is not None and (damage := self._read("PRAGMA quick_check")) != [("ok",)]:
            raise ProgressError(f"{self._path}: the quiz progress file is damaged ({damage[0][0]}); {_MOVE_AWAY}")
        with self._write() as db:
            if db.execute("PRAGMA application_id").fetchall() != [(APPLICATION_ID,)]:
                for statement in _TABLES:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            # Written even where it is there already: it is the first write that finds a read-only directory.
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _at(self, now: datetime | None) -> datetime:
        at = self._clock() if now is None else now
        if at.tzinfo is None:
            raise ValueError(f"now = {at!r} has no time zone; allowed is an aware datetime, such as UTC")
        return at.astimezone(UTC)

    def _review(self, card: str | None, question: str, grade: Grade, at: datetime) -> fsrs.Card:
        import fsrs

        if self._scheduler is None:
            self._scheduler = fsrs.Scheduler(enable_fuzzing=False)
        # fsrs's own card id is the time in milliseconds, and making one sleeps.
        before = fsrs.Card(card_id=zlib.crc32(question.encode()), due=at)
        if card is not None:
            try:
                before = fsrs.Card.from_json(card)
            except (ValueError, KeyError, TypeError) as error:
                raise self._damaged_card(question) from error
        return self._scheduler.review_card(before, fsrs.Rating(int(grade)), at)[0]

    def _cards(self) -> dict[str, dict[str, Any]]:
        """Every card as a plain table: when a question is due can be read without fsrs."""
        cards: dict[str, dict[str, Any]] = {}
        for question, text in self._read("SELECT question, card FROM cards"):
            try:
                card = json.loads(text)
                _due(card), int(card["state"])
            except (ValueError, KeyError, TypeError) as error:
                raise self._damaged_card(question) from error
            cards[question] = card
        return cards

    def _answers(self, where: str, question: str) -> list[Answer]:
        rows = self._read(f"SELECT question, answer, grade, at, due FROM answers {where}", question)
        return [
            Answer(name, answer, Grade(grade), datetime.fromisoformat(at), datetime.fromisoformat(due))
            for name, answer, grade, at, due in rows
        ]

    def _read(self, statement: str, *values: str) -> list[Any]:
        with self._lock, self._errors():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
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

    def _damaged_card(self, question: str) -> ProgressError:
        return ProgressError(
            f"{self._path}: the quiz progress file is damaged (the schedule of {question!r}); {_MOVE_AWAY}"
        )


_REVIEW = 2  # fsrs.State.Review; 1 and 3 are Learning and Relearning
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


def _card_of(db: sqlite3.Connection, question: str) -> str | None:
    rows = db.execute("SELECT card FROM cards WHERE question = ?", (question,)).fetchall()
    return str(rows[0][0]) if rows else None


def _due(card: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(card["due"]).astimezone(UTC)


def _storable(text: str) -> str:
    """Text that UTF-8 can hold: a terminal may paste half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")
