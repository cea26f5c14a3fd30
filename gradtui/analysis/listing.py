"""The run files of a directory, what each has to say in short, and how they are found by name."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from gradtui.analysis.series import RunSeries
from gradtui.analysis.verdict import Verdict
from gradtui.runs import SUFFIX, RunError
from gradtui.runs.reader import RunReader

BESIDE = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Listed:
    """One run file. `error` says why nothing more is known of it; `size` is in bytes, times are Unix seconds.

    `source` is "preset", "script" or "", `what` the preset's id or the script's command line.
    """

    path: Path
    size: int
    started: float
    ended: float | None = None
    source: str = ""
    what: str = ""
    seed: int | None = None
    steps: int = 0
    status: str = ""
    reason: str = ""
    verdict: Verdict | None = None
    error: str = ""

    @property
    def name(self) -> str:
        """What the run is called: its file's name without the suffix."""
        return self.path.stem


def run_files(directory: Path) -> list[Path]:
    """All run files in `directory`, damaged ones too; [] if there is no such directory."""
    return sorted(path for path in directory.glob(f"*{SUFFIX}") if path.is_file() and path.name[0] != ".")


def list_runs(directory: Path) -> list[Listed]:
    """What is in `directory`, newest first."""
    return sorted(map(look, run_files(directory)), key=lambda run: (-run.started, run.name))


def look(path: Path) -> Listed:
    """One run file in short; one that cannot be read, or is gone by now, is described by `error`."""
    try:
        size, changed = disk_size(path), path.stat().st_mtime
    except OSError as error:
        return Listed(path, 0, 0.0, error=f"{path} cannot be read: {error.strerror}")
    try:
        with contextlib.closing(RunReader(path)) as run:
            facts = run.facts
            preset = facts.get("source", "preset") == "preset"
            what = facts.get("name") if preset else facts.get("script") or facts.get("name")
            started, ended, seed = facts.get("started"), facts.get("ended"), facts.get("seed")
            return Listed(
                path,
                size,
                _time(started) or changed,
                _number(ended),
                "preset" if preset else "script",
                str(what or ""),
                seed if isinstance(seed, int) else None,
                run.recorded,
                run.status,
                str(facts.get("reason") or ""),
                _verdict(run),
            )
    except RunError as error:
        return Listed(path, size, changed, error=str(error))
    except (
        TypeError,
        ValueError,
        OverflowError,
    ) as error:  # of what the file says, something is no text or number
        return Listed(path, size, changed, error=f"{path} is damaged: {error}")


def disk_size(path: Path) -> int:
    """Bytes of a run file and of what SQLite keeps beside it while it is open."""
    size = path.stat().st_size
    for beside in companions(path):
        with contextlib.suppress(OSError):
            size += beside.stat().st_size
    return size


def companions(path: Path) -> list[Path]:
    """What SQLite may keep beside a run file."""
    return [path.with_name(path.name + suffix) for suffix in BESIDE]


def output_of(path: Path) -> Path | None:
    """The kept output of a script's run, where it lies beside the run file and belongs to no other file there."""
    try:
        with contextlib.closing(RunReader(path)) as run:
            output = run.facts.get("output")
    except RunError:
        return None
    if not isinstance(output, str) or not output:
        return None
    log = Path(output)
    beside = log.suffix != SUFFIX and log.parent.absolute() == path.parent.absolute()
    return log if beside and log.is_file() else None


def find(name: str, directory: Path) -> list[Path]:
    """The run files that `name` may mean: a file, a pattern, a name in `directory`, or the beginning of one."""
    with contextlib.suppress(OSError, ValueError):
        if Path(name).is_file():
            return [Path(name)]
    files = run_files(directory)
    exact = [path for path in files if name in (path.stem, path.name)]
    if exact:
        return exact
    if any(sign in name for sign in "*?["):
        return [path for path in files if fnmatchcase(path.stem, name) or fnmatchcase(path.name, name)]
    return [path for path in files if path.stem.startswith(name)] if name else []


def remove(path: Path) -> Iterator[Path]:
    """Remove a run file with all that belongs to it; yields what is gone. Raises RunError."""
    output = output_of(path)
    shared = output is not None and any(
        output_of(other) == output for other in run_files(path.parent) if other.name != path.name
    )
    try:
        path.unlink()
        yield path
        for beside in companions(path):
            beside.unlink(missing_ok=True)
        if output is not None and not shared:
            output.unlink(missing_ok=True)
            yield output
    except OSError as error:
        raise RunError(f"{error.filename or path} cannot be removed: {error.strerror}") from error


def total_size(runs: Iterable[Listed]) -> int:
    """Bytes of all of them."""
    return sum(run.size for run in runs)


def _verdict(run: RunReader) -> Verdict | None:
    view = RunSeries(run).at(None)
    return None if view is None else view.verdict


def _time(value: object) -> float | None:
    """Unix seconds, if a calendar has them."""
    number = _number(value)
    return number if number is not None and 0 < number < 4e9 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
