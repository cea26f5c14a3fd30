"""What several commands print: notices, a progress bar, text that comes from files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gradtui import paths


def notice(sentence: str) -> None:
    """A sentence on stderr, with the program's name before it."""
    click.echo(f"gradtui: {sentence}", err=True)


def writable_data_directory(consequence: str, *, quiet: bool = False) -> Path:
    """The data directory; where it cannot be written, a temporary one, with a notice that says why.

    The notice reads "(reason); `consequence` in (directory)"; there is none if `quiet`.
    """
    data, reason = paths.usable_data_directory()
    if reason and not quiet:
        notice(f"{reason}; {consequence} in {data}")
    return data


def progress_bar(length: int, label: str) -> Any:
    """click's progress bar on stderr, which shows nothing where stderr is no terminal."""
    # hidden=None would draw a bar into a log file.
    hidden = sys.stderr is None or not sys.stderr.isatty()
    return click.progressbar(length=length, label=label, file=sys.stderr, hidden=hidden)


def printable(text: str) -> str:
    """`text` with � for each character that a terminal would obey or not show."""
    return "".join(sign if sign.isprintable() else "�" for sign in text)


def file_size(count: int) -> str:
    """`count` bytes in the unit that fits: 999 B, 1.0 kB, 4.4 MB."""
    size, units = float(count), ("B", "kB", "MB", "GB", "TB")
    for unit in units[:-1]:
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.0f} TB" if size >= 99.5 else f"{size:.1f} TB"
