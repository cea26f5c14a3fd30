"""The quiz panel: answer first, then reveal, then grade yourself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.timer import Timer
from textual.widgets import Button, Static, TextArea

from gradtui.i18n import LANGUAGES, Words
from gradtui.lesson.progress import Grade, Progress, ProgressError, utc_now
from gradtui.lesson.questions import Question, load_packs
from gradtui.lesson.words import due_in_words
from gradtui.ui.panels.panel import Left, Panel, Say, ShowEvidence
from gradtui.ui.session.layout import Layout
from gradtui.ui.session.notice import Notice, reason_notice
from gradtui.ui.session.snapshot import LabSnapshot
from gradtui.ui.session.view_state import ViewState
from gradtui.ui.text.folding import fold

T = TypeVar("T")

DRAFT_SECONDS = 0.5  # each saved draft is a commit; one per pause in typing is enough
GRADES = {Grade.AGAIN: "again", Grade.HARD: "hard", Grade.GOOD: "good", Grade.EASY: "easy"}


class QuizPanel(Vertical, Panel):
    """One question at a time. While the text box has focus every printable key belongs to it."""

    BINDINGS = [
        Binding("ctrl+r", "reveal", show=False),
        Binding("escape", "leave_text", show=False),
        Binding("enter", "write", show=False),
        *(Binding(str(grade.value), f"grade({grade.value})", show=False) for grade in GRADES),
        Binding("e", "show_me", show=False),
        Binding("right_square_bracket", "turn(1)", show=False),
        Binding("left_square_bracket", "turn(-1)", show=False),
        Binding("tab", "turn_field(1)", show=False),
        Binding("shift+tab", "turn_field(-1)", show=False),
    ]

    def __init__(self, id: str, progress: Path, words: Words) -> None:
        super().__init__(id=id)
        packs, errors = load_packs()
        self._notices = [reason_notice(str(error)) for error in errors]
        self._problem = str(errors[0]) if errors else ""
        self._progress = self._open(progress)
        self._questions = [(pack.key(question), question) for pack in packs for question in pack.questions]
        self._keys = [key for key, _ in self._questions]
        self._words = words
        self._index = 0
        self._revealed = False
        self._notice = ""
        self._answer = ""  # what stands in the text box, which is gone before the panel is
        self._draft_timer: Timer | None = None

    def _open(self, progress: Path) -> Progress:
        """The learner's progress, or one that is kept nowhere where its file cannot be used."""
        try:
            return Progress(progress)
        except ProgressError as error:
            self._notices.append(Notice("notice.quiz_unavailable", {"reason": str(error)}, "warning"))
            return Progress(None)

    def compose(self) -> ComposeResult:
        yield Static(id="quiz-head", markup=False)
        with VerticalScroll(id="quiz-body"):
            yield Static(id="quiz-question", markup=False)
            yield TextArea(id="quiz-answer", tab_behavior="focus", soft_wrap=True)
            yield Button(id="quiz-reveal", variant="primary", compact=True)
            yield Static(id="quiz-explanation", markup=False)
        # Outside the part that scrolls: what to do next is always in sight.
        with Horizontal(id="quiz-grades"):
            for grade, name in GRADES.items():
                yield Button(id=f"quiz-{name}", name=str(grade.value), compact=True)
        with Horizontal(id="quiz-more"):
            yield Button(id="quiz-show", compact=True)
            yield Button(id="quiz-next", compact=True)

    def on_mount(self) -> None:
        for notice in self._notices:
            self.post_message(Say(notice))
        following = self._ask(lambda: self._progress.next_question(self._keys), None) if self._keys else None
        if following is not None:
            self._index = self._keys.index(following)
        self._turn_to(self._index)

    def on_resize(self) -> None:
        """Texts are folded to the width."""
        self._refresh_text()

    @property
    def question(self) -> Question | None:
        """The question on show; None where no pack could be read."""
        return self._questions[self._index][1] if self._questions else None

    @property
    def in_text(self) -> bool:
        """Keys go into the answer."""
        return self.query_one("#quiz-answer", TextArea).has_focus

    def key_hints(self, words: Words) -> str:
        """The keys that do something here."""
        return words("quiz.keys_text" if self.in_text else "quiz.keys")

    def open(self) -> None:
        """Ready to type."""
        self.query_one("#quiz-body" if self._revealed else "#quiz-answer").focus()

    def lay_out(self, layout: Layout, view: ViewState) -> None:
        """A column of its own, or over the charts."""
        self.display = layout.quiz > 0
        self.styles.width = layout.quiz

    def show(self, snapshot: LabSnapshot) -> None:
        """Follow the language; all else changes by this panel's own keys."""
        if snapshot.words is not self._words:
            self._words = snapshot.words
            self._refresh_text()

    def keep_draft(self) -> None:
        """Save what has been typed and not graded."""
        if self._questions and not self._revealed:
            self._ask(lambda: self._progress.save_draft(self._keys[self._index], self._answer), None)

    def on_unmount(self) -> None:
        """Whatever way the app ends, what was typed is kept."""
        self.keep_draft()
        self._progress.close()

    def _turn_to(self, index: int) -> None:
        self._index, self._revealed, self._notice = index, False, ""
        if self._questions:
            key = self._keys[index]
            self._answer = self._ask(lambda: self._progress.answer_draft(key), "")
            with self.prevent(TextArea.Changed):
                self.query_one("#quiz-answer", TextArea).load_text(self._answer)
            self.query_one("#quiz-body", VerticalScroll).scroll_home(animate=False)
        self._refresh_text()

    @on(TextArea.Changed)
    def _typed(self, event: TextArea.Changed) -> None:
        self._answer = event.text_area.text
        if self._draft_timer is not None:
            self._draft_timer.stop()
        self._draft_timer = self.set_timer(DRAFT_SECONDS, self.keep_draft)

    @on(Button.Pressed, "#quiz-reveal")
    def action_reveal(self) -> None:
        """Show the explanation and wait for the grade."""
        if self.question is None or self._revealed:
            return
        self.keep_draft()
        self._revealed, self._notice = True, ""
        self._refresh_text()
        self.query_one("#quiz-body").focus()

    def action_leave_text(self) -> None:
        """Give the keys back: first to the panel, then to the lab."""
        if self.in_text:
            self.query_one("#quiz-body").focus()
        else:
            self.post_message(Left())

    @on(Button.Pressed, "#quiz-grades Button")
    def _grade_pressed(self, event: Button.Pressed) -> None:
        self.action_grade(int(event.button.name or "3"))

    def action_grade(self, value: int) -> None:
        """Schedule the question by how well it was known; only once it has been revealed."""
        if self.question is None:
            return
        if not self._revealed:
            self._notice = self._words("quiz.reveal_first")
            self._refresh_text()
            return
        key, answer = self._keys[self._index], self._answer
        graded = self._ask(lambda: self._progress.grade(key, answer, Grade(value)), None)
        if graded is not None:
            when = due_in_words(graded.due - utc_now(), self._words.language)
            self._notice = self._words("quiz.graded", when=when)
            self._refresh_text()

    @on(Button.Pressed, "#quiz-show")
    def action_show_me(self) -> None:
        """Bring the evidence onto the charts."""
        if self.question is not None and self.question.show is not None:
            self.post_message(ShowEvidence(self.question.show))

    @on(Button.Pressed, "#quiz-next")
    def _next_pressed(self) -> None:
        self.action_turn(1)

    def action_turn(self, by: int) -> None:
        """Another question."""
        if self._questions:
            self.keep_draft()
            self._turn_to((self._index + by) % len(self._questions))
            # Not into the text: the same key again is another question, not a letter.
            self.query_one("#quiz-body").focus()

    def action_turn_field(self, by: int) -> None:
        """The next field of the panel that takes keys, or the one before."""
        (self.screen.focus_next if by > 0 else self.screen.focus_previous)("#quiz *")

    def action_write(self) -> None:
        """Go to the answer."""
        if not self._revealed:
            self.query_one("#quiz-answer").focus()

    def _ask(self, do: Callable[[], T], otherwise: T) -> T:
        """Ask something of the progress file; where that fails, say so, and go on with `otherwise`."""
        try:
            return do()
        except ProgressError as error:
            self.post_message(Say(reason_notice(str(error))))
            return otherwise

    def _refresh_text(self) -> None:
        words, question = self._words, self.question
        self.border_title = Text(words("quiz.title"))
        head = self.query_one("#quiz-head", Static)
        box = self.query_one("#quiz-answer", TextArea)
        for name in ("#quiz-answer", "#quiz-more"):
            self.query_one(name).display = question is not None
        self.query_one("#quiz-reveal").display = question is not None and not self._revealed
        self.query_one("#quiz-grades").display = self._revealed
        self.query_one("#quiz-explanation").display = self._revealed
        if question is None:
            self.query_one("#quiz-question", Static).update(words("quiz.empty", reason=self._problem))
            return
        summary = self._ask(lambda: self._progress.summary(self._keys), None)
        if summary is not None:
            seen = summary.total - summary.new
            head.update(words("quiz.progress", seen=seen, total=summary.total, due=summary.due))
        box.placeholder = words("quiz.placeholder")
        width = max(self.size.width - 6, 20)
        self.query_one("#quiz-question", Static).update(fold(self._question_text(question), width))
        self.query_one("#quiz-explanation", Static).update(fold(self._explanation_text(question), width))
        self.query_one("#quiz-reveal", Button).label = Text(words("quiz.reveal"))
        for name in GRADES.values():
            self.query_one(f"#quiz-{name}", Button).label = Text(words(f"quiz.{name}"))
        show = self.query_one("#quiz-show", Button)
        show.label, show.display = Text(words("quiz.show")), question.show is not None
        self.query_one("#quiz-next", Button).label = Text(words("quiz.next"))

    def _languages(self) -> tuple[str, str]:
        mine = self._words.language
        return mine, next(language for language in LANGUAGES if language != mine)

    def _question_text(self, question: Question) -> Text:
        words = self._words
        mine, other = self._languages()
        text = Text()
        number = words("quiz.question", number=self._index + 1, total=len(self._questions))
        text.append(f"{number}\n", "dim")
        text.append(question.question.get(mine) + "\n", "bold")
        text.append(question.question.get(other) + "\n", "dim")
        last = self._ask(lambda: self._progress.last_answer(self._keys[self._index]), None)
        if last is not None and not self._notice:
            grade = words(f"quiz.{GRADES[last.grade]}").split(" ", 1)[-1]
            ago = due_in_words(last.due - utc_now(), words.language)
            text.append(words("quiz.last", grade=grade, when=ago) + "\n", "italic")
        if self._notice:
            text.append(f"{self._notice}\n", "bold #e69f00")
        elif not self._revealed:
            text.append(words("quiz.answer"), "italic")
        return text

    def _explanation_text(self, question: Question) -> Text:
        words = self._words
        mine, other = self._languages()
        text = Text()

        def heading(key: str) -> None:
            text.append(("\n\n" if text.plain else "") + words(key) + "\n", "bold #56b4e9")

        heading("quiz.explanation")
        text.append(question.explanation.get(mine))
        text.append("\n" + question.explanation.get(other), "dim")
        points = question.key_points.get(mine)
        if points:
            heading("quiz.key_points")
            text.append("\n".join(f"• {point}" for point in points))
        if question.note is not None:
            heading("quiz.note")
            text.append(question.note.get(mine))
        if question.show is not None:
            heading("quiz.look")
            text.append(question.show.look.get(mine))
        return text
