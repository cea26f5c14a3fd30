"""Where gradtui keeps what it writes."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
import time
from pathlib import Path

import platformdirs

SUFFIX = ".gradtui"  # of a run file

_numbers = itertools.count(1)


def data_directory() -> Path:
    """Run files, quiz progress, screenshots: $GRADTUI_DATA_DIR, else the platform's data directory."""
    chosen = os.environ.get("GRADTUI_DATA_DIR")
    if chosen:
        try:
            return Path(chosen).expanduser().absolute()
        except (OSError, RuntimeError):  # no such user, or no current directory: refused where it is used
            return Path(chosen)
    return Path(platformdirs.user_data_dir("gradtui", appauthor=False))


def usable_data_directory() -> tuple[Path, str]:
    """The data directory, or a temporary one and the reason why if that cannot be written."""
    wanted = data_directory()
    reason = why_not_writable(wanted)
    if not reason:
        return wanted, ""
    return Path(tempfile.mkdtemp(prefix="gradtui-")), reason


def why_not_writable(directory: Path) -> str:
    """Why no file can be made in `directory` (created if missing), or nothing if one can."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Permission bits are not enough: root may write where they say no, and no user may on a full disk.
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".writable-") as file:
            file.write(b"gradtui")
            file.flush()
    except OSError as error:
        return f"{directory} cannot be written: {error.strerror}"
    return ""


def new_run_path(directory: Path, name: str, seed: int | None = None) -> Path:
    """A name that no run file of this or any other process has, made of preset or script, seed and time."""
    # The file itself is made later, by another process: only a number keeps two calls in a second apart.
    stamp = time.strftime("%Y%m%d-%H%M%S")
    safe = re.sub(r"[^\w.+=-]+", "_", name)[:80].lstrip(".") or "run"
    about = safe if seed is None else f"{safe}-s{seed}"
    return directory / f"{about}-{stamp}-{os.getpid()}-{next(_numbers)}{SUFFIX}"


def run_directory(data: Path) -> Path:
    """Where run files go, under the data directory `data`."""
    return data / "runs"


def log_directory(data: Path) -> Path:
    """Where log files go."""
    return data / "logs"


def screenshot_directory(data: Path) -> Path:
    """Where saved screens go."""
    return data / "screenshots"


def quiz_progress(data: Path) -> Path:
    """Where the learner's progress is kept."""
    return data / "quiz.sqlite3"
