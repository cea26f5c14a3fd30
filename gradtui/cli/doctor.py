"""`gradtui doctor`: what there is to know about this machine, terminal and installation."""

from __future__ import annotations

import importlib.metadata
import locale
import os
import platform
import re
import select
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from gradtui import __version__, paths
from gradtui.cli.options import presets_option
from gradtui.errors import FAILURE
from gradtui.presets import Library, load_library, shipped_directory, user_directory

PACKAGES = ("textual", "torch", "numpy", "plotext", "msgspec", "click", "platformdirs", "fsrs")
# The charts' dot is "ambiguous" in Unicode: some terminals give it two columns, as every Chinese character has.
AMBIGUOUS, WIDE = "●", "中"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `good` is False where gradtui cannot work as it should."""

    name: str
    text: str
    good: bool = True


@click.command()
@presets_option()
def doctor(directories: tuple[Path, ...]) -> None:
    """Versions, device, threads, terminal, directories: what to send with a question."""
    problems = 0
    for finding in examine(load_library(directories)):
        problems += not finding.good
        click.echo(f"{'✓' if finding.good else '✗'} {finding.name:22} {finding.text}")
    sys.exit(FAILURE if problems else 0)


def examine(library: Library) -> Iterator[Finding]:
    """All findings, cheapest first."""
    yield Finding("gradtui", f"{__version__} on Python {platform.python_version()}, {platform.platform()}")
    yield Finding("packages", ", ".join(f"{name} {_version(name)}" for name in PACKAGES))
    yield from _torch()
    yield from _terminal()
    yield from _directories()
    yield from _presets(library)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _torch() -> Iterator[Finding]:
    try:
        import torch

        from gradtui.engine.__main__ import usable_cores
        from gradtui.engine.process_setup import available_devices
    except Exception as error:
        yield Finding("torch", f"cannot be imported: {type(error).__name__}: {error}", good=False)
        return
    found = available_devices()
    name = torch.cuda.get_device_name() if "cuda" in found else platform.processor() or platform.machine()
    yield Finding("device", f"{found[0]} ({name}); available: {', '.join(found)}")
    yield Finding("threads", f"{usable_cores()} usable cores: as many presets train at once, one thread each")


def _terminal() -> Iterator[Finding]:
    from gradtui.ui.session.layout import LEAST_HEIGHT, LEAST_WIDTH

    size = shutil.get_terminal_size()
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    term = os.environ.get("TERM", "")
    if not on_terminal:
        yield Finding("terminal", f"TERM={term or 'unset'}; this output goes elsewhere, nothing to find out")
    else:
        fits = size.columns >= LEAST_WIDTH and size.lines >= LEAST_HEIGHT and term not in ("", "dumb", "unknown")
        yield Finding(
            "terminal",
            f"TERM={term}, {size.columns}×{size.lines}; the lab needs {LEAST_WIDTH}×{LEAST_HEIGHT}",
            fits,
        )
    yield Finding("colours", _colours(term))
    yield Finding("encoding", f"{sys.stdout.encoding}, locale {'.'.join(map(str, locale.getlocale()))}")
    if on_terminal and os.name == "posix":
        yield _widths()


def _colours(term: str) -> str:
    if os.environ.get("NO_COLOR"):
        return "none (NO_COLOR is set): shapes and shades carry the meaning"
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return "16 million"
    if "256" in term:
        return "256 (COLORTERM=truecolor would tell of more)"
    return "16: the heat map uses shades" if term not in ("", "dumb", "unknown") else "none"


def _widths() -> Finding:
    """Ask the terminal where its cursor stands after a wide and after an ambiguous character."""
    wide, ambiguous = _measure(WIDE), _measure(AMBIGUOUS)
    if wide is None or ambiguous is None:
        return Finding("character widths", "the terminal does not answer where its cursor is; not measured")
    good = wide == 2 and ambiguous == 1
    text = f"{WIDE} takes {wide} columns, {AMBIGUOUS} takes {ambiguous}"
    hint = "" if good else "; expected 2 and 1: set the terminal's ambiguous width to narrow"
    return Finding("character widths", text + hint, good)


def _measure(character: str, timeout: float = 0.5) -> int | None:
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(f"\r{character}\x1b[6n")
        sys.stdout.flush()
        answer, deadline = "", time.monotonic() + timeout
        while not answer.endswith("R") and time.monotonic() < deadline:
            if select.select([descriptor], [], [], 0.05)[0]:
                answer += os.read(descriptor, 32).decode("ascii", "replace")
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write("\r\x1b[K")
        sys.stdout.flush()
    match = re.search(r"\x1b\[\d+;(\d+)R", answer)
    return int(match.group(1)) - 1 if match else None


def _directories() -> Iterator[Finding]:
    data = paths.data_directory()
    reason = paths.why_not_writable(data)
    yield Finding("data directory", f"{data} ({'not writable: ' + reason if reason else 'writable'})", not reason)
    if not reason:
        runs = list(paths.run_directory(data).glob("*.gradtui"))
        size = sum(path.stat().st_size for path in runs)
        yield Finding("run files", f"{len(runs)} in {paths.run_directory(data)}, {size / 2**20:.1f} MiB")


def _presets(library: Library) -> Iterator[Finding]:
    where = f"shipped {_short(shipped_directory())}, your own {user_directory()}"
    yield Finding("presets", f"{len(library.presets)} ({where})", bool(library.presets))
    for error in library.errors:
        yield Finding("preset", str(error), good=False)


def _short(path: Path) -> str:
    return str(path).replace(str(Path.home()), "~", 1)
