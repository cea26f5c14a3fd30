"""Which rows of a run file go when its length is bounded, and from which of the others a window is read.

Level 0 are the frames, level k the buckets of 16ᵏ steps. Each level keeps its first rows, where a collapse
happens, and its newest ones; between them lies a gap that the next level covers. The last level has no gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gradtui.runs.schema import PYRAMID_FACTOR, PYRAMID_LEVELS

HEAD_ROWS = 256  # kept at the beginning of every level
LEVEL_ROWS = 1024  # newest buckets that every level of the pyramid keeps

Gap = tuple[int, int]  # start ≤ step < stop
Piece = tuple[int, int, int]  # level, start, stop: the rows of that level at steps start ≤ s < stop


class Level:
    """One level while it grows. Its gap begins and ends where buckets of the next level do."""

    def __init__(self, level: int, keep: int) -> None:
        self._span = int(PYRAMID_FACTOR ** (level + 1))  # steps in a bucket of the next level
        self._keep = keep
        self._head_rows = 0
        self._head_parent = -1
        self._start: int | None = None
        self._stop = 0
        self._tail: deque[list[int]] = deque()  # [bucket of the next level, rows of this level in it]
        self._rows = 0  # in the tail

    @property
    def gap(self) -> Gap | None:
        """The steps whose rows are gone."""
        return (self._start, self._stop) if self._start is not None and self._stop > self._start else None

    @property
    def head(self) -> int | None:
        """The first step after the head; None while that still grows."""
        return self._start

    def add(self, step: int, least: int | None) -> None:
        """A row that begins at `step`; steps increase. The head does not end before `least` (None: not yet)."""
        parent = step // self._span
        if self._start is None:
            whole = parent != self._head_parent and least is not None and parent * self._span >= least
            if self._head_rows < HEAD_ROWS or not whole:
                self._head_rows += 1
                self._head_parent = parent
                return
            self._start = self._stop = parent * self._span
        if not self._tail or self._tail[-1][0] != parent:
            self._tail.append([parent, 0])
        self._tail[-1][1] += 1
        self._rows += 1

    def drop(self, limit: int) -> Gap | None:
        """Widen the gap, up to step `limit` at most, as long as enough rows are left; returns what it gained."""
        before = self._stop
        while len(self._tail) > 1 and self._rows - self._tail[0][1] >= self._keep:
            end = self._tail[1][0] * self._span
            if end > limit:
                break
            self._rows -= self._tail.popleft()[1]
            self._stop = end
        return (before, self._stop) if self._stop > before else None


class Thinner:
    """All levels together: `keep` newest frames, and as many buckets as every window needs."""

    def __init__(self, keep: int) -> None:
        self._levels = [Level(level, LEVEL_ROWS if level else keep) for level in range(PYRAMID_LEVELS)]
        self._newest = [-1] * PYRAMID_LEVELS

    def add(self, step: int) -> None:
        """A frame has been recorded, and is part of a bucket at every level."""
        head: int | None = 0
        for level, one in enumerate(self._levels):
            row = step // PYRAMID_FACTOR**level
            if row == self._newest[level]:
                return
            self._newest[level] = row
            # A level's gap lies within that of the level below it: what a finer level has lost must be found in
            # whole buckets of the next.
            one.add(row * PYRAMID_FACTOR**level, head)
            head = one.head

    def drop(self) -> list[tuple[int, Gap]]:
        """(level, steps) of the rows that are to be removed now."""
        dropped = []
        limit = 1 << 62
        for level, one in enumerate(self._levels):
            more = one.drop(limit)
            if more is not None:
                dropped.append((level, more))
            gap = one.gap
            if gap is None:
                break
            limit = gap[1]
        return dropped

    @property
    def gaps(self) -> list[Gap]:
        """The gap of each level, from the frames up, as far as there are any."""
        return [one.gap for one in self._levels if one.gap is not None]


def level_of(steps: int, columns: int) -> int:
    """The coarsest level that has at least `columns` rows for `steps` steps; 0 is single steps."""
    level = 0
    while level < PYRAMID_LEVELS and steps > PYRAMID_FACTOR ** (level + 1) * max(columns, 1):
        level += 1
    return level


def plan(start: int, stop: int, level: int, gaps: Sequence[Gap]) -> list[Piece]:
    """The pieces that cover steps start ≤ s < stop, in order; at `level`, or above where its rows are gone.

    `gaps` are those of each level, from the frames up.
    """
    if level >= len(gaps):
        return [(level, start, stop)]
    lost, found = gaps[level]
    pieces = []
    if start < min(stop, lost):
        pieces.append((level, start, min(stop, lost)))
    middle = max(start, lost), min(stop, found)
    if middle[0] < middle[1]:
        pieces += plan(*middle, level + 1, gaps)
    if max(start, found) < stop:
        pieces.append((level, max(start, found), stop))
    return pieces
