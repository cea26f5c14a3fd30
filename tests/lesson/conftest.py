"""A learner's progress, at noon."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gradtui.lesson.progress import Progress

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "quiz.sqlite3"


@pytest.fixture
def progress(path: Path) -> Iterator[Progress]:
    with Progress(path, clock=lambda: NOON) as opened:
        yield opened
