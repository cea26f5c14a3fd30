"""A progress file that cannot be used is a sentence, and is left as it is."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradtui.lesson.progress import Grade, Progress, ProgressError

Q1 = "day15/q1"


@dataclass
class Lockable:
    """A directory that a test fills, then locks: afterwards its user may read in it and not write."""

    path: Path

    def lock(self) -> None:
        self.path.chmod(0o555)
        if os.getuid() == 0:
            os.seteuid(65534)  # permissions do not bind root


@pytest.fixture
def lockable() -> Iterator[Lockable]:
    if not hasattr(os, "geteuid"):
        pytest.skip("needs POSIX permissions")
    directory = Path(tempfile.mkdtemp())  # tmp_path lies below a directory that only its owner may enter
    yield Lockable(directory)
    os.seteuid(os.getuid())
    directory.chmod(0o755)
    shutil.rmtree(directory)


def refused(path: Path) -> str:
    with pytest.raises(ProgressError) as error:
        Progress(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("content", [b"my notes on LayerNorm", b"x" * 5000, b"SQLite format 3\0" + b"\0" * 200])
def test_a_file_of_another_kind_is_refused_and_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "quiz.sqlite3"
    path.write_bytes(content)
    assert refused(path) == "is not a quiz progress file; move it to another place to start afresh"
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_another_programs_database_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "other.gradtui"
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA journal_mode = wal")
        other.execute("CREATE TABLE frames (step INTEGER)")
    other.close()
    before = path.read_bytes()
    assert refused(path).startswith("is not a quiz progress file; ")
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["truncated", "overwritten"])
def test_a_damaged_file_is_refused_and_untouched(path: Path, damage: str) -> None:
    with Progress(path) as progress:
        for number in range(50):
            progress.grade(f"pack/{number}", "word " * 200, Grade.GOOD)
    whole = path.read_bytes()
    assert len(whole) > 3 * 4096
    middle = len(whole) // 2
    broken = whole[:middle] if damage == "truncated" else whole[:4096] + b"\xff" * (len(whole) - 4096)
    path.write_bytes(broken)
    assert "is damaged" in refused(path)
    assert "start afresh" in refused(path)
    assert path.read_bytes() == broken


def test_a_damaged_schedule_is_named_and_kept(path: Path, progress: Progress) -> None:
    progress.grade(Q1, "x", Grade.GOOD)
    with sqlite3.connect(path) as vandal:
        vandal.execute("UPDATE cards SET card = '{}'")
    vandal.close()
    with pytest.raises(ProgressError, match=r"damaged \(the schedule of 'day15/q1'\); move"):
        progress.due(Q1)
    with pytest.raises(ProgressError, match="damaged"):
        progress.grade(Q1, "y", Grade.GOOD)
    assert [answer.answer for answer in progress.history(Q1)] == ["x"]


def test_a_newer_file_is_refused_not_misread(path: Path) -> None:
    Progress(path).close()
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 7")
    newer.close()
    assert refused(path) == (
        "was written by a newer gradtui (schema 7, this one knows 1); upgrade gradtui to use it"
    )


def test_an_empty_file_is_a_new_one(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with Progress(path) as progress:
        progress.grade(Q1, "x", Grade.GOOD)


def test_a_directory_in_its_place_is_a_sentence(tmp_path: Path) -> None:
    assert refused(tmp_path).startswith("the quiz progress file cannot be opened (")


def test_a_file_in_its_directorys_place_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    assert refused(tmp_path / "data" / "quiz.sqlite3").startswith("the quiz progress file cannot be opened")


def test_a_read_only_directory_is_a_sentence(lockable: Lockable) -> None:
    lockable.lock()
    assert refused(lockable.path / "quiz.sqlite3") == (
        "the quiz progress file cannot be opened for writing; make the file and its directory writable"
    )
    assert "make the file and its directory" in refused(lockable.path / "new" / "quiz.sqlite3")
    assert list(lockable.path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o444, 0o666])
def test_a_file_that_cannot_be_written_is_refused_on_opening(lockable: Lockable, mode: int) -> None:
    path = lockable.path / "quiz.sqlite3"
    Progress(path).close()
    path.chmod(mode)  # with 0o666 it is the journal beside the file that cannot be written
    lockable.lock()
    assert refused(path) == (
        "the quiz progress file is read-only, in a read-only directory, or was moved away; "
        "make the file and its directory writable"
    )


def test_a_closed_progress_says_so(path: Path) -> None:
    progress = Progress(path)
    progress.close()
    with pytest.raises(ProgressError, match="closed"):
        progress.grade(Q1, "x", Grade.GOOD)
