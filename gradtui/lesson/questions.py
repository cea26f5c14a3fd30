"""Question packs: one TOML file each, read into a typed `Pack` or refused in one sentence.

A pack's id is its file's stem; a question's key, under which progress is kept, is "<pack id>/<question id>".
Packs come from gradtui itself, from the user's configuration directory and from any further directory. One
bad file never hides the good ones.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import platformdirs
from msgspec import Meta

from gradtui.i18n import LANGUAGES, Localized, LocalizedList
from gradtui.metrics import SELECTABLE
from gradtui.tomlfile import Step, TomlError, choices, convert, dotted, read_table


class QuizError(ValueError):
    """A question pack that cannot be used; the message names file, key, value and what is allowed."""


QuestionId = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z",
        description="letters, digits, '_', '.' and '-', starting with a letter or digit",
    ),
]


class Show(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What proves the answer in the lab: a preset in focus, others pinned, a metric of the lab, where to look."""

    focus: str
    look: Localized
    pins: tuple[str, ...] = ()
    metric: str = "stream_grad"

    @property
    def presets(self) -> tuple[str, ...]:
        """Every preset that must be there, the focused one first."""
        return (self.focus, *self.pins)

    def missing(self, known: Container[str]) -> tuple[str, ...]:
        """The presets named here that are not in `known` (packs are read without reading presets)."""
        return tuple(name for name in self.presets if name not in known)


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One question, what a good answer has, its explanation, and what experiment adds to it (`note`)."""

    id: QuestionId
    question: Localized
    explanation: Localized
    note: Localized | None = None
    key_points: LocalizedList = LocalizedList()
    show: Show | None = None


class Pack(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The questions of one file, in the order they are asked."""

    title: Localized
    questions: tuple[Question, ...]
    id: str = ""

    def key(self, question: Question) -> str:
        """The name under which progress on `question` is kept."""
        return f"{self.id}/{question.id}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all questions, in pack order."""
        return tuple(self.key(question) for question in self.questions)

    def get(self, key: str) -> Question:
        """The question with this key; raises KeyError."""
        return {self.key(question): question for question in self.questions}[key]


def shipped_directory() -> Path:
    """Where the packs that come with gradtui lie."""
    return Path(__file__).parent / "day15"


def user_directory() -> Path:
    """Where a user's own packs are looked for."""
    return Path(platformdirs.user_config_dir("gradtui", appauthor=False)) / "questions"


def load_packs(directories: Iterable[Path] = ()) -> tuple[list[Pack], list[QuizError]]:
    """Read every pack: shipped, the user's, then those in `directories`; and one error for each that failed.

    Within a directory packs are in order of file name. A pack id that was taken before is refused, since two
    packs of one name would share their learners' progress.
    """
    packs: list[Pack] = []
    errors: list[QuizError] = []
    taken: dict[str, Path] = {}
    extra = list(directories)
    errors.extend(QuizError(f"{path}: is not a directory") for path in extra if not path.is_dir())
    for path in _pack_files([shipped_directory(), user_directory(), *extra]):
        if path.stem in taken:
            errors.append(
                QuizError(
                    f"{path}: the pack id {path.stem!r} is taken by {taken[path.stem]}; "
                    "allowed is a file name that no other pack has"
                )
            )
            continue
        taken[path.stem] = path
        try:
            packs.append(load_pack(path))
        except QuizError as error:
            errors.append(error)
    return packs, errors


def load_pack(path: Path) -> Pack:
    """Read one question pack; raises QuizError."""
    try:
        described = {
            tuple[Question, ...]: "a list of tables, [[questions]]",
        }
        pack = convert(read_table(path), Pack, what="a question pack", where=_where, described=described)
    except TomlError as error:
        raise QuizError(f"{path}: {error}") from error
    problem = _first_problem(pack)
    if problem:
        raise QuizError(f"{path}: {problem}")
    return msgspec.structs.replace(pack, id=path.stem)


def _pack_files(directories: Iterable[Path]) -> list[Path]:
    """Every *.toml in `directories`, in order; a directory given twice is read once."""
    seen: dict[Path, None] = {}
    for directory in directories:
        seen.setdefault(directory.resolve())
    return [path for directory in seen for path in sorted(directory.glob("*.toml"))]


def _first_problem(pack: Pack) -> str | None:
    """The first thing that types alone cannot refuse, as a sentence, or None."""
    if not pack.questions:
        return "questions = [] is not allowed; a pack has at least one [[questions]]"
    if not _filled(pack.title):
        return _empty("title")
    seen: set[str] = set()
    for question in pack.questions:
        where = f"question {question.id!r}: "
        if question.id in seen:
            return f"{where}id = {question.id!r} is there twice; allowed is an id that no other question has"
        seen.add(question.id)
        problem = _question_problem(question)
        if problem:
            return where + problem
    return None


def _question_problem(question: Question) -> str | None:
    texts: list[tuple[str, Localized | None]] = [
        ("question", question.question),
        ("explanation", question.explanation),
        ("note", question.note),
        ("show.look", question.show.look if question.show else None),
    ]
    for key, text in texts:
        if text is not None and not _filled(text):
            return _empty(key)
    for language, points in question.key_points.given().items():
        for point in points:
            if not point.strip():
                return f"key_points.{language} has the point {point!r}; a point has at least one character"
    return _show_problem(question.show) if question.show else None


def _show_problem(show: Show) -> str | None:
    if show.metric not in SELECTABLE:
        return f"show.metric = {show.metric!r} is not allowed; allowed: {choices(show.metric, SELECTABLE)}"
    if not all(name.strip() for name in show.presets):
        return f"show = {list(show.presets)!r} is not allowed; focus and pins are the ids of presets"
    for number, name in enumerate(show.presets):
        if name in show.presets[:number]:
            return f"show.pins = {list(show.pins)!r} is not allowed; {name!r} is named twice in focus and pins"
    return None


def _filled(text: Localized) -> bool:
    return any(line.strip() for line in text.given().values())


def _empty(key: str) -> str:
    keys = [f"{key}.{language}" for language in LANGUAGES]
    return f"{key} is empty; allowed is text in at least one of {', '.join(keys)}"


def _where(steps: list[Step], table: Mapping[str, Any]) -> str:
    """A path as a reader looks for it: which question (by id, else by number), and the key inside it."""
    question = ""
    if len(steps) > 2 and steps[0] == "questions" and isinstance(steps[1], int):
        name = table["questions"][steps[1]].get("id")
        question = f"question {name!r}: " if isinstance(name, str) else f"question number {steps[1] + 1}: "
        steps = steps[2:]
    return question + dotted(steps, table)
