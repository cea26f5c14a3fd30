"""Run files by the names that people give on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gradtui import paths
from gradtui.cli.output import printable
from gradtui.errors import USAGE, Failure
from gradtui.runs import SUFFIX

MOST_CANDIDATES = 8


def recorded() -> Path:
    """The directory where runs are recorded unless a command says otherwise."""
    return paths.run_directory(paths.data_directory())


def one_run_file(name: str) -> Path:
    """The run file that `name` means: a file, or one in the data directory; raises Failure otherwise."""
    found = _find(name)
    if len(found) > 1:
        shown = ", ".join(printable(path.stem) for path in found[:MOST_CANDIDATES])
        more = f" and {len(found) - MOST_CANDIDATES} more" if len(found) > MOST_CANDIDATES else ""
        raise Failure(f"{printable(name)!r} may mean {shown}{more}; say more of it", USAGE)
    return found[0]


def run_files(names: Iterable[str]) -> list[Path]:
    """The run files that `names` mean, each once; a name with *, ? or [ may mean several. Raises Failure."""
    found: dict[Path, Path] = {}
    for name in names:
        pattern = any(sign in name for sign in "*?[")
        for path in _find(name) if pattern else [one_run_file(name)]:
            found.setdefault(path.absolute(), path)
    return list(found.values())


def _find(name: str) -> list[Path]:
    """All run files that `name` may mean, at least one; raises Failure."""
    from gradtui.analysis.listing import find

    directory = recorded()
    found = find(name, directory)
    if not found:
        raise Failure(f"there is no run {printable(name)!r}: neither a file, nor a name in {directory}", USAGE)
    for path in found:
        if path.suffix != SUFFIX:
            raise Failure(f"{path} is not a run file: its name does not end in {SUFFIX}", USAGE)
    return found
