"""A learner's progress: drafts, graded answers, and when each question comes back.

The schedule is FSRS, as in Anki, without random fuzz: the same grades at the same times give the same dates.
fsrs is imported when the first answer is graded.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtui.lesson.progress_file import ProgressError, ProgressFile

if TYPE_CHECKING:
    import fsrs

__all__ = ["Answer", "Grade", "Progress", "ProgressError", "Summary", "utc_now"]

_REVIEW = 2  # fsrs.State.Review; 1 and 3 are Learning and Relearning


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
    """Now, in UTC."""
    return datetime.now(UTC)


class Progress:
    """Progress in the file at `path`, made if it is not there; `None` keeps it in memory only.

    May be used from any thread, and by several processes at once. Questions are named by their keys,
    "<pack id>/<question id>". Every method raises ProgressError when the file cannot be read or written. Times are
    returned in UTC; one that is passed in needs a time zone (ValueError otherwise), and is `clock()` by default.
    """

    def __init__(self, path: Path | None, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock
        self._my_drafts: dict[str, str] = {}
        self._scheduler: fsrs.Scheduler | None = None
        self._file = ProgressFile(path)

    def close(self) -> None:
        """Close the file. Nothing is pending: every method has written what it was given."""
        self._file.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer_draft(self, question: str) -> str:
        """What was typed for `question` and not graded yet ("" if nothing), whichever gradtui typed it."""
        rows = self._file.read("SELECT text FROM drafts WHERE question = ?", question)
        text = str(rows[0][0]) if rows else ""
        self._my_drafts[question] = text
        return text

    def save_draft(self, question: str, text: str) -> None:
        """Keep an answer that is still being written; an empty text deletes it."""
        text = _storable(text)
        with self._file.write() as db:
            if text:
                db.execute("INSERT OR REPLACE INTO drafts VALUES (?, ?)", (question, text))
            else:
                db.execute("DELETE FROM drafts WHERE question = ?", (question,))
        self._my_drafts[question] = text

    def grade(self, question: str, answer: str, grade: Grade, now: datetime | None = None) -> Answer:
        """Record a graded answer, decide when the question comes back, and delete the answer's draft.

        A draft that another gradtui is writing for the same question stays.
        """
        at, answer = self._at(now), _storable(answer)
        with self._file.write() as db:
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
        counts = self._file.read("SELECT question, count(*) FROM answers GROUP BY question")
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
                raise self._file.damaged(f"the schedule of {question!r}") from error
        return self._scheduler.review_card(before, fsrs.Rating(int(grade)), at)[0]

    def _cards(self) -> dict[str, dict[str, Any]]:
        """Every card as a plain table: when a question is due can be read without fsrs."""
        cards: dict[str, dict[str, Any]] = {}
        for question, text in self._file.read("SELECT question, card FROM cards"):
            try:
                card = json.loads(text)
                _due(card), int(card["state"])
            except (ValueError, KeyError, TypeError) as error:
                raise self._file.damaged(f"the schedule of {question!r}") from error
            cards[question] = card
        return cards

    def _answers(self, where: str, question: str) -> list[Answer]:
        rows = self._file.read(f"SELECT question, answer, grade, at, due FROM answers {where}", question)
        return [
            Answer(name, answer, Grade(grade), datetime.fromisoformat(at), datetime.fromisoformat(due))
            for name, answer, grade, at, due in rows
        ]


def _card_of(db: sqlite3.Connection, question: str) -> str | None:
    rows = db.execute("SELECT card FROM cards WHERE question = ?", (question,)).fetchall()
    return str(rows[0][0]) if rows else None


def _due(card: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(card["due"]).astimezone(UTC)


def _storable(text: str) -> str:
    """Text that UTF-8 can hold: a terminal may paste half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")
