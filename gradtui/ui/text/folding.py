"""Lines of a given width: folding between words and Chinese characters, and texts at both ends of a line. Pure."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

# Never at the head of a line, in Chinese typography; never at its end.
NOT_FIRST, NOT_LAST = frozenset("，。；：、？！）》」』”’%×"), frozenset("（《「『“‘")


def fold(text: Text, width: int) -> Text:
    """`text` in lines of at most `width` cells: between words, and between Chinese characters."""
    lines = [
        line
        for paragraph in text.split("\n", allow_blank=True)
        for line in paragraph.divide(_breaks(paragraph.plain, width))
    ]
    for line in lines:
        line.rstrip()
    folded = Text("\n", no_wrap=True).join(lines)
    folded.no_wrap = True
    return folded


def _breaks(plain: str, width: int) -> list[int]:
    """Where to break a paragraph: the offsets at which lines begin, the first one left out."""
    breaks: list[int] = []
    start = room = 0  # of the line in hand: where it begins, how wide it is
    best = -1  # where it could be broken
    for at, character in enumerate(plain):
        size, before = cell_len(character), plain[at - 1] if at else " "
        wide = size == 2 or cell_len(before) == 2
        if at > start and (before == " " or wide) and character not in NOT_FIRST and before not in NOT_LAST:
            best = at
        while room and room + size > width and character != " ":
            start = best if best > start else at
            breaks.append(start)
            best, room = -1, cell_len(plain[start:at])
        room += size
    return breaks


def spread(left: Text, right: Text, width: int) -> Text:
    """`left` and `right` at the two ends of a line of `width` cells; the left is cut first."""
    room = width - right.cell_len
    if room < 8:
        right, room = Text(), width
    left = left.copy()
    left.truncate(max(room - 1, 0), overflow="ellipsis", pad=False)
    gap = max(width - left.cell_len - right.cell_len, 0)
    return Text.assemble(left, " " * gap, right)
