"""The run files of a directory, as the picker lists them. Reads only what has changed since the last look."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

from gradtui.analysis.listing import Listed, look, run_files

LIVE = frozenset({"running", "paused"})

_Signature = tuple[int, ...]


@dataclass(slots=True)
class RunDirectory:
    """Follows a directory. `entries` are in the order of the list: live ones first, then the newest."""

    directory: Path
    entries: tuple[Listed, ...] = ()
    _known: dict[Path, tuple[_Signature, Listed]] = field(default_factory=dict)

    def scan(self) -> bool:
        """Look again; True if anything has changed. May be called from a thread of its own."""
        known: dict[Path, tuple[_Signature, Listed]] = {}
        with contextlib.suppress(OSError):
            for path in run_files(self.directory):
                with contextlib.suppress(OSError):  # it is gone since
                    signature, before = _signature(path), self._known.get(path)
                    # Whether a live run's process still lives is not written in any file.
                    if before is None or before[0] != signature or is_live(before[1]):
                        before = (signature, look(path))
                    known[path] = before
        self._known = known
        entries = sorted(
            (entry for _, entry in known.values()),
            key=lambda entry: (not is_live(entry), -entry.started, entry.name),
        )
        changed = tuple(entries) != self.entries
        self.entries = tuple(entries)
        return changed


def is_live(entry: Listed) -> bool:
    """Whether a process is writing it."""
    return entry.status in LIVE


def source_of(entry: Listed) -> str:
    """The script's command line, or the preset with its seed."""
    return entry.what if entry.seed is None else f"{entry.what} s{entry.seed}"


def matches(entry: Listed, text: str) -> bool:
    """Whether any of its words holds `text`."""
    wanted = text.casefold()
    return any(wanted in part.casefold() for part in (entry.name, source_of(entry), entry.status))


def date_of(entry: Listed) -> str:
    """When it began, in local time."""
    then, now = time.localtime(entry.started), time.localtime()
    return time.strftime("%m-%d %H:%M" if then.tm_year == now.tm_year else "%Y-%m-%d", then)


def _signature(path: Path) -> _Signature:
    """Changes whenever the file does; what SQLite has not yet moved into it lies beside it."""
    stats = [path.stat()]
    with contextlib.suppress(OSError):
        stats.append(path.with_name(path.name + "-wal").stat())
    return tuple(number for stat in stats for number in (stat.st_mtime_ns, stat.st_size))
