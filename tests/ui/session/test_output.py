"""What a script prints, as the output pane keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from gradtui.ui.panels.output_panel import wrapped
from gradtui.ui.session import output as tail_module
from gradtui.ui.session.output import LINE_CELLS, LINES, LIVE_LINES, Tail, Terminal


def lines_after(*chunks: bytes) -> list[str]:
    terminal = Terminal()
    for chunk in chunks:
        terminal.feed(chunk)
    return [terminal.line(number).plain for number in range(terminal.count)]


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b" 10%|#   |\r 50%|##  |\r100%|####|\ndone\n", ["100%|####|", "done"]),
        (b"a longer line\rA short", ["A shortr line"]),
        (b"a longer line\r\x1b[Kshort", ["short"]),
        (b"outer 1\ninner 1\x1b[A\router 2\ninner 2", ["outer 2", "inner 2"]),
        (b"ab\x08c", ["ac"]),
        (b"a\tb", ["a       b"]),
        (b"\x1b]0;a title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", ["textlink"]),
        (b"\x1b[?25l\x1b[2J\x1b[Hall\x1b[?25h", ["all"]),
        (b"[experts] w[/\x1b[1mbold\x1b[0m", ["[experts] w[/bold"]),
        (b"\x00\x07bell\x7f", ["bell"]),
        ("中文 🙂\n".encode(), ["中文 🙂"]),
        (b"\xff\xfe", ["\ufffd\ufffd"]),
    ],
)
def test_output_reads_as_in_a_terminal(output: bytes, lines: list[str]) -> None:
    assert lines_after(output) == lines


@given(st.binary(max_size=300))
def test_no_output_at_all_breaks_it_or_leaves_a_control_character(output: bytes) -> None:
    for line in lines_after(output):
        assert not any(ord(character) < 32 or character == "\x7f" for character in line)


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\x1b[31m", b"\x1b[0m", b"\x1b[K", "中".encode()]), max_size=40)
)
def test_where_the_output_is_cut_makes_no_difference(parts: list[bytes]) -> None:
    output = b"".join(parts)
    assert lines_after(*(bytes([byte]) for byte in output)) == lines_after(output)


def test_colours_of_the_output_are_kept() -> None:
    terminal = Terminal()
    terminal.feed(b"\x1b[31mred\x1b[1;38;2;1;2;3mbold\x1b[0m plain \x1b[38;5;200mx\x1b[999m")
    line = terminal.line(0)
    styles = {line.plain[span.start : span.end]: span.style for span in line.spans}
    assert styles["red"].color.number == 1  # type: ignore[union-attr]
    assert styles["bold"].bold  # type: ignore[union-attr]
    assert styles["bold"].color.triplet == (1, 2, 3)  # type: ignore[union-attr]
    assert "color(200)" in str(styles["x"])


def test_memory_is_bounded_however_much_is_printed() -> None:
    terminal = Terminal(lines=100)
    for number in range(1000):
        terminal.feed(f"line {number}\n".encode())
    assert terminal.count == 1000
    assert terminal.line(999).plain == "line 999"
    assert terminal.line(terminal.dropped).plain == f"line {terminal.dropped}"
    assert 1000 - terminal.dropped <= 100 + LIVE_LINES
    terminal.feed(b"x" * 3 * LINE_CELLS)
    assert len(terminal.line(1000).plain) == LINE_CELLS
    assert LINES < 100_000


def test_a_log_is_followed_and_a_flood_is_passed_over_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "READ_BYTES", 1000)
    log = tmp_path / "log"
    tail = Tail(log, "left out")
    assert not tail.poll()
    log.write_bytes(b"one\n")
    assert tail.poll()
    assert not tail.poll()
    with log.open("ab") as file:
        file.write(b"".join(b"line %d\n" % number for number in range(1000)))
    assert tail.poll()
    terminal = tail.terminal
    lines = [terminal.line(number).plain for number in range(terminal.count)]
    assert lines[:2] == ["one", "left out"]
    assert lines[-1] == "line 999"
    assert all(line.startswith("line ") for line in lines[2:])
    log.write_bytes(b"anew\n")
    assert tail.poll()
    assert terminal.line(terminal.count - 1).plain == "anew"


@given(st.text(alphabet="ab中🙂\u0301 ", max_size=60), st.integers(2, 20))
def test_wide_lines_are_wrapped_and_nothing_is_lost(text: str, width: int) -> None:
    rows = wrapped(Text(text), width)
    assert "".join(row.plain for row in rows) == text
    assert all(cell_len(row.plain) <= width for row in rows)
