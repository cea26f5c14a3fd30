"""The quiz beside the charts: answer, reveal, grade, show me; and what typing must never do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from textual.widgets import TextArea
from ui.conftest import Bench, until

from gradtui.engine import protocol
from gradtui.lesson.progress import Progress
from gradtui.paths import quiz_progress
from gradtui.presets import load_library
from gradtui.ui.panels.quiz_panel import QuizPanel

QUESTION = "Write out how the data-flow formulas"


@pytest.fixture
def lab(tmp_path: Path) -> Bench:
    return Bench(tmp_path, library=load_library())


async def test_a_question_is_answered_revealed_graded_and_scheduled(lab: Bench) -> None:
    async with lab.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await pilot.press("t")
        await until(pilot, lambda: QUESTION in lab.text())
        assert "by layer" in lab.text()  # the charts stay beside it
        assert "What experiment adds" not in lab.text()
        await pilot.press(*"post norms after")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "Explanation" in lab.text() and "3 good" in lab.text())
        await pilot.press("3")
        await until(pilot, lambda: "Comes back in" in lab.text())
        assert lab.session.focus == "post-ln"
    with Progress(quiz_progress(lab.app.data)) as progress:
        answer = progress.last_answer("day15/q1")
        assert answer is not None
        assert answer.answer == "post norms after"
        assert answer.grade == 3


async def test_keys_typed_into_the_answer_do_nothing_else(lab: Bench) -> None:
    async with lab.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await pilot.press("t")
        await until(pilot, lambda: QUESTION in lab.text())
        before = list(lab.engine.commands)
        keys = "q1234567890pmyxrRnstgzL?/[]{}<>+ e"
        for character in keys:
            await pilot.press("space" if character == " " else character)
        await pilot.press("enter", *"中文")
        box = lab.screen.query_one("#quiz-answer", TextArea)
        assert box.text == keys + "\n中文"
        orders = [c for c in lab.engine.commands if not isinstance(c, protocol.Order)]
        assert orders == [c for c in before if not isinstance(c, protocol.Order)]
        assert lab.screen.view.quiz
        assert lab.app.is_running
        assert lab.session.focus == "post-ln"
        assert lab.app.words.language == "en"


async def test_a_typed_answer_survives_a_restart(tmp_path: Path) -> None:
    for expected in ("", "half a thought"):
        lab = Bench(tmp_path, library=load_library())
        async with lab.app.run_test(size=(140, 44)) as pilot:
            await until(pilot, lambda lab=lab: lab.engine.sent(protocol.Start))
            await pilot.press("t")
            await until(pilot, lambda lab=lab: QUESTION in lab.text())
            assert lab.screen.query_one("#quiz-answer", TextArea).text == expected
            if not expected:
                await pilot.press(*"half a thought".replace(" ", "_"))
                lab.screen.query_one("#quiz-answer", TextArea).load_text("half a thought")
                await pilot.press("escape", "q")


async def test_a_grade_before_the_explanation_is_asked_to_wait(lab: Bench) -> None:
    async with lab.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await pilot.press("t", "escape", "4")
        await until(pilot, lambda: "Reveal the explanation first" in lab.text())
        assert lab.session.focus == "post-ln"  # 4 graded nothing, and switched nothing


async def test_show_me_brings_the_evidence_onto_the_charts(lab: Bench) -> None:
    async with lab.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await pilot.press("4", "t")
        await until(pilot, lambda: QUESTION in lab.text())
        await pilot.press("escape", "e")
        question = lab.screen.query_one(QuizPanel).question
        assert question is not None
        assert question.show is not None
        await until(pilot, lambda: lab.session.focus == question.show.focus)
        assert lab.session.pins == list(question.show.pins)
        assert lab.screen.view.metric == question.show.metric
        started = {c.lane for c in lab.engine.sent(protocol.Start)}  # type: ignore[attr-defined]
        assert set(question.show.presets) <= started


async def test_at_80_columns_the_quiz_lies_over_the_charts_and_show_me_uncovers_them(lab: Bench) -> None:
    async with lab.app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await pilot.press("t")
        await until(pilot, lambda: QUESTION in lab.text())
        assert "by layer" not in lab.text()
        await pilot.press("escape", "e")
        await until(pilot, lambda: "by layer" in lab.text() and QUESTION not in lab.text())


async def test_all_five_questions_come_round_in_both_languages(lab: Bench) -> None:
    async with lab.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await pilot.press("t")
        await until(pilot, lambda: QUESTION in lab.text())
        seen = set()
        await pilot.press("escape")
        for _ in range(5):
            question = lab.screen.query_one(QuizPanel).question
            assert question is not None
            seen.add(question.id)
            await until(pilot, lambda q=question: q.question.get("zh")[:8] in lab.text())
            await pilot.press("right_square_bracket")
        assert seen == {"q1", "q2", "q3", "q4", "q5"}
        await pilot.press("L")
        await until(pilot, lambda: "先自己答" in lab.text())


async def test_t_closes_the_panel_and_gives_the_keys_back(lab: Bench) -> None:
    async with lab.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await pilot.press("t")
        await until(pilot, lambda: QUESTION in lab.text())
        await pilot.press("escape", "t", "2")
        assert not lab.screen.view.quiz
        assert lab.session.focus == "pre-ln"


async def test_a_corrupt_progress_file_is_said_and_left_alone(lab: Bench) -> None:
    path = quiz_progress(lab.app.data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not a database at all" * 100)
    before = path.read_bytes()
    async with lab.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await pilot.press("t")
        await until(pilot, lambda: "cannot keep its progress" in lab.text())
        await until(pilot, lambda: QUESTION in lab.text())
        await pilot.press("x", "ctrl+r", "2")
        await until(pilot, lambda: "Comes back" in lab.text())
    assert path.read_bytes() == before


async def test_turning_the_pages_never_types_into_an_answer(lab: Bench) -> None:
    async with lab.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await pilot.press("t")
        await until(pilot, lambda: QUESTION in lab.text())
        await pilot.press("escape", *["right_square_bracket"] * 3, *["left_square_bracket"] * 2)
        assert lab.screen.query_one("#quiz-answer", TextArea).text == ""
        await pilot.press("enter", "a", "b")
        await until(pilot, lambda: lab.screen.query_one("#quiz-answer", TextArea).text == "ab")


async def test_the_footer_lists_the_keys_of_where_the_keys_go(lab: Bench) -> None:
    async with lab.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await until(pilot, lambda: "1-9 preset" in lab.text().splitlines()[-1])
        await pilot.press("t")
        await until(pilot, lambda: "leave the text" in lab.text().splitlines()[-1])
        await pilot.press("escape")
        await until(pilot, lambda: "1–4 grade" in lab.text().splitlines()[-1])
        await pilot.press("escape")
        await until(pilot, lambda: "1-9 preset" in lab.text().splitlines()[-1])


async def test_a_locked_progress_file_is_said_and_nothing_is_pretended(
    lab: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradtui.lesson.progress_file.BUSY_SECONDS", 0.1)
    async with lab.app.run_test(size=(140, 44), notifications=True) as pilot:
        await until(pilot, lambda: lab.engine.sent(protocol.Start))
        await pilot.press("t")
        await until(pilot, lambda: QUESTION in lab.text())
        await pilot.press("a", "ctrl+r")
        other = sqlite3.connect(quiz_progress(lab.app.data), isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        await pilot.press("3", "L", "L")
        assert "Comes back" not in lab.text()
        assert lab.app.is_running
        other.execute("ROLLBACK")
        other.close()
        await pilot.press("3")
        await until(pilot, lambda: "Comes back" in lab.text())
    with Progress(quiz_progress(lab.app.data)) as progress:
        assert progress.last_answer("day15/q1") is not None
