"""The end of a growing log of terminal output: progress bars redraw their line, colours stay, memory is bounded.

Not a terminal: a line can be overwritten and the cursor can go a few lines up, which is what progress bars do.
Whatever else moves a cursor, sets a title or changes a mode is left out, so that no output breaks the screen.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from pathlib import Path

from rich.color import Color
from rich.style import Style
from rich.text import Text

LINES = 5000
LINE_CELLS = 4000  # of one line: what is longer is cut
LIVE_LINES = 24  # how far up nested progress bars may go
READ_BYTES = 1 << 17
TAB = 8

_NOTHING = Style.null()
# An escape sequence in full (CSI, OSC, charset, two characters), a control character, or plain text.
_TOKEN = re.compile(
    r"\x1b\[([0-9;:?<=>]*)[ -/]*([@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[()*+#%].|\x1b[0-9=>A-Z\\a-z]"
    r"|([\x00-\x1f\x7f\x80-\x9f])"
    r"|([^\x00-\x1f\x7f-\x9f]+)"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;:?<=>]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[()*+#%])?$")
LONGEST_ESCAPE = 256

_Cell = tuple[str, Style]


class Terminal:
    """Turns bytes of output into lines; the last few can still change, the others are done with."""

    def __init__(self, lines: int = LINES) -> None:
        self.dropped = 0  # lines that have been forgotten, so that a line keeps its number
        self._limit = lines
        self._done: deque[Text] = deque()
        self._live: list[list[_Cell]] = [[]]
        self._row = self._column = 0
        self._style = _NOTHING
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    @property
    def count(self) -> int:
        """How many lines there have been; an empty last one does not count."""
        return self.dropped + len(self._done) + len(self._live) - (not self._live[-1])

    def line(self, number: int) -> Text:
        """Line `number` of `count`, those that have been dropped counted in; empty where it is not there."""
        at = number - self.dropped
        if 0 <= at < len(self._done):
            return self._done[at]
        at -= len(self._done)
        return _as_text(self._live[at]) if 0 <= at < len(self._live) else Text()

    def feed(self, data: bytes) -> None:
        """Take more output, cut anywhere."""
        text = self._rest + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text)
        self._rest = ""
        if unfinished and len(unfinished.group()) <= LONGEST_ESCAPE:
            text, self._rest = text[: unfinished.start()], unfinished.group()
        for token in _TOKEN.finditer(text):
            parameters, final, control, plain = token.groups()
            if plain is not None:
                self._write(plain)
            elif control is not None:
                self._control(control)
            elif final is not None:
                self._sequence(parameters, final)

    def gap(self, sentence: str) -> None:
        """Begin anew after output that was passed over."""
        self._rest, self._style = "", _NOTHING
        self._decoder.reset()
        self._row, self._column = len(self._live) - 1, 0
        if self._live[-1]:
            self._newline()
        self._style = Style(dim=True)
        self._write(sentence)
        self._style = _NOTHING
        self._newline()

    def _write(self, text: str) -> None:
        row, at = self._live[self._row], self._column
        text = text[: max(LINE_CELLS - at, 0)]
        if at > len(row):
            row += [(" ", _NOTHING)] * (at - len(row))
        row[at : at + len(text)] = [(character, self._style) for character in text]
        self._column = at + len(text)

    def _control(self, character: str) -> None:
        if character == "\n":
            self._newline()
        elif character == "\r":
            self._column = 0
        elif character == "\b":
            self._column = max(self._column - 1, 0)
        elif character == "\t":
            self._write(" " * (TAB - self._column % TAB))
        elif character in "\x0b\x0c":
            self._newline()

    def _newline(self) -> None:
        self._row += 1
        self._column = 0
        if self._row < len(self._live):
            return
        self._live.append([])
        if len(self._live) > LIVE_LINES:
            self._done.append(_as_text(self._live.pop(0)))
            self._row -= 1
            if len(self._done) > self._limit:
                self._done.popleft()
                self.dropped += 1

    def _sequence(self, parameters: str, final: str) -> None:
        if final == "m":
            self._style = _styled(self._style, parameters)
            return
        if parameters[:1] in ("?", "<", "=", ">"):
            return
        head = parameters.split(";")[0]
        number = min(int(head), LINE_CELLS) if head.isdigit() else 0
        row = self._live[self._row]
        if final == "A":
            self._row = max(self._row - max(number, 1), 0)
        elif final == "B":
            self._row = min(self._row + max(number, 1), len(self._live) - 1)
        elif final == "C":
            self._column = min(self._column + max(number, 1), LINE_CELLS)
        elif final == "D":
            self._column = max(self._column - max(number, 1), 0)
        elif final == "F":
            self._row, self._column = max(self._row - max(number, 1), 0), 0
        elif final == "G":
            self._column = max(number - 1, 0)
        elif final == "K" and number == 0:
            del row[self._column :]
        elif final == "K":
            end = len(row) if number == 2 else min(self._column + 1, len(row))
            row[:end] = [(" ", _NOTHING)] * end
            if number == 2:
                row.clear()
        elif final == "J" and number == 0:
            del row[self._column :]
            del self._live[self._row + 1 :]


def _as_text(row: list[_Cell]) -> Text:
    text = Text(no_wrap=True, end="")
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end][1] is not row[start][1]:
            text.append("".join(character for character, _ in row[start:end]), row[start][1])
            start = end
    return text


_ATTRIBUTES: dict[int, Style] = {
    1: Style(bold=True),
    2: Style(dim=True),
    3: Style(italic=True),
    4: Style(underline=True),
    7: Style(reverse=True),
    9: Style(strike=True),
    22: Style(bold=False, dim=False),
    23: Style(italic=False),
    24: Style(underline=False),
    27: Style(reverse=False),
    29: Style(strike=False),
    39: Style(color="default"),
    49: Style(bgcolor="default"),
}


def _styled(style: Style, parameters: str) -> Style:
    """`style` after an SGR sequence; what it does not know leaves it as it is."""
    numbers = [int(part) if part.isdigit() else 0 for part in re.split("[;:]", parameters)]
    while numbers:
        code = numbers.pop(0)
        if code == 0:
            style = _NOTHING
        elif code in (38, 48):
            color, numbers = _extended(numbers)
            if color is not None:
                style += Style(color=color) if code == 38 else Style(bgcolor=color)
        elif code in _ATTRIBUTES:
            style += _ATTRIBUTES[code]
        else:
            for first, offset, background in ((30, 0, False), (40, 0, True), (90, 8, False), (100, 8, True)):
                if first <= code < first + 8:
                    color = Color.from_ansi(code - first + offset)
                    style += Style(bgcolor=color) if background else Style(color=color)
    return style


def _extended(numbers: list[int]) -> tuple[Color | None, list[int]]:
    """A colour of 256 or of 16 million, and the numbers that are left."""
    if len(numbers) >= 2 and numbers[0] == 5:
        return Color.from_ansi(min(numbers[1], 255)), numbers[2:]
    if len(numbers) >= 4 and numbers[0] == 2:
        return Color.from_rgb(*(min(number, 255) for number in numbers[1:4])), numbers[4:]
    return None, []


class Tail:
    """Follows a log file. However much is written to it, a look costs one bounded read."""

    def __init__(self, path: Path, left_out: str = "…") -> None:
        self.path = path
        self.terminal = Terminal()
        self.left_out = left_out  # the sentence in the place of output that was passed over
        self._position = 0

    def poll(self) -> bool:
        """Read what is new; True if there is any. A file that is not there yet is empty."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                if size == self._position:
                    return False
                if size < self._position:  # somebody has emptied it
                    self._position = 0
                start = max(self._position, size - READ_BYTES)
                file.seek(start)
                data = file.read(READ_BYTES)
        except OSError:
            return False
        if start > self._position:
            self.terminal.gap(self.left_out)
            data = data.partition(b"\n")[2] or data
        self._position = start + len(data) if start == self._position else size
        self.terminal.feed(data)
        return True
