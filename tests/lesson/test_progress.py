"""Progress: answers and schedules on disk, and what happens when the disk fails."""

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from lesson.conftest import NOON

from gradtui.lesson import progress_file
from gradtui.lesson.progress import Answer, Grade, Progress, ProgressError

DAY15 = ("day15/q1", "day15/q2", "day15/q3", "day15/q4", "day15/q5")
Q1, Q2, Q3, Q4, Q5 = DAY15


class TestAnswers:
    def test_a_question_never_graded_has_no_past(self, progress: Progress) -> None:
        assert progress.answer_draft(Q1) == ""
        assert progress.due(Q1) is None
        assert progress.last_answer(Q1) is None
        assert progress.history(Q1) == []

    def test_everything_survives_a_restart(self, path: Path) -> None:
        with Progress(path) as before:
            graded = before.grade(Q1, "LN 在主干上\nx_l + f(x_l) 之后", Grade.GOOD, NOON)
            before.save_draft(Q2, "因为 Pre-LN [bold]")
        with Progress(path) as after:
            assert after.last_answer(Q1) == graded
            assert after.due(Q1) == graded.due
            assert after.answer_draft(Q2) == "因为 Pre-LN [bold]"

    def test_history_keeps_every_answer_in_order(self, progress: Progress) -> None:
        first = progress.grade(Q1, "no idea", Grade.AGAIN, NOON)
        second = progress.grade(Q1, "the norm", Grade.HARD, NOON + timedelta(minutes=1))
        progress.grade(Q2, "other", Grade.EASY, NOON)
        assert progress.history(Q1) == [first, second]
        assert progress.last_answer(Q1) == second
        assert second == Answer(Q1, "the norm", Grade.HARD, NOON + timedelta(minutes=1), second.due)

    def test_a_draft_is_replaced_emptied_and_gone_once_graded(self, progress: Progress, path: Path) -> None:
        progress.save_draft(Q1, "Post")
        progress.save_draft(Q1, "Post-LN: x")
        assert progress.answer_draft(Q1) == "Post-LN: x"
        progress.save_draft(Q1, "")
        assert progress.answer_draft(Q1) == ""
        progress.save_draft(Q1, "half an answ")
        progress.grade(Q1, "half an answer, finished", Grade.GOOD)
        with Progress(path) as after:
            assert after.answer_draft(Q1) == ""

    def test_grading_here_leaves_what_another_window_is_typing(self, progress: Progress, path: Path) -> None:
        with Progress(path) as other:
            progress.save_draft(Q1, "mine")
            other.save_draft(Q1, "still being written")
            progress.grade(Q1, "mine", Grade.GOOD)
            assert other.answer_draft(Q1) == "still being written"

    @pytest.mark.parametrize("text", ["", "a\0b", "🎓" * 10_000, "'; DROP TABLE answers; --"])
    def test_any_text_is_an_answer(self, progress: Progress, text: str) -> None:
        progress.save_draft(Q1, text)
        assert progress.answer_draft(Q1) == text
        progress.grade(Q1, text, Grade.GOOD)
        assert progress.history(Q1)[0].answer == text

    def test_half_a_surrogate_pair_is_stored_as_a_question_mark(self, progress: Progress) -> None:
        assert progress.grade(Q1, "x\ud83d", Grade.GOOD).answer == "x?"
        assert progress.history(Q1)[0].answer == "x?"

    def test_memory_only_progress_needs_no_file(self) -> None:
        with Progress(None, clock=lambda: NOON) as memory:
            memory.grade(Q1, "x", Grade.GOOD)
            assert memory.summary(DAY15).answers == 1


class TestSchedule:
    def test_the_worse_the_grade_the_sooner_it_comes_back(self, progress: Progress) -> None:
        dues = [progress.grade(f"p/{grade}", "x", grade).due for grade in Grade]
        assert NOON < dues[0] < dues[1] < dues[2] < dues[3]
        assert dues[0] - NOON == timedelta(minutes=1)
        assert dues[3] - NOON > timedelta(days=1)

    def test_good_answers_move_it_further_and_further_away(self, progress: Progress) -> None:
        at, waits = NOON, []
        for _ in range(6):
            due = progress.grade(Q1, "x", Grade.GOOD, at).due
            waits.append(due - at)
            at = due
        assert waits == sorted(waits)
        assert waits[-1] > timedelta(days=30)

    def test_the_same_answers_give_the_same_dates(self) -> None:
        def dates() -> list[datetime]:
            with Progress(None) as memory:
                grades = (Grade.GOOD, Grade.GOOD, Grade.EASY, Grade.GOOD)
                days = (NOON + timedelta(days=9 * n) for n in range(4))
                return [memory.grade(Q1, "", *pair).due for pair in zip(grades, days, strict=True)]

        assert dates() == dates()

    def test_the_first_schedule_does_not_depend_on_the_wall_clock(self, progress: Progress) -> None:
        assert progress.grade(Q1, "x", Grade.GOOD).due == NOON + timedelta(minutes=10)

    def test_times_are_utc_whatever_zone_they_came_in(self, progress: Progress) -> None:
        shanghai = timezone(timedelta(hours=8))
        answer = progress.grade(Q1, "x", Grade.GOOD, NOON.astimezone(shanghai))
        assert answer.at == NOON
        assert answer.at.utcoffset() == answer.due.utcoffset() == timedelta(0)
        with pytest.raises(ValueError, match="no time zone"):
            progress.grade(Q1, "x", Grade.GOOD, NOON.replace(tzinfo=None))

    def test_a_clock_set_back_is_survived(self, progress: Progress) -> None:
        progress.grade(Q1, "x", Grade.EASY, NOON)
        past = NOON - timedelta(days=400)
        assert progress.grade(Q1, "x", Grade.GOOD, past).due > past


class TestNextQuestion:
    def test_new_ones_come_in_pack_order(self, progress: Progress) -> None:
        assert progress.next_question(DAY15) == Q1
        progress.grade(Q1, "x", Grade.EASY)
        assert progress.next_question(DAY15) == Q2

    def test_what_is_due_comes_before_what_is_new_longest_due_first(self, progress: Progress) -> None:
        progress.grade(Q2, "x", Grade.GOOD)  # back in 10 minutes
        progress.grade(Q3, "x", Grade.AGAIN)  # back in 1 minute
        assert progress.next_question(DAY15) == Q1
        assert progress.next_question(DAY15, NOON + timedelta(minutes=1)) == Q3
        assert progress.next_question(DAY15, NOON + timedelta(hours=1)) == Q3
        progress.grade(Q3, "x", Grade.EASY, NOON + timedelta(hours=1))
        assert progress.next_question(DAY15, NOON + timedelta(hours=1)) == Q2

    def test_when_nothing_is_due_or_new_the_soonest_comes(self, progress: Progress) -> None:
        for question in DAY15:
            progress.grade(question, "x", Grade.HARD if question == Q4 else Grade.EASY)
        assert progress.next_question(DAY15) == Q4

    def test_questions_due_at_the_same_time_come_in_pack_order(self, progress: Progress) -> None:
        for question in reversed(DAY15):
            progress.grade(question, "x", Grade.GOOD)
        assert progress.next_question(DAY15, NOON + timedelta(days=1)) == Q1

    def test_no_questions_no_next(self, progress: Progress) -> None:
        progress.grade("other/pack", "x", Grade.AGAIN)
        assert progress.next_question([]) is None


def test_summary_says_where_one_stands(progress: Progress) -> None:
    nothing = progress.summary(DAY15)
    assert (nothing.total, nothing.new, nothing.due, nothing.next_due) == (5, 5, 0, None)
    progress.grade(Q1, "x", Grade.AGAIN)
    progress.grade(Q1, "x", Grade.AGAIN)
    progress.grade(Q2, "x", Grade.EASY)
    progress.grade("other/pack", "x", Grade.AGAIN)
    summary = progress.summary(DAY15, NOON + timedelta(minutes=5))
    assert (summary.total, summary.new, summary.learning, summary.review) == (5, 3, 1, 1)
    assert (summary.due, summary.answers, summary.next_due) == (1, 3, progress.due(Q2))


class TestTwoAtOnce:
    def test_each_sees_what_the_other_recorded(self, path: Path) -> None:
        with Progress(path) as one, Progress(path) as two:
            one.grade(Q1, "from one", Grade.GOOD, NOON)
            two.grade(Q1, "from two", Grade.GOOD, NOON + timedelta(minutes=10))
            assert [answer.answer for answer in one.history(Q1)] == ["from one", "from two"]
            # Two goods in a row leave the learning steps: the second was scheduled on top of the first.
            assert one.summary([Q1], NOON).review == 1
            one.save_draft(Q2, "draft")
            assert two.answer_draft(Q2) == "draft"

    def test_threads_on_two_objects_lose_nothing(self, path: Path) -> None:
        def work(progress: Progress, name: str) -> None:
            for number in range(10):
                progress.save_draft(f"pack/{name}", str(number))
                progress.grade(Q1, f"{name}{number}", Grade.GOOD, NOON)

        with Progress(path) as one, Progress(path) as two:
            threads = [
                threading.Thread(target=work, args=(progress, name))
                for progress, name in ((one, "a"), (one, "b"), (two, "c"), (two, "d"))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            written = [answer.answer for answer in one.history(Q1)]
            assert sorted(written) == sorted(f"{name}{number}" for name in "abcd" for number in range(10))
            for name in "abcd":
                assert [text for text in written if text[0] == name] == [f"{name}{n}" for n in range(10)]
                assert two.answer_draft(f"pack/{name}") == "9"

    def test_processes_starting_together_on_a_new_file_lose_nothing(self, path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=_grade_ten, args=(str(path), name)) for name in "ab"]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
        assert [worker.exitcode for worker in workers] == [0, 0]
        with Progress(path) as progress:
            assert len(progress.history(Q1)) == 20

    def test_a_file_locked_for_good_is_a_sentence(
        self, path: Path, progress: Progress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(progress_file, "BUSY_SECONDS", 0.05)
        with Progress(path) as patient:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(ProgressError, match="is locked by another program"):
                patient.grade(Q1, "x", Grade.GOOD)
            other.execute("ROLLBACK")
            other.close()
            patient.grade(Q1, "x", Grade.GOOD)
            assert len(progress.history(Q1)) == 1


def _grade_ten(path: str, name: str) -> None:
    with Progress(Path(path)) as progress:
        for number in range(10):
            progress.grade(Q1, f"{name}{number}", Grade.GOOD)


def test_the_quiz_loads_nothing_heavy() -> None:
    script = """
import sys
import gradtui.lesson.questions, gradtui.lesson.progress, gradtui.lesson.words
gradtui.lesson.questions.load_packs()
progress = gradtui.lesson.progress.Progress(None)
progress.summary(["a/b"]); progress.next_question(["a/b"])
assert "fsrs" not in sys.modules
progress.grade("a/b", "x", gradtui.lesson.progress.Grade.GOOD)
assert "fsrs" in sys.modules
heavy = {"torch", "numpy", "pandas", "textual", "plotext", "fsrs.optimizer"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
